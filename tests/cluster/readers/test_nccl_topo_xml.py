"""The NCCL topology XML reader: captured samples, each trap, and anything else as data."""

from __future__ import annotations

import csv
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, NvlinkPair, PcieChain, nearest_nics
from meshwright.cluster.readers.nccl_topo_xml import FORMAT, looks_like, read
from meshwright.cluster.readers.nccl_topo_xml_tree import link_rate, normal_busid
from meshwright.cluster.readers.safe_xml import parse_xml
from meshwright.errors import InputError
from meshwright.findings import Finding, Severity
from support import FIXTURES, shared_path

_COUNTS = (
    "n_gpus",
    "n_nics",
    "n_nvswitches",
    "n_nvlink_pairs",
    "n_numa",
    "n_hosts",
    "n_switches",
    "n_links",
)
_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.glob("*.xml"))


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


def _finding(facts: Facts, rule: str, severity: Severity) -> Finding:
    (found,) = [f for f in facts.findings if f.rule == rule and f.severity is severity]
    return found


def _error(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text, "t.xml")
    return caught.value


def _count(things: tuple[object, ...] | None) -> str:
    return "" if things is None else str(len(things))


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    base = shared_path("data/topology")
    with (base / "MANIFEST.csv").open() as file:
        samples = [row for row in csv.DictReader(file) if row["format"] == FORMAT]
    assert len(samples) == 13
    for row in samples:
        facts = read((base / row["file"]).read_text(), row["file"])
        assert {
            "n_gpus": _count(facts.gpus),
            "n_nics": _count(facts.nics),
            "n_nvswitches": _count(facts.nvswitches),
            "n_nvlink_pairs": _count(facts.nvlink_pairs),
            "n_numa": _count(facts.numa_ids),
            "n_hosts": _count(facts.hosts),
            "n_switches": _count(facts.switches),
            "n_links": _count(facts.cables),
        } == {key: row[key] for key in _COUNTS}, row["file"]
        ids = json.loads(row["numa_ids"]) if row["numa_ids"] else None
        assert (None if facts.numa_ids is None else list(facts.numa_ids)) == ids, row["file"]
        _check_nearest(facts, row)


def _check_nearest(facts: Facts, row: dict[str, str]) -> None:
    nearest = nearest_nics(facts)
    if not row["nearest_nic"]:
        assert nearest is None
        return
    assert nearest is not None
    nics = [nic.name for nic in facts.nics or ()]
    gpus = [gpu.name for gpu in facts.gpus or ()]
    assert {gpus[at]: [nics[nic] for nic in near] for at, (_, near) in nearest.items()} == (
        json.loads(row["nearest_nic"])
    ), row["file"]
    assert {gpus[at]: name for at, (name, _) in nearest.items()} == (
        json.loads(row["nearest_class"])
    ), row["file"]


@pytest.mark.captured
def test_captured_speeds_are_taken_or_doubted() -> None:
    base = shared_path("data/topology/nccl_topo_xml")
    wrong = read((base / "rccl_mi300a_4gpu_bad_speed.xml").read_text(), "a.xml")
    assert [nic.rate_bytes_per_s for nic in wrong.nics or ()] == [None] * 4
    _finding(wrong, "topology/net-speed-doubtful", Severity.WARNING)
    odd = read((base / "oci_h100.xml").read_text(), "b.xml")
    assert {nic.rate_bytes_per_s for nic in odd.nics or ()} == {22.5e9}
    _finding(odd, "topology/net-speed-doubtful", Severity.NOTE)
    assert {pair.count for pair in odd.nvlink_pairs or ()} == {18}


def test_devices_in_order_of_dev() -> None:
    facts = _fixture("dgx_like.xml")
    assert [(g.index, g.name, g.pci, g.numa) for g in facts.gpus or ()] == [
        (0, "0", "0000:10:00.0", (0,)),
        (1, "1", "0000:11:00.0", (0,)),
        (2, "2", "0000:22:00.0", (1,)),
        (3, "3", "0000:23:00.0", (1,)),
    ]
    assert {gpu.compute_capability for gpu in facts.gpus or ()} == {90}
    assert [(n.index, n.name, n.pci, n.port, n.guid) for n in facts.nics or ()] == [
        (0, "mlx5_4", "0000:24:00.0", 1, "00000000000001f2"),
        (1, "mlx5_5", "0000:24:00.0", 2, None),
        (2, "eth9", None, 0, None),
    ]
    assert [nic.rate_bytes_per_s for nic in facts.nics or ()] == [50e9, 22.5e9, None]
    assert facts.numa_ids == (0, 1)
    assert facts.hosts is None


