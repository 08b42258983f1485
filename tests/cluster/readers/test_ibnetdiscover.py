"""``ibnetdiscover``: captured dumps, each trap of the grammar, files cut off, bad input."""

from __future__ import annotations

import contextlib
import csv
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.facts import Cable, Facts
from meshwright.cluster.readers import ibnetdiscover
from meshwright.errors import InputError
from meshwright.findings import Severity
from support import FIXTURES, shared_path

_SMALL = (FIXTURES / "topology" / "ibnetdiscover" / "small.txt").read_text(encoding="utf-8")
_EDGE_A, _EDGE_B, _TOP = "005a000000000001", "005a000000000002", "005a000000000003"


def _read(text: str) -> Facts:
    return ibnetdiscover.read(text, "ib.txt")


def _refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        _read(text)
    return str(caught.value)


def _samples() -> dict[str, dict[str, str]]:
    manifest = shared_path("data/topology/MANIFEST.csv")
    with manifest.open(encoding="utf-8", newline="") as handle:
        return {row["file"]: row for row in csv.DictReader(handle)}


def _link_counts(facts: Facts) -> Counter[str]:
    """Count cables by the kinds of their ends, as the manifest does."""
    kind = {nic.guid: "nic" for nic in facts.nics or ()}
    kind |= {switch.id: "switch" for switch in facts.switches or ()}
    kind |= {device.id: "other" for device in facts.other_devices or ()}
    counts: Counter[str] = Counter()
    for cable in facts.cables or ():
        ends = {kind[cable.a], kind[cable.b]}
        other, nic = "other" in ends, "nic" in ends
        counts[
            "links_to_other_devices" if other else "links_nic" if nic else "links_switch_switch"
        ] += 1
    return counts


@pytest.mark.captured
def test_samples_give_the_figures_of_the_manifest() -> None:
    rows = [row for row in _samples().values() if row["format"] == "ibnetdiscover"]
    assert len(rows) == 2
    for row in rows:
        path = shared_path("data/topology") / row["file"]
        facts = ibnetdiscover.read(path.read_text(encoding="utf-8"), path.name)
        nics, others = facts.nics or (), facts.other_devices or ()
        counts = _link_counts(facts)
        assert len(nics) == int(row["n_nics"])
        assert len(others) == int(row["n_other_devices"])
        assert len(facts.hosts or ()) == int(row["n_hosts"])
        assert len(facts.switches or ()) == int(row["n_switches"])
        assert counts["links_nic"] + counts["links_switch_switch"] == int(row["n_links"])
        kinds = Counter(device.kind for device in others)
        own = sum(device.kind == "sharp" for device in others)
        found = dict(counts) | {
            "sharp": kinds["sharp"],
            "managers": kinds["manager"],
            "nics_with_host": sum(nic.host is not None for nic in nics),
            "ca": len(nics) + len(others) - (own if "superbench" in row["file"] else 0),
        }
        for key, value in json.loads(row["x_info"]).items():
            assert found[key] == value, (row["file"], key)
        assert (facts.gpus, facts.tree, facts.blocks) == (None, None, None)


@pytest.mark.captured
def test_gb200_dump_in_detail() -> None:
    path = shared_path("data/topology/ibnetdiscover/gb200_superpod_ndr_582ca.txt")
    facts = ibnetdiscover.read(path.read_text(encoding="utf-8"), path.name)
    assert {cable.rate_bytes_per_s for cable in facts.cables or ()} == {50e9}
    assert all(cable.listed_twice for cable in facts.cables or ())
    hosts = Counter(nic.host for nic in facts.nics or () if nic.host is not None)
    assert Counter(hosts.values()) == {4: 109, 3: 10}
    assert [(finding.rule, finding.numbers["count"]) for finding in facts.findings] == [
        ("topology/nic-without-host", 74)
    ]


@pytest.mark.captured
def test_superbench_dump_in_detail() -> None:
    path = shared_path("data/topology/ibnetdiscover/superbench_hdr_director.txt")
    facts = ibnetdiscover.read(path.read_text(encoding="utf-8"), path.name)
    assert next((nic.host, nic.name) for nic in facts.nics or ()) == (
        "RMD701091901003",
        "ibp11s0f0",
    )
    assert [cable.listed_twice for cable in facts.cables or ()].count(False) == 1
    assert {cable.rate_bytes_per_s for cable in facts.cables or ()} == {25e9}
    assert [finding.rule for finding in facts.findings] == ["topology/cable-listed-once"]


