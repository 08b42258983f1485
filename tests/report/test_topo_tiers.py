"""Tables by tier: fabrics, trees, blocks, places, NVLink domains."""

from __future__ import annotations

import pytest

from meshwright.cluster.facts import Block, Facts, HostPlace, TreeSwitch
from meshwright.cluster.readers import read_topology
from meshwright.report.topo_tiers import domains_text, nvlink_domains, tiers_text
from support import shared_path


def facts(**fields: object) -> Facts:
    return Facts(**({"format": "made", "path": "made"} | fields))  # type: ignore[arg-type]


@pytest.mark.captured
def test_a_captured_fabric() -> None:
    path = shared_path("data/topology/ibnetdiscover/gb200_superpod_ndr_582ca.txt")
    assert (
        tiers_text(read_topology(path))
        == """\
tier               count
hosts with a name  119
units              8      3 to 4 leaves (rails) a unit
leaves             31     10 to 18 hosts a leaf
spines             9

cables          count  rates
adapter – leaf  540    50.0 GB/s
leaf – spine    532    50.0 GB/s
sharp – leaf    31     50.0 GB/s
sharp – spine   9      50.0 GB/s
manager – leaf  2      50.0 GB/s"""
    )


def test_a_tree_of_uneven_depth() -> None:
    tree = (
        TreeSwitch("top", ("mid", "l3")),
        TreeSwitch("mid", ("l1", "l2", "lost")),
        TreeSwitch("l1", (), ("a", "b")),
        TreeSwitch("l2", (), ("c",)),
        TreeSwitch("l3", (), ("d",)),
    )
    assert (
        tiers_text(facts(tree=tree))
        == """\
tree     count  each with
leaves   3      1 to 2 hosts
level 1  1      3 switches
level 2  1      2 switches
root     1      top"""
    )


def test_a_chain_of_switches_is_no_recursion() -> None:
    deep = tuple(TreeSwitch(f"s{n}", (f"s{n + 1}",)) for n in range(5000))
    assert "level 4,999" not in tiers_text(facts(tree=(*deep, TreeSwitch("s5000", (), ("a",)))))
    assert "level 5000" in tiers_text(facts(tree=(*deep, TreeSwitch("s5000", (), ("a",)))))


def test_blocks_and_places() -> None:
    blocks = (Block("b0", ("a", "b")), Block("b1", ("c",)), Block("b2", ()))
    assert tiers_text(facts(blocks=blocks, block_sizes=(2, 4))) == (
        "2 blocks of 1 to 2 hosts, 1 empty; block sizes 2, 4"
    )
    places = (
        HostPlace("a", ("l0", "s0")),
        HostPlace("b", ("l1", "s0")),
        HostPlace("c", ("l1",)),
        HostPlace("d", ()),
    )
    assert (
        tiers_text(facts(places=places))
        == """\
places            count  each with
tier 1 (nearest)  2      1 to 2 hosts
tier 2            1      2 hosts"""
    )
    assert tiers_text(facts()) == ""


def test_domains_of_several_sources() -> None:
    one = facts(places=(HostPlace("h0", (), "u.1"), HostPlace("h1", ())))
    two = facts(places=(HostPlace("h2", (), "u.1"), HostPlace("h3", (), "v.1")))
    found = nvlink_domains([one, two])
    assert found == {"u.1": ["h0", "h2"], "v.1": ["h3"]}
    assert domains_text(found).split("\n") == [
        "2 NVLink domains",
        "domain  hosts",
        "u.1     2      h0 h2",
        "v.1     1      h3",
    ]
    assert nvlink_domains([facts(places=(HostPlace("h1", ()),))]) is None
    assert nvlink_domains([facts(counts={"nvlink_domains": 0})]) == {}
    assert domains_text({}) == domains_text(None) == ""
