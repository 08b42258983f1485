"""A simulated InfiniBand fabric, routed by the real opensm: our readers, routes and loads against it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from cli.running import axis_of, rules_of, run
from components.ib_simulation import FatTree, Simulation, missing_parts, simulated
from components.requirements import need
from meshwright.cluster.assembly.fabric_of_facts import fabric_of_facts
from meshwright.cluster.facts import Facts
from meshwright.cluster.networks.table_faults import table_findings
from meshwright.cluster.networks.table_graph import TableGraph, route
from meshwright.cluster.networks.table_loads import all_pairs_loads
from meshwright.cluster.readers import read_topology
from meshwright.cluster.switches.switch_levels import derive_levels
from meshwright.routes.loads import LoadCollector

pytestmark = pytest.mark.components

SMALL = FatTree(spines=2, units=4, hosts=4, cables=2)
LARGE = FatTree(spines=16, units=32, hosts=16)
RAILS = FatTree(spines=2, units=2, hosts=6, rails=3)


@pytest.fixture(autouse=True)
def _installed() -> None:
    need(missing_parts(), "ibsim-utils opensm infiniband-diags")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Simulation]:
    with simulated(SMALL, tmp_path) as running:
        yield running


def routed(running: Simulation, engine: str, *options: str) -> Facts:
    """Return the fabric with its tables, as opensm leaves it."""
    running.route(engine, *options)
    fabric = read_topology(running.save("ibnetdiscover.txt", "ibnetdiscover"))
    tables = read_topology(running.save("lfts.txt", "dump_lfts"))
    assert (fabric.format, tables.format) == ("ibnetdiscover", "opensm_lfts")
    assert fabric.findings == tables.findings == ()
    return msgspec.structs.replace(fabric, tables=tables.tables)


def all_to_all(facts: Facts) -> list[float]:
    """Return the bytes on every cable, up then down, of one byte between every two hosts."""
    fabric, _ = fabric_of_facts(facts)
    collector = LoadCollector(fabric)
    src, dst = (one.ravel() for one in np.meshgrid(*[np.arange(len(fabric.host_of_nic))] * 2))
    apart = src != dst
    collector.nic_to_nic(src[apart], dst[apart], np.ones(int(apart.sum())))
    assert collector.lost_bytes == 0
    loads = collector.load_bytes()[fabric.cable_up0 :]
    return [float(one) for one in loads]


def test_ftree_is_even(small: Simulation) -> None:
    facts = routed(small, "ftree")
    loads = all_pairs_loads(facts)
    assert loads.up.tolist() == loads.down.tolist() == [12] * 16
    assert loads.pairs == 240
    assert all_to_all(facts) == [12.0] * 32
    assert table_findings(facts) == []


def test_lash_puts_all_on_four_cables(small: Simulation) -> None:
    facts = routed(small, "lash")
    loads = all_pairs_loads(facts)
    for flows in (loads.up, loads.down):
        assert sorted(flows.tolist()) == [0] * 12 + [48] * 4
    assert sorted(all_to_all(facts)) == [0.0] * 24 + [48.0] * 8
    (found,) = table_findings(facts)
    assert found.rule == "topology/routing-unbalanced"
    assert (found.numbers["max_flows"], found.numbers["mean_flows"]) == (48, 12.0)


_TOPO = """\
\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPIX\t0-15\t0\t\tN/A
NIC0\tPIX\t X \t\t\t\t

Legend:

  X    = Self
  PIX  = Connection traversing at most a single PCIe bridge

NIC Legend:

  NIC0: mlx5_0
"""
_JOB = """\
model: none
cluster:
  node: {from: topo.txt, gpu: H100-SXM, nic: 200 Gbit/s}
  fabric: {from: [ibnetdiscover.txt, lfts.txt]}
