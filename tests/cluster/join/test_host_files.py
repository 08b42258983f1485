"""Several files of one host: every device joined on a key, every conflict with both files."""

from __future__ import annotations

import random
from itertools import permutations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.join.views import (
    capture,
    nccl_xml,
    nvlink_s,
    of_rule,
    pairs,
    pci,
    rules,
    skeleton,
    topo_m,
)
from meshwright.cluster.facts import Facts, Gpu, Nic
from meshwright.cluster.join.host_files import HostMerge, merge_host
from meshwright.cluster.readers import read_topology
from meshwright.findings import Severity
from meshwright.units import gbit_per_s
from support import shared_path


def _conflicts(merge: HostMerge) -> list[str]:
    return [rule for rule in rules(merge.findings) if rule.startswith("conflict-")]


def test_one_source_comes_back_as_it_is() -> None:
    facts = topo_m()
    for sources in ([facts], [facts, facts], [facts, msgspec.structs.replace(facts, path="b.txt")]):
        merge = merge_host(sources)
        assert merge.facts == facts or merge.facts.path == "b.txt"
        assert merge.facts.gpus == facts.gpus
        assert merge.findings == merge.joins == merge.apart == ()


def test_each_field_comes_from_the_source_that_knows_it() -> None:
    merge = merge_host([topo_m(), nccl_xml(), nvlink_s()])
    facts = merge.facts
    assert [gpu.index for gpu in facts.gpus] == [0, 1, 2, 3]
    assert facts.gpus[1] == Gpu(
        1,
        "GPU1",
        pci=pci(1),
        model="NVIDIA H100 80GB HBM3",
        numa=(0,),
        nvlinks=18,
        nvlinks_down=0,
        uuid="GPU-0001",
    )
    assert facts.nics[2].label == "NIC2"
    assert (facts.nics[2].pci, facts.nics[2].guid) == (pci(2, 2), f"{0xA2:016x}")
    assert facts.nics[2].rate_bytes_per_s == gbit_per_s(400)
    assert facts.nvlink_pairs == pairs(4, 18)
    assert facts.gpu_gpu_class[0][1] == "NV18"
    assert {chain.device for chain in facts.pcie_chains} == {
        *(f"GPU{i}" for i in range(4)),
        *(f"mlx5_{i}" for i in range(4)),
    }
    assert facts.path == "topo.xml + topo.txt + nvlink.txt"
    assert _conflicts(merge) == []


def test_a_join_by_number_is_said() -> None:
    merge = merge_host([topo_m(), nccl_xml()])
    found = of_rule(merge.findings, "joined-by-number")
    assert found.severity is Severity.NOTE
    assert found.numbers["left"] == "topo.xml"
    assert found.numbers["right"] == "topo.txt"
    assert [join.key for join in merge.joins] == ["index", "nic name"]
    assert [join.matched for join in merge.joins] == [4, 4]


def test_a_skeleton_is_numbered_by_its_addresses() -> None:
    """The XML lists the second socket first; NUMA nodes agree only in the order of addresses."""
    merge = merge_host([topo_m(), skeleton()])
    assert [gpu.pci for gpu in merge.facts.gpus] == [pci(i) for i in range(4)]
    assert "order of their PCI addresses" in of_rule(merge.findings, "joined-by-number").message
    assert _conflicts(merge) == []
    # The skeleton names its NICs by address, the matrix by device: nothing joins them.
    found = of_rule(merge.findings, "nics-not-joined")
    assert found.severity is Severity.WARNING
    assert [nic.pci for nic in merge.facts.nics] == [pci(i, 2) for i in range(4)]
    assert [row.index("PIX") for row in merge.facts.gpu_nic_class] == [0, 1, 2, 3]