@pytest.mark.captured
def test_claims_its_own_samples_only() -> None:
    folder = shared_path("data/topology")
    for name, row in _samples().items():
        text = (folder / name).read_text(encoding="utf-8", errors="replace")
        assert ibnetdiscover.looks_like(text) is (row["format"] == "ibnetdiscover"), name


@pytest.mark.captured
def test_captured_dumps_cut_off_at_any_byte_are_refused_or_reported() -> None:
    path = shared_path("data/topology/ibnetdiscover/superbench_hdr_director.txt")
    text = path.read_text(encoding="utf-8").rstrip()
    whole = len(_read(text).nics or ())
    readable = 0
    for end in range(0, len(text), 3):
        try:
            facts = _read(text[:end])
        except InputError:
            continue
        readable += 1  # cut between stanzas, which no form shows
        assert len(facts.nics or ()) <= whole
        assert any(finding.rule == "topology/node-not-listed" for finding in facts.findings)
    assert readable < len(text) / 3 / 20


def test_small_fabric() -> None:
    facts = _read(_SMALL)
    assert [(s.id, s.name) for s in facts.switches or ()] == [
        (_EDGE_A, "MF0;edge-a:MQM9700/U1"),
        (_TOP, "MF0;top:MQM9700/U1"),
        (_EDGE_B, "MF0;edge-b:MQM9700/U1"),
        ("005a000000000009", "MF0;unlisted:SN/U1"),
    ]
    assert [(n.index, n.host, n.name, n.port, n.rate_bytes_per_s) for n in facts.nics or ()] == [
        (0, "Node-7", "mlx5_0", 1, 50e9),
        (1, "Node-8", "mlx5_0", 1, 50e9),
        (2, None, "MT4129 ConnectX7   Mellanox Technologies", 1, 50e9),
        (3, None, "HCA-2", 1, 25e9),
        (4, "far-away", "HCA-1", 2, 12.5e9),
        (5, "Node-7", "mlx5_1", 1, 50e9),
    ]
    assert [nic.guid for nic in facts.nics or ()][:2] == ["00aa000000000011", "00aa000000000021"]
    assert [(d.id, d.kind) for d in facts.other_devices or ()] == [
        ("00aa000000000051", "manager"),
        ("00ab000000000001", "sharp"),
    ]
    assert facts.hosts == ("Node-7", "Node-8", "far-away")
    assert _link_counts(facts) == {
        "links_nic": 7,
        "links_switch_switch": 4,
        "links_to_other_devices": 2,
    }


def test_small_fabric_cables_and_findings() -> None:
    facts = _read(_SMALL)
    cables = facts.cables or ()
    assert [cable for cable in cables if {cable.a, cable.b} == {_EDGE_A, _TOP}] == [
        Cable(_EDGE_A, _TOP, 31, 1, 50e9),
        Cable(_EDGE_A, _TOP, 32, 2, 50e9),
    ]
    assert Cable(_EDGE_B, _TOP, 31, 3, 5e9) in cables
    assert Cable(_EDGE_B, "005a000000000009", 32, 7, None, listed_twice=False) in cables
    assert Cable(_EDGE_A, "00aa000000000061", 6, 2, 12.5e9, listed_twice=False) in cables
    assert Cable(_EDGE_B, "00aa000000000021", 2, 2, 50e9) in cables
    found = {finding.rule: finding for finding in facts.findings}
    assert found["topology/nic-without-host"].numbers["count"] == 2
    assert "HCA-2" in found["topology/nic-without-host"].message
    assert found["topology/node-not-listed"].numbers["count"] == 2
    assert found["topology/cable-listed-once"].numbers == {"count": 3, "cables": 13}
    assert found["topology/cable-listed-once"].severity is Severity.NOTE
    assert found["topology/rate-unknown"].numbers == {"cables": {"4xZDR": 1}}
    assert len(found) == 4


