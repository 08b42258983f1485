"""Cables on the wrong port: the finding names both ports, and accuses no right one."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.degraded.faults import only_finding, replaced, swapped
from cluster.degraded.maker import Port, Site, loud, of_listing, site
from meshwright.cluster.degraded import degradations
from meshwright.cluster.switches.switch_levels import derive_levels
from meshwright.findings import Finding, Severity

# Cables swapped -----------------------------------------------------------------------------------


def _check_swap(found: Finding, one: Port, other: Port, right: tuple[str, str]) -> None:
    """``one`` and ``other`` as they hang now; ``right``: where each belongs."""
    for port, belongs in ((one, right[0]), (other, right[1])):
        at = f"{port.leaf} port {port.leaf_port}"
        end = f"host {port.host} {port.adapter} port {port.port} on {at} belongs on {belongs}"
        assert end in found.message
        assert at in str(found.remedy)
    assert found.message.startswith("two cables are swapped: ")
    assert Counter(found.numbers["hosts"]) == Counter([one.host, other.host])


@settings(deadline=None)
@given(st.data())
def test_two_cables_swapped_anywhere(data: st.DataObject) -> None:
    """Between hosts of any units, on any two leaves: one finding with both ports."""
    made = site(rails=4, hosts=6)
    places = st.integers(0, len(made.ports) - 1)
    one = data.draw(places)
    other = data.draw(places.filter(lambda at: made.ports[at].leaf != made.ports[one].leaf))
    bad = swapped(made, one, other)
    found = only_finding(bad.facts(), "rail-miscabled")
    right = (made.ports[one].leaf, made.ports[other].leaf)
    _check_swap(found, bad.ports[one], bad.ports[other], right)


def test_the_swap_of_two_hosts_is_found_in_a_listing() -> None:
    made = site(units=3)
    names = [(port.host, port.adapter) for port in made.ports]
    one, other = names.index(("u0-n2", "mlx5_1")), names.index(("u2-n4", "mlx5_1"))
    found = only_finding(of_listing(swapped(made, one, other)), "rail-miscabled")
    assert found.message == (
        "two cables are swapped: host u0-n2 mlx5_1 port 1 on leaf-2-1 port 5 belongs on leaf-0-1, and host "
        "u2-n4 mlx5_1 port 1 on leaf-0-1 port 3 belongs on leaf-2-1, as the same adapters of most hosts there"
    )
    assert found.numbers == {
        "host": "u0-n2",
        "hosts": ["u0-n2", "u2-n4"],
        "adapters": ["mlx5_1", "mlx5_1"],
        "adapter_ports": [1, 1],
        "leaves": ["leaf-2-1", "leaf-0-1"],
        "leaf_ports": [5, 3],
        "expected_leaves": ["leaf-0-1", "leaf-2-1"],
    }


def test_two_rails_of_one_host_swapped() -> None:
    made = site()
    bad = swapped(made, 5, 6)
    found = only_finding(bad.facts(), "rail-miscabled")
    assert found.numbers["hosts"] == ["u0-n1", "u0-n1"]
    _check_swap(found, bad.ports[5], bad.ports[6], ("leaf-0-1", "leaf-0-2"))


def test_two_swaps_are_two_findings_each_of_one_host() -> None:
    """Two hosts with the same rails exchanged: pairs are made within each host."""
    made = site()
    bad = swapped(swapped(made, 5, 6), 9, 10)
    for order in (bad.ports, [*bad.ports[6:10], *bad.ports[:6], *bad.ports[10:]]):
        found = loud(Site(order, bad.trunks).facts())
        assert sorted(one.numbers["hosts"] for one in found) == [["u0-n1"] * 2, ["u0-n2"] * 2]


def test_one_adapter_alone_on_a_wrong_leaf() -> None:
    made = site()
    bad = replaced(made, 6, leaf="leaf-1-2", leaf_port=20)
    found = only_finding(bad.facts(), "rail-miscabled")
    assert found.message == (
        "host u0-n1: mlx5_2 port 1 is on leaf-1-2 port 20 (most hosts there: mlx5_2) and belongs on leaf-0-2"
    )
    assert "from leaf-1-2 port 20 to leaf-0-2" in str(found.remedy)


def test_three_cables_in_a_circle_are_no_swap() -> None:
    made = site()
    bad = swapped(swapped(made, 4, 5), 4, 6)
    found = only_finding(bad.facts(), "rail-miscabled")
    assert found.message.startswith("host u0-n1: ")
    assert found.numbers["adapters"] == ["mlx5_0", "mlx5_1", "mlx5_2"]


def _named(made: Site, names: dict[str, str]) -> Site:
    ports = [msgspec.structs.replace(one, host=names[one.host]) for one in made.ports]
    return Site(ports, list(made.trunks))


def _belongs(bad: Site, at: int, leaf: str) -> str:
    port = bad.ports[at]
    where = f"{port.leaf} port {port.leaf_port}"
    return f"host {port.host} {port.adapter} port {port.port} on {where} belongs on {leaf}"


@settings(deadline=None)
@given(st.data(), st.integers(2, 4), st.integers(2, 4), st.integers(3, 6), st.randoms())
def test_a_swap_is_never_laid_on_right_ports_alone(
    data: st.DataObject, units: int, rails: int, hosts: int, chance: Random
) -> None:
    """Whatever the hosts are called and the order of the source."""
    made = site(units, rails, hosts)
    numbers = list(range(len(made.hosts())))
    chance.shuffle(numbers)
    made = _named(made, dict(zip(made.hosts(), [f"x{n}" for n in numbers], strict=True)))
    one = data.draw(st.integers(0, len(made.ports) - 1))
    leaf = made.ports[one].leaf
    others = [at for at, port in enumerate(made.ports) if port.leaf != leaf]
    other = data.draw(st.sampled_from(others))
    bad = swapped(made, one, other)
    order = list(bad.ports)
    chance.shuffle(order)
    found = only_finding(Site(order, bad.trunks).facts(), "rail-miscabled")
    assert found.message.startswith("two cables are swapped: ")
    assert _belongs(bad, one, leaf) in found.message
    assert _belongs(bad, other, made.ports[other].leaf) in found.message
    # With three rails most cables of a host say where it belongs.
    assert rails == 2 or "alternatives" not in found.numbers
    levels = derive_levels(bad.facts())
    assert [one.rule for one in levels.findings] == ["topology/rail-miscabled"]
    assert {leaf: str(rail) for leaf, rail in levels.rail_of_leaf.items()} == {
        leaf: leaf[-1] for leaf in levels.unit_of_leaf
    }
    pairs = {(unit, leaf[5]) for leaf, unit in levels.unit_of_leaf.items()}
    assert len(pairs) == len({unit for unit, _ in pairs}) == units


def test_two_rails_swapped_between_units_are_told_by_names() -> None:
    made = site(rails=2, hosts=3)
    bad = swapped(made, 5, 9)
    found = only_finding(bad.facts(), "rail-miscabled")
    assert found.message == (
        "two cables are swapped: host u0-n2 mlx5_1 port 1 on leaf-1-1 port 2 belongs on leaf-0-1, and host "
        "u1-n1 mlx5_1 port 1 on leaf-0-1 port 3 belongs on leaf-1-1, by the hosts' names (by the cables alone "
        "it may as well be that host u0-n2 mlx5_0 port 1 on leaf-0-0 port 3 belongs on leaf-1-0, and host "
        "u1-n1 mlx5_0 port 1 on leaf-1-0 port 2 belongs on leaf-0-0)"
    )
    assert found.numbers["by_names"] is True
    assert found.numbers["leaf_ports"] == [2, 3]
    (other,) = found.numbers["alternatives"]
    assert other == {
        "hosts": ["u0-n2", "u1-n1"],
        "adapters": ["mlx5_0", "mlx5_0"],
        "adapter_ports": [1, 1],
        "leaves": ["leaf-0-0", "leaf-1-0"],
        "leaf_ports": [3, 2],
        "expected_leaves": ["leaf-1-0", "leaf-0-0"],
    }
    assert found.remedy == (
        "look where u0-n2 and u1-n1 stand, then exchange the cables at leaf-1-1 port 2 and leaf-0-1 port 3, "
        "and list the fabric again"
    )


def test_two_rails_swapped_between_units_whose_names_say_nothing() -> None:
    """Hosts of both units alternate by name: two explanations, neither of them preferred."""
    made = site(rails=2, hosts=4)
    names = {host: f"n{at % 4 * 2 + at // 4}" for at, host in enumerate(made.hosts())}
    bad = _named(swapped(made, 5, 11), names)
    found = only_finding(bad.facts(), "rail-miscabled")
    assert found.message == (
        "two cables are swapped: either host n3 mlx5_0 port 1 on leaf-1-0 port 2 belongs on leaf-0-0, and "
        "host n4 mlx5_0 port 1 on leaf-0-0 port 3 belongs on leaf-1-0; or host n3 mlx5_1 port 1 on leaf-0-1 "
        "port 3 belongs on leaf-1-1, and host n4 mlx5_1 port 1 on leaf-1-1 port 2 belongs on leaf-0-1; the "
        "cables do not say which"
    )
    assert found.numbers["by_names"] is False
    assert "leaf-1-0 port 2 and leaf-0-0 port 3, or exchange" in str(found.remedy)


def test_one_cable_of_two_in_another_unit_is_told_by_the_number_of_hosts() -> None:
    """Three units of six hosts; the names say nothing."""
    made = site(units=3, rails=2)
    numbers = [7, 2, 12, 17, 1, 9, 4, 16, 10, 0, 13, 6, 15, 3, 11, 8, 5, 14]
    made = _named(made, {host: f"n{numbers[at]}" for at, host in enumerate(made.hosts())})
    bad = replaced(made, 3, leaf="leaf-1-1", leaf_port=20)
    found = only_finding(bad.facts(), "rail-miscabled")
    assert found.message == (
        "host n2: mlx5_1 port 1 is on leaf-1-1 port 20 (most hosts there: mlx5_1) and belongs on leaf-0-1"
    )
    # In a fabric of two units nothing tells.
    made = site(units=2, rails=2)
    made = _named(made, {host: f"n{numbers[at]}" for at, host in enumerate(made.hosts())})
    either = only_finding(
        replaced(made, 3, leaf="leaf-1-1", leaf_port=20).facts(), "rail-miscabled"
    )
    assert either.message == (
        "a cable is on a wrong leaf: either host n2 mlx5_0 port 1 on leaf-0-0 port 2 belongs on leaf-1-0; or "
        "host n2 mlx5_1 port 1 on leaf-1-1 port 20 belongs on leaf-0-1; the cables do not say which"
    )


def test_a_host_of_two_adapters_and_one_of_four() -> None:
    """The host whose unit is clear tells which cable of the other is wrong."""
    made = site(units=2, rails=4)
    ports = [one for one in made.ports if (one.host, one.adapter[-1]) not in _LESS]
    made = Site(ports, made.trunks)
    places = {(one.host, one.adapter): at for at, one in enumerate(ports)}
    one, other = places["u0-n1", "mlx5_1"], places["u1-n3", "mlx5_1"]
    names = {host: f"n{at % 6 * 2 + at // 6}" for at, host in enumerate(made.hosts())}
    bad = _named(swapped(made, one, other), names)
    found = [one for one in loud(bad.facts()) if one.rule == "topology/rail-miscabled"]
    (swap,) = found
    _check_swap(swap, bad.ports[one], bad.ports[other], ("leaf-0-1", "leaf-1-1"))


_LESS = {("u0-n1", "2"), ("u0-n1", "3")}


# Units of two hosts ------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.data(), st.integers(2, 5), st.integers(3, 6), st.booleans())
def test_units_of_two_hosts_give_both_pairs(
    data: st.DataObject, units: int, rails: int, same_host: bool
) -> None:
    made = site(units, rails, 2)
    one = data.draw(st.integers(0, len(made.ports) - 1))
    mine = made.ports[one]
    others = [
        at
        for at, port in enumerate(made.ports)
        if port.leaf != mine.leaf
        and (port.host == mine.host if same_host else port.host[:2] != mine.host[:2])
    ]
    other = data.draw(st.sampled_from(others))
    bad = swapped(made, one, other)
    found = only_finding(bad.facts(), "rail-miscabled")
    assert found.message.startswith("two cables are swapped: either ")
    assert _belongs(bad, one, mine.leaf) in found.message
    assert _belongs(bad, other, made.ports[other].leaf) in found.message
    assert found.message.count(" belongs on ") == 4
    # Either exchange makes the fabric regular.
    first, second = found.numbers, found.numbers["alternatives"][0]
    for way in (first, second):
        ends = [*zip(way["leaves"], way["leaf_ports"], strict=True)]
        places = {(port.leaf, port.leaf_port): at for at, port in enumerate(bad.ports)}
        assert loud(swapped(bad, *[places[end] for end in ends]).facts()) == []
    levels = derive_levels(bad.facts())
    assert Counter(levels.unit_of_leaf.values()) == dict.fromkeys(range(units), rails)
    assert not {one.rule for one in levels.findings} - {"topology/rail-miscabled"}


def test_two_hosts_a_leaf_and_two_rails_need_other_units_and_names() -> None:
    made = site(units=5, rails=2, hosts=2)
    places = {(one.host, one.adapter): at for at, one in enumerate(made.ports)}
    for pair in (
        (("u1-n0", "mlx5_0"), ("u3-n1", "mlx5_0")),
        (("u1-n0", "mlx5_0"), ("u2-n1", "mlx5_1")),
        (("u4-n0", "mlx5_0"), ("u4-n1", "mlx5_1")),
    ):
        one, other = (places[end] for end in pair)
        bad = swapped(made, one, other)
        found = only_finding(bad.facts(), "rail-miscabled")
        assert _belongs(bad, one, made.ports[one].leaf) in found.message
        assert _belongs(bad, other, made.ports[other].leaf) in found.message
        assert found.numbers["by_names"] is False


@pytest.mark.parametrize(
    ("units", "rails", "one", "other"),
    [(2, 2, ("u0-n0", 0), ("u1-n1", 0)), (1, 3, ("u0-n0", 0), ("u0-n1", 1)), (1, 4, ("u0-n0", 0), ("u0-n1", 3))],
)  # fmt: skip
def test_what_cannot_be_judged_is_a_note(
    units: int, rails: int, one: tuple[str, int], other: tuple[str, int]
) -> None:
    made = site(units, rails, 2)
    places = {(port.host, int(port.adapter[-1])): at for at, port in enumerate(made.ports)}
    bad = swapped(made, places[one], places[other])
    (note,) = degradations(bad.facts())
    assert (note.rule, note.severity) == ("topology/units-not-judged", Severity.NOTE)
    assert made.ports[places[one]].leaf in note.message
    assert "with two host cables each cannot be judged" in note.message
    assert note.remedy


# Adapters numbered otherwise ---------------------------------------------------------------------


@settings(deadline=None)
@given(st.permutations(range(4)), st.integers(0, 11))
def test_a_host_whose_adapters_are_numbered_otherwise(order: list[int], at: int) -> None:
    made = site(rails=4)
    host = made.hosts()[at]
    moved = sum(index != new for index, new in enumerate(order))
    ports = [
        msgspec.structs.replace(one, adapter=f"mlx5_{order[int(one.adapter[-1])]}")
        if one.host == host
        else one
        for one in made.ports
    ]
    facts = Site(ports, made.trunks).facts()
    if not moved:
        assert loud(facts) == []
        return
    found = only_finding(facts, "rail-miscabled")
    assert len(found.numbers["adapters"]) == moved
    assert set(found.numbers["hosts"]) == {host}
    assert "rename" in str(found.remedy)
    assert (
        "or its adapters are numbered otherwise than those of its unit's other hosts"
        in found.message
    ) == (moved > 2)
