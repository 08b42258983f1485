"""``topo --write``: a cluster file that a job can use."""

from __future__ import annotations

import pytest
import yaml

from cli.running import rules_of, run
from support import FIXTURES

pytestmark = pytest.mark.process
MATRIX = FIXTURES / "topology" / "nvidia_smi_topo_m" / "tabs_4gpu_2nic.txt"
TREE = "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\nSwitchName=top Switches=s[1-2]\n"


def test_written_file_is_read_back(tmp_path):
    (tmp_path / "topo.txt").write_text(MATRIX.read_text())
    (tmp_path / "topology.conf").write_text(TREE)
    ran = run("topo", "topo.txt", "topology.conf", "--write", "cluster.yaml", cwd=tmp_path)
    assert ran.status == 0
    text = (tmp_path / "cluster.yaml").read_text()
    assert "# Not said by these files" not in text  # the text names its GPUs
    written = yaml.safe_load(text)
    assert written["node"] == {"from": "topo.txt", "gpu": "H100 SXM 80G"}
    assert written["fabric"] == {"from": "topology.conf"}
    assert written["allocation"] == "n[1-4]"
    (tmp_path / "job.yaml").write_text("cluster: cluster.yaml\nlayout: {tp: 2}\n")
    mapped = run("map", "job.yaml", "--json", cwd=tmp_path)
    assert mapped.status == 0
    assert mapped.document["cluster"]["hosts"] == 4
    assert mapped.document["cluster"]["leaves"] == 2
    assert "topology/gpu-model-unknown" not in rules_of(mapped.document)


def test_what_the_files_do_not_say_is_left_to_the_user(tmp_path):
    (tmp_path / "topo.txt").write_text("\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n")
    run("topo", "topo.txt", "--write", "cluster.yaml", cwd=tmp_path)
    text = (tmp_path / "cluster.yaml").read_text()
    assert "# Not said by these files: the GPU model" in text
    assert "# Not said by these files: the fabric" in text


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "topology.conf").write_text(TREE)
    ran = run("topo", "topology.conf", "--write", "topology.conf", cwd=tmp_path)
    assert ran.status == 2
    assert "exists" in ran.err
    assert (tmp_path / "topology.conf").read_text() == TREE


def test_paths_start_at_the_written_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "topology.conf").write_text(TREE)
    run("topo", "in/topology.conf", "--write", "out/cluster.yaml", cwd=tmp_path)
    written = yaml.safe_load((tmp_path / "out" / "cluster.yaml").read_text())
    assert written["fabric"]["from"] == "../in/topology.conf"


def test_nvlink_domains_of_labels_are_written(tmp_path):
    labels = FIXTURES / "topology" / "k8s_node_labels" / "cliques.json"
    ran = run("topo", labels, "--write", tmp_path / "cluster.yaml")
    written = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    assert ran.status in (0, 1)
    assert len(written["nvlink_domains"]) >= 2
