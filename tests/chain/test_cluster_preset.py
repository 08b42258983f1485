"""A cluster named in one line: hosts of a node preset, units of a cluster preset, wrong names."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.chain.cluster_of_job import Cluster, cluster_of_job, load_cluster
from meshwright.chain.jobfile import load_job
from meshwright.errors import InputError


def cluster(folder: Path, text: str) -> Cluster:
    """Return the cluster of a job with this ``cluster:`` entry."""
    (folder / "job.yaml").write_text(f"cluster: {text}\nlayout: {{tp: 8}}\n")
    found = cluster_of_job(load_job(folder / "job.yaml"), None)
    assert found is not None
    return found


def rules(found: Cluster) -> list[str]:
    return [one.rule for one in found.findings]


def test_hosts_of_a_node_preset(tmp_path: Path) -> None:
    found = cluster(tmp_path, "dgx-h100 x 2")
    assert (found.num_gpus, found.description, rules(found)) == (16, "2 × dgx-h100", [])
    cloud = cluster(tmp_path, "Azure-ND-v5 x 16")
    assert (cloud.num_gpus, cloud.description) == (128, "16 × azure-nd-v5")
    # How the provider joins them is not published: said, and the cables' origin is assumed.
    assert set(rules(cloud)) == {"assumed/node-preset", "assumed/fabric"}
    assert {one.origin.value for one in cloud.fabric.links.classes if one.kind == "fabric"} <= {
        "assumed"
    }
    for name, gpus in (("aws-p5", 8), ("mi300x-8", 8), ("gb300-nvl72", 4), ("pcie-box", 8)):
        assert cluster(tmp_path, f"{name} x 18").num_gpus == 18 * gpus


def test_b300_hosts_hang_on_switches_of_144_ports(tmp_path: Path) -> None:
    found = cluster(tmp_path, "dgx-b300 x 144")
    assert found.fabric.network.num_leaves == 16


def test_units_of_a_cluster_preset(tmp_path: Path) -> None:
    found = cluster(tmp_path, "superpod-h100 x 4")
    assert (found.num_gpus, found.description, rules(found)) == (1016, "127 × dgx-h100", [])
    assert cluster(tmp_path, "superpod-b300-xdr").num_gpus == 576
    racks = cluster(tmp_path, "superpod-gb200 x 2")
    assert racks.num_gpus == 1152
    assert set(rules(racks)) == {"assumed/cluster-units", "assumed/cluster-preset"}


def test_a_preset_in_a_cluster_file_may_have_hosts_and_an_allocation(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text('preset: superpod-h100 x 1\nhosts: "n[01-31]"\nallocation: "n[03-06]"\n')
    found = load_cluster(path)
    assert found.fabric.num_hosts == 31
    assert found.allocation == ("n03", "n04", "n05", "n06")
    path.write_text('preset: superpod-h100 x 1\nhosts: "n[01-32]"\n')
    with pytest.raises(InputError, match="says 31, and hosts names 32"):
        load_cluster(path)


@pytest.mark.parametrize("key", ["node: dgx-h100", "nodes: 4", "fabric: {preset: none}"])
def test_a_preset_says_node_nodes_and_fabric_itself(tmp_path: Path, key: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"preset: dgx-h100 x 4\n{key}\n")
    with pytest.raises(InputError, match=f"{key.partition(':')[0]} stands beside preset"):
        load_cluster(path)


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("superpod-h10 x 4", "no cluster preset", "superpod-h100"),
        ("azure-nd-v6 x 2", "no cluster preset", "azure-nd-v5"),
        ("qqqqqqqq", "no cluster preset", "superpod-h100 x 4 (units)"),
        ("superpod-h100 x 5", "1 to 4 units, not 5", "superpod-h100 x 4"),
        ("superpod-b200 x 9999999", "1 to 64 units", "superpod-b200 x 64"),
        ("superpod-b200 x 0", "1 to 64 units, not 0", "superpod-b200 x 1"),
        ("dgx-h100 x 0", "0 hosts", "dgx-h100 x 1"),
        ("'dgx-h100 x 2 x 3'", "no cluster preset", "dgx-h100"),
    ],
)
def test_wrong_names_and_counts(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        cluster(tmp_path, text)
    (problem,) = caught.value.problems
    assert message in problem.message
    assert remedy in str(problem.remedy)
    assert problem.place.line == 1
