"""Reach: which ordered pairs of a group no path joins (NVIDIA/nccl issue 836)."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.build import HostSet, Wiring, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.networks.network import Cables
from meshwright.cluster.nodes.presets import bare_node
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.findings import Place
from meshwright.origin import Origin
from meshwright.routes.cells import find_cells
from meshwright.routes.loads import LoadCollector
from meshwright.routes.patterns import GroupSlots, all_to_all
from meshwright.routes.reach import host_components, reach_of
from routes.fabrics import graph_network, irregular, make_groups, regular
from support import shared_path


def _preset(preset: str, nodes: int = 2, node: str = "dgx-h100") -> Fabric:
    section = ClusterSection(node=node, nodes=nodes, fabric=FabricSection(preset=preset))
    return merge_cluster(section, Path(), lambda key: Place(subject=key))[0]


def _unreachable(fabric: Fabric, group: list[int]) -> int:
    slots = np.array([group], dtype=np.int64)
    reach = reach_of(find_cells(slots, fabric.island_of_slot, fabric.nic_of_slot), fabric)
    assert reach is not None
    return int(reach.unreachable_pairs[0])


def _slots(fabric: Fabric, pairs: list[tuple[int, int]]) -> list[int]:
    return [int(fabric.slot_start[host]) + gpu for host, gpu in pairs]


G1 = [(0, 0), (1, 0)]
G2 = [(0, 0), (1, 6)]
G3 = [(0, gpu) for gpu in range(8)] + [(1, 0)]


@pytest.mark.parametrize(("group", "pairs"), [(G1, 0), (G2, 2), (G3, 7)])
def test_rails_that_do_not_meet(group: list[tuple[int, int]], pairs: int) -> None:
    fabric = _preset("rail-only")
    assert _unreachable(fabric, _slots(fabric, group)) == pairs
    # With spines everything is joined.
    joined = _preset("rail-optimized")
    assert _unreachable(joined, _slots(joined, group)) == 0


@pytest.mark.captured
def test_the_captured_case_of_misaligned_groups() -> None:
    case = json.loads(shared_path("cases/rail-misaligned-groups.json").read_text(encoding="utf-8"))
    checks, given = case["expected"]["checks"], case["inputs"]["groups"]
    fabric = _preset("rail-only")
    groups = {"g1": given["g1"], "g2": given["g2"], "g3": G3}
    found = {name: _unreachable(fabric, _slots(fabric, pairs)) for name, pairs in groups.items()}
    assert [name for name, pairs in found.items() if not pairs] == checks["ok"]
    assert [name for name, pairs in found.items() if pairs] == checks["not_ok"]
    assert found["g3"] == checks["g3_unreachable_pairs"]


def _brute_force(fabric: Fabric, group: list[int]) -> int:
    """Every ordered pair: own NIC, or over NVLink the NIC of another member of the island.

    Where nothing is known of the sender's ways or the receiver's place, nothing is claimed.
    """
    component = fabric.component_of_slot.tolist()
    island = fabric.island_of_slot.tolist()
    count = 0
    for a in group:
        for b in group:
            if island[a] == island[b]:
                continue
            switched = fabric.nvlink_domain_of_slot[a] >= 0
            on = fabric.nvlink_domain_of_slot
            relays = [s for s in group if on[s] == on[a]] if switched else [a]
            ways = {component[s] for s in relays} - {-1}
            count += component[b] >= 0 and bool(ways) and component[b] not in ways
    return count


@pytest.mark.parametrize("mixed", [False, True])
def test_reach_equals_a_walk_over_all_pairs(mixed: bool) -> None:
    bad = 0
    for seed in range(800):
        dice = random.Random(seed)
        fabric = dice.choice([regular, irregular])(dice, mixed=mixed)
        groups = make_groups(dice, fabric)
        reach = reach_of(GroupSlots.of(groups, np.arange(fabric.num_slots), fabric).cells, fabric)
        assert reach is not None
        wanted = [_brute_force(fabric, group) for group in groups.tolist()]
        assert reach.unreachable_pairs.tolist() == wanted, f"seed {seed}"
        bad += sum(wanted) > 0
    assert bad > 100


def test_unreachable_pairs_are_the_ones_whose_bytes_are_lost() -> None:
    """On rails that do not meet (a rail is a component) all-to-all loses just those pairs."""
    for seed in range(200):
        dice = random.Random(seed)
        fabric = _preset("rail-only", nodes=3)
        groups = make_groups(dice, fabric)
        placed = GroupSlots.of(groups, np.arange(fabric.num_slots), fabric)
        collector = LoadCollector(fabric)
        all_to_all(placed, np.full(len(groups), float(groups.shape[1])), collector)
        reach = reach_of(placed.cells, fabric)
        assert reach is not None
        assert collector.lost_bytes == pytest.approx(float(reach.unreachable_pairs.sum()))


def test_without_a_network_reach_is_unknown() -> None:
    fabric = _preset("none")
    slots = np.array([[0, 8]], dtype=np.int64)
    assert reach_of(find_cells(slots, fabric.island_of_slot, fabric.nic_of_slot), fabric) is None


def test_a_host_whose_nics_are_unknown_is_not_called_unreachable() -> None:
    """Only the number of GPUs is given: a scheduler's tree then says nothing against a group."""
    node = bare_node(2)
    tree = graph_network(2, 2, _no_cables())
    none = np.empty(0, dtype=np.int32)
    hosts = HostSet(["a", "b"], (node,), np.zeros(2, dtype=np.int32))
    fabric = build_fabric(hosts, wiring=Wiring(tree, none, none))
    assert _unreachable(fabric, [0, 2]) == 0
    collector = LoadCollector(fabric)
    groups = GroupSlots.of(np.array([[0, 2]]), np.arange(4), fabric)
    all_to_all(groups, np.array([2.0]), collector)
    assert collector.lost_bytes == 2.0  # which is why no bound is claimed


def _no_cables() -> Cables:
    none = np.empty(0, dtype=np.int32)
    return Cables(none, none, none.astype(np.uint8), (), np.empty(0), Origin.PARSED)


def test_host_components() -> None:
    hosts = np.arange(4)
    assert host_components(_preset("rail-optimized", 4), hosts) == [[0, 1, 2, 3]]
    # Each host touches all rails: one of them joins any two hosts.
    assert host_components(_preset("rail-only", 4), hosts) == [[0, 1, 2, 3]]
    assert host_components(_preset("none", 4), np.array([0, 2])) == [[0], [2]]
    assert host_components(_preset("none", 36, "gb200-nvl72"), np.array([0, 17, 18])) == [
        [0, 17],
        [18],
    ]
