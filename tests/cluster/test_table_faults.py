"""Findings on forwarding tables: uneven loads, pairs cut off, loops, files that do not fit."""

from __future__ import annotations

import random

import msgspec
import pytest

from cluster.table_fabrics import (
    by_destination,
    edited,
    fat_tree,
    first_port,
    guid,
    random_fabric,
    set_tables,
    table_of,
    with_tables,
)
from meshwright.cluster.facts import NO_PORT, Facts, Nic
from meshwright.cluster.networks.table_faults import UNEVEN, table_findings
from meshwright.findings import Finding, Severity

TREE = with_tables(fat_tree(2, 4, 4, 2), by_destination)


def _only(facts: Facts) -> Finding:
    (found,) = table_findings(facts)
    assert found.severity is Severity.WARNING
    assert found.remedy
    return found


def test_even_tables_and_no_tables_have_no_finding() -> None:
    assert table_findings(TREE) == []
    assert table_findings(fat_tree(2, 4, 4, 2)) == []


def test_all_destinations_by_the_first_cable_are_uneven() -> None:
    found = _only(with_tables(fat_tree(2, 4, 4, 2), first_port))
    assert found.rule == "topology/routing-unbalanced"
    assert "16 adapters" in found.message
    assert "48 flows on leaf0 port 5 to spine0 port 1" in found.message
    assert "takes 4.0 times as long" in found.message
    assert "4 of 4 groups" in found.message
    numbers = dict(found.numbers)
    cables = numbers.pop("cables")
    assert numbers == {
        "max_flows": 48,
        "min_flows": 0,
        "mean_flows": 12.0,
        "ratio": 4.0,
        "uneven_groups": 4,
        "groups": 4,
        "uneven_cables": 8,
    }
    assert cables[1] == {"cable": "spine0 port 1 to leaf0 port 5", "flows": 48, "mean": 12.0}
    assert "ftree" in str(found.remedy)


def test_whole_destinations_that_do_not_divide_are_even_enough() -> None:
    """Three destinations over two cables: 2 and 1 is the best there is."""
    facts = with_tables(fat_tree(1, 2, 3, 2), by_destination)
    assert table_findings(facts) == []
    three = with_tables(fat_tree(1, 2, 3, 2), lambda _switch, _nic, ports: ports[0])
    found = _only(three)
    assert found.numbers["max_flows"] == 9
    assert found.numbers["min_flows"] == 0


def test_a_little_unevenness_is_no_fault() -> None:
    """One more destination than its share, of many, is below the threshold."""
    tree = fat_tree(4, 3, 16)
    even = with_tables(tree, by_destination)
    home, other = guid(2, 0), 17
    port = table_of(even, home)[10 + other]
    moved = edited(even, home, 10 + other, 17 if port != 17 else 18)
    assert table_findings(moved) == []
    far = [nic.lid for nic in tree.nics or () if nic.index >= 16]
    for lid in far[:12]:
        moved = edited(moved, home, lid or 0, 17)
    found = _only(moved)
    ratio = found.numbers["ratio"]
    assert isinstance(ratio, float)
    assert ratio >= UNEVEN


def test_switches_of_one_level_share_no_group() -> None:
    """In a ring of leaves the middle carries more; only parallel cables are compared."""
    facts = _ring()
    assert table_findings(with_tables(facts, by_destination)) == []
    found = _only(with_tables(facts, first_port))
    assert found.rule == "topology/routing-unbalanced"
    assert found.numbers["groups"] == 3


def _ring() -> Facts:
    """Three leaves of four hosts in a line and two cables a hop, and back by one hop."""
    facts = fat_tree(0, 3, 4)
    cable = (facts.cables or ())[0]
    pairs = [(0, 1), (1, 2), (0, 2)]
    cables = [
        msgspec.structs.replace(
            cable,
            a=guid(2, low),
            b=guid(2, high),
            a_port=10 + 2 * high + way,
            b_port=20 + 2 * low + way,
        )
        for low, high in pairs
        for way in range(2)
    ]
    return msgspec.structs.replace(facts, cables=(*(facts.cables or ()), *cables))