def test_classes_from_the_tree() -> None:
    facts = _fixture("dgx_like.xml")
    assert facts.gpu_nic_class == (
        ("SYS", "SYS", "PHB"),
        ("SYS", "SYS", "PHB"),
        ("PXB", "PXB", "SYS"),
        ("PIX", "PIX", "SYS"),
    )
    assert facts.nic_nic_class == (("X", "PIX", "SYS"), ("PIX", "X", "SYS"), ("SYS", "SYS", "X"))
    assert facts.gpu_gpu_class == (
        ("X", "PHB", "NV9", "NV8"),
        ("PHB", "X", "SYS", "SYS"),
        ("NV9", "SYS", "X", "NV8"),
        ("NV8", "SYS", "NV8", "X"),
    )


def test_chains_with_the_rate_of_each_hop() -> None:
    chains = {chain.device: chain for chain in _fixture("dgx_like.xml").pcie_chains or ()}
    assert list(chains) == ["0", "1", "2", "3", "mlx5_4", "mlx5_5", "eth9"]
    assert chains["2"] == PcieChain(
        "2", ("0000:21:00.0", "0000:20:00.0", "cpu1"), (48e9, 48e9, 24e9)
    )
    assert chains["3"] == PcieChain("3", ("0000:20:00.0", "cpu1"), (3e9, 24e9))
    assert chains["mlx5_5"] == PcieChain("mlx5_5", ("0000:20:00.0", "cpu1"), (96e9, 24e9))
    assert chains["0"] == PcieChain("0", ("cpu0",), (None,))
    assert chains["eth9"] == PcieChain("eth9", ("cpu0",), (None,))


def test_nvswitches_are_one_node_and_self_loops_no_pair() -> None:
    facts = _fixture("dgx_like.xml")
    assert facts.nvswitches == ("0000:a0:00.0", "0000:a1:00.0")
    assert facts.nvlink_pairs == (
        NvlinkPair(0, 2, 9, via_switch=True),
        NvlinkPair(0, 3, 8, via_switch=True),
        NvlinkPair(2, 3, 8, via_switch=True),
    )
    loop = _finding(facts, "topology/nvlink-self-loop", Severity.NOTE)
    assert (loop.place.line, loop.place.column) == (37, 9)
    differs = _finding(facts, "topology/nvlink-count-differs", Severity.WARNING)
    assert differs.numbers == {"gpus": [3], "links": 8, "most": 9, "peers": 2}
    outside = _finding(facts, "topology/gpu-outside-nvlink", Severity.WARNING)
    assert outside.numbers == {"outside": [1], "joined": 3}


def test_doubtful_speeds() -> None:
    facts = _fixture("dgx_like.xml")
    taken = _finding(facts, "topology/net-speed-doubtful", Severity.NOTE)
    assert (taken.numbers["speed"], taken.numbers["names"]) == ("180000", ["mlx5_5"])
    refused = _finding(facts, "topology/net-speed-doubtful", Severity.WARNING)
    assert (refused.numbers["speed"], refused.place.line) == ("200000000", 41)


def test_xgmi_both_ways_one_way_and_unknown_targets() -> None:
    facts = _fixture("xgmi_like.xml")
    assert facts.nvlink_pairs == (
        NvlinkPair(0, 1, 2, via_switch=False),
        NvlinkPair(0, 2, 1, via_switch=False, both_ways=False),
        NvlinkPair(1, 2, 1, via_switch=False),
    )
    assert facts.nvswitches == ()
    assert {gpu.compute_capability for gpu in facts.gpus or ()} == {None}
    unknown = _finding(facts, "topology/nvlink-target-unknown", Severity.NOTE)
    assert unknown.numbers["targets"] == ["0000:99:00.0"]
    one_way = _finding(facts, "topology/nvlink-asymmetric", Severity.WARNING)
    assert one_way.numbers["pairs"] == [["0", "2"]]
    assert facts.nics == ()


def test_skeleton_counts_by_class() -> None:
    facts = _fixture("skeleton.xml")
    assert [(g.index, g.name, g.pci) for g in facts.gpus or ()] == [
        (0, "0003:00:00.0", "0003:00:00.0"),
        (1, "0004:00:00.0", "0004:00:00.0"),
    ]
    assert [nic.name for nic in facts.nics or ()] == ["0103:00:00.0"]
    assert facts.gpu_nic_class == (("PIX",), ("PHB",))
    assert (facts.nvlink_pairs, facts.nvswitches) == (None, None)
    assert [chain.rates_bytes_per_s for chain in facts.pcie_chains or ()] == [
        (12e9, 12e9),
        (None,),
        (6e9, 12e9),
    ]


