"""The NCCL graph XML reader: chosen channels are evidence, not hardware."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.nccl_graph_xml import FORMAT, looks_like, read
from meshwright.cluster.readers.xml_root import root_tag
from meshwright.errors import InputError
from meshwright.findings import Severity
from support import FIXTURES
from topology_samples import (
    check_counts,
    facts_or_input_error,
    finding_of,
    mutated,
    rows_of,
    rules,
)

_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.iterdir())


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    rows = rows_of(FORMAT)
    assert len(rows) == 2
    for row in rows:
        facts = read(Path(row["path"]).read_text(), row["file"])
        check_counts(facts, row)
        assert facts.counts == {"graphs": 3, "channels": 10}
        graphs = finding_of(facts, "graph-channels").numbers["graphs"]
        assert isinstance(graphs, list)
        assert [(g["id"], g["pattern"], g["channels"]) for g in graphs] == [
            (0, "ring", 2),
            (1, "balanced tree", 4),
            (2, "tree", 4),
        ]
        assert {g["intra_bytes_per_s"] for g in graphs} == {12e9}
        assert {(g["intra_class"], g["inter_class"]) for g in graphs} == {("SYS", "PIX")}
        assert rules(facts) == ["graph-channels"]


def test_devices_by_number_with_nets() -> None:
    facts = _fixture("nets.xml")
    assert [(gpu.index, gpu.name) for gpu in facts.gpus or ()] == [(2, "2"), (5, "5")]
    assert [(nic.index, nic.name) for nic in facts.nics or ()] == [(0, "0"), (1, "3")]
    assert facts.hosts is None
    assert facts.counts == {"graphs": 2, "channels": 2}
    found = finding_of(facts, "graph-channels")
    assert found.severity is Severity.NOTE
    assert found.numbers["graphs"] == [
        {
            "id": 0,
            "pattern": "ring",
            "channels": 2,
            "intra_bytes_per_s": 20e9,
            "inter_bytes_per_s": 24.5e9,
            "intra_class": "NVL",
            "inter_class": "PXB",
        },
        {
            "id": 3,
            "pattern": "9",
            "channels": 0,
            "intra_bytes_per_s": 0.0,
            "inter_bytes_per_s": None,
            "intra_class": "NVL",
            "inter_class": None,
        },
    ]
    differs = finding_of(facts, "channel-count-differs")
    assert differs.numbers == {"stated": 4, "listed": 0}
    assert (differs.place.line, differs.place.column) == (18, 3)


def test_several_hosts_are_kept_apart() -> None:
    facts = _fixture("two_hosts.xml")
    assert facts.hosts == ("0x1c", "0x2d")
    assert [(gpu.index, gpu.name, gpu.host) for gpu in facts.gpus or ()] == [
        (0, "0x1c/0", "0x1c"),
        (1, "0x1c/1", "0x1c"),
        (2, "0x2d/0", "0x2d"),
    ]
    assert [(nic.name, nic.host) for nic in facts.nics or ()] == [("0x2d/0", "0x2d")]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "t.xml:1:1", "empty"),
        ("\x00\x01\xff" * 9, "t.xml:1:1", "not well-formed"),
        ("<system/>", "t.xml:1:1", "the root element is system"),
        ("\n<graphs/>", "t.xml:2:1", "no graph element"),
        ("<graphs><graph id='one'/></graphs>", "t.xml:1:9", "no integer"),
        (f"<graphs><graph id='{'9' * 60}'/></graphs>", "t.xml:1:9", "no integer"),
        ("<graphs><graph speedintra='1e99'/></graphs>", "t.xml:1:9", "no rate"),
        ("<graphs><graph speedintra='nan'/></graphs>", "t.xml:1:9", "no rate"),
        ("<graphs><graph><channel><gpu/></channel></graph></graphs>", "t.xml:1:25", "dev of gpu"),
        ("<graphs><graph><channel><net dev='-1'/></channel></graph></graphs>", ":25", "dev of net"),
        ("<graphs>" + "<graph/>" * 65 + "</graphs>", "t.xml:1:521", "more than 64"),
        ("<graphs>" + "<graph>" * 90 + "</graph>" * 90 + "</graphs>", "t.xml:1:450", "deeper"),
        ("<!DOCTYPE graphs SYSTEM 'a.dtd'><graphs/>", "t.xml:1:", "DOCTYPE"),
    ],
)
def test_unreadable_files(text: str, place: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "t.xml")
    (problem,) = caught.value.problems
    assert message in problem.message
    assert place in str(problem.place)


def test_truncated_file_is_an_error() -> None:
    text = _text("nets.xml")
    with pytest.raises(InputError, match="cut off"):
        read(text[: text.index("</graphs>")], "t.xml")


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("<graphs>", "graphs"),
        ("\ufeff\n <?xml version='1.0'?>\n<!-- <a> --><!-- b -->\n<a.b-c x='1'>", "a.b-c"),
        ("<!DOCTYPE t SYSTEM 't.dtd'>\n<!-- c --><t/>", "t"),
        ("<!-- open <t>", None),
        ("text <t>", None),
        ("<t", None),
        ("", None),
        ("<!-- -->" * 50_000 + "<t>", "t"),
        ("<!--" * 100_000, None),
    ],
)
def test_root_tag(text: str, tag: str | None) -> None:
    assert root_tag(text) == tag


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, "0123456789x-."), looks_like, read)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@pytest.mark.parametrize(
    "text", ["<graphs>" + "<a/>" * 250_000, "<graphs a='" + "9" * 5_000_000, " " * 5_000_000]
)
def test_hostile_text_is_refused(text: str) -> None:
    assert facts_or_input_error(text, looks_like, read) is None
