"""Node types from files: switch, mesh or none; which NIC a GPU sends by; what was assumed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, Gpu, Nic, NvlinkPair
from meshwright.cluster.gpus import GpuModel, find_gpu
from meshwright.cluster.nodes.node import NodeType, assign_nics, default_nic_rate, node_from_facts
from meshwright.cluster.readers import read_topology
from meshwright.findings import Finding
from meshwright.origin import Origin
from meshwright.units import gb_per_s, gbit_per_s
from support import FIXTURES, shared_path

H100 = find_gpu("H100-SXM")


def _own(
    name: str, gpu: GpuModel | None = None, nic: float | None = None
) -> tuple[NodeType, list[Finding]]:
    (path,) = (
        path
        for kind in ("nvidia_smi_topo_m", "nccl_topo_xml")
        for path in FIXTURES.glob(f"topology/{kind}/{name}.*")
    )
    return node_from_facts(read_topology(path), gpu, nic, name)


def _rules(findings: list[Finding]) -> list[str]:
    return [one.rule for one in findings]


KINDS = [
    ("tabs_4gpu_2nic", H100, "switch"),  # NV9 to each of three: 27 links
    ("tabs_4gpu_2nic", None, "switch"),  # no GPU has 27 links
    ("cube_mesh_4gpu", find_gpu("V100-SXM2"), "mesh"),
    ("cube_mesh_4gpu", None, "mesh"),
    ("fused_cpu_numa", None, "none"),
    ("vm_phb_cut_list", H100, "mesh"),  # two GPUs and six links: a pair
    ("two_hosts", None, "switch"),  # the XML says that NVLink ends at a switch
    ("xgmi_like", None, "mesh"),
    ("skeleton", None, "unknown"),  # NCCL fills NVLink in at run time
    ("skeleton", H100, "switch"),
]


@pytest.mark.parametrize(("name", "gpu", "nvlink"), KINDS)
def test_switch_mesh_or_none(name: str, gpu: GpuModel | None, nvlink: str) -> None:
    node, _ = _own(name, gpu)
    assert node.nvlink == nvlink
    direct = [link for link in node.graph.links if link.kind in ("nvlink", "xgmi")]
    assert bool(direct) == (nvlink == "mesh")
    assert node.nvlink_bytes_per_s is None or nvlink == "switch"


def test_rates_come_from_the_gpu_model() -> None:
    # Nine of eighteen links of 25 GB/s go into the switch.
    assert _own("tabs_4gpu_2nic", H100)[0].nvlink_bytes_per_s == gb_per_s(225)
    assert _own("tabs_4gpu_2nic")[0].nvlink_bytes_per_s is None
    assert _own("skeleton", H100)[0].nvlink_bytes_per_s == gb_per_s(450)
    mesh, _ = _own("cube_mesh_4gpu", find_gpu("V100-SXM2"))
    rates = {(one.tail, one.head): one.rate_bytes_per_s for one in mesh.graph.links}
    assert rates["gpu0", "gpu1"] == gb_per_s(50)
    assert rates["gpu2", "gpu0"] == gb_per_s(25)
    assert ("gpu0", "gpu3") not in rates


def _matrix(gpus: int, count: int, missing: int = 0) -> Facts:
    pairs = [NvlinkPair(a, b, count) for a in range(gpus) for b in range(a + 1, gpus)]
    return Facts(
        format="nvidia_smi_topo_m",
        path="x",
        gpus=tuple(Gpu(i, f"GPU{i}") for i in range(gpus)),
        nvlink_pairs=tuple(pairs[: len(pairs) - missing]),
    )


SHAPES = [
    (8, 18, 0, "H100-SXM", "switch", 450),
    (8, 12, 0, "A100-SXM", "switch", 300),
    (4, 6, 0, "H100-SXM", "mesh", None),  # HGX H100 4-GPU: six links a pair
    (4, 4, 0, "A100-SXM", "mesh", None),
    (4, 6, 0, "A100-SXM", "switch", 150),  # a slice of a larger host: 18 links of 12
    (8, 18, 1, "H100-SXM", "switch", 450),  # links are shared, whatever one pair says
    (8, 18, 12, "H100-SXM", "mesh", None),  # far from all pairs
    (8, 18, 0, None, "switch", None),
    (4, 6, 0, None, "mesh", None),
]


@pytest.mark.parametrize(("gpus", "count", "missing", "gpu", "nvlink", "rate"), SHAPES)
def test_a_full_matrix_of_more_links_than_a_gpu_has_is_a_switch(
    gpus: int, count: int, missing: int, gpu: str | None, nvlink: str, rate: float | None
) -> None:
    model = find_gpu(gpu) if gpu else None
    node, _ = node_from_facts(_matrix(gpus, count, missing), model, None, "x")
    assert node.nvlink == nvlink
    assert node.nvlink_bytes_per_s == (None if rate is None else gb_per_s(rate))


def _box(pairs: dict[tuple[int, int], int], gpus: int = 8) -> Facts:
    joined = tuple(NvlinkPair(a, b, count) for (a, b), count in pairs.items() if count)
    names = tuple(Gpu(i, f"GPU{i}") for i in range(gpus))
    return Facts(format="nvidia_smi_topo_m", path="x", gpus=names, nvlink_pairs=joined)


def test_a_gpu_with_a_link_down_keeps_the_others_at_full_rate() -> None:
    pairs = {(a, b): 17 if 3 in (a, b) else 18 for a in range(8) for b in range(a + 1, 8)}
    node, _ = node_from_facts(_box(pairs), H100, None, "x")
    assert node.nvlink == "switch"
    assert node.nvlink_bytes_per_s == gb_per_s(450)
    assert node.nvlink_rates == (gb_per_s(450),) * 3 + (gb_per_s(425),) + (gb_per_s(450),) * 4
    assert node.nvlink_gpus is None
    assert node.on_switch() == (True,) * 8
    assert node.graph.path(0, 3)  # PCIe is there, and not used
    # Of an unknown model nothing is known but that it is a switch.
    node, _ = node_from_facts(_box(pairs), None, None, "x")
    assert (node.nvlink, node.nvlink_rates, node.nvlink_bytes_per_s) == ("switch", None, None)


def test_a_gpu_fallen_off_the_switch_does_not_make_a_mesh() -> None:
    pairs = {(a, b): 18 for a in range(8) for b in range(a + 1, 8) if 5 not in (a, b)}
    node, _ = node_from_facts(_box(pairs), H100, None, "x")
    assert (node.nvlink, node.nvlink_bytes_per_s) == ("switch", gb_per_s(450))
    assert node.nvlink_gpus == (0, 1, 2, 3, 4, 6, 7)
    assert node.on_switch() == (True,) * 5 + (False,) + (True,) * 2
    assert node.nvlink_rates is None
    assert {link.kind for link in node.graph.links} == {"pcie", "cpu"}
    # Two GPUs by a bridge and six without: no switch.
    node, _ = node_from_facts(_box({(0, 1): 12}), find_gpu("A100-PCIe"), None, "x")
    assert (node.nvlink, node.nvlink_gpus) == ("mesh", None)


def test_numbers_with_gaps_are_positions_on_the_switch() -> None:
    numbers = (2, 3, 5, 9)
    pairs = tuple(NvlinkPair(a, b, 18) for a, b in ((2, 3), (2, 9), (3, 9)))
    gpus = tuple(Gpu(number, f"GPU{number}") for number in numbers)
    facts = Facts(format="nvidia_smi_topo_m", path="x", gpus=gpus, nvlink_pairs=pairs)
    assert node_from_facts(facts, H100, None, "x")[0].nvlink_gpus == (0, 1, 3)


def test_nic_assignment_of_own_files() -> None:
    assert _own("tabs_4gpu_2nic")[0].nic_of_gpu == (0, 0, 1, 1)
    assert _own("fused_header_ansi")[0].nic_of_gpu == (0, 1)
    assert _own("vm_phb_cut_list")[0].nic_of_gpu == (0, 0)
    assert _own("cube_mesh_4gpu")[0].nic_of_gpu == (-1,) * 4
    # The XML's GPU 2 and 3 share a card of two ports, one NIC here; 0 and 1 only see eth9.
    node, _ = _own("dgx_like", H100)
    names = [nic.name for nic in node.nics]
    assert [names[nic] for nic in node.nic_of_gpu] == ["eth9", "eth9", "mlx5_4", "mlx5_4"]
    assert node.nics[names.index("mlx5_4")].ports == ("mlx5_4", "mlx5_5")


@given(
    st.lists(st.sets(st.integers(0, 5), max_size=4), min_size=1, max_size=10),
)
def test_nics_are_spread_over_the_nearest(near: list[set[int]]) -> None:
    nearest = {gpu: ("PIX", tuple(sorted(nics))) for gpu, nics in enumerate(near)}
    chosen = assign_nics(nearest, len(near) + 1)
    assert chosen[-1] == -1  # a GPU the source relates to nothing
    for gpu, nic in enumerate(chosen[:-1]):
        assert (nic in near[gpu]) if near[gpu] else nic == -1
        # No nearest NIC had fewer GPUs when this one was chosen.
        used = [chosen[:gpu].count(one) for one in near[gpu]]
        assert not used or chosen[:gpu].count(nic) == min(used)


@given(st.integers(1, 16), st.integers(1, 16))
def test_equally_near_nics_serve_equal_numbers(gpus: int, nics: int) -> None:
    nearest = {gpu: ("PHB", tuple(range(nics))) for gpu in range(gpus)}
    chosen = assign_nics(nearest, gpus)
    uses = [chosen.count(nic) for nic in range(nics)]
    assert max(uses) - min(uses) <= 1


def test_what_is_assumed_is_said() -> None:
    node, findings = _own("tabs_4gpu_2nic", H100)
    assert _rules(findings) == ["topology/pcie-tree-guessed", "assumed/nic-rate"]
    assert node.nics[0].rate_bytes_per_s == gbit_per_s(400)
    assert node.origins["nic"] is Origin.ASSUMED
    assert node.origins["paths"] is Origin.ASSUMED
    node, findings = _own("tabs_4gpu_2nic", H100, gbit_per_s(200))
    assert _rules(findings) == ["topology/pcie-tree-guessed"]
    assert node.nics[0].rate_bytes_per_s == gbit_per_s(200)
    assert node.origins["nic"] is Origin.PARSED
    node, findings = _own("two_hosts")  # an XML has the tree and the rates
    assert _rules(findings) == []
    assert node.origins["paths"] is Origin.PARSED
    assert node.nics[0].rate_bytes_per_s == 2 * gbit_per_s(400)


def test_fewer_links_than_the_given_model_has_are_said() -> None:
    _, findings = node_from_facts(_matrix(4, 6), find_gpu("A100-SXM"), None, "x")
    assert "topology/nvlinks-below-model" in _rules(findings)
    _, findings = node_from_facts(_matrix(8, 12), find_gpu("A100-SXM"), None, "x")
    assert "topology/nvlinks-below-model" not in _rules(findings)


def test_usual_nic_of_a_generation() -> None:
    assert default_nic_rate(find_gpu("A100-SXM")) == gbit_per_s(200)
    assert default_nic_rate(H100) == default_nic_rate(None) == gbit_per_s(400)


def test_gpu_numbers_need_not_be_positions() -> None:
    """A source may number GPUs with gaps: numbers are names, positions are slots."""
    facts = Facts(
        format="nvidia_smi_topo_m",
        path="x",
        gpus=tuple(Gpu(number, f"GPU{number}") for number in (2, 3, 5)),
        nvlink_pairs=(NvlinkPair(2, 5, 4),),
    )
    node, _ = node_from_facts(facts, find_gpu("A100-SXM"), None, "x")
    assert node.graph.devices == ("gpu2", "gpu3", "gpu5")
    assert [node.graph.links[one].head for one in node.graph.path(0, 2)] == ["gpu5"]


CAPTURED = [
    ("nvidia_smi_topo_m/hgx8_nv18_10nic_pix.txt", "H100-SXM", "switch", (5, 4, 3, 2, 7, 6, 9, 8)),
    (
        "nvidia_smi_topo_m/h20_26nic_sriov_ansi.txt",
        None,
        "switch",
        (18, 21, 20, 19, 24, 23, 25, 22),
    ),
    ("nvidia_smi_topo_m/dgx_a100_12nic_nps4.txt", "A100-SXM", "switch", (0, 1, 2, 3, 6, 7, 8, 9)),
    ("nvidia_smi_topo_m/h100_4gpu_nv6_interleaved_cpus.txt", "H100-SXM", "mesh", (0, 0, 1, 1)),
    ("nvidia_smi_topo_m/dgx1v_cube_mesh_4nic.txt", "V100-SXM2", "mesh", (0, 1, 0, 1, 2, 3, 2, 3)),
    ("nvidia_smi_topo_m/l40s_kvm_8gpu_pcie.txt", None, "none", (-1,) * 8),
    ("nvidia_smi_topo_m/a6000_4bridges_single_space.txt", None, "mesh", (-1,) * 8),
    ("nccl_topo_xml/azure_ndv5.xml", "H100-SXM", "switch", tuple(range(8))),
    ("nccl_topo_xml/aws_p4d.xml", "A100-SXM", "switch", (0, 0, 1, 1, 2, 2, 3, 3)),
    ("nccl_topo_xml/oci_h100.xml", "H100-SXM", "switch", tuple(range(8))),
    ("nccl_topo_xml/rccl_mi300x_8nic.xml", "MI300X", "mesh", tuple(range(8))),
    ("nccl_topo_xml/azure_ncv4.xml", None, "none", (0, 0, 0, 0)),
]


@pytest.mark.captured
@pytest.mark.parametrize(("name", "gpu", "nvlink", "nics"), CAPTURED)
def test_captured_hosts(name: str, gpu: str | None, nvlink: str, nics: tuple[int, ...]) -> None:
    facts = read_topology(shared_path(f"data/topology/{name}"))
    node, _ = node_from_facts(facts, find_gpu(gpu) if gpu else None, None, name)
    assert (node.nvlink, node.nic_of_gpu) == (nvlink, nics)


def test_links_of_amd_are_xgmi_without_a_model_too() -> None:
    facts = read_topology(FIXTURES / "topology" / "rocm_smi_showtopo" / "ring_of_four.txt")
    node, _ = node_from_facts(facts, None, None, "x")
    assert {link.kind for link in node.graph.links if link.kind in ("nvlink", "xgmi")} == {"xgmi"}


def test_nics_that_serve_gpus() -> None:
    facts = Facts(
        format="made",
        path="made",
        gpus=(Gpu(0, "GPU0"), Gpu(1, "GPU1")),
        nics=tuple(Nic(index, f"NIC{index}") for index in range(4)),
        gpu_nic_class=(("NODE", "PIX", "NODE", "NODE"), ("NODE", "NODE", "NODE", "PIX")),
    )
    assert node_from_facts(facts, None, None, "x")[0].serving_nics() == (1, 3)
    # Nothing relates a GPU to a NIC: any may serve.
    apart = msgspec.structs.replace(facts, gpu_nic_class=None)
    assert node_from_facts(apart, None, None, "x")[0].serving_nics() == (0, 1, 2, 3)
