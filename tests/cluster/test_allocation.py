"""Name order, switch order, ring crossings and segments of a job's hosts."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.allocations.allocation import Allocation, allocation_of, ring_crossings
from meshwright.cluster.allocations.allocation_findings import allocation_findings
from meshwright.cluster.facts import (
    Block,
    Cable,
    Facts,
    HostPlace,
    Nic,
    Switch,
    TreeSwitch,
)
from meshwright.cluster.natural_order import in_name_order, natural_key
from meshwright.errors import UsageError
from meshwright.report.allocation_report import allocation_json, allocation_text


def strnatcmp(a: str, b: str) -> int:
    """Compare as Slurm's ``strnatcmp`` is described: position by position, runs of digits as one."""
    i = j = 0
    while True:
        if i == len(a) or j == len(b):
            return (i < len(a)) - (j < len(b))
        if a[i].isdigit() and b[j].isdigit():
            m, n = i, j
            while m < len(a) and a[m].isdigit():
                m += 1
            while n < len(b) and b[n].isdigit():
                n += 1
            x, y = a[i:m], b[j:n]
            if "0" in (x[0], y[0]):
                if x != y:
                    return -1 if x < y else 1
            elif (len(x), x) != (len(y), y):
                return -1 if (len(x), x) < (len(y), y) else 1
            i, j = m, n
        elif a[i] != b[j]:
            return -1 if a[i] < b[j] else 1
        else:
            i, j = i + 1, j + 1


@pytest.mark.parametrize(
    "ordered",
    [
        ["cn-22", "cn-71", "cn-231"],
        ["a1", "a2", "a10"],
        ["a01", "a02", "a1", "a10"],
        ["n009", "n010", "n100"],
        ["r1n2", "r1n10", "r2n1"],
        ["a", "a-1", "a1", "ab"],
        ["n1", "n1-gpu", "n10"],
    ],
)
def test_name_order(ordered: list[str]) -> None:
    assert in_name_order(reversed(ordered)) == ordered


@settings(deadline=None)
@given(st.lists(st.text("ab-.0123", min_size=1, max_size=8), max_size=12))
def test_the_key_orders_as_the_comparison_does(names: list[str]) -> None:
    assert sorted(names, key=natural_key) == sorted(names, key=functools.cmp_to_key(strnatcmp))


def facts(**fields: object) -> Facts:
    return Facts(format="made", path="made.conf", **fields)  # type: ignore[arg-type]


def tree(**leaves: tuple[str, ...]) -> Facts:
    switches = [TreeSwitch(name, (), hosts) for name, hosts in leaves.items()]
    return facts(tree=(TreeSwitch("top", tuple(leaves)), *switches))


def blocks(**members: tuple[str, ...]) -> Facts:
    return facts(blocks=tuple(Block(name, hosts) for name, hosts in members.items()))


def rules_of(allocation: Allocation) -> list[str]:
    return [one.rule.removeprefix("allocation/") for one in allocation_findings(allocation)]


def test_orders_by_leaf_of_the_file_and_by_name_within() -> None:
    source = tree(zz=("a10", "a2"), aa=("a3", "a1"))
    found = allocation_of([source], ["a1", "a2", "a3", "a10"])
    assert found.name_order == ("a1", "a2", "a3", "a10")
    assert found.switch_order == ("a2", "a10", "a1", "a3")
    assert found.crossings == {"given": 4, "name": 4, "switch": 2}
    (finding,) = allocation_findings(found)
    assert finding.rule == "allocation/order-crosses-switches"
    assert "'a[2,10,1,3]'" in (finding.remedy or "")
    assert "SwitchAsNodeRank" in (finding.remedy or "")
    assert finding.numbers == {
        "ring_crossings_name_order": 4,
        "ring_crossings_switch_order": 2,
        "given_order_crossings": 4,
        "hosts": 4,
    }


def test_an_order_that_is_good_already_is_no_finding() -> None:
    found = allocation_of([tree(l1=("a1", "a2"), l2=("a3", "a4"))], ["a1", "a2", "a3", "a4"])
    assert found.crossings == {"given": 2, "name": 2, "switch": 2}
    assert rules_of(found) == []