@pytest.mark.parametrize(
    ("speed", "gbit_per_s"),
    [
        ("4xSDR", 8),
        ("4xDDR", 16),
        ("4xQDR", 32),
        ("4xFDR10", 40),
        ("4xFDR", 54.56),
        ("4xEDR", 100),
        ("1xHDR", 50),
        ("2xHDR", 100),
        ("4xNDR", 400),
        ("4xXDR", 800),
        ("12xQDR", 96),
        ("4xABC", None),
        ("0xNDR", None),
    ],
)
def test_rates(speed: str, gbit_per_s: float | None) -> None:
    facts = _read(_stanza("cn1 mlx5_0", speed))
    (cable,) = facts.cables or ()
    expected = None if gbit_per_s is None else pytest.approx(gbit_per_s * 1e9 / 8)
    assert cable.rate_bytes_per_s == expected


def _stanza(description: str, speed: str = "4xNDR") -> str:
    return (
        f'caguid=0x1\nCa\t1 "H-0000000000000001"\t\t# "{description}"\n'
        f'[1](1) \t"S-0000000000000002"[3]\t\t# lid 5 lmc 0 "sw" lid 6 {speed}\n'
    )


@pytest.mark.parametrize(
    ("description", "host", "name"),
    [
        ("rack01-tray02 HCA-6", "rack01-tray02", "HCA-6"),
        ("CN-7 mlx5_bond_0", "CN-7", "mlx5_bond_0"),
        ("gpu1.example.org ibp11s0f0", "gpu1.example.org", "ibp11s0f0"),
        ("lonely", "lonely", "0000000000000001"),
        ("ubuntu01 mlx5_0", "ubuntu01", "mlx5_0"),
        ("fumfum mlx5_0", "fumfum", "mlx5_0"),
        ("ubuntu mlx5_0", None, "mlx5_0"),
        ("localhost.localdomain HCA-1", None, "HCA-1"),
        ("(none) HCA-1", None, "HCA-1"),
        ("MT25408 ConnectX Mellanox Technologies", None, "MT25408 ConnectX Mellanox Technologies"),
        ("Mellanox HCA", None, "Mellanox HCA"),
        ("mlx5_3", None, "mlx5_3"),
        ("", None, "0000000000000001"),
        ('odd "quoted" name', "odd", '"quoted" name'),
    ],
)
def test_descriptions(description: str, host: str | None, name: str) -> None:
    (nic,) = _read(_stanza(description)).nics or ()
    assert (nic.host, nic.name) == (host, name)


@pytest.mark.parametrize("description", ["UFM-02 mlx5_0", "ufm HCA-1", "site-ufm1 mlx5_1"])
def test_managers(description: str) -> None:
    facts = _read(_stanza(description))
    assert facts.nics == ()
    assert [device.kind for device in facts.other_devices or ()] == ["manager"]


def test_duplicate_guid() -> None:
    again = _stanza("cn2 mlx5_0").replace("caguid=0x1", "\ncaguid=0x1").replace("[3]", "[4]")
    facts = _read(_stanza("cn1 mlx5_0") + again.replace("[1](1)", "[2](1)"))
    finding = facts.findings[0]
    assert (finding.rule, finding.severity) == ("topology/duplicate-guid", Severity.WARNING)
    assert finding.numbers == {"guid": "0000000000000001", "names": ["cn1 mlx5_0", "cn2 mlx5_0"]}
    assert finding.place.line == 6
    assert [nic.host for nic in facts.nics or ()] == ["cn1"]
    assert len(facts.cables or ()) == 2


def test_a_port_with_two_far_ends_is_reported() -> None:
    text = _stanza("cn1 mlx5_0")
    text += text.splitlines()[2].replace("[3]", "[9]") + "\n"
    assert "topology/port-listed-twice" in {finding.rule for finding in _read(text).findings}


