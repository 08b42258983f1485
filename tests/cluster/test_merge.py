"""Merging sources into a fabric: every refusal has a place, every assumption is a note."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cluster.merging_files import (
    merged,
    notes,
    own_fixture,
    place,
    refused,
)
from meshwright.cluster import hostlist
from meshwright.cluster.assembly.fabric_of_facts import fabric_of_facts
from meshwright.cluster.assembly.merge import merge_network, parse_preset
from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.networks.network import GraphNetwork, TieredNetwork
from meshwright.cluster.nodes.presets import node_from_preset, node_presets
from meshwright.cluster.sections import ClusterSection, FabricSection, NodeSection
from meshwright.cluster.sizes import MAX_GPUS, too_large
from meshwright.errors import InputError, Problem
from meshwright.findings import Place, Severity
from meshwright.units import gb_per_s, gbit_per_s
from support import shared_path

H100 = {"node": "dgx-h100"}
NODE_ERRORS = {
    "missing file": (
        {"node": NodeSection(source="gone.txt")},
        "node.from",
        "no such file: gone.txt",
    ),
    "unknown preset": ({"node": "dgx-h10"}, "node", "no node preset and no file"),
    "unknown GPU": ({"node": NodeSection(gpus=8, gpu="H10")}, "node.gpu", "unknown GPU 'H10'"),
    "no node": ({"nodes": 2}, "node", "names no node type"),
    "nothing in node": ({"node": NodeSection()}, "node", "names no file and no number of GPUs"),
    "no host file": (
        {"node": NodeSection(source="tree.conf")},
        "node.from",
        "tree.conf is slurm_topology_conf, which describes no host",
    ),
    "no host file, short": ({"node": "tree.conf"}, "node.from", "describes no host"),
    "no GPU": (
        {"node": NodeSection(source=own_fixture("nccl_topo_xml", "skeleton_without_class.xml"))},
        "node.from",
        "names no GPU",
    ),
    "two hosts": (
        {"node": NodeSection(source=own_fixture("nccl_topo_xml", "two_hosts.xml"))},
        "node.from",
        "holds 2 hosts; a node file describes one",
    ),
    "very long name": ({"node": "x" * 5000}, "node", "no node preset and no file"),
    "NUL in a name": ({"node": "a\0b"}, "node", "no node preset and no file"),
}
FABRIC_ERRORS = {
    "missing file": (
        H100 | {"fabric": FabricSection(source="gone")},
        "fabric.from",
        "no such file",
    ),
    "neither": (
        H100 | {"fabric": "rail-optimised"},
        "fabric",
        "neither a fabric preset nor a file",
    ),
    "very long name": (H100 | {"fabric": "x" * 5000}, "fabric", "neither a fabric preset"),
    "not in the fabric": (
        H100 | {"fabric": "tree.conf", "hosts": "n[0-2],m[1-9]"},
        "hosts",
        "9 of 12 hosts are not in tree.conf: m1, m2, m3, m4, m5 …",
    ),
    "allocation not in the fabric": (
        H100 | {"fabric": "tree.conf", "allocation": ("n1", "n9")},
        "allocation",
        "1 of 2 hosts are not in tree.conf: n9",
    ),
    "allocation not in hosts": (
        H100 | {"hosts": "n[0-3]", "allocation": "n[2-4]"},
        "allocation",
        "1 of 3 hosts are not in hosts: n4",
    ),
    "more nodes than hosts": (
        H100 | {"fabric": "tree.conf", "nodes": 9},
        "nodes",
        "says 9, and the fabric file names 8 hosts",
    ),
}
HOST_ERRORS = {
    "twice": (H100 | {"hosts": ("a", "b", "a")}, "hosts", "hosts named twice: a"),
    "twice in the allocation": (H100 | {"allocation": "a[1-3],a2"}, "allocation", "twice: a2"),
    "no hostlist": (H100 | {"hosts": "a[1-"}, "hosts", "a[1-"),
    "empty": (H100 | {"hosts": ""}, "hosts", "names no host"),
    "empty list": (H100 | {"hosts": ()}, "hosts", "names no host"),
    "another number": (
        H100 | {"hosts": "a[1-4]", "nodes": 3},
        "nodes",
        "says 3, and hosts names 4",
    ),
    "too many": (H100 | {"nodes": 10**12}, "nodes", "are too many"),
    "beyond any number": (H100 | {"nodes": 2**62}, "nodes", "are too many"),
    "too many GPUs": ({"node": NodeSection(gpus=10**12)}, "node.gpus", "are too many for one host"),
    "too many in all": (
        {"node": NodeSection(gpus=1 << 16), "nodes": 100},
        "nodes",
        "100 hosts of 65,536 GPUs are too many",
    ),
    "two NVLink domains": (
        H100 | {"hosts": "n[0-3]", "nvlink_domains": {"r0": "n[0-2]", "r1": "n[2-3]"}},
        "nvlink_domains.r1",
        "a host of r1 is in another NVLink domain too",
    ),
    "twice in a domain": (
        H100 | {"hosts": "n[0-3]", "nvlink_domains": {"r0": ("n0", "n0")}},
        "nvlink_domains.r0",
        "hosts named twice",
    ),
    "domains from nowhere": (
        H100 | {"hosts": "n[0-3]", "nvlink_domains": {"from": "gone"}},
        "nvlink_domains.from",
        "no such file",
    ),
    "domains from a tree": (
        H100 | {"hosts": "n[0-3]", "nvlink_domains": {"from": "tree.conf"}},
        "nvlink_domains.from",
        "names no NVLink domains and no blocks of hosts",
    ),
}
ERRORS = [
    pytest.param(*case, id=f"{kind}: {name}")
    for kind, cases in (("node", NODE_ERRORS), ("fabric", FABRIC_ERRORS), ("hosts", HOST_ERRORS))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("section", "key", "message"), ERRORS)
def test_refused_with_the_place_of_the_key(
    folder: Path, section: dict[str, object], key: str, message: str
) -> None:
    problem = refused(folder, **section)
    assert problem.place == place(key)
    assert message in problem.message


@pytest.mark.parametrize("name", ["rubbish.txt", "empty.txt", "folder"])
@pytest.mark.parametrize("key", ["node", "fabric"])
def test_files_that_are_no_topology_are_refused_with_the_file(
    folder: Path, name: str, key: str
) -> None:
    section = {"node": "dgx-h100", "nodes": 2} | {key: name}
    assert refused(folder, **section).place.file == str(folder / name)


def test_suggestions(folder: Path) -> None:
    assert "dgx-h100" in str(refused(folder, node="dgx-h10").remedy)
    assert "H100" in str(refused(folder, node=NodeSection(gpus=8, gpu="H100-SMX")).remedy)


def test_a_long_list_with_a_repetition_is_refused_at_once(folder: Path) -> None:
    problem = refused(folder, node="dgx-h100", hosts="n[0-199999],n77")
    assert "n77" in problem.message


def test_size_limit_is_far_above_what_exists() -> None:
    assert MAX_GPUS >= 1_048_576


def test_names_are_counted_before_they_are_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_item: object) -> list[str]:
        raise AssertionError("a name was made")

    monkeypatch.setattr(hostlist, "_expand_item", never)
    for key in ("hosts", "allocation"):
        problem = refused(folder, node="dgx-h100", **{key: ("n[0-1999999]",) * 50})
        assert problem.place == place(key)
        assert "'n[0-1999999]' stands for more than 2,097,152 names together" in problem.message


def test_names_of_all_keys_are_counted_together(folder: Path) -> None:
    named = {"r0": "n[0-2]", "r1": "m[1-2000000]", "r2": "o[1-2000000]"}
    problem = refused(folder, node="gb200-nvl72", hosts="n[0-2]", nvlink_domains=named)
    assert problem.place == place("nvlink_domains.r2")
    assert "together with the hostlists before it" in problem.message


def test_too_many_gpus_are_named_with_the_limit(folder: Path) -> None:
    problem = refused(folder, node="dgx-h100", nodes=131_073)
    assert problem.place == place("nodes")
    assert problem.message == (
        "131,073 hosts of 8 GPUs are too many: 1,048,584 GPUs, and a cluster has at most 1,048,576"
    )
    assert "131,072 hosts" in str(problem.remedy)
    assert refused(folder, node="dgx-h100", hosts="n[1-131073]").place == place("hosts")


@pytest.mark.parametrize(
    ("node", "each"),
    [
        (NodeSection(gpus=1, nics=64), "64 NICs"),
        (NodeSection(gpus=64, gpu="H100", nvlink="mesh"), "4,162 links"),
    ],
)
def test_hosts_of_too_many_parts_are_refused(folder: Path, node: NodeSection, each: str) -> None:
    problem = refused(folder, node=node, nodes=MAX_GPUS // (node.gpus or 1))
    assert problem.place == place("nodes")
    assert each in problem.message
    most = int(str(problem.remedy).split()[2].replace(",", ""))
    assert 1_000 < most < MAX_GPUS


def test_files_with_many_hosts_and_one_of_many_adapters_are_refused() -> None:
    # Every host has room for the adapters of the largest.
    nics = tuple(Nic(at, f"mlx5_{at}", host="n0") for at in range(4096))
    hosts = tuple(f"n{at}" for at in range(4096))
    with pytest.raises(InputError, match="4,096 NICs") as caught:
        fabric_of_facts(Facts(format="x", path="f.txt", hosts=hosts, nics=nics))
    assert caught.value.problems[0].place == Place("f.txt")


def test_every_preset_may_fill_the_largest_cluster() -> None:
    for preset in node_presets():
        node = node_from_preset(preset)
        assert too_large(MAX_GPUS // node.num_gpus, node) is None


@pytest.mark.parametrize(
    ("fabric", "key"),
    [
        ({"hosts_per_unit": 1_000_000, "full_units": True, "planes": 8}, "fabric.hosts_per_unit"),
        ({"hosts_per_unit": 10**12, "full_units": True}, "fabric.hosts_per_unit"),
        ({"oversubscription": 0.1, "planes": 8}, "fabric"),
    ],
)
def test_a_fabric_of_too_many_cables_is_refused(
    folder: Path, fabric: dict[str, object], key: str
) -> None:
    nodes = 2 if key != "fabric" else 131_072
    problem = refused(folder, node="dgx-h100", nodes=nodes, fabric=FabricSection(**fabric))
    assert problem.place == place(key)
    assert "cables between switches; at most" in problem.message


def test_an_allocation_beside_files_alone_is_checked(folder: Path) -> None:
    fabric = FabricSection(source="tree.conf")

    def network(allocation: str) -> Problem:
        section = ClusterSection(fabric=fabric, allocation=allocation)
        with pytest.raises(InputError) as caught:
            merge_network(section, folder, place)
        return caught.value.problems[0]

    for allocation, message in (
        ("n[2-1]", "runs backwards"),
        ("n9", "1 of 1 hosts are not in tree.conf: n9"),
        ("n1,n1", "hosts named twice: n1"),
    ):
        problem = network(allocation)
        assert problem.place == place("allocation")
        assert message in problem.message


# Assumptions --------------------------------------------------------------------------------------


def test_nothing_assumed_nothing_said(folder: Path) -> None:
    assert merged(folder, node="dgx-h100", nodes=1)[1] == []
    assert merged(folder, node="dgx-h100", nodes=64, fabric="rail-optimized")[1] == []
    assert merged(folder, node="gb200-nvl72", nodes=36, fabric="rail-optimized")[1] == []


ASSUMED = {
    "fabric": ({"node": "dgx-h100", "nodes": 2}, ["assumed/fabric"]),
    "NVLink domains by order": (
        {"node": "gb200-nvl72", "hosts": "n[0-35]", "fabric": "rail-optimized"},
        ["assumed/nvlink-domains"],
    ),
    "hosts of no domain": (
        {
            "node": "gb200-nvl72",
            "hosts": "n[0-3]",
            "fabric": "rail-optimized",
            "nvlink_domains": {"r0": "n[0-1]", "elsewhere": "m[0-3]"},
        },
        ["assumed/nvlink-domains", "topology/domain-hosts-unknown"],
    ),
    "first hosts": (
        {"node": "dgx-h100", "nodes": 3, "fabric": "tree.conf"},
        ["assumed/first-hosts", "assumed/tree-without-rails"],
    ),
    "tree": ({"node": "dgx-h100", "fabric": "tree.conf"}, ["assumed/tree-without-rails"]),
    "blocks only": ({"node": "dgx-h100", "fabric": "blocks.conf"}, ["topology/no-switches"]),
    "GPU model": (
        {"node": NodeSection(source=own_fixture("nvidia_smi_topo_m", "cube_mesh_4gpu.txt"))},
        ["topology/gpu-model-unknown", "topology/pcie-tree-guessed"],
    ),
    "NIC rate": (
        {
            "node": NodeSection(
                source=own_fixture("nvidia_smi_topo_m", "log_prefix_mlx_labels.txt"), gpu="L40S"
            )
        },
        ["topology/pcie-tree-guessed", "assumed/nic-rate"],
    ),
}


@pytest.mark.parametrize("name", ASSUMED)
def test_every_assumption_is_a_note(folder: Path, name: str) -> None:
    section, rules = ASSUMED[name]
    assert sorted(notes(merged(folder, **section)[1])) == sorted(rules)


def test_a_leaf_that_lacks_ports_is_a_warning(folder: Path) -> None:
    fabric = FabricSection(preset="rail-optimized", hosts_per_unit=48)
    (found,) = merged(folder, node="dgx-h100", nodes=96, fabric=fabric)[1]
    assert (found.rule, found.severity) == ("fabric/leaf-ports", Severity.WARNING)
    assert found.numbers == {"hosts_per_unit": 48, "ports": 96, "radix": 64}
    assert "hosts_per_unit: 32" in found.remedy


# What comes out -----------------------------------------------------------------------------------


def test_presets_of_fabrics(folder: Path) -> None:
    rails, _ = merged(folder, node="dgx-h100", nodes=64, fabric="rail-optimized")
    assert isinstance(rails.network, TieredNetwork)
    assert rails.network.num_leaves == 16
    assert rails.leaf_of_slot[:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    apart, _ = merged(folder, node="dgx-h100", nodes=64, fabric="rail-only")
    assert len(np.unique(apart.component_of_slot)) == 8
    plain, _ = merged(folder, node="dgx-h100", nodes=64, fabric="leaf-spine")
    # A leaf of 64 ports takes the eight NICs of four hosts, and as many cables up.
    assert plain.network.num_leaves == 16
    assert np.bincount(plain.leaf_of_nic).tolist() == [32] * 16
    none, _ = merged(folder, node="dgx-h100", nodes=64, fabric="none")
    assert none.network is None


@pytest.mark.parametrize("per_unit", [1, 5, 10**12])
def test_any_number_of_hosts_a_unit(folder: Path, per_unit: int) -> None:
    fabric = FabricSection(preset="rail-optimized", hosts_per_unit=per_unit)
    made, _ = merged(folder, node="dgx-h100", nodes=5, fabric=fabric)
    units = made.network.unit_of_leaf[made.leaf_of_slot]
    assert units.tolist() == [host // per_unit for host in range(5) for _ in range(8)]


def test_a_scheduler_tree(folder: Path) -> None:
    fabric, _ = merged(folder, node="dgx-h100", fabric=FabricSection(source="tree.conf"))
    assert isinstance(fabric.network, GraphNetwork)
    assert list(fabric.host_names) == [f"n{i}" for i in range(8)]
    assert fabric.leaf_of_slot.tolist() == [0] * 32 + [1] * 32
    # Each leaf has uplinks for all NICs below it: 4 hosts of 8 x 50 GB/s.
    assert fabric.network.cables.rate_bytes_per_s.tolist() == pytest.approx([gb_per_s(1600)] * 2)
    half, _ = merged(
        folder, node="dgx-h100", fabric=FabricSection(source="tree.conf", oversubscription=2.0)
    )
    assert half.network.cables.rate_bytes_per_s.tolist() == pytest.approx([gb_per_s(800)] * 2)


def test_an_allocation_is_the_job_s_hosts_in_its_order(folder: Path) -> None:
    fabric, _ = merged(folder, node="dgx-h100", fabric="tree.conf", allocation=("n5", "n0"))
    assert list(fabric.host_names) == ["n5", "n0"]
    assert fabric.leaf_of_slot.tolist() == [1] * 8 + [0] * 8


def test_nvlink_domains_of_blocks_and_names(folder: Path) -> None:
    made, _ = merged(
        folder,
        node="gb200-nvl72",
        hosts="n[0-7]",
        fabric="rail-optimized",
        nvlink_domains={"from": "blocks.conf"},
    )
    assert made.nvlink_domain_of_slot.tolist() == [0] * 16 + [1] * 16
    assert list(made.nvlink_domain_names) == ["b0", "b1"]
    named, _ = merged(
        folder,
        node="gb200-nvl72",
        hosts="n[0-2]",
        fabric="rail-optimized",
        nvlink_domains={"rack": ("n2", "n0")},
    )
    assert named.nvlink_domain_of_slot.tolist() == [0] * 4 + [1] * 4 + [0] * 4
    assert list(named.nvlink_domain_names) == ["rack", "n1"]


def test_a_node_file_with_rates_of_its_own(folder: Path) -> None:
    node = NodeSection(
        source=own_fixture("nvidia_smi_topo_m", "tabs_4gpu_2nic.txt"),
        gpu="H100-SXM",
        nic=gbit_per_s(100),
    )
    fabric, _ = merged(folder, node=node, nodes=3, fabric="rail-optimized")
    assert (fabric.num_slots, len(fabric.host_of_nic)) == (12, 6)
    assert fabric.nic_of_slot.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    capacity = fabric.links.capacity_bytes_per_s()
    assert set(capacity[fabric.nic_out].tolist()) == {gbit_per_s(100)}
    assert set(capacity[fabric.nvlink_out].tolist()) == {gb_per_s(225)}


def test_preset_text() -> None:
    assert parse_preset("dgx-h100 x 2") == ("dgx-h100", 2)
    assert parse_preset(" gb200-nvl72×36 ") == ("gb200-nvl72", 36)
    assert parse_preset("dgx-h100") == ("dgx-h100", None)
    assert parse_preset("dgx-h100 x two") is None
    assert parse_preset("") is None


@pytest.mark.captured
def test_a_captured_fabric_of_racks(folder: Path) -> None:
    """119 named hosts; adapters the dump cannot place are one warning, not a guess."""
    source = str(shared_path("data/topology/ibnetdiscover/gb200_superpod_ndr_582ca.txt"))
    fabric, findings = merged(folder, node="gb200-nvl72", fabric=FabricSection(source=source))
    assert fabric.num_hosts == 119
    assert fabric.network.num_leaves == 31
    assert len(fabric.network.cables) == 532
    assert {one.severity for one in findings} <= {Severity.NOTE, Severity.WARNING}
    assert "topology/nic-not-in-fabric" in [one.rule for one in findings]
    # Every GPU sends by a NIC that the fabric shows.
    assert (fabric.leaf_of_slot >= 0).all()
