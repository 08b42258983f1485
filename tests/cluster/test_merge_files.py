"""Several files of one cluster: nodes, fabrics, labels and domains joined by a cluster file."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from cluster.degraded.maker import matrix
from cluster.merging_files import (
    TOPO,
    TREE,
    merged,
    own_fixture,
    place,
    refused,
)
from meshwright.cluster.readers import read_topology
from meshwright.cluster.sections import FabricSection, NodeSection
from meshwright.errors import InputError
from meshwright.units import gb_per_s, gbit_per_s

# Several files ------------------------------------------------------------------------------------


def _labels(folder: Path, name: str, hosts: dict[str, dict[str, str]]) -> str:
    """Write a Kubernetes node list with labels."""
    items = [
        {"kind": "Node", "metadata": {"name": host, "labels": labels}}
        for host, labels in hosts.items()
    ]
    (folder / name).write_text(json.dumps({"kind": "NodeList", "items": items}))
    return name


CLIQUE, LEAF, SPINE = (
    "nvidia.com/gpu.clique",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/spine",
)
XML = """<system version="1"><cpu numaid="0" arch="x86_64"><pci busid="0000:01:00.0" class="0x060400"
link_speed="32.0 GT/s PCIe" link_width="16"><pci busid="0000:02:00.0" class="0x030200"
link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90" rank="0" gdr="1"/></pci>
<pci busid="0000:03:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
<nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0xa1"/></nic></pci></pci>
<pci busid="0000:41:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
<pci busid="0000:42:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="1" sm="90" rank="1" gdr="1"/></pci></pci></cpu></system>
"""
MATRIX = """\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tNODE\t0-7\t0
GPU1\tNV18\t X \tNODE\t0-7\t0
NIC0\tNODE\tNODE\t X

NIC Legend:

  NIC0: mlx5_0
