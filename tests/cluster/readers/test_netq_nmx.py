"""NetQ's graph and NMX compute nodes: cables by size, hosts known from LLDP, NVLink domains."""

from __future__ import annotations

import json

import pytest

from meshwright.cluster.facts import Cable, Facts, Gpu, HostPlace, Switch
from meshwright.cluster.readers.netq_nmx import FORMAT, read
from meshwright.errors import InputError
from meshwright.findings import Severity
from support import FIXTURES, shared_path
from topology_samples import finding_of, rules


def _fixture(name: str) -> Facts:
    return read((FIXTURES / "topology" / FORMAT / name).read_text(), name)


def _graph(link: dict[str, object]) -> str:
    devices = [{"id": "a", "device_type": "switch"}, {"id": "b", "device_type": "switch"}]
    return json.dumps({"nodes": devices, "links": [link]})


def test_compute_nodes() -> None:
    facts = _fixture("compute_nodes.json")
    assert facts.gpus == (
        Gpu(0, "g1", "tray1"),
        Gpu(1, "g2", "tray1"),
        Gpu(0, "g1", "tray2"),
    )
    assert facts.places == (
        HostPlace("tray1", (), "d-1"),
        HostPlace("tray2", (), "d-2"),
        HostPlace("tray3", ()),
    )
    assert rules(facts) == ["node-unhealthy", "host-without-place"]
    assert finding_of(facts, "node-unhealthy").numbers["names"] == ["tray2 (DEGRADED)"]


def test_graph_counts_cables_by_size() -> None:
    facts = _fixture("graph.json")
    assert facts.switches == (
        Switch("n0", "leaf-a"),
        Switch("n1", "leaf-b"),
        Switch("n2", "spine-a"),
    )
    assert facts.hosts == ("gpu-1", "gpu-2", "gpu-3")
    assert facts.cables == (
        Cable("n0", "gpu-1:eth0"),
        Cable("n0", "gpu-1:eth1"),
        Cable("gpu-2:eth0", "n1"),
        Cable("gpu-2:?", "n1"),
        Cable("gpu-2:?", "n1"),
        Cable("n0", "n2"),
        Cable("n0", "n2"),
    )
    assert facts.counts == {"logical_links": 3, "links_switch_switch": 2, "links_nic": 5}
    assert rules(facts) == ["link-size", "assumed/lldp-is-host", "device-without-link"]
    assert facts.findings[1].severity is Severity.NOTE


@pytest.mark.captured
def test_captured_graph_has_uneven_uplinks() -> None:
    path = shared_path("data/topology/netq_nmx/topology_graph.json")
    facts = read(path.read_text(), path.name)
    names = {switch.id: switch.name for switch in facts.switches or ()}
    between = [
        {names[cable.a], names[cable.b]}
        for cable in facts.cables or ()
        if cable.a in names and cable.b in names
    ]
    assert between.count({"net-unit-l1", "net-unit-s1"}) == 28
    assert between.count({"net-unit-l2", "net-unit-s1"}) == 19
    assert rules(facts) == ["assumed/lldp-is-host"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"DomainUUID": "d"}]', "Name is missing"),
        ('[{"Name": "n", "GpuIDList": 3}]', "expected a list"),
        ('{"nodes": [], "links": []}', "no device"),
        ('{"nodes": [{"name": "x"}]}', "id is missing"),
        (_graph({"src": "a"}), "target is missing"),
        (_graph({"src": "a", "target": "z"}), "no device of the graph"),
        (_graph({"src": "a", "target": "b", "size": 10**30}), "from 0 to 4,096"),
        (_graph({"src": "a", "target": "b", "size": -1}), "from 0 to 4,096"),
        (_graph({"src": "a", "target": "b", "size": True}), "from 0 to 4,096"),
        (_graph({"src": "a", "target": "b", "compounded_links": [3]}), "expected keys"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "t.json")
    assert words in caught.value.problems[0].message
    assert caught.value.problems[0].place.line == 1


def test_many_large_links_are_refused_before_they_are_made() -> None:
    link = {"src": "a", "target": "b", "size": 4096}
    graph = json.loads(_graph(link))
    graph["links"] *= 300
    with pytest.raises(InputError, match="over 1,000,000 cables"):
        read(json.dumps(graph), "t.json")
