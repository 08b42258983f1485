"""Trees and places of hosts: leaves without a spine, hosts that stand twice."""

from __future__ import annotations

import msgspec
import pytest

from cluster.degraded.maker import loud
from meshwright.cluster.degraded import degradations
from meshwright.cluster.facts import Block, Facts, HostPlace, TreeSwitch
from meshwright.cluster.readers import scontrol_show_topology, slurm_topology_conf
from meshwright.findings import Finding

LEAVES = "SwitchName=leaf1 Nodes=n[1-4]\nSwitchName=leaf2 Nodes=n[5-8]\n"


def _only(facts: Facts, rule: str) -> Finding:
    (found,) = loud(facts)
    assert found.rule == f"topology/{rule}"
    assert found.remedy
    return found


def test_leaves_of_topology_conf_without_a_spine() -> None:
    found = _only(slurm_topology_conf.read(LEAVES, "t.conf"), "spine-tier-unknown")
    assert found.numbers == {"count": 2, "names": ["leaf1", "leaf2"]}
    assert found.place.line == 1
    assert "all leaves look equally far" in found.message
    whole = slurm_topology_conf.read(LEAVES + "SwitchName=spine Switches=leaf[1-2]\n", "t.conf")
    assert loud(whole) == []
    one = slurm_topology_conf.read("SwitchName=leaf1 Nodes=n[1-4]\n", "t.conf")
    assert loud(one) == []


@pytest.mark.parametrize(
    "above", ["", "SwitchName=root Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=l[1-2]\n"]
)
def test_leaves_that_scontrol_prints(above: str) -> None:
    """Nothing above the leaves, or a switch that is but a name for the whole."""
    leaves = "".join(
        f"SwitchName=l{i} Level=0 LinkSpeed=1 Nodes=n[{2 * i - 1}-{2 * i}]\n" for i in (1, 2)
    )
    facts = scontrol_show_topology.read(leaves + above, "t.txt")
    _only(facts, "spine-tier-unknown")
    spine = above.replace("root", "spine7") or above
    if spine:
        assert loud(scontrol_show_topology.read(leaves + spine, "t.txt")) == []


def test_a_host_under_two_switches() -> None:
    text = LEAVES.replace("n[5-8]", "n[4-8]") + "SwitchName=spine Switches=leaf[1-2]\n"
    (found,) = loud(slurm_topology_conf.read(text, "t.conf"))
    assert found.rule == "topology/host-twice"
    assert "n4 under leaf1 (line 1) and leaf2 (line 2)" in found.message


def test_facts_of_any_source_are_checked_for_hosts_that_stand_twice() -> None:
    tree = (
        TreeSwitch("a", hosts=("n1", "n2")),
        TreeSwitch("b", hosts=("n3",)),
        TreeSwitch("top", switches=("a", "b")),
    )
    places = (HostPlace("n1", ("a",)), HostPlace("n2", ("a",)))
    blocks = (Block("x", ("n1",)), Block("y", ("n2",)))
    facts = Facts(format="made", path="p", tree=tree, places=places, blocks=blocks)
    assert degradations(facts) == []
    again = msgspec.structs.replace(facts, tree=(*tree, TreeSwitch("c", hosts=("n3",))))
    assert "n3 under b and c" in _only(again, "host-twice").message
    again = msgspec.structs.replace(facts, blocks=(*blocks, Block("z", ("n2", "n9"))))
    assert "n2 under y and z" in _only(again, "host-twice").message
    again = msgspec.structs.replace(facts, places=(*places, HostPlace("n2", ("b",))))
    assert "n2 (a and b)" in _only(again, "host-twice").message
