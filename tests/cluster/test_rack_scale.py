"""Trays of a rack: what tells them, and what is said where their NVLink domain is not known."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cluster.join.views import labels, topo_m
from meshwright.chain.cluster_of_job import load_cluster
from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.nodes.rack_scale import GPU_NUMA_IDS, domain_unknown, of_sources, rack_scale
from meshwright.cluster.readers import read_topology
from meshwright.findings import Finding, Place, Severity
from support import shared_path

RULE = "topology/nvlink-domain-unknown"


def _tray(memory: tuple[str, ...] = ("2", "6", "10", "14")) -> str:
    """Return a matrix of four superchips and two adapters; ``memory``: the last column."""
    names = ["GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1"]
    socket = [0, 0, 1, 1, 0, 1]
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for row, name in enumerate(names):
        cells = [
            "X"
            if row == column
            else "NV18"
            if max(row, column) < 4
            else ("NODE" if socket[row] == socket[column] else "SYS")
            for column in range(6)
        ]
        cpus = f"{36 * socket[row]}-{36 * socket[row] + 35}"
        last = [cpus, str(socket[row]), memory[row]] if row < 4 else []
        lines.append("\t".join([name, *cells, *last]))
    return "\n".join(lines) + "\n"


def _of(findings: tuple[Finding, ...] | list[Finding]) -> list[Finding]:
    return [one for one in findings if one.rule == RULE]


def test_memory_with_a_numa_node_is_read(tmp_path: Path) -> None:
    (tmp_path / "tray.txt").write_text(_tray())
    facts = read_topology(tmp_path / "tray.txt")
    assert facts.counts == {GPU_NUMA_IDS: 4}
    assert [gpu.numa for gpu in facts.gpus] == [(0,), (0,), (1,), (1,)]
    assert rack_scale(facts)
    (tmp_path / "box.txt").write_text(_tray(("N/A",) * 4))
    facts = read_topology(tmp_path / "box.txt")
    assert facts.counts == {}
    assert not rack_scale(facts)


def _grace(**fields: object) -> Facts:
    return msgspec.structs.replace(topo_m(), counts={GPU_NUMA_IDS: 4}, **fields)


def test_what_is_a_tray_and_what_is_not() -> None:
    def of_model(name: str) -> Facts:
        return msgspec.structs.replace(
            topo_m(), gpus=tuple(Gpu(i, f"GPU{i}", model=name) for i in range(4))
        )

    assert rack_scale(_grace())
    assert rack_scale(of_model("NVIDIA GB200"))
    assert rack_scale(of_model("NVIDIA GB300"))
    assert not rack_scale(of_model("NVIDIA H100 80GB HBM3"))
    assert not rack_scale(topo_m())
    assert not rack_scale(_grace(nvlink_pairs=topo_m(links=6).nvlink_pairs))
    assert not rack_scale(msgspec.structs.replace(topo_m(8), counts={GPU_NUMA_IDS: 8}))


def test_a_source_that_names_domains_is_enough() -> None:
    known = labels({"n0": ((), "rack.1")})
    assert of_sources([_grace(), known], [_grace()]) == []
    (found,) = of_sources([_grace()], [_grace()])
    assert (found.rule, found.severity) == (RULE, Severity.NOTE)
    assert "nvlink_domains" in str(found.remedy)


def test_several_hosts_make_it_a_warning() -> None:
    assert domain_unknown(Place("c.yaml"), _grace(), 1).severity is Severity.NOTE
    found = domain_unknown(Place("c.yaml"), None, 18)
    assert found.severity is Severity.WARNING
    assert "18 hosts" in found.message


CLUSTER = "node: {from: tray.txt, gpu: GB200}\nhosts: t[1-4]\nfabric: rail-optimized\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (CLUSTER, 1),
        (CLUSTER.replace(", gpu: GB200", ""), 1),
        (CLUSTER + "nvlink_domains: {rack1: 't[1-4]'}\n", 0),
        (CLUSTER.replace("t[1-4]", "t1"), 0),
        ("node: gb200-nvl72\nnodes: 18\n", 0),
        ("node: dgx-h100\nnodes: 4\n", 0),
    ],
)
def test_a_cluster_of_trays_without_domains_is_warned_of(
    tmp_path: Path, text: str, count: int
) -> None:
    (tmp_path / "tray.txt").write_text(_tray())
    (tmp_path / "cluster.yaml").write_text(text)
    found = _of(load_cluster(tmp_path / "cluster.yaml").findings)
    assert len(found) == count
    assert all(one.severity is Severity.WARNING for one in found)


def test_the_link_between_grace_cpus_is_said_to_be_assumed(tmp_path: Path) -> None:
    (tmp_path / "tray.txt").write_text(_tray())
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    rules = [one.rule for one in load_cluster(tmp_path / "cluster.yaml").findings]
    assert rules.count("assumed/cpu-link") == 1
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("GB200", "H100-SXM"))
    rules = [one.rule for one in load_cluster(tmp_path / "cluster.yaml").findings]
    assert "assumed/cpu-link" not in rules


@pytest.mark.captured
def test_a_captured_tray() -> None:
    path = "data/topology/nvidia_smi_topo_m/gb200_tray4_gpu_numa_id.txt"
    facts = read_topology(shared_path(path))
    assert facts.counts == {GPU_NUMA_IDS: 4}
    assert rack_scale(facts)