def test_grouped_output_and_a_router() -> None:
    text = (
        "\nChassis 1 (guid 0x2)\n# Spine Nodes\n"
        'vendid=0x2c9\nrtguid=0x7\nRt\t1 "R-0000000000000007"\t\t# "gate"\n'
        '[1][ext 3](7) \t"S-0000000000000002"[3][ext 1]\t\t# lid 5 lmc 0 "sw" lid 6 4xNDR\n'
    )
    facts = _read(text)
    assert [(device.name, device.kind) for device in facts.other_devices or ()] == [
        ("gate", "router")
    ]
    assert facts.nics == ()


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "ib.txt:1:1", "empty or cut off"),
        ("#\n# Topology file\n#\n", "ib.txt:3:1", "empty or cut off"),
        ("vendid=0x2c9\x00\n", "ib.txt:1:13", "binary"),
        ("vendid=0x2c9\nswitchguid=0x1(1)\n", "ib.txt:2:17", "no Switch or Ca line"),
        ('[1]\t"S-1"[2]\t# "a" lid 1 4xNDR\n', "ib.txt:1:1", "outside"),
        ("caguid=0x1\n  nonsense\n", "ib.txt:2:3", "no line of an ibnetdiscover"),
        ('Switch\t3 "H-0000000000000001"\t# "a"\n', "ib.txt:1:1", "no line of"),
        (_stanza("a b") + "[2] what\n", "ib.txt:4:1", "no port line"),
        ('Ca\t1 "H-0000000000000001"\t# "cn1 mlx5_0"\n', "ib.txt:1:40", "every port"),
        (_stanza("a b").replace("[3]", "[99999]"), "ib.txt:3:1", "no port line"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    message = _refusal(text)
    assert place in message
    assert words in message


def test_at_most_twenty_problems_are_named() -> None:
    with pytest.raises(InputError) as caught:
        _read("caguid=0x1\n" + "rubbish\n" * 1000)
    assert len(caught.value.problems) == 20


@pytest.mark.parametrize("cut", ["4xN", "4xNDR s=4 w=2", "4xNDR s=4 w=2 v=4 e=", "lid", '"MF0;to'])
def test_a_last_line_cut_off_is_refused(cut: str) -> None:
    text = _SMALL[: _SMALL.index("4xZDR")].replace("4xFDR10 s=", "4xNDR s=")
    whole = text + "4xNDR s=4 w=2 v=4 e=4"
    assert _read(whole).switches  # complete, without a line end
    line = whole[whole.rindex("\n") + 1 :]
    position = line.index(cut.split(maxsplit=1)[0]) if cut[0] != '"' else line.index('"MF0;') - 2
    shorter = whole[: whole.rindex("\n") + 1] + line[:position] + cut
    assert "cut off within this line" in _refusal(shorter)


def test_a_last_stanza_cut_off_between_lines_is_refused() -> None:
    end = _SMALL.index("[2]\t", _SMALL.index('Switch\t65 "S-005a000000000003"'))
    message = _refusal(_SMALL[:end])
    assert "port 2, which its far end shows, is missing" in message
    assert "ib.txt:38" in message


def test_without_a_final_line_end_the_file_is_complete() -> None:
    assert _read(_SMALL.rstrip()) == _read(_SMALL)


def test_windows_line_ends_and_blanks_for_tabs() -> None:
    assert _read(_SMALL.replace("\n", "\r\n")) == _read(_SMALL)
    assert _read(_SMALL.replace("\t", "    ")) == _read(_SMALL)


@given(st.data())
def test_any_change_gives_facts_or_an_input_error(data: st.DataObject) -> None:
    text = _SMALL
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.sampled_from([0, 1, 3, 40, 400])))
        insert = data.draw(
            st.sampled_from(["", '"', "[", "]", "#", "\n", "S-", "é", "x", "99", " "])
        )
        text = text[:start] + insert + text[end:]
    with contextlib.suppress(InputError):
        assert _read(text).cables is not None


@given(st.integers(0, len(_SMALL)))
def test_any_prefix_gives_facts_or_an_input_error(end: int) -> None:
    with contextlib.suppress(InputError):
        facts = _read(_SMALL[:end])
        assert facts.nics is not None


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    with contextlib.suppress(InputError):
        _read(text)


def test_looks_like() -> None:
    assert ibnetdiscover.looks_like(_SMALL)
    assert ibnetdiscover.looks_like(_stanza("a b"))
    assert not ibnetdiscover.looks_like('Switch 8 "Switch1"\n[1] "Hca1"[1]\n')
    assert not ibnetdiscover.looks_like('Switch 8 "S-0001"\nHca 1 "H-0002"\n')
    assert not ibnetdiscover.looks_like("CA 1 1 0x1 4x EDR - SW 2 3 0x4 ( 'a' - 'b' )\n")