def test_pairs_without_a_way() -> None:
    facts = edited(TREE, guid(3, 1), 14, NO_PORT)  # n4 on leaf1, by spine1 or spine0
    hit = {switch: table_of(TREE, guid(2, switch))[14] for switch in (0, 2, 3)}
    assert set(hit.values()) == {5}, "all three leaves send to n4 by spine0"
    assert table_findings(facts) == []
    found = _only(edited(TREE, guid(3, 0), 14, NO_PORT))
    assert found.rule == "topology/no-route"
    assert found.numbers == {
        "pairs": 12,
        "of_pairs": 240,
        "reasons": {"the table has no entry": 12},
    }
    assert (
        "12 because the table has no entry (from leaf0 to n4 mlx5_0 (LID 14): spine0)"
        in found.message
    )


def test_pairs_that_end_elsewhere() -> None:
    facts = edited(edited(TREE, guid(3, 0), 14, 30), guid(2, 0), 10, 2)
    found = next(one for one in table_findings(facts) if one.rule == "topology/no-route")
    assert found.numbers["reasons"] == {
        "the table names a port without a cable": 12,
        "the table names a port that leads to another adapter": 15,
    }
    assert "spine0 port 30" in found.message
    assert "leaf0 port 2" in found.message


def test_a_loop_is_named_with_its_switches() -> None:
    facts = edited(TREE, guid(3, 0), 14, 1)  # spine0 sends back to leaf0
    found = next(one for one in table_findings(facts) if one.rule == "topology/routing-loop")
    # All three leaves send n4's packets to spine0, and leaf0 gets them back.
    assert found.numbers["pairs"] == 12
    assert "leaf0 port 5, spine0 port 1, and again" in found.message
    assert "n4 mlx5_0 (LID 14)" in found.message


def test_tables_that_fit_no_switch() -> None:
    found = _only(set_tables(TREE, {guid(9, 1): b"\xff\x01", guid(9, 2): b""}))
    assert found.rule == "topology/tables-unused"
    assert found.numbers == {"tables": 2}


def test_more_ways_than_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (6 * 16, 6 * 16 - 1):
        for module in ("table_graph", "table_faults"):
            monkeypatch.setattr(f"meshwright.cluster.networks.{module}.MAX_ENTRIES", room)
        if room == 6 * 16:
            assert table_findings(TREE) == []
    found = _only(TREE)
    assert found.rule == "topology/tables-unused"
    assert "96 ways from switches to adapters are more than are followed (95)" in found.message


def test_a_switch_without_a_table_cuts_off_what_needs_it() -> None:
    ports = {one.guid: one.ports for one in TREE.tables or ()}
    del ports[guid(3, 1)]
    (found,) = table_findings(set_tables(TREE, ports))
    assert found.rule == "topology/no-route"
    # Of every leaf's 12 destinations elsewhere, half go by spine1.
    assert found.numbers["pairs"] == 4 * 4 * 6


def test_adapters_without_a_lid_are_named() -> None:
    def bare(nic: Nic) -> Nic:
        return msgspec.structs.replace(nic, lid=None) if nic.index in (3, 9) else nic

    nics = tuple(bare(nic) for nic in TREE.nics or ())
    rules = {one.rule: one for one in table_findings(msgspec.structs.replace(TREE, nics=nics))}
    assert rules["topology/nic-without-lid"].numbers["names"] == ["n3 mlx5_0", "n9 mlx5_0"]


def test_lists_are_bounded_and_any_tables_give_findings() -> None:
    seen = set()
    for seed in range(150):
        for found in table_findings(random_fabric(random.Random(seed), broken=True)):
            seen.add(found.rule)
            assert len(found.message) < 1200
    assert seen >= {"topology/no-route", "topology/routing-loop", "topology/nic-without-lid"}
