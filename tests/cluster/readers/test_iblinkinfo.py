"""``iblinkinfo``: with headers, filtered, and in line mode; ends joined by LID and port."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ib_links import check_x_info
from meshwright.cluster.facts import Cable, Facts
from meshwright.cluster.readers.iblinkinfo import FORMAT, looks_like, read
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
_TOR, _TOP = "00cc000000000001", "00cc000000000002"
_LINE = '  0xa1  4  1[  ] ==( 4X  25.78125 Gbps Active/  LinkUp)==>   2  17[  ] "sw" ( )'


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    rows = rows_of(FORMAT)
    assert len(rows) == 1
    for row in rows:
        facts = read(Path(row["path"]).read_text(), row["file"])
        check_counts(facts, row | {"x_info": ""})
        check_x_info(facts, row)
        assert [(nic.host, nic.name, nic.guid) for nic in facts.nics or ()] == [
            ("n02", "HCA-1", "ec0d9aa8f7f5da13"),
            ("mgt", "mlx5_0", "248a074a1d360c21"),
            ("n01", "HCA-1", "ec0d9a29f9cc4439"),
        ]
        assert {(c.rate_bytes_per_s, c.listed_twice) for c in facts.cables or ()} == {
            (12.5e9, True)
        }
        assert facts.findings == ()


def test_with_headers() -> None:
    facts = _fixture("headers.txt")
    assert [(s.id, s.name, s.guid) for s in facts.switches or ()] == [
        (_TOR, "MF0;tor-a:MQM9700/U1", _TOR),
        (_TOP, "MF0;top:MQM9700/U1", _TOP),
        ("lid-23", "MF0;far:MQM9700/U1", None),
    ]
    assert [(n.host, n.name, n.guid, n.port) for n in facts.nics or ()] == [
        ("gx1", "HCA-1", "00bb000000000111", 1),
        ("gx2", "mlx5_0", "00bb000000000221", 1),
    ]
    assert [nic.rate_bytes_per_s for nic in facts.nics or ()] == [50e9, 25e9]
    assert [(d.id, d.kind) for d in facts.other_devices or ()] == [("lid-39", "sharp")]
    assert facts.cables == (
        Cable("00bb000000000111", _TOR, 1, 1, 50e9),
        Cable("00bb000000000221", _TOR, 1, 2, 25e9),
        Cable(_TOR, _TOP, 31, 31, 50e9),
        Cable(_TOR, _TOP, 32, 32, 5e9),
        Cable(_TOR, "lid-39", 65, 1, 50e9, listed_twice=False),
        Cable(_TOP, "lid-23", 33, 4, None, listed_twice=False),
    )
    assert facts.counts == {"ports_without_cable": 3}


def test_findings_on_links() -> None:
    facts = _fixture("headers.txt")
    assert rules(facts) == [
        "node-not-listed",
        "cable-listed-once",
        "rate-unknown",
        "node-kind-guessed",
        "link-below-capability",
        "port-not-active",
    ]
    slow = finding_of(facts, "link-below-capability")
    assert (slow.severity, slow.numbers, slow.place.line) == (Severity.WARNING, {"count": 1}, 5)
    assert slow.message == (
        "1 cable runs below what both ends can do: gx2 mlx5_0 port 1 to tor-a port 2 (Could be 106.25 Gbps)"
    )
    idle = finding_of(facts, "port-not-active")
    assert idle.numbers == {"count": 1}
    assert idle.message == (
        "1 cable is plugged in and not active: tor-a port 32 to top port 32 (Init)"
    )
    assert finding_of(facts, "rate-unknown").numbers == {"cables": {"4x777.77": 1}}
    assert finding_of(facts, "node-kind-guessed").numbers["count"] == 2


def test_filtered_lines_are_joined_by_lid_and_port() -> None:
    facts = _fixture("grep_up.txt")
    assert [(switch.id, switch.guid) for switch in facts.switches or ()] == [
        ("lid-5", None),
        ("lid-6", None),
        ("lid-7", None),
    ]
    assert [(nic.host, nic.name, nic.guid) for nic in facts.nics or ()] == [
        ("hx1", "HCA-1", "lid-8"),
        ("hx2", "HCA-1", "00dd000000000091"),
        (None, "00dd000000000101", "00dd000000000101"),
    ]
    assert facts.cables == (
        Cable("lid-5", "lid-8", 1, 1, 12.5e9, listed_twice=False),
        Cable("lid-5", "lid-6", 20, 20, 12.5e9, listed_twice=False),
        Cable("lid-6", "00dd000000000091", 2, 1, 4e9),
        Cable("00dd000000000101", "lid-7", 1, 3, 1e9, listed_twice=False),
    )
    assert finding_of(facts, "node-kind-guessed").numbers["names"] == [
        "hx1 HCA-1",
        "SwitchX -  Mellanox Technologies",
    ]


def test_line_mode() -> None:
    facts = _fixture("line_mode.txt")
    assert [switch.id for switch in facts.switches or ()] == ["00ee000000000001"]
    assert facts.hosts == ("kx1", "kx2")
    assert facts.cables == (
        Cable("00ee000000000001", "00ee0000000000a1", 1, 1, 25e9),
        Cable("00ee000000000001", "00ee0000000000b1", 2, 1, 12.5e9, listed_twice=False),
    )
    slow = finding_of(facts, "link-below-capability")
    assert "one port 2 to kx2 mlx5_0 port 1 (Could be 4X)" in slow.message


def test_slow_cables_are_counted_once_and_named_without_headers() -> None:
    """Both ends of each cable stand in the listing; a switch has no name without its header."""
    lines = []
    for port in range(1, 8):
        host = 40 + port
        remark = "==( 4X  53.125 Gbps Active/  LinkUp)==>"
        could = "( Could be 106.25 Gbps)"
        own = f"0x00dd0000000000{host}  {host}  1[  ]"
        lines.append(f'  {own} {remark}  7  {port}[  ] "MF0;edge:MQM9700/U1" {could}')
        lines.append(f'  7  {port}[  ] {remark}  {host}  1[  ] "hx{port} mlx5_0" {could}')
    slow = finding_of(read("\n".join(lines) + "\n", "t.txt"), "link-below-capability")
    assert slow.numbers == {"count": 7}
    assert slow.message.startswith(
        "7 cables run below what both ends can do: hx1 mlx5_0 port 1 to edge port 1 ("
    )
    assert slow.message.count(" to edge port ") == 5
    assert "LID" not in slow.message


def test_a_header_does_not_name_the_ports_of_another_node() -> None:
    text = "".join(
        line
        for line in _text("headers.txt").splitlines(keepends=True)
        if not line.startswith(("Switch: 0x00cc000000000002", "CA: gx2"))
    )
    facts = read(text, "t.txt")
    assert {switch.id for switch in facts.switches or ()} == {_TOR, "lid-22", "lid-23"}
    names = {switch.id: switch.name for switch in facts.switches or ()}
    assert names["lid-22"] == "MF0;top:MQM9700/U1"
    assert facts.hosts == ("gx1", "gx2")


@pytest.mark.parametrize(
    ("speed", "rate"),
    [
        ("4X         2.5 Gbps", 1e9),
        ("4X         5.0 Gbps", 2e9),
        ("4X        10.0 Gbps", 4e9),
        ("4X  10.0 Gbps (FDR10)", 5e9),
        ("4X     14.0625 Gbps", 6.82e9),
        ("4X    25.78125 Gbps", 12.5e9),
        ("2X      53.125 Gbps", 12.5e9),
        ("4X      106.25 Gbps", 50e9),
        ("4X       212.5 Gbps", 100e9),
        ("12X       10.0 Gbps", 12e9),
        ("4X   undefined (64)", None),
    ],
)
def test_rate_is_lane_times_width(speed: str, rate: float | None) -> None:
    (cable,) = read(_LINE.replace("4X  25.78125 Gbps", speed), "t.txt").cables or ()
    assert cable.rate_bytes_per_s == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "t.txt:1:1", "empty"),
        ("CA: n01 HCA-1:\n", "t.txt:1:1", "no port"),
        ("\x01\x02", "t.txt:1:1", "binary"),
        (f"{_LINE}\n  rubbish\n", "t.txt:2:3", "no line of iblinkinfo"),
        (_LINE[:-3], "t.txt:1:3", "cut off within this line"),
        (_LINE[:30], "t.txt:1:3", "cut off within this line"),
        (f"{_LINE}\nCA: n01 HC", "t.txt:2:1", "cut off within this line"),
        (_LINE.replace("17[", "99999[") + "\n", "t.txt:1:3", "no line of"),
        (_LINE.replace(" 4  1[", f" {'9' * 50}  1[") + "\n", "t.txt:1:3", "no line of"),
        (f"{_LINE}\n" + "x" * 5_000_000, "t.txt:2:1", "longer than"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "t.txt")
    assert place in str(caught.value)
    assert words in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, '0123456789x[]()=>" '), looks_like, read)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@pytest.mark.parametrize(
    "text",
    [
        "1[ ] ==(" * 600_000,
        ("1 1[ ] ==(" + ")==> (" * 600 + "\n") * 500,
        '0x1 "' + '" ' * 2_000_000,
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    assert facts_or_input_error(text, looks_like, read) is None
