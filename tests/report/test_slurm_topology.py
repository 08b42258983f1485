"""A topology.conf that we write reads back as the fabric it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.cluster.assembly.fabric_of_facts import fabric_of_facts
from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.facts import Cable, Facts, Nic, Switch, TreeSwitch
from meshwright.cluster.readers import slurm_topology_conf
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.errors import UsageError
from meshwright.findings import Place
from meshwright.report.slurm_topology import slurm_topology


def written(facts: Facts) -> tuple[dict[str, TreeSwitch], list[str]]:
    """Write a source's fabric for Slurm and read it back; also the rules of what was found."""
    text, findings = slurm_topology(fabric_of_facts(facts)[0])
    back = slurm_topology_conf.read(text, "topology.conf")
    rules = [one.rule for one in (*findings, *back.findings)]
    return {one.name: one for one in back.tree or ()}, rules


def tree_facts(*switches: TreeSwitch) -> Facts:
    """Return a source with this tree."""
    hosts = tuple(host for switch in switches for host in switch.hosts)
    return Facts(format="slurm_topology_conf", path="given.conf", tree=switches, hosts=hosts)


def test_a_tree_of_uneven_depth_is_written_as_it_is() -> None:
    given = (
        TreeSwitch("leaf1", hosts=("n1", "n2")),
        TreeSwitch("leaf2", hosts=("n3",)),
        TreeSwitch("leaf3", hosts=("n07", "n4", "n8")),
        TreeSwitch("mid", switches=("leaf1", "leaf2")),
        TreeSwitch("top", switches=("mid", "leaf3")),
    )
    tree, rules = written(tree_facts(*given))
    assert rules == []
    assert {name: (set(one.switches), set(one.hosts)) for name, one in tree.items()} == {
        one.name: (set(one.switches), set(one.hosts)) for one in given
    }


def test_trees_without_a_common_root_stay_apart() -> None:
    tree, rules = written(
        tree_facts(TreeSwitch("left", hosts=("a1", "a2")), TreeSwitch("right", hosts=("b1",)))
    )
    assert set(tree) == {"left", "right"}
    assert "topology/no-common-root" in rules or "topology/spine-tier-unknown" in rules


def test_names_slurm_cannot_take_are_replaced_and_kept_apart() -> None:
    tree, _ = written(
        tree_facts(TreeSwitch("leaf=1", hosts=("a1",)), TreeSwitch("leaf#1", hosts=("b1",)))
    )
    assert {name: one.hosts for name, one in tree.items()} == {
        "leaf_1": ("a1",),
        "leaf_1-2": ("b1",),
    }


def test_hosts_of_a_rail_optimised_preset_stand_under_units() -> None:
    section = ClusterSection(
        node="dgx-h100", nodes=80, fabric=FabricSection(preset="rail-optimized")
    )
    fabric, _ = merge_cluster(section, Path(), lambda key: Place(subject=key))
    text, findings = slurm_topology(fabric)
    tree = {one.name: one for one in slurm_topology_conf.read(text, "x").tree or ()}
    assert not findings
    assert [len(tree[f"unit{unit}"].hosts) for unit in range(3)] == [32, 32, 16]
    assert tree["pod0"].switches == ("unit0", "unit1", "unit2")
    assert "# unit0: leaves leaf-u0-r0, leaf-u0-r1" in text


def rails(plugs: dict[tuple[str, int], str]) -> Facts:
    """Return two units of two rails; ``plugs``: host and rail to the leaf."""
    nics, cables = [], []
    for number, ((host, rail), leaf) in enumerate(plugs.items()):
        guid = f"{number + 16:016x}"
        nics.append(Nic(number, f"mlx5_{rail}", host=host, guid=guid))
        cables.append(Cable(guid, leaf, 1, number + 1))
    leaves = ["L00", "L01", "L10", "L11"]
    cables += [Cable(leaf, "S", 60, port) for port, leaf in enumerate(leaves)]
    return Facts(
        format="ibnetdiscover",
        path="net.txt",
        hosts=tuple(dict.fromkeys(host for host, _ in plugs)),
        nics=tuple(nics),
        switches=tuple(Switch(name, name) for name in [*leaves, "S"]),
        cables=tuple(cables),
    )


HEALTHY = {
    (f"h{unit}{host}", rail): f"L{unit}{rail}"
    for unit in range(2)
    for host in range(4)
    for rail in range(2)
}


def test_cables_become_units_under_one_spine() -> None:
    tree, rules = written(rails(HEALTHY))
    assert rules == []
    hosts = sorted(one.hosts for one in tree.values() if one.hosts)
    assert hosts == [("h00", "h01", "h02", "h03"), ("h10", "h11", "h12", "h13")]
    assert [set(one.switches) for one in tree.values() if one.switches] == [{"unit0", "unit1"}]
    assert "S" in tree


def test_a_host_in_two_units_is_said() -> None:
    tree, rules = written(rails(HEALTHY | {("h00", 1): "L11"}))
    assert "slurm/host-in-two-units" in rules
    assert sum("h00" in one.hosts for one in tree.values()) == 1


def test_a_host_without_leaf_is_left_out_and_said() -> None:
    facts = rails(HEALTHY)
    more = Facts(
        **{name: getattr(facts, name) for name in facts.__struct_fields__}
        | {"hosts": (*facts.hosts, "lost")}
    )
    tree, rules = written(more)
    assert rules == ["slurm/host-without-leaf"]
    assert not any("lost" in one.hosts for one in tree.values())


def test_a_fabric_without_switches_is_refused() -> None:
    with pytest.raises(UsageError, match="no switches"):
        slurm_topology(fabric_of_facts(Facts(format="x", path="x", hosts=("a",)))[0])