def test_skeleton_without_class_is_unknown_not_zero() -> None:
    facts = _fixture("skeleton_without_class.xml")
    assert (facts.gpus, facts.nics, facts.gpu_nic_class, facts.pcie_chains) == (None,) * 4
    assert facts.numa_ids == (0, 1)
    found = _finding(facts, "topology/pci-class-missing", Severity.NOTE)
    assert found.numbers == {"count": 3}


def test_two_hosts_in_one_file() -> None:
    facts = _fixture("two_hosts.xml")
    assert facts.hosts == ("0xaa", "0xbb")
    assert [(g.index, g.name, g.host) for g in facts.gpus or ()] == [
        (0, "0xaa/0", "0xaa"),
        (1, "0xbb/0", "0xbb"),
    ]
    assert [nic.name for nic in facts.nics or ()] == ["0xaa/mlx5_0", "0xbb/mlx5_0"]
    assert facts.nvlink_pairs == (NvlinkPair(0, 1, 18, via_switch=True),)
    assert facts.gpu_nic_class == (("PHB", "SYS"), ("SYS", "PHB"))


def test_repeated_dev_numbers_are_noted() -> None:
    text = _text("xgmi_like.xml").replace('dev="1"', 'dev="0"')
    facts = read(text, "t.xml")
    assert [gpu.index for gpu in facts.gpus or ()] == [0, 1, 2]
    assert next(gpu.name for gpu in facts.gpus or ()) == "0000:1a:00.0"
    _finding(facts, "topology/gpu-dev-unclear", Severity.NOTE)


@pytest.mark.parametrize(
    ("speed", "width", "rate"),
    [
        ("2.5 GT/s", "16", 3e9),
        ("8 GT/s PCIe", "16", 12e9),
        ("16.0 GT/s", "4", 6e9),
        ("64.0 GT/s PCIe", "16", 96e9),
        ("32 GT/s", "0", 48e9),
        ("", "16", None),
        (None, "16", None),
        ("17 GT/s", "16", None),
        ("16 GT/s", None, None),
        ("16 GT/s", "-1", None),
        ("16 GT/s", "64", None),
    ],
)
def test_link_rate(speed: str | None, width: str | None, rate: float | None) -> None:
    assert link_rate(speed, width) == rate


def test_pci_addresses_are_normalised() -> None:
    assert normal_busid("00000000:1A:00.0") == "0000:1a:00.0"
    assert normal_busid("1a:00.0") == "0000:1a:00.0"
    assert normal_busid("10000:1a:00.0") == "10000:1a:00.0"
    assert normal_busid(" odd ") == "odd"


def test_looks_like_by_content() -> None:
    assert looks_like(_text("dgx_like.xml"))
    assert looks_like("\ufeff\n<?xml version='1.0'?>\n<!-- a --><!-- b -->\n<system version='1'>")
    assert not looks_like("<graphs version='1'>")
    assert not looks_like("<topology><cpu/></topology>")
    assert not looks_like("")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "t.xml:1:1", "empty"),
        (" \n\n", "t.xml:1:1", "empty"),
        ("\x00\x01\xff" * 9, "t.xml:1:1", "not well-formed"),
        ("\ud800<system/>", "t.xml:1:1", "not well-formed"),
        ("<!-- only -->", "t.xml:1:14", "no element"),
        ("<graphs/>", "t.xml:1:1", "the root element is graphs"),
        ("\n<system version='1'/>", "t.xml:2:1", "no cpu element"),
        ("<system><cpu numaid='one'/></system>", "t.xml:1:9", "no integer"),
        ("<system>\n<cpu>&bomb;</cpu></system>", "t.xml:2:6", "undefined entity"),
    ],
)
def test_unreadable_files(text: str, place: str, message: str) -> None:
    (problem,) = _error(text).problems
    assert message in problem.message
    assert str(problem.place) == place


def test_truncated_file_is_an_error_with_its_end() -> None:
    text = _text("dgx_like.xml")
    (problem,) = _error(text[: text.index("</cpu>")]).problems
    assert "cut off" in problem.message
    assert problem.place.line == 26


