"""Forwarding tables as arrays: ways and how they end, against a walk hop by hop."""

from __future__ import annotations

import random

import msgspec
import pytest

from cluster.table_fabrics import (
    by_destination,
    edited,
    fat_tree,
    guid,
    hand_walk,
    random_fabric,
    set_tables,
    with_tables,
)
from meshwright.cluster.facts import NO_PORT
from meshwright.cluster.networks.table_graph import (
    ARRIVES,
    LOOP,
    NO_CABLE,
    NO_ENTRY,
    OTHER_END,
    TableGraph,
    route,
)
from meshwright.errors import UsageError

TREE = with_tables(fat_tree(2, 3, 2, 2), by_destination)


def test_routes_of_a_fat_tree() -> None:
    # n1 hangs on leaf0 port 2; n4 is the first of leaf2. Uplinks: 3, 4 to spine0; 5, 6 to spine1.
    assert route(TREE, guid(1, 1), guid(1, 4)) == [
        (guid(2, 0), 3),
        (guid(3, 0), 5),
        (guid(2, 2), 1),
    ]
    assert route(TREE, guid(1, 1), guid(1, 5)) == [
        (guid(2, 0), 4),
        (guid(3, 0), 6),
        (guid(2, 2), 2),
    ]
    assert route(TREE, guid(1, 1), guid(1, 0)) == [(guid(2, 0), 1)]


@pytest.mark.parametrize("broken", [False, True])
def test_routes_equal_the_walk(*, broken: bool) -> None:
    arrived = dict.fromkeys((True, False), 0)
    for seed in range(70):
        facts = random_fabric(random.Random(seed), broken=broken)
        nics = facts.nics or ()
        for src in nics:
            for dst in nics:
                if src is dst or dst.lid is None:
                    continue
                steps, arrives = hand_walk(facts, src, dst)
                found = route(facts, str(src.guid), str(dst.guid))
                assert found == (steps if arrives else None), (seed, src.name, dst.name)
                arrived[arrives] += 1
    assert min(arrived.values()) > 200


def test_trees_equal_single_ways() -> None:
    """The doubling ends as the walk does, whatever the tables say."""
    seen = dict.fromkeys((ARRIVES, NO_ENTRY, NO_CABLE, OTHER_END, LOOP), 0)
    for seed in range(200):
        facts = random_fabric(random.Random(seed), broken=True)
        graph = TableGraph.of(facts)
        for part, trees in graph.chunks(graph.targets):
            for column, target in enumerate(graph.targets[part]):
                for switch in range(len(graph.switch_names)):
                    steps, end = graph.walk(switch, target)
                    assert trees.end[switch, column] == end, seed
                    if end != LOOP:
                        assert trees.hops[switch, column] == len(steps) - 1
                    seen[end] += 1
    assert min(seen.values()) > 30, seen


def test_a_long_chain_is_followed_to_its_end() -> None:
    facts = random_fabric(random.Random(1))
    count = 300
    switches = tuple(
        msgspec.structs.replace((facts.switches or ())[0], id=guid(2, one), guid=guid(2, one))
        for one in range(count)
    )
    chain = fat_tree(1, 1, 1)
    cable = (chain.cables or ())[0]
    cables = [cable]
    for one in range(count - 1):
        ends = {"a": guid(2, one), "b": guid(2, one + 1), "a_port": 2, "b_port": 3}
        cables.append(msgspec.structs.replace(cable, **ends))
    chain = msgspec.structs.replace(chain, switches=switches, cables=tuple(cables))
    entries = {guid(2, one): bytes([NO_PORT] * 10 + [3 if one else 1]) for one in range(count)}
    graph = TableGraph.of(set_tables(chain, entries))
    ((_, trees),) = graph.chunks(graph.targets)
    assert trees.hops[:, 0].tolist() == list(range(count))
    assert set(trees.end[:, 0].tolist()) == {ARRIVES}


def test_many_targets_are_followed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = TableGraph.of(TREE)
    ((_, whole),) = graph.chunks(graph.targets)
    monkeypatch.setattr("meshwright.cluster.networks.table_graph._CHUNK_ENTRIES", 11)
    parts = list(graph.chunks(graph.targets))
    assert len(parts) == 3
    assert [one for part, _ in parts for one in graph.targets[part]] == list(graph.targets)
    assert [row for _, trees in parts for row in trees.edge.T.tolist()] == whole.edge.T.tolist()


def test_ways_that_end_early() -> None:
    away, to = guid(1, 0), guid(1, 4)
    lid = 14
    for switch, port, end in (
        (guid(2, 0), NO_PORT, NO_ENTRY),
        (guid(2, 0), 99, NO_CABLE),
        (guid(2, 0), 0, NO_CABLE),
        (guid(2, 2), 2, OTHER_END),
        (guid(3, 0), 1, LOOP),
    ):
        facts = edited(TREE, switch, lid, port)
        graph = TableGraph.of(facts)
        target = next(one for one in graph.targets if one.lid == lid)
        assert graph.walk(0, target)[1] == end
        assert route(facts, away, to) is None


def test_lids_beyond_a_table_have_no_entry() -> None:
    nic = msgspec.structs.replace((TREE.nics or ())[4], lid=0xBFFF)
    nics = tuple(nic if one.index == 4 else one for one in TREE.nics or ())
    facts = msgspec.structs.replace(TREE, nics=nics)
    assert route(facts, guid(1, 0), guid(1, 4)) is None


def test_adapters_that_cannot_be_asked_for() -> None:
    bare = tuple(msgspec.structs.replace(nic, lid=None) for nic in TREE.nics or ())
    with pytest.raises(UsageError, match="no adapter"):
        route(msgspec.structs.replace(TREE, nics=bare), guid(1, 0), guid(1, 4))
    with pytest.raises(UsageError, match=guid(1, 77)):
        route(TREE, guid(1, 77), guid(1, 4))
    assert len(TableGraph.of(msgspec.structs.replace(TREE, nics=bare)).bare) == 6


def test_two_ports_of_one_adapter() -> None:
    """Traffic goes to the lowest port that has a cable; its other port is another end."""
    facts = fat_tree(1, 2, 1)
    second = msgspec.structs.replace((facts.cables or ())[0], a_port=2, b=guid(2, 1), b_port=30)
    facts = msgspec.structs.replace(facts, cables=(second, *(facts.cables or ())))
    facts = with_tables(facts, by_destination)
    assert route(facts, guid(1, 1), guid(1, 0)) == [
        (guid(2, 1), 2),
        (guid(3, 0), 1),
        (guid(2, 0), 1),
    ]
    assert route(edited(facts, guid(2, 1), 10, 30), guid(1, 1), guid(1, 0)) is None
