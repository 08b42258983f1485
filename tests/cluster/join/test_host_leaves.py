"""Hosts under other leaves in two sources: which hosts, which switches, and what to do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.join.views import fabric, labels, of_rule, rules, tree
from meshwright.cluster.join.all_sources import join_sources
from meshwright.findings import Severity

UNITS = {"u0": ("n0", "n1"), "u1": ("n2", "n3")}


def _listing_of_two_units() -> object:
    """Return four hosts in two units whose leaves are p0-sw0, p0-sw1 and p0-sw2, p0-sw3."""
    return fabric(range(4))


def test_the_cables_switches_and_the_usual_leaf_are_named() -> None:
    wrong = labels({f"n{i}": (("u0" if i in (0, 1, 2, 4) else "u1",), None) for i in range(8)})
    found = of_rule(join_sources([_listing_of_two_units(), wrong]).findings, "conflict-leaf")
    assert (
        "n2 is in u0 by labels.json; its cables are on p0-sw2, p0-sw3 with the hosts of u1"
        in found.message
    )
    assert found.numbers["misplaced"] == [
        {"host": "n2", "there": "u0", "here": ["p0-sw2", "p0-sw3"], "usual": "u1"}
    ]
    assert "cables" in str(found.remedy)
    assert "n2" in str(found.remedy)


def test_two_exchanged_hosts_show_both_leaves() -> None:
    wrong = tree({"u0": ("n0", "n1", "n2", "n5"), "u1": ("n3", "n4", "n6", "n7")})
    right = labels({f"n{i}": ((f"u{i // 4}",), None) for i in range(8)})
    found = of_rule(join_sources([wrong, right]).findings, "conflict-leaf")
    assert [one["host"] for one in found.numbers["misplaced"]] == ["n3", "n5"]
    for text in ("n3 is in u0 by labels.json and in u1 by topology.conf", "n5 is in u1"):
        assert text in found.message
    # No cables were compared, so none are spoken of as if they were.
    assert "their cables" not in str(found.remedy)
    assert "its cables" not in found.message


def test_a_leaf_that_the_other_source_has_too_is_no_refinement() -> None:
    """Labels of a part of the hosts: n1 alone in u1 is not u0 divided further."""
    right = tree({"u0": ("n0", "n1", "n2"), "u1": ("n3", "n4", "n5")})
    part = labels({"n0": (("u0",), None), "n1": (("u1",), None), "n2": (("u0",), None)})
    found = rules(join_sources([right, part]).findings)
    assert "conflict-leaf" in found
    assert "leaf-finer" not in found
    finding = of_rule(join_sources([right, part]).findings, "conflict-leaf")
    assert [one["host"] for one in finding.numbers["misplaced"]] == ["n1"]


def test_a_switch_of_the_cables_by_name_is_one_too() -> None:
    listing = _listing_of_two_units()
    names = {"p0-sw0": ("n0",), "p0-sw2": ("n1",), "p0-sw3": ("n2", "n3")}
    found = of_rule(join_sources([listing, tree(names)]).findings, "conflict-leaf")
    assert [one["host"] for one in found.numbers["misplaced"]] == ["n1"]


def test_other_names_for_the_same_leaves_are_no_conflict() -> None:
    """Every host goes by the other leaf's name: two ways of naming, and nobody is misplaced."""
    right = tree(UNITS)
    turned = labels({f"n{i}": ((f"u{1 - i // 2}",), None) for i in range(4)})
    assert "conflict-leaf" not in rules(join_sources([right, turned]).findings)


def test_real_refinements_stay_notes() -> None:
    finer = tree({f"rack{i}": (f"n{i}",) for i in range(4)})
    found = of_rule(join_sources([_listing_of_two_units(), finer]).findings, "leaf-finer")
    assert found.severity is Severity.NOTE


@settings(deadline=None)
@given(st.integers(3, 9), st.integers(2, 5), st.data())
def test_one_moved_host_is_the_one_that_is_named(
    size: int, count: int, data: st.DataObject
) -> None:
    """Leaves of three hosts or more: the host that was moved is found, and no other."""
    hosts = [f"n{i}" for i in range(size * count)]
    right = {f"u{at}": tuple(hosts[at * size : (at + 1) * size]) for at in range(count)}
    moved = data.draw(st.integers(0, len(hosts) - 1))
    target = data.draw(st.sampled_from([at for at in range(count) if at != moved // size]))
    places = {host: ((f"x{at // size}",), None) for at, host in enumerate(hosts)}
    places[hosts[moved]] = ((f"x{target}",), None)
    found = of_rule(join_sources([tree(right), labels(places)]).findings, "conflict-leaf")
    assert [one["host"] for one in found.numbers["misplaced"]] == [hosts[moved]]