def test_a_long_order_is_not_written_into_the_remedy() -> None:
    leaves = {f"l{leaf}": tuple(f"n{host}" for host in range(leaf, 3000, 3)) for leaf in range(3)}
    names = [host for members in leaves.values() for host in members]
    (finding,) = allocation_findings(allocation_of([tree(**leaves)], names))
    assert len(finding.remedy or "") < 500
    assert ".allocation.switch_order[]" in (finding.remedy or "")


def test_hosts_are_found_without_domain_and_case() -> None:
    source = tree(l1=("Node1.cluster", "node2.cluster"))
    found = allocation_of([source], ["node1", "NODE2.cluster", "node3"])
    assert found.leaf_of == {"node1": "l1", "NODE2.cluster": "l1"}
    assert found.unknown == ("node3",)
    assert rules_of(found) == ["hosts-unknown"]


def test_a_short_name_of_two_hosts_is_neither() -> None:
    source = tree(l1=("n1.east",), l2=("n1.west",))
    assert allocation_of([source], ["n1"]).leaf_of == {}
    assert allocation_of([source], ["n1.west"]).leaf_of == {"n1.west": "l2"}


def test_the_source_that_knows_most_hosts_is_taken() -> None:
    few, many = tree(l1=("a1",)), tree(m1=("a1",), m2=("a2",))
    assert allocation_of([few, many], ["a1", "a2"]).leaf_of == {"a1": "m1", "a2": "m2"}


def test_places_and_domains() -> None:
    source = facts(
        places=tuple(HostPlace(f"a{n}", (f"leaf{n % 2}", "spine"), f"d{n // 2}") for n in range(4))
    )
    found = allocation_of([source], ["a0", "a1", "a2", "a3"], 2)
    assert allocation_json(found)["by_leaf"] == {"leaf0": ["a0", "a2"], "leaf1": ["a1", "a3"]}
    assert allocation_json(found)["by_block"] == {"d0": ["a0", "a1"], "d1": ["a2", "a3"]}
    assert found.segments is not None
    assert found.segments.segments_ok


def test_cables_give_units_of_hosts() -> None:
    """Two units of two hosts, each host with an adapter on both rails of its unit."""
    nics, cables = [], []
    for host in range(4):
        for rail in range(2):
            guid = f"{host:08x}{rail:08x}"
            nics.append(Nic(len(nics), f"mlx5_{rail}", host=f"a{host}", guid=guid))
            cables.append(Cable(guid, f"s{host // 2}{rail}"))
    switches = [
        Switch(f"s{unit}{rail}", f"L{unit}{rail}") for unit in range(2) for rail in range(2)
    ]
    source = facts(nics=tuple(nics), cables=tuple(cables), switches=tuple(switches))
    found = allocation_of([source], ["a0", "a2", "a1", "a3"])
    assert allocation_json(found)["by_leaf"] == {"unit 0": ["a0", "a1"], "unit 1": ["a2", "a3"]}
    assert found.crossings == {"given": 4, "name": 2, "switch": 2}


@pytest.mark.parametrize(
    ("order", "crossings"),
    [("", 0), ("a", 0), ("aa", 0), ("ab", 2), ("aab", 2), ("abab", 4), ("abc", 3), ("?a?a", 0)],
)
def test_ring_crossings(order: str, crossings: int) -> None:
    hosts = [f"{at}{group}" for at, group in enumerate(order)]
    of = {host: host[-1] for host in hosts if host[-1] != "?"}
    assert ring_crossings(hosts, of) == crossings


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=30))
def test_group_by_group_crosses_least(groups: list[int]) -> None:
    """The least any order can have: each group is left once, unless all hosts are in one."""
    members: dict[str, tuple[str, ...]] = {}
    hosts = [f"n{number}" for number in range(len(groups))]
    for host, group in zip(hosts, groups, strict=True):
        members[f"g{group}"] = (*members.get(f"g{group}", ()), host)
    found = allocation_of([tree(**members)], hosts)
    assert found.crossings is not None
    assert found.crossings["switch"] == (len(members) if len(members) > 1 else 0)
    assert found.crossings["switch"] <= found.crossings["name"]


def hosts(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"n{number:03d}" for number in range(first, first + count))


