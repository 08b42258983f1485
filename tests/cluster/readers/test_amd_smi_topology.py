"""The ``amd-smi topology`` reader: tables by PCI address, links of a pair, and anything else as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, NvlinkPair
from meshwright.cluster.readers.amd_smi_topology import FORMAT, looks_like, read
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
_NAMES = sorted(path.name for path in _HERE.glob("*.txt"))
_START = "WEIGHT TABLE:\n 0000:0c:00.0\n0000:0c:00.0 0\nLINK TYPE TABLE:\n"


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


def _error(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text, "t.txt")
    return caught.value


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    rows = rows_of(FORMAT)
    assert len(rows) == 2
    for row in rows:
        check_counts(read(Path(row["path"]).read_text(), row["file"]), row)


@pytest.mark.captured
def test_captured_samples_give_links_and_access() -> None:
    by_name = {Path(row["path"]).stem: Path(row["path"]).read_text() for row in rows_of(FORMAT)}
    full = read(by_name["mi300x_8gpu_tables"], "t")
    assert full.findings == ()
    assert {cell for row in full.gpu_gpu_class or () for cell in row} == {"X", "NV1"}
    assert [gpu.pci for gpu in full.gpus or ()][:2] == ["0000:0c:00.0", "0000:22:00.0"]
    radeon = read(by_name["radeon_2gpu_pcie_disabled"], "t")
    assert radeon.gpu_gpu_class == (("X", "PHB"), ("PHB", "X"))
    assert radeon.peer_access == (("X", "NS"), ("NS", "X"))
    assert rules(radeon) == ["peer-access-off"]


def test_zero_weight_and_bandwidth_are_unknown() -> None:
    facts = _fixture("zero_weights_4gpu.txt")
    assert [(gpu.index, gpu.name, gpu.pci) for gpu in facts.gpus or ()][:2] == [
        (0, "0001:0A:00.0", "0001:0a:00.0"),
        (1, "0001:1b:00.0", "0001:1b:00.0"),
    ]
    assert len(facts.nvlink_pairs or ()) == 6
    assert {pair.count for pair in facts.nvlink_pairs or ()} == {1}
    assert rules(facts) == ["xgmi-taken-as-direct", "xgmi-bandwidth-unknown"]
    assert {finding.severity for finding in facts.findings} == {Severity.NOTE}
    assert facts.peer_access is not None
    assert facts.peer_access[3] == ("OK", "OK", "OK", "X")
    assert (facts.nics, facts.numa_ids, facts.hosts, facts.nvswitches) == (None,) * 4


def test_links_of_a_pair_by_bandwidth_and_pairs_without() -> None:
    facts = _fixture("uneven_links_4gcd.txt")
    assert facts.nvlink_pairs == (
        NvlinkPair(0, 1, 4, via_switch=False),
        NvlinkPair(0, 2, 1, via_switch=False),
        NvlinkPair(1, 3, 2, via_switch=False),
        NvlinkPair(2, 3, 4, via_switch=False),
    )
    assert facts.gpu_gpu_class is not None
    assert facts.gpu_gpu_class[0] == ("X", "NV4", "NV1", "unknown")
    assert finding_of(facts, "xgmi-indirect").numbers["count"] == 2
    assert facts.peer_access is None


def test_bandwidth_alone_tells_a_pair_without_link() -> None:
    text = _text("uneven_links_4gcd.txt").replace("30 ", "0  ").replace("30\n", "0\n")
    assert read(text, "t").nvlink_pairs == _fixture("uneven_links_4gcd.txt").nvlink_pairs


def test_access_by_direction_unknown_cells_and_an_errors_text() -> None:
    facts = _fixture("access_differs_3gpu.txt")
    assert facts.peer_access == (("X", "OK", "U"), ("NS", "X", "OK"), ("U", "OK", "X"))
    assert facts.gpu_gpu_class == (
        ("X", "PHB", "unknown"),
        ("PHB", "X", "SYS"),
        ("unknown", "SYS", "X"),
    )
    assert facts.nvlink_pairs == ()
    assert rules(facts) == ["peer-access-differs", "peer-access-off", "peer-access-off"]
    assert facts.findings[0].place.line == 4


def test_log_prefix() -> None:
    text = _text("uneven_links_4gcd.txt")
    prefixed = "\n".join(f"2031-01-02 INFO {line}" if line else "" for line in text.split("\n"))
    assert looks_like(prefixed)
    assert read(prefixed, "t").nvlink_pairs == read(text, "t").nvlink_pairs


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            "XGMI         SELF         XGMI ",
            "XGMI         XGMI         SELF ",
            4,
            "has XGMI under itself",
        ),
        (
            "SELF         XGMI         XGMI         XGMI",
            "SELF         XGMI         XGMI",
            3,
            "has 3 cells",
        ),
        ("0            15 ", "0            1x ", 10, "unknown cell '1x'"),
        ("0            15 ", "0            99999999999 ", 10, "unknown cell '99999999999'"),
        ("0001:3d:00.0 30 ", "0001:3e:00.0 30 ", 13, "no column of its own"),
    ],
)
def test_broken_tables_are_errors(old: str, new: str, line: int, message: str) -> None:
    text = _text("uneven_links_4gcd.txt")
    assert old in text
    problem = _error(text.replace(old, new, 1)).problems[0]
    assert message in problem.message
    assert problem.place.line == line


def test_cut_off_between_and_within_tables() -> None:
    text = _text("zero_weights_4gpu.txt")
    (problem,) = _error(text[: text.index("HOPS TABLE") + 12]).problems
    assert "no line of GPU labels follows" in problem.message
    assert problem.place.line == 13
    (problem,) = _error(text[: text.index("ATOMICS TABLE") + 90]).problems
    assert "the matrix is cut off" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "WEIGHT TABLE:\n" * 100_000,
        "WEIGHT TABLE:\n" + "0000:0c:00.0 " * 400_000,
        "WEIGHT TABLE:\n0000:0c:00.0\n0000:0c:00.0 " + "1" * 5_000_000,
        "NUMA BW TABLE:\n0000:0c:00.0\n0000:0c:00.0 " + "1-1 " * 20_000,
        "A" * 5_000_000 + " TABLE:",
        " TABLE:" * 700_000,
        "WEIGHT TABLE:\n0000:0c:00.0\n0000:0c:00.0 0\n" * 50_000,
    ],
)
def test_hostile_text_ends(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, "0123456789-:XGMISELF"), looks_like, read)


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="WEIGHT ABL:0123cf.\t\nXMPCSF/-N", max_size=300))
def test_noise_gives_facts_or_an_input_error(text: str) -> None:
    facts_or_input_error(_START + text, looks_like, read)


@pytest.mark.parametrize("text", ["", "\n\n", "GPU0 and GPU1 were OK", "\x00\x01\xff" * 400])
def test_no_such_output(text: str) -> None:
    assert not looks_like(text)
    (problem,) = _error(text).problems
    assert str(problem.place) == "t.txt:1:1"
    assert problem.remedy