def test_entity_bomb_is_refused_at_once() -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE system [<!ENTITY e0 "ha">{entities}]>\n<system><cpu>&e11;</cpu></system>'
    assert looks_like(bomb)
    (problem,) = _error(bomb).problems
    assert "DOCTYPE" in problem.message
    assert problem.place.line == 1


def test_external_references_are_refused() -> None:
    (problem,) = _error('<!DOCTYPE system SYSTEM "file:///etc/hostname"><system/>').problems
    assert "DOCTYPE" in problem.message


def test_doctype_naming_a_file_is_passed_over_when_allowed() -> None:
    text = '<?xml version="1.0"?>\n<!DOCTYPE t SYSTEM "t.dtd">\n<t a="1">x<b/>y</t>'
    root = parse_xml(text, "t.xml", allow_doctype=True)
    assert (root.tag, root.line, root.column, root.text) == ("t", 3, 1, "xy")
    assert [child.tag for child in root.children] == ["b"]
    with pytest.raises(InputError, match="DOCTYPE"):
        parse_xml('<!DOCTYPE t [<!ENTITY e "x">]><t>&e;</t>', "t.xml", allow_doctype=True)


def test_nesting_is_bounded() -> None:
    text = "<system><cpu>" + "<pci busid='0000:00:00.0'>" * 300 + "</pci>" * 300 + "</cpu></system>"
    (problem,) = _error(text).problems
    assert "deeper than 64" in problem.message
    assert problem.place.column == 14 + 62 * len("<pci busid='0000:00:00.0'>")


def test_attributes_are_bounded() -> None:
    many = " ".join(f"a{n}='1'" for n in range(100))
    assert "more than 64 attributes" in str(_error(f"<system {many}/>"))
    assert "longer than" in str(_error(f"<system a='{'x' * 100_000}'/>"))


def test_numbers_of_devices_are_bounded() -> None:
    text = "<system><cpu>" + "<gpu dev='0'/>" * 1025 + "</cpu></system>"
    assert "more than 1024 gpu elements" in str(_error(text))
    text = "<system><cpu>" + "<pci class='0x03'/>" * 1025 + "</cpu></system>"
    assert "more than 1024 pci elements" in str(_error(text))


@pytest.mark.parametrize("count", ["", "-1", "many", "4096", "1e3"])
def test_link_counts_must_be_counts(count: str) -> None:
    text = _text("xgmi_like.xml").replace('count="2"', f'count="{count}"', 1)
    (problem,) = _error(text).problems
    assert (problem.place.line, problem.place.column) == (5, 9)


def test_link_count_of_zero_is_no_pair() -> None:
    text = _text("xgmi_like.xml").replace('count="2"', 'count="0"')
    assert [(pair.a, pair.b) for pair in read(text, "t.xml").nvlink_pairs or ()] == [(0, 2), (1, 2)]


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    lines = _text(name).split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        other = data.draw(st.integers(0, len(lines) - 1))
        start = data.draw(st.integers(0, max(len(lines[at]), 1)))
        width = data.draw(st.integers(0, 12))
        match data.draw(st.sampled_from(["drop", "copy", "swap", "cut", "text", "digit"])):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "copy":
                lines.insert(other, lines[at])
            case "swap":
                lines[at], lines[other] = lines[other], lines[at]
            case "cut":
                lines[at] = lines[at][:start] + lines[at][start + width :]
            case "text":
                lines[at] = lines[at][:start] + data.draw(st.text(max_size=8)) + lines[at][start:]
            case "digit":
                old, new = data.draw(st.tuples(*[st.sampled_from("0123456789x-.")] * 2))
                lines[at] = lines[at].replace(old, new)
    text = "\n".join(lines)
    looks_like(text)
    with suppress(InputError):
        facts = read(text, "t.xml")
        assert len(facts.gpu_gpu_class or ()) == len(facts.gpus or ())
        for chain in facts.pcie_chains or ():
            assert len(chain.nodes) == len(chain.rates_bytes_per_s)


@pytest.mark.parametrize(
    "text",
    [
        "<system><cpu>" + "<pci/>" * 100_000 + "</cpu></system>",
        "<system>" + "<cpu/>" * 250_000 + "</system>",
        "<!--" * 200_000,
        "<!-- -->" * 100_000 + "<system version='1'>",
        " " * 2_000_000,
    ],
)
def test_hostile_text_ends_soon(text: str) -> None:
    looks_like(text)
    with suppress(InputError):
        read(text, "t.xml")
