"""``ibsim`` net files: node ids for GUIDs, no rates, each cable once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ib_links import check_x_info
from meshwright.cluster.facts import Cable, Facts
from meshwright.cluster.readers.ibsim_net import FORMAT, looks_like, read
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
_SMALL = (_HERE / "small.net").read_text()
_PAIR = 'Switch 8 "S"\n[1] "H"[2]\n\nHca 2 "H"\n[2] "S"[1]\n'


def _read(text: str) -> Facts:
    return read(text, "n.net")


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    rows = rows_of(FORMAT)
    assert len(rows) == 1
    for row in rows:
        facts = read(Path(row["path"]).read_text(), row["file"])
        check_counts(facts, row | {"x_info": ""})
        check_x_info(facts, row)
        assert [nic.name for nic in facts.nics or ()] == ["Hca1", "Hca2", "Hca3", "Hca4"]
        assert {cable.listed_twice for cable in facts.cables or ()} == {True}
        assert Cable("Switch1", "Switch2", 5, 5) in (facts.cables or ())
        assert rules(facts) == ["rate-not-stated"]


def test_small_fabric() -> None:
    facts = _read(_SMALL)
    assert [(s.id, s.name, s.guid) for s in facts.switches or ()] == [
        ("Rim1", "Rim1", None),
        ("Rim2", "Rim2", None),
        ("Top", "top of the tree", None),
    ]
    assert [(n.index, n.host, n.name, n.guid, n.port) for n in facts.nics or ()] == [
        (0, "ax1", "HCA-1", "box1", 1),
        (1, None, "box2", "box2", 1),
    ]
    assert facts.hosts == ("ax1",)
    assert facts.other_devices == ()
    assert facts.cables == (
        Cable("Rim1", "box1", 1, 1),
        Cable("Rim1", "box2", 2, 1),
        Cable("Rim1", "Top", 17, 1),
        Cable("Rim1", "Top", 18, 2),
        Cable("Rim2", "box1", 1, 2),
        Cable("Rim2", "Top", 17, 3),
    )
    assert rules(facts) == ["nic-without-host", "rate-not-stated"]
    assert finding_of(facts, "rate-not-stated").severity is Severity.NOTE


def test_without_descriptions_hosts_are_unknown() -> None:
    facts = _read(_PAIR)
    assert facts.hosts is None
    assert [(nic.host, nic.name) for nic in facts.nics or ()] == [(None, "H")]
    assert rules(facts) == ["rate-not-stated"]


def test_a_router_is_no_adapter() -> None:
    facts = _read(_PAIR.replace("Hca", "Rt"))
    assert [(one.name, one.kind) for one in facts.other_devices or ()] == [("", "router")]
    assert facts.nics == ()


def test_ends_that_disagree_are_reported() -> None:
    facts = _read(_PAIR.replace('"S"[1]', '"S"[7]'))
    assert len(facts.cables or ()) == 2
    assert {"port-listed-twice", "cable-listed-once"} <= set(rules(facts))


def test_looks_like_by_content() -> None:
    assert looks_like(_PAIR)
    assert looks_like(_PAIR.replace("Hca", "Ca"))
    assert not looks_like('Switch 36 "S-0001"\n[1] "H-0002"[1] # "a b" lid 1 4xNDR\n')
    assert not looks_like("Switch=a Nodes=b\n")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "n.net:1:1", "empty"),
        ("# nothing\nwidth=4\n", "n.net:1:1", "no Switch or Hca record"),
        ("Hca\x00", "n.net:1:4", "binary"),
        ('[1] "H"[2]\n', "n.net:1:1", "no line of an ibsim net file"),
        (_PAIR + "rubbish\n", "n.net:6:1", "no line of"),
        (_PAIR[:-3], "n.net:5:1", "cut off within this line"),
        (_PAIR[: _PAIR.index("Hca")], "n.net:2", "has no record of its own"),
        (_PAIR + 'Hca 1 "S"\n', "n.net:6:8", "used twice"),
        (_PAIR.replace("[1] ", "[9] "), "n.net:2:1", "port 9 of 'S', which has 8"),
        (_PAIR.replace("[1] ", f"[{'9' * 40}] "), "n.net:2:1", "no line of"),
        ('include "other"\n' + _PAIR, "n.net:1:1", "not read"),
        (_PAIR + '@[1] "alias"\n', "n.net:6:1", "not read"),
        (_PAIR + "x" * 5_000_000, "n.net:6:1", "longer than"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        _read(text)
    assert place in str(caught.value)
    assert words in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_mutated_text_gives_facts_or_an_input_error(data: st.DataObject) -> None:
    facts_or_input_error(mutated(_SMALL, data, '0123456789x[]" '), looks_like, read)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@pytest.mark.parametrize("text", ["Hca" + "1" * 5_000_000, ("Hca 1 " + '"' * 4000 + "\n") * 1000])
def test_hostile_text_is_refused(text: str) -> None:
    assert facts_or_input_error(text, looks_like, read) is None
