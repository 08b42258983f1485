"""Forwarding tables: the tools' dumps and opensm's own files, whole, cut off and contradictory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import NO_PORT, Facts
from meshwright.cluster.readers import opensm_lfts
from meshwright.cluster.readers.opensm_lfts import FORMAT, looks_like, read
from meshwright.errors import InputError
from support import FIXTURES
from topology_samples import (
    facts_or_input_error,
    mutated,
)

_HERE = FIXTURES / "topology" / FORMAT
_TOOL = (_HERE / "dump_lfts.txt").read_text()
_ALL = (_HERE / "ibroute_all.txt").read_text()
_DUMP = (_HERE / "opensm-lfts.dump").read_text()
_FDBS = (_HERE / "opensm.fdbs").read_text()


def _read(text: str) -> Facts:
    return read(text, "t.txt")


def _entries(facts: Facts) -> list[dict[int, int]]:
    """Port by LID of every switch."""
    return [
        {lid: port for lid, port in enumerate(one.ports) if port != NO_PORT}
        for one in facts.tables or ()
    ]


def test_tables_of_the_diagnostic_tools() -> None:
    facts = _read(_TOOL)
    assert [(one.id, one.name, one.guid) for one in facts.switches or ()] == [
        ("506b4b0300f1c210", "rim west", "506b4b0300f1c210"),
        ("506b4b0300f1c220", "rim east", "506b4b0300f1c220"),
        ("506b4b0300f1c230", "hub", "506b4b0300f1c230"),
    ]
    assert [(one.guid, one.name, one.line) for one in facts.tables or ()] == [
        ("506b4b0300f1c210", "rim west", 1),
        ("506b4b0300f1c220", "rim east", 12),
        ("506b4b0300f1c230", "hub", 24),
    ]
    assert _entries(facts) == [
        {4: 1, 7: 2, 9: 17, 11: 18, 18: 0, 21: 17, 22: 17},
        {4: 19, 7: 20, 9: 3, 11: 4, 18: 20, 21: 0, 22: 19, 23: 19},
        {4: 5, 7: 6, 9: 7, 11: 8, 18: 5, 21: 7},
    ]
    assert (facts.nics, facts.cables, facts.hosts, facts.findings) == (None, None, None, ())


def test_entries_without_a_port_and_paths_of_one_adapter() -> None:
    facts = _read(_ALL)
    assert [one.name for one in facts.tables or ()] == ["MF0;gate-7:MQM8700/U1"]
    assert _entries(facts) == [{2: 41, 3: 0, 4: 12, 5: 13}]


def test_without_destinations() -> None:
    """``dump_lfts -n`` names nobody."""
    lines = [line.split(" :")[0] for line in _ALL.splitlines()]
    assert _entries(_read("\n".join(lines))) == _entries(_read(_ALL))


def test_files_of_opensm_itself() -> None:
    dump, fdbs = _read(_DUMP), _read(_FDBS)
    assert [one.name for one in dump.tables or ()] == ['edge "A"', "edge B"]
    assert _entries(dump) == [{1: 1, 3: 0, 4: 9, 6: 10}, {1: 11, 3: 12, 4: 0, 5: 12, 6: 2}]
    assert _entries(fdbs) == _entries(dump)
    # This file has no names.
    assert [one.name for one in fdbs.tables or ()] == ["0000000000beef03", "0000000000beef04"]


def test_blocks_of_one_switch_are_one_table() -> None:
    head = "Unicast lids [{}-{}] of switch Lid 3 guid 0xc0ffee (x):\n{}{} valid lids dumped\n"
    low = head.format("0x0", "0x4", "0x0002 007\n", 1)
    high = head.format("0x5", "0x9", "0x0008 003\n", 1)
    facts = _read(high + low + low)
    assert [one.guid for one in facts.tables or ()] == ["0000000000c0ffee"]
    assert _entries(facts) == [{2: 7, 8: 3}]


def test_a_switch_without_entries_has_an_empty_table() -> None:
    text = "Unicast lids [0x0-0x4] of switch Lid 3 guid 0x1 (x):\n0 valid lids dumped\n"
    (table,) = _read(text).tables or ()
    assert table.ports == b""


def _row(text: str, new: str) -> str:
    return _TOOL.replace("0x0007 002 : (Channel", text, 1) + new


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "t.txt:1:1", "empty"),
        ("  Lid  Out   Destination\n", "t.txt:1:1", "no forwarding table"),
        ("Unicast\x00", "t.txt:1:8", "binary"),
        ("0x0001 003 : (Switch)\n", "t.txt:1:1", "no line of dump_lfts"),
        (_row("0xc000 002 : (Channel", ""), "t.txt:5:1", "LID 0xc000 is above 0xbfff"),
        (
            _row("0x0018 002 : (Channel", ""),
            "t.txt:5:1",
            "outside of the block's range, 0x0 to 0x17",
        ),
        (_row("0x0007 256 : (Channel", ""), "t.txt:5:1", "port 256 is above 254"),
        (_row("0x0004 002 : (Channel", ""), "t.txt:5:1", "two ports for LID 0x4: 1 and 2"),
        (_row(f"0x0007 {'9' * 60} : (", ""), "t.txt:5:1", "no line of"),
        (_TOOL.replace("7 valid", "8 valid"), "t.txt:11:1", "8 LIDs, and 7 lines"),
        (_TOOL.replace("7 valid lids dumped \n", ""), "t.txt:11:1", "cut off: the block of line 1"),
        (_TOOL[: _TOOL.index("6 valid")], "t.txt:32:1", "cut off: the block of line 24"),
        (_TOOL[: _TOOL.index("0x0009 007") + 6], "t.txt:29:1", "cut off within this line"),
        (_DUMP.replace("6 lids", "7 lids", 1), "t.txt:6:1", "7 LIDs, and 4 lines"),
        (_DUMP[: _DUMP.rindex("0x0006")], "t.txt:11:1", "cut off"),
        (_FDBS[: _FDBS.rindex("0x0005")], "t.txt:14:1", "ends with LID 0x4, others go to 0x6"),
        (_FDBS[: _FDBS.rindex(" : yes")], "t.txt:16:1", "cut off within this line"),
        (_FDBS[: _FDBS.rindex("0000beef04") + 6], "t.txt:9:1", "cut off"),
        (_FDBS[: _FDBS.index("0x0001")], "t.txt:2:1", "cut off"),
        (_FDBS[:40], "t.txt:1:1", "cut off within this line"),
        (_FDBS + "0x0003 : 009  : 01   : yes\n", "t.txt:17:1", "two ports for LID 0x3: 12 and 9"),
        (
            "Multicast mlids [0xc000-0xc3ff] of switch Lid 3 guid 0x1 (x):\n",
            "t.txt:1:1",
            "without -M",
        ),
        (_TOOL + "x" * 5_000_000, "t.txt:38:1", "longer than"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        _read(text)
    assert place in str(caught.value)
    assert words in str(caught.value)


def test_tables_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few lines may ask for much: each switch's table goes up to its highest LID."""
    block = "Unicast lids [0x0-0xbfff] of switch Lid 3 guid 0x{:x} (x):\n0xbfff 001\n1 valid lids dumped\n"
    text = "".join(block.format(one) for one in range(20))
    assert len(_read(text).tables or ()) == 20
    monkeypatch.setattr(opensm_lfts, "_MAX_TABLE_BYTES", 0xC000 * 19)
    with pytest.raises(
        InputError, match="the tables of 20 switches, each up to its last LID, need over"
    ):
        _read(text)


