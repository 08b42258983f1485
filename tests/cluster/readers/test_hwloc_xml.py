"""The hwloc XML reader: devices joined, bandwidth matrices, PCIe ways, and files without GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, NvlinkPair, PcieChain
from meshwright.cluster.readers.hwloc_xml import FORMAT, looks_like, read
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


def _error(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text, "t.xml")
    return caught.value


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    rows = rows_of(FORMAT)
    assert len(rows) == 2
    for row in rows:
        check_counts(read(Path(row["path"]).read_text(), row["file"]), row)


@pytest.mark.captured
def test_captured_dgx2_has_two_planes_that_are_one_machine() -> None:
    (row,) = [row for row in rows_of(FORMAT) if "dgx2" in row["file"]]
    facts = read(Path(row["path"]).read_text(), row["file"])
    assert [(gpu.index, gpu.name, gpu.numa) for gpu in facts.gpus or ()] == [
        (index, f"nvml{index}", (index // 8,)) for index in range(16)
    ]
    pairs = facts.nvlink_pairs or ()
    assert {(pair.count, pair.via_switch, pair.both_ways) for pair in pairs} == {(6, True, True)}
    assert {(pair.a // 8, pair.b // 8) for pair in pairs} == {(0, 0), (1, 1)}
    planes = finding_of(facts, "nvlink-planes-not-joined").numbers["planes"]
    assert isinstance(planes, list)
    assert [(len(one["gpus"]), len(one["nvswitches"])) for one in planes] == [(8, 6), (8, 6)]
    assert rules(facts) == ["nvlink-planes-not-joined"]
    assert facts.gpu_gpu_class is not None
    assert facts.gpu_gpu_class[0][1:9] == ("NV6",) * 7 + ("SYS",)
    assert (facts.pcie_chains or ())[0] == PcieChain(
        "nvml0", ("0000:32:00.0", "0000:2c:00.0", "cpu0"), (15_753_846e3,) * 3
    )


def test_gpus_are_joined_by_pci_device_in_the_order_of_nvml() -> None:
    facts = _fixture("switched_4gpu.xml")
    assert [(g.index, g.name, g.pci, g.numa, g.model) for g in facts.gpus or ()] == [
        (0, "nvml0", "0000:83:00.0", (2,), "Synthetic G40"),
        (1, "nvml1", "0000:84:00.0", (2,), "Synthetic G40"),
        (2, "nvml2", "0000:13:00.0", (0, 1), "Synthetic G40"),
        (3, "nvml3", "0000:14:00.0", (0, 1), "Synthetic G40"),
    ]
    assert facts.numa_ids == (0, 1, 2)
    assert (facts.hosts, facts.switches, facts.cables, facts.other_devices) == (None,) * 4


@pytest.mark.parametrize(
    ("gone", "names"),
    [
        ("nvml", [(0, "cuda0"), (1, "cuda1"), (2, "cuda2"), (3, "cuda3")]),
        ("nvml3|cuda|opencl", [(0, "0000:13:00.0"), (1, "0000:14:00.0")]),
    ],
)
def test_without_nvml_another_library_or_the_file_order_numbers(
    gone: str, names: list[tuple[int, str]]
) -> None:
    text = _text("switched_4gpu.xml")
    for name in gone.split("|"):
        text = text.replace(f'name="{name}', 'name="gone')
    facts = read(text, "t.xml")
    assert [(gpu.index, gpu.name) for gpu in facts.gpus or ()][: len(names)] == names


def test_gpus_seen_by_class_only() -> None:
    text = _text("switched_4gpu.xml")
    for name in ("nvml", "cuda", "opencl"):
        text = text.replace(f'name="{name}', 'name="gone')
    facts = read(text[: text.index("  <distances2hetero")] + "</topology>", "t.xml")
    assert [gpu.index for gpu in facts.gpus or ()] == [0, 1, 2, 3]
    assert facts.nvlink_pairs is None
    assert finding_of(facts, "gpu-by-class-only").numbers == {"count": 4}


def test_nics_from_os_devices_and_by_class() -> None:
    facts = _fixture("switched_4gpu.xml")
    assert [(nic.name, nic.pci, nic.guid, nic.port) for nic in facts.nics or ()] == [
        ("mlx5_1", "0000:15:00.0", "0a1b2c3d00040100", 1),
        ("eno1", "0000:20:00.0", None, None),
        ("0000:20:00.1", "0000:20:00.1", None, None),
        ("mlx5_0", "0000:85:00.0", "0a1b2c3d00040000", 1),
    ]
    assert finding_of(facts, "display-not-gpu").numbers == {"count": 1}
    assert rules(facts) == ["display-not-gpu"]


def test_pairs_through_switches_add_the_links_to_each() -> None:
    facts = _fixture("switched_4gpu.xml")
    assert facts.nvswitches == ("0000:40:00.0", "0000:41:00.0")
    assert facts.nvlink_pairs == tuple(
        NvlinkPair(a, b, 5, via_switch=True) for a in range(4) for b in range(a + 1, 4)
    )


def test_classes_by_the_tree() -> None:
    facts = _fixture("switched_4gpu.xml")
    assert facts.gpu_nic_class == (
        ("SYS", "SYS", "SYS", "PIX"),
        ("SYS", "SYS", "SYS", "PIX"),
        ("PIX", "NODE", "NODE", "SYS"),
        ("PIX", "NODE", "NODE", "SYS"),
    )
    assert facts.nic_nic_class is not None
    assert facts.nic_nic_class[1] == ("NODE", "X", "PIX", "SYS")
    mesh = _fixture("mesh_plain_indexes.xml")
    assert mesh.gpu_gpu_class == (
        ("X", "NV2", "NV1", "NODE"),
        ("NV2", "X", "PHB", "NV1"),
        ("NV1", "PHB", "X", "NV2"),
        ("NODE", "NV1", "NV2", "X"),
    )
    assert mesh.gpu_nic_class == (("NODE",), ("NODE",), ("NODE",), ("PIX",))


def test_more_than_one_switch_between_is_pxb() -> None:
    text = _text("mesh_plain_indexes.xml")
    deeper = text.replace(
        '<object type="Bridge" gp_index="8"',
        '<object type="Bridge" gp_index="200" pci_busid="0000:03:04.0"><object type="Bridge" '
        'gp_index="201" pci_busid="0000:50:00.0"><object type="Bridge" gp_index="8"',
    ).replace(
        '</object>\n          </object>\n        </object>\n        <object type="Bridge" gp_index="9"',
        "</object></object></object>\n          </object>\n        </object>\n"
        '        <object type="Bridge" gp_index="9"',
    )
    deeper = deeper[: deeper.index("  <distances2")] + "</topology>"
    facts = read(deeper, "t.xml")
    assert facts.gpu_gpu_class is not None
    assert facts.gpu_gpu_class[0][1] == "PXB"
    assert (facts.pcie_chains or ())[1].nodes == ("0000:50:00.0", "0000:02:00.0", "cpu0")
    assert (facts.pcie_chains or ())[1].rates_bytes_per_s == (15_753_846e3, None, 15_753_846e3)


def test_chains_name_switches_and_take_the_better_end_of_a_link() -> None:
    chains = {chain.device: chain for chain in _fixture("switched_4gpu.xml").pcie_chains or ()}
    # NVML's figure for the GPU is a generation behind: its port says more.
    assert chains["nvml2"] == PcieChain(
        "nvml2", ("0000:11:00.0", "package0"), (31_507_692e3, 31_507_692e3)
    )
    assert chains["mlx5_0"] == PcieChain(
        "mlx5_0", ("0000:81:00.0", "cpu2"), (15_753_846e3, 31_507_692e3)
    )
    assert chains["eno1"] == PcieChain("eno1", ("package0",), (984_615e3,))


def test_a_speed_of_zero_is_unknown() -> None:
    text = _text("ordinary_machine.xml").replace("0.984615", "0.000000")
    assert (read(text, "t.xml").pcie_chains or ())[0].rates_bytes_per_s == (None,)


def test_mesh_with_plain_indexes_and_one_direction_missing() -> None:
    facts = _fixture("mesh_plain_indexes.xml")
    assert facts.nvlink_pairs == (
        NvlinkPair(0, 1, 2, via_switch=False),
        NvlinkPair(0, 2, 1, via_switch=False, both_ways=False),
        NvlinkPair(1, 3, 1, via_switch=False),
        NvlinkPair(2, 3, 2, via_switch=False),
    )
    assert facts.nvswitches == ()
    found = finding_of(facts, "nvlink-asymmetric")
    assert found.numbers == {"pairs": [["nvml0", "nvml2"]], "count": 1}
    assert (found.severity, found.place.line) == (Severity.WARNING, 50)
    assert [nic.guid for nic in facts.nics or ()] == [None]


def test_planes_without_a_link_between_them_are_said() -> None:
    facts = _fixture("two_planes.xml")
    assert facts.nvlink_pairs == (
        NvlinkPair(0, 1, 1, via_switch=True),
        NvlinkPair(2, 3, 1, via_switch=True),
    )
    assert facts.nvswitches == ("0000:0a:00.0", "0000:0c:00.0")
    found = finding_of(facts, "nvlink-planes-not-joined")
    assert found.severity is Severity.WARNING
    assert found.numbers["planes"] == [
        {"gpus": ["nvml0", "nvml1"], "nvswitches": ["0000:0a:00.0"]},
        {"gpus": ["nvml2", "nvml3"], "nvswitches": ["0000:0c:00.0"]},
    ]


def test_a_link_between_switches_joins_the_planes() -> None:
    text = _text("two_planes.xml")
    start, end = text.index("    <u64values"), text.index("  </distances2hetero>")
    cells = text[start:end].replace('<u64values length="9">', "").replace("</u64values>", "")
    values = cells.split()
    values[4 * 6 + 5] = values[5 * 6 + 4] = "150000"
    joined = f'    <u64values length="9">{" ".join(values)} </u64values>\n'
    facts = read(text[:start] + joined + text[end:], "t.xml")
    assert len(facts.nvlink_pairs or ()) == 6
    assert {pair.count for pair in facts.nvlink_pairs or ()} == {1}
    assert rules(facts) == []


def test_cpu_end_points_join_no_pair_and_unknown_ones_are_named() -> None:
    facts = _fixture("cpu_end_points.xml")
    # 40000 and 20000 MB/s: links of the first generation.
    assert facts.nvlink_pairs == (NvlinkPair(0, 1, 2, via_switch=False),)
    assert finding_of(facts, "nvlink-to-cpu").numbers == {"gpus": 2}
    assert finding_of(facts, "nvlink-target-unknown").numbers["targets"] == ["PCIDev:999"]
    assert facts.numa_ids == (0, 8)
    assert facts.nics == ()


def test_fewer_links_than_the_others() -> None:
    text = _text("mesh_plain_indexes.xml")
    start, end = text.index("    <u64values"), text.index("  </distances2>")
    values = "0 50000 50000 0 50000 0 0 50000 50000 0 0 25000 0 50000 25000 0"
    one = f'    <u64values length="9">{values} </u64values>\n'
    found = finding_of(read(text[:start] + one + text[end:], "t.xml"), "nvlink-count-differs")
    assert found.numbers == {"nvml0": 4, "nvml1": 4, "nvml2": 3, "nvml3": 3}
    assert "GPU nvml2, nvml3: fewer NVLinks than the 4" in found.message
    assert found.severity is Severity.WARNING


def test_bandwidths_of_no_known_link_count_as_one() -> None:
    text = _text("mesh_plain_indexes.xml").replace("50000", "53125").replace("25000", "26562")
    facts = read(text, "t.xml")
    assert {pair.count for pair in facts.nvlink_pairs or ()} == {1}
    assert finding_of(facts, "nvlink-count-unclear").numbers == {"mb_per_s": [26562, 53125]}


def test_xgmi_and_gpu_memory_as_a_numa_node() -> None:
    facts = _fixture("xgmi_3gpu.xml")
    assert [(gpu.name, gpu.numa, gpu.model) for gpu in facts.gpus or ()] == [
        ("rsmi0", (0,), "Synthetic I2"),
        ("rsmi1", (0,), "Synthetic I2"),
        ("rsmi2", (1,), "Synthetic I2"),
    ]
    assert facts.numa_ids == (0, 1)
    assert [(pair.a, pair.b, pair.count) for pair in facts.nvlink_pairs or ()] == [
        (0, 1, 1),
        (1, 2, 1),
    ]
    assert rules(facts) == ["xgmi-pairs-may-be-indirect"]


def test_ordinary_machine_without_gpus() -> None:
    facts = _fixture("ordinary_machine.xml")
    assert facts.gpus == ()
    assert (facts.nvswitches, facts.nvlink_pairs) == (None, None)
    assert [(nic.name, nic.pci, nic.guid) for nic in facts.nics or ()] == [
        ("enp2s0", "0000:02:00.0", None),
        ("rxe0", None, "020000fffe000002"),
    ]
    assert facts.numa_ids == (0,)
    assert finding_of(facts, "nic-without-pci").numbers == {"count": 1, "names": ["docker0"]}
    assert (facts.pcie_chains or ())[0] == PcieChain("enp2s0", ("cpu0",), (984_615e3,))
    assert facts.findings[0].rule == "topology/display-not-gpu"


def test_without_io_devices_are_unknown() -> None:
    facts = _fixture("no_io.xml")
    assert (facts.gpus, facts.nics, facts.nvswitches, facts.pcie_chains) == (None,) * 4
    assert facts.numa_ids == (3,)
    assert rules(facts) == ["io-not-listed"]


def test_without_bridges_classes_are_unknown() -> None:
    device = (
        '<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:1] [0:0]">'
        '<object type="OSDev" name="nvml0" osdev_type="1"/></object>'
    ).replace("10de:1]", "10de:0001]")
    text = (
        f'<topology version="2.0"><object type="Machine" os_index="0">{device}</object></topology>'
    )
    facts = read(text, "t.xml")
    assert [gpu.name for gpu in facts.gpus or ()] == ["nvml0"]
    assert (facts.gpu_gpu_class, facts.gpu_nic_class, facts.pcie_chains) == (None,) * 3


def test_library_devices_without_a_pci_device() -> None:
    devices = "".join(
        f'<object type="OSDev" gp_index="{9 + n}" name="{name}" osdev_type="1"/>'
        for n, name in enumerate(["cuda0", "nvml0", "cuda1", "nvml1"])
    )
    matrix = (
        '<distances2 type="OSDev" nbobjs="2" name="NVLinkBandwidth" indexing="gp">'
        "<indexes>10 12</indexes><u64values>1 25000 25000 1</u64values></distances2>"
    )
    text = f'<topology><object type="Machine">{devices}</object>{matrix}</topology>'
    facts = read(text, "t.xml")
    assert [(gpu.index, gpu.name, gpu.pci) for gpu in facts.gpus or ()] == [
        (0, "nvml0", None),
        (1, "nvml1", None),
    ]
    assert facts.nvlink_pairs == (NvlinkPair(0, 1, 1, via_switch=False),)


@pytest.mark.parametrize(
    ("nodeset", "numa"),
    [
        ("0x00000002", (1,)),
        ("0x00000001,,0x0", (64,)),
        ("0x00000001,0x00000000,0x00000002", (1, 64)),
        ("0xf...f", (1, 64)),
        ("0xf...f,0x00000001", (64,)),
        ("", ()),
    ],
)
def test_nodesets(nodeset: str, numa: tuple[int, ...]) -> None:
    nodes = "".join(f'<object type="NUMANode" os_index="{one}"/>' for one in (1, 64))
    device = '<object type="PCIDev" pci_busid="01:00.0" pci_type="1200 [1002:0001] [0000:0000] 0"/>'
    text = (
        f'<topology version="2.0"><object type="Machine">{nodes}'
        f'<object type="Group" nodeset="{nodeset}">{device}</object></object></topology>'
    )
    assert [gpu.numa for gpu in read(text, "t.xml").gpus or ()] == [numa]


def test_looks_like_by_content() -> None:
    assert looks_like(_text("no_io.xml"))
    assert not looks_like("<topology><cpu/></topology>")
    assert not looks_like("<system version='1'><object/></system>")
    assert not looks_like("topology: <object>")


_MATRIX = (
    '<distances2 name="NVLinkBandwidth" nbobjs="{}">'
    "<indexes>{}</indexes><u64values>{}</u64values></distances2>"
)


def _with_matrix(size: int, indexes: str, values: str) -> str:
    matrix = _MATRIX.format(size, indexes, values)
    return f"<topology><object><object type='PCIDev'/></object>{matrix}</topology>"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "t.xml:1:1", "empty"),
        ("\x00\x01\xff" * 9, "t.xml:1:1", "not well-formed"),
        ("<system/>", "t.xml:1:1", "the root element is system"),
        ("\n <topology/>", "t.xml:2:2", "holds no object"),
        ("<topology><object type='NUMANode' os_index='a'/></topology>", ":11", "no integer"),
        (f"<topology><object gp_index='{'9' * 99}'/></topology>", ":11", "no integer"),
        ("<topology><object nodeset='0xg'/></topology>", ":11", "no bit mask"),
        ("<topology><object nodeset='0x123456789'/></topology>", ":11", "no bit mask"),
        (
            "<topology><object><object type='PCIDev' pci_link_speed='1e309'/></object></topology>",
            ":19",
            "no rate",
        ),
        (_with_matrix(2, "1 2", "0 0 0"), ":51", "u64values hold 3 numbers, not 4"),
        (_with_matrix(2, "1 2 3", "0 0 0 0"), ":51", "indexes hold more than 2"),
        (_with_matrix(1, "a:b", "0"), ":51", "no gp_index"),
        (_with_matrix(1, "1", "-1"), ":51", "no number"),
        (_with_matrix(1, "1", "9" * 99), ":51", "no number"),
        (_with_matrix(100_000, "1", "1"), ":51", "nbobjs must be"),
        ("<topology>" + "<object>" * 90 + "</object>" * 90 + "</topology>", ":515", "deeper"),
        ('<!DOCTYPE topology [<!ENTITY a "b">]><topology/>', "t.xml:1:", "DOCTYPE"),
    ],
)
def test_unreadable_files(text: str, place: str, message: str) -> None:
    (problem,) = _error(text).problems
    assert message in problem.message
    assert place in str(problem.place)


def test_truncated_file_is_an_error_with_its_end() -> None:
    text = _text("two_planes.xml")
    (problem,) = _error(text[: text.index("</distances2hetero>")]).problems
    assert "cut off" in problem.message
    assert problem.place.line == text[: text.index("</distances2hetero>")].count("\n") + 1


def test_numbers_of_devices_are_bounded() -> None:
    def machine(kind: str) -> str:
        device = f'<object type="PCIDev" pci_type="{kind} [10de:0001] [0000:0000] 00"/>'
        return f'<topology><object type="Machine">{device * 1025}</object></topology>'

    assert "more than 1024 GPUs" in str(_error(machine("0302")))
    assert "more than 1024 network adapters" in str(_error(machine("0200")))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts = facts_or_input_error(mutated(_text(name), data, "0123456789x-.:,"), looks_like, read)
    if facts is not None:
        for chain in facts.pcie_chains or ():
            assert len(chain.nodes) == len(chain.rates_bytes_per_s)
        for row in facts.gpu_nic_class or ():
            assert len(row) == len(facts.nics or ())


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@pytest.mark.parametrize(
    "text",
    [
        "<topology>" + "<object/>" * 250_000,
        "<topology><object " + "a" * 5_000_000 + ">",
        "<topology><object/><distances2 name='NVLinkBandwidth' nbobjs='256'><indexes>"
        + "1 " * 2_500_000,
        "<!--" * 200_000,
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    assert facts_or_input_error(text, looks_like, read) is None


def test_a_full_matrix_of_the_greatest_size_is_read() -> None:
    size = 256
    devices = "".join(
        f'<object type="OSDev" gp_index="{n + 1}" name="nvml{n}" osdev_type="1"/>'
        for n in range(size)
    )
    indexes = " ".join(str(n + 1) for n in range(size))
    matrix = _MATRIX.format(size, indexes, "25000 " * size * size)
    text = f'<topology><object type="Machine">{devices}</object>{matrix}</topology>'
    assert len(read(text, "t.xml").nvlink_pairs or ()) == size * (size - 1) // 2
