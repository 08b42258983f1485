"""``ibnetdiscover -p``: each cable once, ports of one adapter joined, unused ports left out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ib_links import check_x_info
from meshwright.cluster.facts import Cable, Facts
from meshwright.cluster.readers.ibnetdiscover_ports import FORMAT, looks_like, read
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
_SMALL = (_HERE / "small.txt").read_text()
_ONE, _TWO = "005b000000000001", "005b000000000002"
_LINE = "CA    41  1 0x00ca000000000a01 4x NDR - SW    11  1 0x005b000000000001 ( 'a b' - 'c' )"


def _read(text: str) -> Facts:
    return read(text, "p.txt")


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    rows = rows_of(FORMAT)
    assert len(rows) == 1
    for row in rows:
        facts = read(Path(row["path"]).read_text(), row["file"])
        check_counts(facts, row | {"x_info": ""})
        check_x_info(facts, row)
        assert facts.hosts == ("o0001", "o0002", "p0001")
        assert {cable.rate_bytes_per_s for cable in facts.cables or ()} == {12.5e9}
        assert facts.counts == {"ports_without_cable": 2}
        assert rules(facts) == ["node-not-listed", "cable-listed-once"]


def test_small_fabric() -> None:
    facts = _read(_SMALL)
    assert [(s.id, s.name, s.guid) for s in facts.switches or ()] == [
        (_ONE, "MF0;rim-1:MQM9700/U1", _ONE),
        (_TWO, "MF0;rim-2:MQM9700/U1", _TWO),
    ]
    assert [(n.index, n.host, n.name, n.guid, n.port) for n in facts.nics or ()] == [
        (0, "cn-a", "HCA-1", "00ca000000000a01", 1),
        (1, "cn-b", "mlx5_0", "00ca000000000b01", 1),
        (2, None, "MT4123 ConnectX6   Mellanox Technologies", "00ca000000000c01", 1),
        (3, "cn-c", "mlx5_0", "00ca000000000f01", None),
    ]
    assert [nic.rate_bytes_per_s for nic in facts.nics or ()] == [50e9, 25e9, 12.5e9, None]
    assert [(d.id, d.kind) for d in facts.other_devices or ()] == [
        ("00ca000000000d01", "manager"),
        ("00ca000000000e01", "router"),
        ("00ca00000000ff01", "sharp"),
    ]
    assert facts.hosts == ("cn-a", "cn-b", "cn-c")
    assert facts.counts == {"ports_without_cable": 2}


def test_cables_and_findings() -> None:
    facts = _read(_SMALL)
    cables = facts.cables or ()
    assert len(cables) == 9
    assert [cable for cable in cables if {cable.a, cable.b} == {_ONE, _TWO}] == [
        Cable(_ONE, _TWO, 32, 32, 50e9),
        Cable(_ONE, _TWO, 31, 31, None),
    ]
    # Both ports of one adapter, which are listed by port GUID.
    assert Cable("00ca000000000a01", _ONE, 1, 1, 50e9) in cables
    assert Cable("00ca000000000a01", _TWO, 2, 1, 50e9) in cables
    assert Cable("00ca000000000c01", _TWO, 1, 2, 12.5e9, listed_twice=False) in cables
    assert rules(facts) == ["nic-without-host", "cable-listed-once", "rate-unknown"]
    assert finding_of(facts, "cable-listed-once").numbers == {"count": 4, "cables": 9}
    assert finding_of(facts, "rate-unknown").severity is Severity.WARNING


@pytest.mark.parametrize(
    ("second", "adapters"),
    [
        ("CA 42 2 0x00ca000000000a02 4x NDR - SW 11 2 0x5b000000000001 ( 'a b' - 'c' )", 1),
        ("CA 42 1 0x00ca000000000a02 4x NDR - SW 11 2 0x5b000000000001 ( 'a b' - 'c' )", 2),
        ("CA 42 2 0x00ca000000000b02 4x NDR - SW 11 2 0x5b000000000001 ( 'a b' - 'c' )", 2),
        ("CA 42 2 0x00ca000000000a02 4x NDR - SW 11 2 0x5b000000000001 ( 'a d' - 'c' )", 2),
    ],
)
def test_ports_are_of_one_adapter_by_name_guid_and_number(second: str, adapters: int) -> None:
    facts = _read(f"{_LINE}\n{second}\n")
    assert len(facts.nics or ()) == adapters
    assert len(facts.cables or ()) == 2
    ends = {nic.guid for nic in facts.nics or ()}
    assert {cable.a for cable in facts.cables or ()} == ends


@pytest.mark.parametrize(
    ("speed", "rate"),
    [("4x NDR", 50e9), ("1x EDR", 3.125e9), ("4x FDR10", 5e9), ("12x QDR", 12e9), ("?? XDR", None)],
)
def test_rate_is_lane_times_width(speed: str, rate: float | None) -> None:
    (cable,) = _read(_LINE.replace("4x NDR", speed)).cables or ()
    assert cable.rate_bytes_per_s == rate


def test_a_port_with_two_far_ends_is_reported() -> None:
    text = f"{_LINE}\n{_LINE.replace('SW    11  1', 'SW    11  7')}\n"
    assert "port-listed-twice" in rules(_read(text))


def test_windows_line_ends_comments_and_blank_lines() -> None:
    text = "# made today\r\n\r\n" + _SMALL.replace("\n", "\r\n")
    facts, plain = _read(text), _read(_SMALL)
    assert [one.numbers for one in facts.findings] == [one.numbers for one in plain.findings]
    assert msgspec.structs.replace(facts, findings=plain.findings) == plain


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "p.txt:1:1", "empty"),
        (" \n\n", "p.txt:1:1", "empty"),
        ("# only a comment\n", "p.txt:1:1", "no port"),
        (f"{_LINE}\nSW\x00 1", "p.txt:2:3", "binary"),
        (f"{_LINE}\n  rubbish\n", "p.txt:2:3", "no line of ibnetdiscover -p"),
        (_LINE[:-2], "p.txt:1:1", "cut off within this line"),
        (f"{_LINE}\n{_LINE[:40]}", "p.txt:2:1", "cut off within this line"),
        (_LINE.replace(" 11 ", " 9999999 ") + "\n", "p.txt:1:1", "no line of"),
        (_LINE.replace("0x00ca", "0x00ca0000") + "\n", "p.txt:1:1", "no line of"),
        (f"{_LINE}\n" + "x" * 5_000_000, "p.txt:2:1", "longer than"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        _read(text)
    assert place in str(caught.value)
    assert words in str(caught.value)


def test_at_most_twenty_problems_are_named() -> None:
    with pytest.raises(InputError) as caught:
        _read("rubbish\n" * 1000)
    assert len(caught.value.problems) == 20


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_mutated_text_gives_facts_or_an_input_error(data: st.DataObject) -> None:
    facts_or_input_error(mutated(_SMALL, data, "0123456789x'-? "), looks_like, read)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@pytest.mark.parametrize(
    "text", ["x" * 5_000_000, "SW " * 1_700_000, ("SW 1 1 0x1 4x ( " + "' - '" * 800 + "\n") * 500]
)
def test_hostile_text_is_refused(text: str) -> None:
    assert facts_or_input_error(text, looks_like, read) is None