layout: {dp: 16}
traffic: [{axis: dp, op: all_to_all, bytes: 1.6 GB, count: 1}]
"""


@pytest.mark.parametrize(
    ("engine", "busy", "flows"), [("ftree", 32, 12), ("lash", 8, 48)], ids=["ftree", "lash"]
)
def test_a_job_over_the_fabric(small: Simulation, engine: str, busy: int, flows: int) -> None:
    """An all-to-all of 16 hosts, from the command line: 1.6 GB a rank are 100 MB a pair."""
    routed(small, engine)
    (small.folder / "topo.txt").write_text(_TOPO)
    (small.folder / "job.yaml").write_text(_JOB)
    document = run("map", "job.yaml", "--json", cwd=small.folder).document
    classes = [one for one in document["links"]["classes"] if one["kind"] == "fabric"]
    loads = {one["load_bytes"]: one["count"] for one in classes}
    assert loads == {flows * 1e8: busy} | ({0: 32 - busy} if busy < 32 else {})
    uneven = "topology/routing-unbalanced"
    assert (uneven in rules_of(document)) == (engine == "lash")
    # The bound of a NIC's 15 flows, unless four times as many as elsewhere share a cable.
    assert axis_of(document, "dp")["bound_s"] == pytest.approx(max(15, flows) * 1e8 / 25e9)


def test_all_forms_of_the_tables_are_the_same(small: Simulation) -> None:
    facts = routed(small, "minhop")
    forms = [
        small.save("brief.txt", "dump_lfts", "-n"),
        small.save("all.txt", "dump_lfts", "-a"),
        small.folder / "opensm-lfts.dump",
        small.folder / "opensm.fdbs",
    ]
    expected = {one.guid: one.ports for one in facts.tables or ()}
    assert len(expected) == 6
    for path in forms:
        tables = read_topology(path).tables or ()
        assert {one.guid: one.ports for one in tables} == expected, path.name
    leaf = (facts.tables or ())[0]
    ibroute = read_topology(small.save("ibroute.txt", "ibroute", str(_lid_of(small, leaf.guid))))
    assert [(one.guid, one.ports) for one in ibroute.tables or ()] == [(leaf.guid, leaf.ports)]


def _lid_of(running: Simulation, guid: str) -> int:
    rows = [line.split() for line in (running.folder / "guid2lid").read_text().splitlines()]
    return next(int(row[1], 16) for row in rows if row and row[0] == f"0x{guid}")


def test_adapters_with_several_lids(small: Simulation) -> None:
    """With LMC 1 every port has two LIDs and two ways; traffic goes to the first."""
    facts = routed(small, "updn", "-l", "1")
    lids = sorted(nic.lid or 0 for nic in facts.nics or ())
    assert len(lids) == 16
    assert all(lid % 2 == 0 for lid in lids)
    assert sum(all_pairs_loads(facts).up.tolist()) == 16 * 12
    pairs = [(a, b) for a in facts.nics or () for b in facts.nics or () if a is not b][::7]
    ways = small.trace([(a.lid or 0, b.lid or 0) for a, b in pairs])
    assert ways == [route(facts, str(a.guid), str(b.guid)) for a, b in pairs]


def test_routes_equal_ibtracert(tmp_path: Path) -> None:
    with simulated(LARGE, tmp_path) as running:
        facts = routed(running, "ftree")
        nics = facts.nics or ()
        assert len(nics) == 512
        dice = random.Random(20_480)
        pairs = [tuple(dice.sample(nics, 2)) for _ in range(200)]
        traced = running.trace([(src.lid or 0, dst.lid or 0) for src, dst in pairs])
    assert len(traced) == 200
    graph = TableGraph.of(facts)
    targets = {one.nic.guid: one for one in graph.targets}
    for (src, dst), way in zip(pairs, traced, strict=True):
        steps, _ = graph.walk(graph.plug_by_nic[str(src.guid)][0], targets[dst.guid])
        assert [(graph.switch_guids[switch], port) for switch, port in steps] == way
    assert {len(way) for way in traced} == {1, 3}
    loads = all_pairs_loads(facts, graph)
    assert set(loads.up.tolist()) == set(loads.down.tolist()) == {496}
    assert table_findings(facts, graph) == []


def _shape(facts: Facts) -> tuple[object, ...]:
    """Return hosts, switches and cables by name; a net file has no GUIDs, a port list no node's."""
    names: dict[str | None, str] = {nic.guid: f"{nic.host} {nic.name}" for nic in facts.nics or ()}
    names |= {switch.id: switch.name for switch in facts.switches or ()}
    cables = {
        frozenset([(names[one.a], one.a_port), (names[one.b], one.b_port)])
        for one in facts.cables or ()
    }
    assert len(cables) == len(facts.cables or ())
    adapters = {(nic.host, nic.name, nic.port) for nic in facts.nics or ()}
    return set(facts.hosts or ()), adapters, {one.name for one in facts.switches or ()}, cables


def test_every_listing_of_one_fabric_gives_the_same(tmp_path: Path) -> None:
    with simulated(RAILS, tmp_path) as running:
        facts = routed(running, "updn")
        files = [
            running.save("ports.txt", "ibnetdiscover", "-p"),
            running.save("links.txt", "iblinkinfo"),
            running.save("lines.txt", "iblinkinfo", "--line"),
        ]
    hosts, adapters, switches, cables = _shape(facts)
    assert hosts == {f"host{one:03d}" for one in range(12)}
    assert len(adapters) == 36  # type: ignore[arg-type]
    assert len(switches) == 8  # type: ignore[arg-type]
    assert len(cables) == 36 + 12  # type: ignore[arg-type]
    lids = {(nic.host, nic.name): nic.lid for nic in facts.nics or ()}
    formats = []
    for path in (*files, tmp_path / "fabric.net"):
        other = read_topology(path)
        formats.append(other.format)
        assert _shape(other) == _shape(facts), path.name
        if other.format != "ibsim_net":
            assert {(nic.host, nic.name): nic.lid for nic in other.nics or ()} == lids
    assert formats == ["ibnetdiscover_ports", "iblinkinfo", "iblinkinfo", "ibsim_net"]


def test_two_swapped_cables_are_found(tmp_path: Path) -> None:
    """Adapter 0 of host 2 and adapter 1 of host 9, at the leaves of two units."""
    tree = FatTree(spines=2, units=2, hosts=6, rails=3, swapped=((2, 0), (9, 1)))
    with simulated(tree, tmp_path) as running:
        facts = routed(running, "updn")
    (found,) = derive_levels(facts).findings
    assert found.rule == "topology/rail-miscabled"
    for words in (
        "host002 mlx5_0 port 1 on leaf1-1 port 4 belongs on leaf0-0",
        "host009 mlx5_1 port 1 on leaf0-0 port 3 belongs on leaf1-1",
    ):
        assert words in found.message