"""
LINKS = "\n".join(
    line
    for gpu in range(2)
    for line in (
        f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-00{gpu})",
        *(f"\t Link {link}: 26.562 GB/s" for link in range(18)),
    )
)


def test_a_node_of_several_files(folder: Path) -> None:
    for name, text in (("t.txt", MATRIX), ("t.xml", XML), ("l.txt", LINKS + "\n")):
        (folder / name).write_text(text)
    node = NodeSection(source=("t.txt", "t.xml", "l.txt"))
    fabric, findings = merged(folder, node=node, nodes=2, fabric="rail-optimized")
    (kind,) = fabric.node_types
    # Model from nvlink -s, NVLink from the matrix, PCIe tree and NIC rate from the XML.
    assert kind.gpu == "H100 SXM 80G"
    assert kind.nvlink == "mesh"
    assert kind.nics[0].rate_bytes_per_s == gbit_per_s(400)
    assert [kind.graph.links[link].tail for link in kind.graph.path(0, 2)] == [
        "gpu0",
        "0000:01:00.0",
    ]
    rules = [one.rule for one in findings]
    assert "topology/pcie-tree-guessed" not in rules
    assert "assumed/nic-rate" not in rules
    assert "topology/path-class-hidden" in rules
    assert "topology/joined-by-number" in rules
    turned = NodeSection(source=("l.txt", "t.xml", "t.txt"))
    other, _ = merged(folder, node=turned, nodes=2, fabric="rail-optimized")
    assert msgspec.structs.replace(other.node_types[0], name=kind.name) == kind


NODE_LISTS = {
    "nothing": ((), "names no file"),
    "twice": (("t.txt", "t.txt"), "names one file twice: t.txt"),
    "no host among them": (("t.txt", "tree.conf"), "tree.conf is slurm_topology_conf"),
    "two hosts that differ": (("t.txt", "four.txt"), "describe 2 node types: "),
    "links only": (("l.txt",), "l.txt lists the links or access of GPUs"),
}


@pytest.mark.parametrize("name", NODE_LISTS)
def test_lists_of_files_that_are_no_node(folder: Path, name: str) -> None:
    (folder / "t.txt").write_text(MATRIX)
    (folder / "l.txt").write_text(LINKS + "\n")
    (folder / "four.txt").write_text(
        Path(own_fixture("nvidia_smi_topo_m", "tabs_4gpu_2nic.txt")).read_text()
    )
    sources, message = NODE_LISTS[name]
    problem = refused(folder, node=NodeSection(source=sources), nodes=2)
    assert problem.place == place("node.from")
    assert message in problem.message


@pytest.mark.parametrize("kind", ["hwloc_xml", "rocm_smi_showtopo", "amd_smi_topology"])
def test_other_tools_describe_a_host(folder: Path, kind: str) -> None:
    files = sorted((TOPO / kind).iterdir())
    made = 0
    for file in files:
        try:
            facts = read_topology(file)
        except InputError:
            continue
        if facts.gpus:
            fabric, _ = merged(folder, node=NodeSection(source=str(file)), nodes=2)
            assert fabric.num_slots == 2 * len(facts.gpus)
            made += 1
    assert made


def test_labels_are_a_fabric(folder: Path) -> None:
    places = {
        f"n{i}": {LEAF: f"leaf-{i // 2}", SPINE: "spine-0", CLIQUE: f"c0ffee.{i // 4}"}
        for i in range(8)
    }
    _labels(folder, "labels.json", places)
    fabric, findings = merged(
        folder, node="dgx-h100", fabric="labels.json", nvlink_domains={"from": "labels.json"}
    )
    assert list(fabric.host_names) == [f"n{i}" for i in range(8)]
    assert fabric.leaf_of_slot[::8].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert fabric.nvlink_domain_of_slot[::8].tolist() == [0] * 4 + [1] * 4
    assert [one.rule for one in findings] == ["assumed/tree-without-rails"]


def test_places_that_are_no_switches_are_a_fabric_too(folder: Path) -> None:
    """Blocks and racks of a cloud: only places, no switches are named."""
    vms = [
        {
            "name": f"vm{i}",
            "resourceStatus": {
                "physicalHostTopology": {
                    "cluster": "c",
                    "block": f"b{i // 4}",
                    "subBlock": f"s{i // 2}",
                }
            },
        }
        for i in range(8)
    ]
    (folder / "vms.json").write_text(json.dumps({"items": vms}))
    fabric, _ = merged(folder, node="dgx-h100", fabric=FabricSection(source="vms.json"))
    assert fabric.network.num_leaves == 4
    assert fabric.network.num_switches == 7
    assert (fabric.component_of_slot == 0).all()


def test_hosts_with_a_leaf_only_can_still_reach_each_other(folder: Path) -> None:
    _labels(folder, "labels.json", {f"n{i}": {LEAF: f"leaf-{i // 2}"} for i in range(4)})
    fabric, findings = merged(folder, node="dgx-h100", fabric="labels.json")
    assert fabric.network.num_leaves == 2
    assert (fabric.component_of_slot == 0).all()
    assert "topology/leaf-only" in [one.rule for one in findings]


def test_hosts_of_an_unknown_leaf_get_none(folder: Path) -> None:
    (folder / "show.txt").write_text(
        "SwitchName=unknown Level=0 LinkSpeed=1 Nodes=n[6-7]\n"
        "SwitchName=l0 Level=0 LinkSpeed=1 Nodes=n[0-3]\n"
        "SwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[4-5]\n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[0-7] Switches=l[0-1],unknown\n"
    )
    fabric, findings = merged(folder, node="dgx-h100", fabric="show.txt")
    leaves = dict(zip(fabric.host_names, fabric.leaf_of_slot[::8].tolist(), strict=True))
    assert leaves == {f"n{i}": leaf for i, leaf in enumerate([0, 0, 0, 0, 1, 1, -1, -1])}
    lost = next(one for one in findings if one.rule == "topology/host-without-leaf")
    assert lost.numbers == {"count": 2, "hosts": ["n6", "n7"]}


def test_a_fabric_of_two_parts(folder: Path) -> None:
    (folder / "other.conf").write_text(TREE.replace("s0", "s2").replace("n[0-3]", "m[0-3]"))
    fabric = FabricSection(source=("tree.conf", "other.conf"))
    made, findings = merged(folder, node="dgx-h100", fabric=fabric)
    assert made.num_hosts == 12
    assert made.network.num_leaves == 3
    assert "topology/conflict-leaf" not in [one.rule for one in findings]
    problem = refused(folder, node="dgx-h100", fabric=fabric, allocation=("n0", "x1"))
    assert "1 of 2 hosts are not in tree.conf and other.conf: x1" in problem.message


def test_domains_of_two_sources_are_joined_by_their_hosts(folder: Path) -> None:
    _labels(folder, "a.json", {f"n{i}": {CLIQUE: f"c0ffee.{i // 2}"} for i in range(4)})
    # Another source names the domains otherwise, and knows two more hosts.
    _labels(
        folder,
        "b.json",
        {
            f"n{i}.cluster": {"accelerator.topograph.run/domain": f"nvl{i // 2}"}
            for i in range(2, 6)
        },
    )
    domains = {"from": ("a.json", "b.json")}
    made, findings = merged(
        folder, node="gb200-nvl72", hosts="n[0-5]", fabric="rail-optimized", nvlink_domains=domains
    )
    assert made.nvlink_domain_of_slot[::4].tolist() == [0, 0, 1, 1, 2, 2]
    assert "assumed/nvlink-domains" not in [one.rule for one in findings]


def test_a_file_read_for_two_keys_is_told_of_once(folder: Path) -> None:
    _labels(folder, "labels.json", {f"n{i}": {LEAF: f"l{i // 2}", CLIQUE: "7"} for i in range(4)})
    _, findings = merged(
        folder,
        node="dgx-h100",
        fabric=FabricSection(source="labels.json"),
        nvlink_domains={"r": "n[0-1]", "s": "n[2-3]"},
    )
    assert [one.rule for one in findings].count("topology/clique-without-uuid") == 1


def test_sources_of_a_cluster_are_compared(folder: Path) -> None:
    _labels(folder, "labels.json", {f"n{i}": {CLIQUE: f"c0ffee.{i // 4}"} for i in range(9)})
    _, findings = merged(
        folder, node="dgx-h100", fabric="tree.conf", nvlink_domains={"from": "labels.json"}
    )
    found = next(one for one in findings if one.rule == "topology/host-in-one-only")
    assert found.numbers["only_right"] == 1
    assert "n8" in found.message


def test_tables_without_cables_are_refused(folder: Path) -> None:
    tables = folder / "lfts.txt"
    tables.write_text(
        "Unicast lids [0x0-0x2] of switch Lid 1 guid 0x00000000000000c0 (leaf):\n"
        "  Lid  Out   Destination\n       Port     Info\n"
        "0x0001 000 : (Switch portguid 0x00000000000000c0: 'leaf')\n"
        "0x0002 001 : (Channel Adapter portguid 0x00000000000000a1: 'n1 mlx5_0')\n"
        "2 valid lids dumped\n"
    )
    assert read_topology(tables).tables
    problem = refused(folder, node="dgx-h100", fabric=FabricSection(source=str(tables)))
    assert "forwarding tables and no cables" in problem.message


def test_a_long_chain_of_switches_is_read(folder: Path) -> None:
    """Work on a chain was once quadratic: 12,000 switches took twenty seconds."""
    chain = [f"SwitchName=s{i} Switches=s{i + 1}" for i in range(4000)]
    (folder / "chain.conf").write_text("\n".join([*chain, "SwitchName=s4000 Nodes=n[0-1]", ""]))
    fabric, _ = merged(folder, node="dgx-h100", fabric="chain.conf")
    # Every uplink of the chain carries the NICs of both hosts.
    assert set(fabric.network.cables.rate_bytes_per_s.tolist()) == {gb_per_s(800)}
    assert fabric.network.cables.tier.tolist().count(0) == 1


# NICs that serve no GPU ------------------------------------------------------------------------


def _storage_host(folder: Path) -> NodeSection:
    """Write a host of two GPUs, each with its own NIC, and three NICs far from both."""
    nics = [["PIX" if nic == gpu + 1 else "NODE" for nic in range(5)] for gpu in range(2)]
    (folder / "storage.txt").write_text(matrix({(0, 1): "NV18"}, 2, nics))
    return NodeSection(source="storage.txt", gpu="H100-SXM")


@pytest.mark.parametrize(("preset", "leaves"), [("rail-optimized", 2), ("leaf-spine", 1)])
def test_nics_that_serve_no_gpu_are_no_rails(folder: Path, preset: str, leaves: int) -> None:
    fabric, findings = merged(folder, node=_storage_host(folder), nodes=2, fabric=preset)
    assert [nic.name for nic in fabric.node_types[0].nics] == [f"NIC{i}" for i in range(5)]
    assert fabric.leaf_of_nic.tolist() == [-1, 0, leaves - 1, -1, -1] * 2
    assert fabric.rail_of_nic.tolist() == [-1, 0, 1, -1, -1] * 2
    assert fabric.network is not None
    assert fabric.network.leaf_switches == leaves
    (note,) = [one for one in findings if one.rule == "topology/nics-without-gpu"]
    assert note.numbers == {"nics": 5, "left_out": 3, "names": ["NIC0", "NIC3", "NIC4"]}
    assert "3 NICs of 5 in each host serve no GPU" in note.message


def test_uplinks_of_a_tree_are_sized_by_nics_that_serve_gpus(folder: Path) -> None:
    (folder / "two.conf").write_text(
        "SwitchName=l0 Nodes=n0,n1\nSwitchName=l1 Nodes=n2,n3\nSwitchName=s Switches=l0,l1\n"
    )
    fabric, findings = merged(folder, node=_storage_host(folder), fabric="two.conf")
    assert "topology/nics-without-gpu" in [one.rule for one in findings]
    assert fabric.leaf_of_nic.tolist() == [-1, 0, 0, -1, -1] * 2 + [-1, 1, 1, -1, -1] * 2
    assert fabric.network is not None
    # Two hosts below each leaf, two NICs of 50 GB/s each.
    assert fabric.network.cables.rate_bytes_per_s.tolist() == [200e9, 200e9]


def test_a_single_host_leaves_nothing_out_worth_a_note(folder: Path) -> None:
    findings = merged(folder, node=_storage_host(folder), nodes=1)[1]
    assert "topology/nics-without-gpu" not in [one.rule for one in findings]
