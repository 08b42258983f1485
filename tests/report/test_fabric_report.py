"""What ``topo`` says of a cluster file equals the fabric that a job gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshwright.chain.cluster_of_job import Cluster, load_cluster
from meshwright.report.fabric_report import cluster_report_json, cluster_report_text


def cluster(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return load_cluster(path)


def test_counts_of_a_preset(tmp_path: Path) -> None:
    found = cluster(tmp_path, "node: gb200-nvl72\nnodes: 144\nfabric: rail-optimized\n")
    document = cluster_report_json(found, "c.yaml", found.findings, full=False)
    assert document["tiers"] == {
        "gpus": 576,
        "hosts": 144,
        "nics": 576,
        "nics on leaves": 576,
        "leaves": 32,
        "units": 8,
        "pods": 1,
        "spines": 9,
        "cores": 0,
        "components": 1,
    }
    domains = document["nvlink_domains"]
    assert [len(one["hosts"]) for one in domains] == [18] * 8
    assert domains[1]["hosts"][0] == "host18"
    assert document["node_types"] == [{"name": "gb200-nvl72", "gpus": 4, "nics": 4, "hosts": 144}]


def test_cores_are_no_spines(tmp_path: Path) -> None:
    found = cluster(tmp_path, "node: dgx-h100\nnodes: 2000\nfabric: rail-optimized\n")
    tiers = cluster_report_json(found, "c.yaml", found.findings, full=False)["tiers"]
    network = found.fabric.network
    assert network is not None
    assert tiers["leaves"] == network.num_leaves
    assert tiers["cores"] > 0
    assert tiers["leaves"] + tiers["spines"] + tiers["cores"] == len(network.switch_names)


def test_link_classes_hold_every_link(tmp_path: Path) -> None:
    found = cluster(tmp_path, "node: dgx-h100\nnodes: 40\nfabric: rail-only\n")
    document = cluster_report_json(found, "c.yaml", found.findings, full=False)
    assert sum(one["count"] for one in document["link_classes"]) == len(found.fabric.links)
    assert document["tiers"]["components"] == 8


def test_lists_are_those_of_the_interface(tmp_path: Path) -> None:
    found = cluster(tmp_path, "preset: superpod-h100 x 1\n")
    document = cluster_report_json(found, "c.yaml", found.findings, full=False)
    assert (len(document["gpus"]), len(document["nics"])) == (248, 248)
    assert document["nics"][9] == {"host": "host1", "name": "nic1", "leaf": "leaf-u0-r1"}
    assert len(document["links"]) == 248 + 256
    for key in ("other_devices", "nvswitches", "nvlink_pairs", "numa_nodes", "nearest_nic"):
        assert document[key] is None, key


def test_long_lists_are_counted_unless_all_is_asked_for(tmp_path: Path) -> None:
    found = cluster(tmp_path, "node: {gpus: 1}\nnodes: 10001\nfabric: none\n")
    assert cluster_report_json(found, "c.yaml", found.findings, full=False)["hosts"] == {
        "count": 10_001
    }
    assert len(cluster_report_json(found, "c.yaml", found.findings, full=True)["hosts"]) == 10_001


@pytest.mark.parametrize(("tier", "count"), [("hosts", "3"), ("leaves", "not known")])
def test_text_says_what_is_not_known(tmp_path: Path, tier: str, count: str) -> None:
    found = cluster(tmp_path, "node: {gpus: 4}\nnodes: 3\nfabric: none\n")
    text = cluster_report_text(found, "c", found.findings)
    assert re.search(rf"^{tier} +{count}$", text, re.M)