def test_tables_are_in_memory_once() -> None:
    block = "Unicast lids [0x0-0xbfff] of switch Lid 3 guid 0x{:x} (x):\n0xbfff 001\n1 valid lids dumped\n"
    text = "".join(block.format(one) for one in range(80))
    tracemalloc.start()
    try:
        tables = _read(text).tables or ()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1.3 * sum(len(table.ports) for table in tables)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.sampled_from([_TOOL, _ALL, _DUMP, _FDBS]))
def test_mutated_text_gives_facts_or_an_input_error(data: st.DataObject, text: str) -> None:
    facts = facts_or_input_error(mutated(text, data, "0123456789x: "), looks_like, read)
    for table in facts.tables or () if facts else ():
        assert len(table.ports) <= opensm_lfts.MAX_LID + 1


@settings(deadline=None)
@given(st.data(), st.sampled_from([_TOOL, _DUMP, _FDBS]))
def test_a_cut_file_never_gives_other_entries(data: st.DataObject, text: str) -> None:
    """Cut anywhere, a file is refused, or lacks whole switches and nothing of those it has."""
    # Of this file's first switch nobody can tell how far it should go.
    least = text.rindex("dump_ucast") if text == _FDBS else 0
    cut = text[: data.draw(st.integers(least, len(text.rstrip()) - 1))]
    whole = {one.guid: one.ports for one in _read(text).tables or ()}
    facts = facts_or_input_error(cut, looks_like, read)
    if facts is not None:
        assert {one.guid: one.ports for one in facts.tables or ()}.items() <= whole.items()


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@pytest.mark.parametrize(
    "text",
    [
        "Unicast lids [" + "0" * 5_000_000,
        "Unicast lids [0x0-0x1] of switch " + "guid 0x1 (" * 400,
        ("dump_ucast_routes: Switch 0x" + "f" * 4000 + "\n") * 1000,
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    assert facts_or_input_error(text, looks_like, read) is None
