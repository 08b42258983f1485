"""A network routed by tables: loads of any flows against a walk hop by hop; through the product."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from cluster.table_fabrics import (
    by_destination,
    by_end,
    edited,
    fat_tree,
    first_port,
    guid,
    hand_walk,
    random_fabric,
    set_tables,
    walked_loads,
    with_tables,
)
from meshwright.cluster.assembly.fabric_of_facts import fabric_of_facts
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.networks.network import GraphNetwork
from meshwright.cluster.networks.table_network import TableNetwork
from meshwright.routes.loads import LoadCollector


def _network(facts: Facts) -> TableNetwork:
    network = fabric_of_facts(facts)[0].network
    assert isinstance(network, TableNetwork)
    return network


def _flows(dice: random.Random, nics: tuple[Nic, ...]) -> list[tuple[Nic, Nic, float]]:
    count = dice.randint(0, 60)
    return [(dice.choice(nics), dice.choice(nics), dice.uniform(0.1, 9.0)) for _ in range(count)]


def _arrays(flows: list[tuple[Nic, Nic, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    src = np.array([one.index for one, _, _ in flows], dtype=np.int32)
    dst = np.array([one.index for _, one, _ in flows], dtype=np.int32)
    return src, dst, np.array([size for *_, size in flows])


@pytest.mark.parametrize("broken", [False, True])
def test_loads_equal_the_walk(*, broken: bool) -> None:
    crossed = stopped = 0
    for seed in range(200):
        dice = random.Random(seed)
        facts = random_fabric(dice, broken=broken)
        nics = facts.nics or ()
        if not any(nic.lid for nic in nics):
            continue
        network = _network(facts)
        flows = _flows(dice, nics)
        src, dst, size = _arrays(flows)
        joined = network.joined(src, dst).tolist() if flows else []
        # To itself a packet goes to its leaf and back.
        assert joined == [hand_walk(facts, a, b)[1] for a, b, _ in flows], seed
        up, down = network.cable_loads(src, dst, size)
        found = by_end(list(network.graph.cables), up.tolist(), down.tolist())
        walked = walked_loads(facts, flows)
        assert found.keys() == walked.keys()
        assert all(found[end] == pytest.approx(walked[end]) for end in walked), seed
        crossed += bool(walked)
        stopped += not all(joined)
    assert crossed > 60
    assert stopped > 30


def test_loads_of_flows_from_equal_sources_are_even_where_tables_are() -> None:
    """By destination, a fat tree's all-to-all is what even spreading gives."""
    facts = fat_tree(2, 3, 4, 2)
    exact = _network(with_tables(facts, by_destination))
    even = fabric_of_facts(facts)[0].network
    assert isinstance(even, GraphNetwork)
    src, dst = (one.ravel().astype(np.int32) for one in np.meshgrid(*[np.arange(12)] * 2))
    size = np.full(len(src), 3.0)
    by_table = exact.cable_loads(src, dst, size)
    by_share = even.cable_loads(src // 4, dst // 4, size)
    np.testing.assert_allclose(by_table, by_share)


def _collected(fabric: Fabric, flows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> LoadCollector:
    collector = LoadCollector(fabric)
    collector.nic_to_nic(*flows)
    return collector


def test_the_collector_loads_cables_by_the_tables() -> None:
    facts = with_tables(fat_tree(2, 4, 4, 2), first_port)
    fabric, findings = fabric_of_facts(facts)
    assert [one.rule for one in findings] == ["topology/routing-unbalanced"]
    src, dst = (one.ravel() for one in np.meshgrid(*[np.arange(16)] * 2))
    apart = src != dst
    loads = _collected(fabric, (src[apart], dst[apart], np.full(240, 2.0))).load_bytes()
    up = loads[fabric.cable_up0 : fabric.cable_up0 + 16]
    assert sorted(up.tolist()) == [0.0] * 12 + [96.0] * 4
    assert loads[fabric.nic_out].tolist() == [30.0] * 16


def test_bytes_without_a_way_are_lost_and_load_nothing() -> None:
    facts = with_tables(fat_tree(1, 2, 1), by_destination)
    facts = edited(facts, guid(3, 0), 11, 1)
    fabric, findings = fabric_of_facts(facts)
    assert [one.rule for one in findings] == ["topology/routing-loop"]
    collector = _collected(fabric, (np.array([0, 1]), np.array([1, 0]), np.array([7.0, 5.0])))
    assert collector.lost_bytes == 7.0
    loads = collector.load_bytes()
    assert sorted(loads[fabric.cable_up0 :].tolist()) == [0.0, 0.0, 5.0, 5.0]
    assert loads[fabric.nic_out].tolist() == [0.0, 5.0]


def test_tables_of_another_fabric_leave_paths_even() -> None:
    facts = fat_tree(1, 2, 1)
    strange = set_tables(facts, {guid(9, 9): b"\xff\x01"})
    fabric, findings = fabric_of_facts(strange)
    assert isinstance(fabric.network, GraphNetwork)
    assert [one.rule for one in findings] == ["topology/tables-unused"]
    assert "paths are spread evenly" in findings[0].message


def test_without_lids_paths_stay_even() -> None:
    facts = with_tables(fat_tree(1, 2, 1), by_destination)
    bare = tuple(msgspec.structs.replace(nic, lid=None) for nic in facts.nics or ())
    fabric, findings = fabric_of_facts(msgspec.structs.replace(facts, nics=bare))
    assert isinstance(fabric.network, GraphNetwork)
    assert [one.rule for one in findings] == [
        "topology/tables-unused",
        "topology/nic-without-lid",
    ]
