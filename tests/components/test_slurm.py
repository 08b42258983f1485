"""Slurm's own controller under a topology.conf that we wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from components.requirements import need
from components.slurm_emulation import missing_programs, slurm
from meshwright.cluster.assembly.fabric_of_facts import fabric_of_facts
from meshwright.cluster.facts import Cable, Facts, Nic, Switch
from meshwright.cluster.readers import read_topology
from meshwright.report.slurm_topology import slurm_topology

pytestmark = pytest.mark.components

NODES = [f"gpu{number:02d}" for number in range(16)]


def graph() -> Facts:
    """Return 16 hosts of two NICs: four units of two leaves, all under two spines."""
    nics, cables = [], []
    for number, host in enumerate(NODES):
        for rail in range(2):
            guid = f"{0xC0DE00 + 2 * number + rail:016x}"
            nics.append(Nic(len(nics), f"mlx5_{rail}", host=host, guid=guid))
            cables.append(Cable(guid, f"leaf-{number // 4}-{rail}", 1, number % 4 + 1))
    leaves = [f"leaf-{unit}-{rail}" for unit in range(4) for rail in range(2)]
    for port, leaf in enumerate(leaves):
        cables += [Cable(leaf, f"spine-{spine}", 5 + spine, port + 1) for spine in range(2)]
    switches = [*leaves, "spine-0", "spine-1"]
    return Facts(
        format="ibnetdiscover",
        path="net.txt",
        hosts=tuple(NODES),
        nics=tuple(nics),
        switches=tuple(Switch(name, name) for name in switches),
        cables=tuple(cables),
    )


def test_the_controller_shows_the_tree_that_we_wrote(tmp_path: Path) -> None:
    need(missing_programs(), "slurmctld slurmd slurm-client")
    if os.geteuid() != 0:
        need(["root (slurmd of several users)"], "run as root")
    text, findings = slurm_topology(fabric_of_facts(graph())[0])
    assert not findings
    with slurm(tmp_path, NODES, text) as running:
        shown = tmp_path / "scontrol.txt"
        shown.write_text(running.call("scontrol", "show", "topology"))
        address = running.call("scontrol", "show", "hostnames", "gpu[00-03,15]").split()
    assert address == ["gpu00", "gpu01", "gpu02", "gpu03", "gpu15"]
    facts = read_topology(shown)
    assert facts.format == "scontrol_show_topology"
    assert facts.findings == ()
    tree = {one.name: one for one in facts.tree or ()}
    leaves = {name: one.hosts for name, one in tree.items() if one.hosts}
    assert leaves == {f"unit{unit}": tuple(NODES[4 * unit : 4 * unit + 4]) for unit in range(4)}
    (root,) = (one for one in tree.values() if one.switches)
    assert set(root.switches) == set(leaves)
    # What Slurm shows makes the same fabric again.
    assert slurm_topology(fabric_of_facts(facts)[0])[0].count("SwitchName=") == 5