def test_cuda_s_numbers_are_not_the_driver_s() -> None:
    """CUDA puts the fastest GPU first; by address the NUMA nodes agree."""
    order = (2, 3, 0, 1)
    hwloc = msgspec.structs.replace(
        nccl_xml(path="lstopo.xml"),
        format="hwloc_xml",
        gpus=tuple(Gpu(at, f"cuda{at}", pci=pci(i), numa=(i // 2,)) for at, i in enumerate(order)),
        pcie_chains=None,
        gpu_gpu_class=None,
        gpu_nic_class=None,
    )
    merge = merge_host([topo_m(), hwloc])
    assert [gpu.pci for gpu in merge.facts.gpus] == [pci(i) for i in range(4)]
    assert _conflicts(merge) == []


def test_addresses_in_two_spellings_are_one() -> None:
    other = msgspec.structs.replace(
        capture("n1"),
        gpus=tuple(Gpu(3 - i, f"GPU{3 - i}", pci=f"0000{pci(i).upper()}") for i in range(4)),
        gpu_gpu_class=None,
        gpu_nic_class=None,
        nvlink_pairs=None,
    )
    merge = merge_host([nccl_xml(), other])
    assert [join.key for join in merge.joins] == ["pci", "nic pci"]
    assert [gpu.index for gpu in merge.facts.gpus] == [0, 1, 2, 3]
    assert [gpu.pci for gpu in merge.facts.gpus] == [pci(3 - i) for i in range(4)]


def test_uuids_join_where_addresses_do_not() -> None:
    turned = msgspec.structs.replace(
        nvlink_s(path="other.txt"),
        format="meshwright_capture",
        gpus=tuple(Gpu(3 - i, f"GPU{3 - i}", uuid=f"gpu-{i:04X}") for i in range(4)),
    )
    merge = merge_host([nvlink_s(), turned])
    assert [join.key for join in merge.joins] == ["uuid"]
    assert [gpu.uuid for gpu in merge.facts.gpus] == [f"gpu-{3 - i:04X}" for i in range(4)]


def test_other_addresses_are_another_machine() -> None:
    other = msgspec.structs.replace(
        capture("n1"), gpus=tuple(Gpu(i, f"GPU{i}", pci=pci(i, 5)) for i in range(4))
    )
    merge = merge_host([nccl_xml(), other])
    found = of_rule(merge.findings, "join-refused")
    assert found.severity is Severity.WARNING
    assert {found.numbers["left"], found.numbers["right"]} == {"topo.xml", "n1.json"}
    assert len(merge.apart) == 1
    assert len(merge.facts.gpus) == 4


def test_other_numbers_of_gpus_are_not_joined_on_a_guess() -> None:
    merge = merge_host([topo_m(8), nvlink_s(7)])
    assert rules(merge.findings) == ["join-refused"]
    assert "8 GPUs there and 7 here" in merge.findings[0].message
    assert [facts.path for facts in merge.apart] == ["nvlink.txt"]


def test_a_container_s_part_of_the_gpus_is_joined_by_address() -> None:
    part = msgspec.structs.replace(
        nccl_xml(path="part.xml"),
        gpus=tuple(Gpu(i, str(i), pci=pci(i + 1)) for i in range(3)),
        gpu_gpu_class=None,
        gpu_nic_class=None,
        pcie_chains=None,
    )
    merge = merge_host([capture("n1"), part])
    assert len(merge.facts.gpus) == 4
    found = of_rule(merge.findings, "conflict-gpu-count")
    assert (found.numbers["in_left"], found.numbers["in_right"]) == (4, 3)


CONFLICTS = {
    "gpu-model": (
        lambda: [
            nvlink_s(),
            capture(
                "n1",
                path="c.json",
                gpus=tuple(
                    Gpu(i, f"GPU{i}", model="NVIDIA A100-SXM4-80GB", nvlinks=18) for i in range(4)
                ),
            ),
        ],
        ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"),
    ),
    "nvlink-count": (lambda: [topo_m(links=17), nvlink_s(up=18)], ("18", "17")),
    "nvlink-pairs": (
        lambda: [topo_m(links=18), msgspec.structs.replace(nccl_xml(), nvlink_pairs=pairs(4, 12))],
        ("18", "12"),
    ),
    "nic-rate": (
        lambda: [nccl_xml(rate=gbit_per_s(200)), capture("n1", path="c.json")],
        ("50.0 GB/s", "25.0 GB/s"),
    ),
    "numa": (
        lambda: [
            topo_m(),
            msgspec.structs.replace(
                nccl_xml(),
                gpus=tuple(Gpu(i, str(i), pci=pci(i), numa=(1 - i // 2,)) for i in range(4)),
            ),
        ],
        ("1", "0"),
    ),
    "path-class": (lambda: [topo_m(near="PXB"), nccl_xml()], ("PXB", "PIX")),
    "nic-pci": (
        lambda: [
            capture("n1"),
            msgspec.structs.replace(
                nccl_xml(), nics=tuple(Nic(i, f"mlx5_{i}", pci=pci(i, 9)) for i in range(4))
            ),
        ],
        (pci(0, 2), pci(0, 9)),
    ),
}


@pytest.mark.parametrize("rule", CONFLICTS)
def test_conflicts_name_both_files_and_both_values(rule: str) -> None:
    make, values = CONFLICTS[rule]
    sources = make()
    found = of_rule(merge_host(sources).findings, f"conflict-{rule}")
    assert found.severity is Severity.WARNING
    assert {found.numbers["left"], found.numbers["right"]} == {facts.path for facts in sources}
    first = found.numbers["values"][0]
    assert first[1:] == list(values)
    for text in (found.numbers["left"], found.numbers["right"], *values, "is taken"):
        assert str(text) in found.message


def test_links_that_are_up_count_behind_a_switch() -> None:
    merge = merge_host([topo_m(links=18), nvlink_s(up=17)])
    assert {pair.count for pair in merge.facts.nvlink_pairs} == {17}
    assert "nvlink.txt is taken" in of_rule(merge.findings, "conflict-nvlink-count").message


def test_in_a_mesh_the_sum_of_a_gpu_s_pairs_is_its_links() -> None:
    mesh = msgspec.structs.replace(
        topo_m(4, links=4), nvlink_pairs=pairs(4, 4)[:1] + pairs(4, 4)[5:]
    )
    assert _conflicts(merge_host([mesh, nvlink_s(up=4)])) == []
    merge = merge_host([mesh, nvlink_s(up=3)])
    assert {pair.count for pair in merge.facts.nvlink_pairs} == {4}
    assert (
        "topo.txt is taken for the pairs"
        in of_rule(merge.findings, "conflict-nvlink-count").message
    )


def test_a_virtual_machine_s_matrix_gives_way_to_the_tree() -> None:
    merge = merge_host([topo_m(near="NODE"), nccl_xml()])
    assert [row.index("PIX") for row in merge.facts.gpu_nic_class] == [0, 1, 2, 3]
    found = of_rule(merge.findings, "path-class-hidden")
    assert found.severity is Severity.NOTE
    assert found.numbers["count"] == 4
    assert _conflicts(merge) == []


def test_nics_of_one_source_alone_are_kept() -> None:
    merge = merge_host([topo_m(nics=6), nccl_xml(nics=4)])
    assert [nic.name for nic in merge.facts.nics] == [f"mlx5_{i}" for i in range(6)]
    found = of_rule(merge.findings, "nic-in-one-only")
    assert (found.numbers["only_left"], found.numbers["only_right"]) == (0, 2)


def test_ports_of_one_card_stay_two() -> None:
    ports = tuple(
        Nic(i, f"mlx5_{i}", pci=pci(i // 2, 2), guid=f"{0xA0 + i // 2:016x}", port=i % 2 + 1)
        for i in range(8)
    )
    xml = msgspec.structs.replace(
        nccl_xml(nics=0), nics=ports, gpu_nic_class=None, nic_nic_class=None
    )
    merge = merge_host(
        [
            xml,
            topo_m(nics=8),
            msgspec.structs.replace(
                xml,
                path="again.xml",
                gpus=tuple(msgspec.structs.replace(gpu, compute_capability=90) for gpu in xml.gpus),
            ),
        ]
    )
    assert [(nic.name, nic.port) for nic in merge.facts.nics] == [
        (f"mlx5_{i}", i % 2 + 1) for i in range(8)
    ]
    assert _conflicts(merge) == []


def test_a_label_is_no_device_name() -> None:
    bare = msgspec.structs.replace(
        topo_m(), nics=tuple(Nic(i, f"NIC{i}", label=f"NIC{i}") for i in range(4))
    )
    assert "nics-not-joined" in rules(merge_host([bare, nccl_xml()]).findings)


# Properties ---------------------------------------------------------------------------------------


@st.composite
def views(draw: st.DrawFn) -> list[Facts]:
    """One host as some of four tools show it, each with its devices in an order of its own."""
    gpus = draw(st.integers(1, 6))
    nics = draw(st.integers(0, 4))
    kinds = draw(st.sets(st.sampled_from("mxsc"), min_size=1))
    seed = draw(st.randoms(use_true_random=False))
    made = []
    if "m" in kinds:
        made.append(_shuffled(topo_m(gpus, nics), seed, rows=False))
    if "x" in kinds:
        made.append(_shuffled(nccl_xml(gpus, nics), seed, rows=True))
    if "s" in kinds:
        made.append(nvlink_s(gpus))
    if "c" in kinds:
        made.append(capture("n1", gpus, nics, nics=nccl_xml(gpus, nics).nics))
    return made


def _shuffled(facts: Facts, seed: random.Random, *, rows: bool) -> Facts:
    """Return the same facts with the NICs in another order (and, where told, the GPUs)."""
    nics = list(range(len(facts.nics)))
    gpus = list(range(len(facts.gpus)))
    seed.shuffle(nics)
    if rows:
        seed.shuffle(gpus)
    return msgspec.structs.replace(
        facts,
        gpus=tuple(facts.gpus[i] for i in gpus),
        nics=tuple(facts.nics[i] for i in nics),
        gpu_gpu_class=tuple(tuple(facts.gpu_gpu_class[i][j] for j in gpus) for i in gpus),
        gpu_nic_class=tuple(tuple(facts.gpu_nic_class[i][j] for j in nics) for i in gpus),
        nic_nic_class=tuple(tuple(facts.nic_nic_class[i][j] for j in nics) for i in nics),
    )


@given(views(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_changes_nothing_and_views_of_one_host_agree(
    sources: list[Facts], seed: random.Random
) -> None:
    merge = merge_host(sources)
    turned = list(sources)
    seed.shuffle(turned)
    assert merge_host(turned) == merge
    assert merge_host([*turned, *sources]) == merge
    assert merge.apart == ()
    assert _conflicts(merge) == []
    facts = merge.facts
    for source in sources:
        assert {gpu.index for gpu in source.gpus} <= {gpu.index for gpu in facts.gpus}
        assert {nic.name for nic in source.nics or ()} <= {nic.name for nic in facts.nics or ()}
    size, nics = len(facts.gpus), len(facts.nics or ())
    for matrix, rows, columns in (
        (facts.gpu_gpu_class, size, size),
        (facts.gpu_nic_class, size, nics),
        (facts.nic_nic_class, nics, nics),
    ):
        assert matrix is None or [len(row) for row in matrix] == [columns] * rows
    near = facts.gpu_nic_class
    if near is not None:
        for gpu, row in zip(facts.gpus, near, strict=True):
            for nic, cell in zip(facts.nics, row, strict=True):
                assert cell == ("PIX" if nic.name == f"mlx5_{gpu.index}" else "NODE")


@given(views())
@settings(max_examples=30, deadline=None)
def test_merging_again_with_a_source_of_it_changes_no_device(sources: list[Facts]) -> None:
    once = merge_host(sources).facts
    for source in sources:
        again = merge_host([once, source]).facts
        assert [(gpu.index, gpu.pci, gpu.model, gpu.nvlinks) for gpu in again.gpus] == [
            (gpu.index, gpu.pci, gpu.model, gpu.nvlinks) for gpu in once.gpus
        ]
        assert len(again.nics or ()) == len(once.nics or ())


@pytest.mark.captured
def test_a_cloud_s_matrix_and_xml_of_one_machine_type() -> None:
    """The GPUs in address order have the NUMA nodes that the matrix prints (1, 1, 0, 0, 3, …)."""
    files = ["nvidia_smi_topo_m/a100_azure_ndv4_9nic_node.txt", "nccl_topo_xml/azure_ndv4.xml"]
    sources = [read_topology(shared_path(f"data/topology/{name}")) for name in files]
    for order in permutations(sources):
        merge = merge_host(order)
        facts = merge.facts
        assert [gpu.numa for gpu in facts.gpus] == [(n,) for n in (1, 1, 0, 0, 3, 3, 2, 2)]
        assert facts.gpus[0].pci == "0001:00:00.0"
        assert {pair.count for pair in facts.nvlink_pairs} == {12}
        assert [row.count("PIX") for row in facts.gpu_nic_class] == [2] * 8
        assert _conflicts(merge) == []
        assert "nics-not-joined" in rules(merge.findings)


@pytest.mark.captured
@pytest.mark.parametrize(
    ("matrix", "xml"),
    [
        ("h100_8nic_merged_cells_tabs.txt", "azure_ndv5.xml"),
        ("a100_9nic_merged_header.txt", "aws_p4d.xml"),
    ],
)
def test_captured_pairs_of_eight_gpus_join(matrix: str, xml: str) -> None:
    sources = [
        read_topology(shared_path(f"data/topology/nvidia_smi_topo_m/{matrix}")),
        read_topology(shared_path(f"data/topology/nccl_topo_xml/{xml}")),
    ]
    merge = merge_host(sources)
    assert len(merge.facts.gpus) == 8
    assert all(gpu.pci for gpu in merge.facts.gpus)
    assert merge.facts.pcie_chains is not None
    assert len(merge.facts.nvlink_pairs) == 28
    assert merge.apart == ()
