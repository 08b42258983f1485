"""Flows of all pairs of adapters: the trees give what a walk of every pair gives."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.table_fabrics import (
    by_destination,
    by_end,
    fat_tree,
    first_port,
    guid,
    hand_walk,
    random_fabric,
    walked_loads,
    with_tables,
)
from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.networks.table_graph import TableGraph
from meshwright.cluster.networks.table_loads import PairLoads, all_pairs_loads


def _pairs(facts: Facts) -> list[tuple[Nic, Nic]]:
    nics = facts.nics or ()
    return [(a, b) for a in nics for b in nics if a is not b and b.lid is not None]


def _check(facts: Facts, loads: PairLoads) -> int:
    """Compare with the walk of every pair; return how many pairs are lost."""
    pairs = _pairs(facts)
    walked = walked_loads(facts, [(a, b, 1) for a, b in pairs])
    assert by_end(list(loads.cables), loads.up.tolist(), loads.down.tolist()) == walked
    ways = [hand_walk(facts, a, b) for a, b in pairs]
    lost = sum(not arrives for _, arrives in ways)
    assert sum(one.count for one in loads.lost.values()) == lost
    assert loads.pairs == len(pairs)
    # A flow that arrives loads one cable less than it passes switches.
    hops = sum(len(steps) - 1 for steps, arrives in ways if arrives)
    assert int(loads.up.sum() + loads.down.sum()) == hops
    return lost


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32), st.booleans())
def test_loads_equal_the_walk_of_all_pairs(seed: int, broken: bool) -> None:
    facts = random_fabric(random.Random(seed), broken=broken)
    _check(facts, all_pairs_loads(facts))


def test_broken_tables_lose_pairs_and_the_rest_is_counted() -> None:
    lost = 0
    for seed in range(100):
        facts = random_fabric(random.Random(seed), broken=True)
        lost += _check(facts, all_pairs_loads(facts)) > 0
    assert lost > 30


def test_largest_flow_of_one_destination() -> None:
    for seed in range(60):
        facts = random_fabric(random.Random(seed), broken=seed % 2 == 1)
        loads = all_pairs_loads(facts)
        most: Counter[tuple[str, int]] = Counter()
        for dst in facts.nics or ():
            flows = [(a, b, 1.0) for a, b in _pairs(facts) if b is dst]
            for end, count in walked_loads(facts, flows).items():
                most[end] = max(most[end], int(count))
        largest = (loads.up_largest.tolist(), loads.down_largest.tolist())
        assert by_end(list(loads.cables), *largest) == most


def test_a_fat_tree_by_destination_is_even() -> None:
    loads = all_pairs_loads(with_tables(fat_tree(2, 4, 4, 2), by_destination))
    assert loads.up.tolist() == loads.down.tolist() == [12] * 16
    assert loads.pairs == 240
    assert loads.lost == {}


def test_by_the_first_port_one_cable_of_a_leaf_carries_all() -> None:
    loads = all_pairs_loads(with_tables(fat_tree(2, 4, 4, 2), first_port))
    assert sorted(loads.up.tolist()) == [0] * 12 + [48] * 4
    assert sorted(loads.up_largest.tolist()) == [0] * 12 + [4] * 4


def test_parts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = random_fabric(random.Random(5), broken=True)
    graph = TableGraph.of(facts)
    whole = all_pairs_loads(facts, graph)
    monkeypatch.setattr("meshwright.cluster.networks.table_graph._CHUNK_ENTRIES", 1)
    parts = all_pairs_loads(facts, graph)
    assert len(list(graph.chunks(graph.targets))) == len(graph.targets) > 1
    assert parts.up.tolist() == whole.up.tolist()
    assert parts.lost == whole.lost


def test_adapters_without_a_lid_only_send() -> None:
    facts = fat_tree(1, 2, 1)
    bare = msgspec.structs.replace((facts.nics or ())[1], lid=None)
    facts = msgspec.structs.replace(facts, nics=((facts.nics or ())[0], bare))
    loads = all_pairs_loads(with_tables(facts, by_destination))
    assert loads.pairs == 1
    assert by_end(list(loads.cables), loads.up.tolist(), loads.down.tolist()) == {
        (guid(2, 1), 2): 1,
        (guid(3, 0), 1): 1,
    }