def test_segments_that_fit() -> None:
    found = allocation_of([blocks(r0=hosts(0, 9), r1=hosts(9, 9))], [*hosts(0, 8), *hosts(9, 4)], 4)
    assert allocation_json(found)["segments"] == {
        "segment": 4,
        "segments_ok": True,
        "expected": {"r0": 8, "r1": 4},
        "actual": {"r0": 8, "r1": 4},
        "groups_crossing": [],
    }
    assert rules_of(found) == []


def test_segments_broken_and_where_they_could_go() -> None:
    source = blocks(r0=hosts(0, 9), r1=hosts(9, 9), spare=hosts(18, 9))
    found = allocation_of([source], [*hosts(0, 3), *hosts(9, 9)], 4)
    assert found.segments is not None
    assert not found.segments.segments_ok
    assert found.segments.actual == {"r0": 3, "r1": 9}
    assert found.segments.expected == {"r0": 8, "r1": 4}
    assert found.segments.groups_crossing == (0,)
    assert rules_of(found) == ["segments-broken"]
    small = blocks(r0=hosts(0, 3), r1=hosts(3, 3))
    none = allocation_of([small], hosts(0, 4), 4)
    assert none.segments is not None
    assert none.segments.expected is None
    assert "cannot hold 1 segment;" in allocation_findings(none)[0].message


def test_segments_whole_and_out_of_order() -> None:
    source = blocks(r0=("n1", "n3"), r1=("n2", "n4"))
    found = allocation_of([source], ["n1", "n2", "n3", "n4"], 2)
    assert found.segments is not None
    assert found.segments.segments_ok
    assert found.segments.groups_crossing == (0, 1)
    assert rules_of(found) == ["segment-order", "order-crosses-switches"]
    assert "BlockAsNodeRank" in (allocation_findings(found)[1].remedy or "")


def test_hosts_that_no_segment_divides_or_no_block_knows() -> None:
    source = blocks(r0=hosts(0, 8))
    odd = allocation_of([source], hosts(0, 7), 4)
    assert "no whole number of segments" in allocation_findings(odd)[0].message
    lost = allocation_of([source], [*hosts(0, 7), "x"], 4)
    assert rules_of(lost) == ["hosts-unknown", "segments-broken"]
    assert "7 and 1 in no known block hosts by block" in allocation_findings(lost)[1].message


@pytest.mark.parametrize(
    ("names", "segment", "message"),
    [
        ([], None, "no host"),
        (["a", "b", "a"], None, "named twice in the allocation: a"),
        (["a"], 0, "at least one host"),
        (["a"], 1, "no source names a block"),
    ],
)
def test_questions_that_cannot_be_answered(
    names: list[str], segment: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        allocation_of([tree(l1=("a",))], names, segment)


def test_without_any_place_all_is_null() -> None:
    found = allocation_of([facts()], ["b", "a"])
    document = allocation_json(found)
    assert document["name_order"] == ["a", "b"]
    for key in ("switch_order", "by_leaf", "by_block", "segments", "given_order_crossings"):
        assert document[key] is None, key
    assert "No source says" in allocation_text(found)
    assert rules_of(found) == ["hosts-unknown"]


def test_text_and_json_have_the_same_numbers() -> None:
    source = blocks(r0=hosts(0, 9), r1=hosts(9, 9))
    found = allocation_of([source], [*hosts(0, 3), *hosts(9, 9)], 4)
    text = allocation_text(found)
    assert "r0     3      n[000-002]" in text
    assert "hosts by block        r0 3, r1 9" in text
    assert "expected              r0 8, r1 4" in text
    assert "groups across blocks  1: number 0 (from 0)" in text
    assert max(map(len, text.split("\n"))) <= 100


def test_hosts_that_fill_no_segment_get_the_numbers_that_do() -> None:
    found = allocation_of([blocks(r0=hosts(0, 16))], hosts(0, 16), 3)
    (finding,) = [one for one in allocation_findings(found) if "segment" in one.rule]
    assert "16 hosts are no whole number of segments of 3" in finding.message
    assert finding.remedy == "ask for 15 or 18 hosts, or for another segment"


def test_segments_of_hosts_that_no_source_knows_are_unknown_hosts() -> None:
    found = allocation_of([blocks(r0=hosts(0, 4))], ["other1", "other2"], 2)
    assert found.segments is None
    assert rules_of(found) == ["hosts-unknown"]
