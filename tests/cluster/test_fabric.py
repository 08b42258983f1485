"""The fabric's arrays: every link once, ends that exist, islands, and NICs the fabric hides."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.build import HostSet, Wiring, build_fabric
from meshwright.cluster.fabric import Fabric, inner_nodes
from meshwright.cluster.nodes.node import NodeNic, NodeType
from meshwright.cluster.nodes.pcie import local_graph
from meshwright.cluster.nodes.presets import find_preset, node_from_preset
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.cluster.switch_names import NumberedNames
from meshwright.findings import Place
from meshwright.units import gb_per_s, gbit_per_s
from routes.fabrics import graph_network, irregular, random_graph, regular


def _random(seed: int) -> Fabric:
    dice = random.Random(seed)
    return dice.choice([regular, irregular])(dice)


def _kinds(fabric: Fabric) -> np.ndarray:
    return np.array([one.kind for one in fabric.links.classes])[fabric.links.class_of_link]


def test_every_link_has_one_id_and_two_ends_that_exist() -> None:
    for seed in range(200):
        fabric = _random(seed)
        links, cables = fabric.links, len(fabric.network.cables)
        inside = np.array([len(node.graph.links) for node in fabric.node_types])
        local = [
            base + np.arange(inside[kind])
            for base, kind in zip(fabric.local_base, fabric.type_of_host, strict=True)
        ]
        ids = np.concatenate(
            [
                *(one[one >= 0] for one in (fabric.nvlink_out, fabric.nvlink_in)),
                *local,
                *(one[one >= 0] for one in (fabric.nic_out, fabric.nic_in)),
                fabric.cable_up0 + np.arange(cables),
                fabric.cable_down0 + np.arange(cables),
            ]
        )
        assert np.array_equal(np.sort(ids), np.arange(len(links))), f"seed {seed}"
        nodes = (
            fabric.num_slots
            + len(fabric.host_of_nic)
            + len(fabric.nvlink_domain_names)
            + sum(len(inner_nodes(fabric.node_types[kind])) for kind in fabric.type_of_host)
            + len(fabric.network.switch_names)
        )
        for ends in (links.tail, links.head):
            assert ends.min(initial=0) >= 0
            assert ends.max(initial=0) < nodes
        names = [fabric.node_name(node) for node in range(nodes)]
        assert len(set(names)) == nodes


def test_each_direction_is_a_link_and_has_its_reverse() -> None:
    for seed in range(100):
        fabric = _random(seed)
        ends = list(zip(fabric.links.tail.tolist(), fabric.links.head.tolist(), strict=True))
        assert sorted(ends) == sorted((head, tail) for tail, head in ends)


def test_links_of_gpus_and_nics_have_the_right_ends() -> None:
    for seed in range(100):
        fabric = _random(seed)
        tail, head = fabric.links.tail, fabric.links.head
        for slot in range(fabric.num_slots):
            domain = int(fabric.nvlink_domain_of_slot[slot])
            out, into = int(fabric.nvlink_out[slot]), int(fabric.nvlink_in[slot])
            assert (out >= 0) == (into >= 0) == (domain >= 0)
            if domain >= 0:
                middle = fabric.num_slots + len(fabric.host_of_nic) + domain
                assert (tail[out], head[out]) == (slot, middle)
                assert (tail[into], head[into]) == (middle, slot)
                assert fabric.node_name(middle) == f"{fabric.nvlink_domain_names[domain]} nvswitch"
            nic = int(fabric.nic_of_slot[slot])
            assert nic < 0 or fabric.host_of_nic[nic] == fabric.host_of_slot[slot]
        for nic, leaf in enumerate(fabric.leaf_of_nic.tolist()):
            assert (fabric.nic_out[nic] >= 0) == (fabric.nic_in[nic] >= 0) == (leaf >= 0)
            if leaf >= 0:
                name = fabric.network.switch_names[fabric.network.switch_of_leaf[leaf]]
                assert tail[fabric.nic_out[nic]] == fabric.num_slots + nic
                assert fabric.node_name(int(head[fabric.nic_out[nic]])) == name
                assert fabric.node_name(int(tail[fabric.nic_in[nic]])) == name


def test_links_inside_a_host_are_those_of_its_type() -> None:
    for seed in range(60):
        fabric = _random(seed)
        for host, kind in enumerate(fabric.type_of_host.tolist()):
            graph = fabric.node_types[kind].graph
            devices = [f"gpu{i}" for i in range(fabric.node_types[kind].num_gpus)]
            for k, link in enumerate(graph.links):
                row = int(fabric.local_base[host]) + k
                one = fabric.links.classes[fabric.links.class_of_link[row]]
                assert (one.kind, one.capacity_bytes_per_s) == (link.kind, link.rate_bytes_per_s)
                for node, name in (
                    (fabric.links.tail[row], link.tail),
                    (fabric.links.head[row], link.head),
                ):
                    assert fabric.node_name(int(node)) == f"{fabric.host_names[host]} {name}"
            assert graph.devices[: len(devices)] == tuple(devices)


def test_islands_are_hosts_or_nvlink_domains() -> None:
    for seed in range(100):
        fabric = _random(seed)
        for a in range(fabric.num_slots):
            for b in range(fabric.num_slots):
                domain = fabric.nvlink_domain_of_slot[[a, b]]
                same = fabric.host_of_slot[a] == fabric.host_of_slot[b] or (
                    domain[0] >= 0 and domain[0] == domain[1]
                )
                assert bool(fabric.island_of_slot[a] == fabric.island_of_slot[b]) == bool(same)


def test_gpus_off_the_switch_have_no_nvlink_link_and_their_own_rates() -> None:
    box = msgspec.structs.replace(
        node_from_preset(find_preset("dgx-h100")),
        nvlink_gpus=(0, 1, 2, 3, 4, 6, 7),
        nvlink_rates=(gb_per_s(450),) * 3 + (gb_per_s(425),) + (gb_per_s(450),) * 4,
    )
    fabric = build_fabric(HostSet(["a", "b"], (box,), np.zeros(2, np.int32)))
    assert fabric.nvlink_domain_of_slot.tolist() == [0] * 5 + [-1, 0, 0] + [1] * 5 + [-1, 1, 1]
    assert fabric.island_of_slot.tolist() == [0] * 8 + [1] * 8
    for ids in (fabric.nvlink_out, fabric.nvlink_in):
        assert np.flatnonzero(ids < 0).tolist() == [5, 13]
        rates = fabric.links.capacity_bytes_per_s()[ids[8:][[0, 3, 7]]]
        assert rates.tolist() == [gb_per_s(450), gb_per_s(425), gb_per_s(450)]


def test_a_gpu_off_the_switch_of_a_rack_reaches_its_own_host_alone() -> None:
    tray = msgspec.structs.replace(
        node_from_preset(find_preset("gb200-nvl72")), nvlink_gpus=(0, 1, 3)
    )
    kinds = np.zeros(3, np.int32)
    domain = np.array([0, 0, 1], np.int32)
    fabric = build_fabric(HostSet(["a", "b", "c"], (tray,), kinds), domain, ["r0", "r1"])
    assert fabric.island_of_slot.tolist() == [0, 0, 3, 0, 0, 0, 4, 0, 2, 2, 2, 2]


def test_islands_of_mixed_hosts_are_hosts_or_nvlink_domains() -> None:
    """GPUs of one island reach each other without the network, whatever is off a switch."""
    apart = 0
    for seed in range(200):
        dice = random.Random(seed)
        fabric = dice.choice([regular, irregular])(dice, mixed=True)
        domain, host = fabric.nvlink_domain_of_slot, fabric.host_of_slot
        for a in range(fabric.num_slots):
            for b in range(fabric.num_slots):
                near = host[a] == host[b] or (domain[a] >= 0 and domain[a] == domain[b])
                joined = bool(fabric.island_of_slot[a] == fabric.island_of_slot[b])
                assert near or not joined
                apart += bool(near and not joined)
                # Only off the switch of several hosts are host mates of two islands.
                assert joined or not near or (domain[a] < 0) != (domain[b] < 0)
    assert apart > 20


def _one_host(nic_of_gpu: tuple[int, ...], leaf: list[int]) -> list[int]:
    """NIC of each GPU of a host whose NICs hang on the given leaves (-1: not in the file)."""
    nics = len(leaf)
    devices = [f"gpu{i}" for i in range(len(nic_of_gpu))] + [f"nic{i}" for i in range(nics)]
    node = NodeType(
        name="box",
        gpu=None,
        num_gpus=len(nic_of_gpu),
        nics=tuple(NodeNic(f"nic{i}", 50.0) for i in range(nics)),
        nic_of_gpu=nic_of_gpu,
        nvlink="none",
        nvlink_bytes_per_s=None,
        graph=local_graph(devices, [], [], 1.0, 1.0),
    )
    network = random_graph(random.Random(1))
    wiring = Wiring(network, np.array(leaf, np.int32), np.arange(nics, dtype=np.int32))
    fabric = build_fabric(HostSet(["h"], (node,), np.zeros(1, np.int32)), wiring=wiring)
    return fabric.nic_of_slot.tolist()


def test_a_hidden_nic_gives_way_to_a_neighbour_that_is_shown() -> None:
    assert _one_host((0, 1, 2, 3), [0, 0, 0, 0]) == [0, 1, 2, 3]
    assert _one_host((0, 1, 2, 3), [0, -1, 0, 0]) == [0, 0, 2, 3]
    assert _one_host((0, 1, 2, 3), [0, 0, 0, -1]) == [0, 1, 2, 2]
    # Two hidden ones do not share a neighbour while others are free.
    assert len(set(_one_host((0, 1, 2, 3), [0, -1, -1, 0]))) == 2
    # None is shown: the GPU keeps its own, which leads nowhere.
    assert _one_host((0, 1), [-1, -1]) == [0, 1]
    # A GPU without NIC is no neighbour, whatever hangs on the first leaf.
    assert _one_host((0, -1, 2, 3), [0, 0, -1, 0]) == [0, -1, 3, 3]


def test_hosts_of_several_types() -> None:
    box, tray = (node_from_preset(find_preset(name)) for name in ("dgx-h100", "gb200-nvl72"))
    kinds = np.array([0, 1, 0], dtype=np.int32)
    fabric = build_fabric(HostSet(["a", "b", "c"], (box, tray), kinds))
    assert fabric.slot_start.tolist() == [0, 8, 12, 20]
    assert fabric.nic_start.tolist() == [0, 8, 12, 20]
    assert [fabric.slot_name(slot) for slot in (8, 12, 19)] == [("b", 0), ("c", 0), ("c", 7)]
    rates = fabric.links.capacity_bytes_per_s()[fabric.nvlink_out]
    assert rates.tolist() == [gb_per_s(450)] * 8 + [gb_per_s(900)] * 4 + [gb_per_s(450)] * 8


def test_worked_cluster() -> None:
    section = ClusterSection(
        node="dgx-h100", nodes=2, fabric=FabricSection(preset="rail-optimized")
    )
    fabric, findings = merge_cluster(section, Path(), lambda key: Place(subject=key))
    assert findings == []
    assert (fabric.num_slots, fabric.num_hosts, len(fabric.host_of_nic)) == (16, 2, 16)
    assert fabric.leaf_of_slot.tolist() == [*range(8)] * 2
    assert not fabric.component_of_slot.any()
    capacity = fabric.links.capacity_bytes_per_s()
    assert (capacity[fabric.nvlink_out] == gb_per_s(450)).all()
    assert (capacity[fabric.nic_out] == gbit_per_s(400)).all()
    kinds = _kinds(fabric)
    assert (kinds == "nic").sum() == 32
    assert (kinds == "nvlink").sum() == 32
    assert fabric.node_name(16) == "host0 nic0"


def test_without_a_network_nics_have_no_cable() -> None:
    box = node_from_preset(find_preset("dgx-h100"))
    fabric = build_fabric(HostSet(["a"], (box,), np.zeros(1, np.int32)))
    assert fabric.network is None
    assert (fabric.nic_out == -1).all()
    assert (fabric.leaf_of_slot == -1).all()
    assert (fabric.component_of_slot == -1).all()


def test_unknown_rates_stay_unknown() -> None:
    dice = random.Random(3)
    network = random_graph(dice)
    while len(network.cables) < 2:
        network = random_graph(dice)
    network.cables.rate_bytes_per_s[0] = np.nan
    graph = graph_network(network.num_leaves, network.num_switches, network.cables)
    box = node_from_preset(find_preset("dgx-h100"))
    zeros = np.zeros(8, np.int32)
    fabric = build_fabric(HostSet(["a"], (box,), zeros[:1]), wiring=Wiring(graph, zeros, zeros))
    capacity = fabric.links.capacity_bytes_per_s()
    assert np.flatnonzero(np.isnan(capacity)).tolist() == [fabric.cable_up0, fabric.cable_down0]


def test_numbered_names() -> None:
    names = NumberedNames("host", 3)
    assert list(names) == ["host0", "host1", "host2"]
    assert names[1:] == ["host1", "host2"]
    assert len(names) == 3
    assert names[-1] == "host2"
    for index in (3, -4):
        with pytest.raises(IndexError):
            names[index]
