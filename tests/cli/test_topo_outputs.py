"""What ``topo`` writes and prints where names are odd or outputs clash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.running import finding_of, run

TREE = "SwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n[3-4]\nSwitchName=t Switches=l[1-2]\n"


def test_one_file_for_two_outputs_is_refused_before_either_is_written(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    ran = run("topo", "topology.conf", "--write", "x", "--slurm", "./x", cwd=tmp_path)
    assert ran.status == 2
    assert "name one file" in ran.err
    assert not (tmp_path / "x").exists()


def test_a_slurm_file_that_cannot_be_made_leaves_no_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\t0-7\t0\nGPU1\tPIX\t X \t0-7\t0\n"
    )
    ran = run("topo", "topo.txt", "--write", "c.yaml", "--slurm", "t.conf", cwd=tmp_path)
    assert ran.status == 2
    assert {one.name for one in tmp_path.iterdir()} == {"topo.txt"}


def test_a_name_that_is_no_text_is_shown_and_not_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xfe.conf")
    try:
        (tmp_path / name).write_text(TREE)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    ran = run("topo", name, "--json", cwd=tmp_path)
    assert ran.status == 0
    assert ran.document["files"][0]["path"] == "\\udcfe.conf"
    refused = run("topo", name, "--write", "c.yaml", cwd=tmp_path)
    assert refused.status == 2
    assert "no UTF-8" in refused.err
    assert not (tmp_path / "c.yaml").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node: dgx-h100\nnodes: 2\nallocation: host7\n", "host7"),
        ("node: dgx-h100\nnodes: 2\nfabric: {from: []}\n", "names no file"),
        ('node: dgx-h100\nnodes: 2\nfabric: {from: ""}\n', "names no file"),
        ('node: {from: ""}\nnodes: 2\n', "names no file"),
        ("node: dgx-h100\nfabric: {from: [topology.conf, ./topology.conf]}\n", "one file twice"),
    ],
)
def test_refused_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    (tmp_path / "c.yaml").write_text(text)
    ran = run("topo", "c.yaml", cwd=tmp_path)
    assert ran.status == 2
    assert words in ran.err
    assert "c.yaml:" in ran.err


def test_an_explicit_member_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "cluster: dgx-h100 x 2\ngroups: [{name: g, members: [[node1, 0], [node2, 0]]}]\n"
    )
    ran = run("map", "job.yaml", cwd=tmp_path)
    assert ran.status == 2
    assert "no host 'node1' in the cluster" in ran.err
    assert "host0 … host1" in ran.err


def test_a_misspelt_rack_is_said(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        'node: dgx-h100\nnodes: 2\nnvlink_domains: {a: "zz[1-4]", b: "host[0-1]"}\n'
    )
    document = run("topo", "c.yaml", "--json", cwd=tmp_path).document
    finding = finding_of(document, "topology/domain-hosts-unknown")
    assert finding["numbers"]["hosts"] == 4
    assert "zz1, zz2" in finding["message"]


def test_a_rate_in_pebibytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "node: {gpus: 2, nics: 1, nic: 1 PiB/s}\nnodes: 2\nfabric: leaf-spine\n"
    )
    ran = run("topo", "c.yaml", "--json", cwd=tmp_path)
    assert ran.status == 0
    nics = [one for one in ran.document["link_classes"] if one["kind"] == "nic"]
    assert {one["capacity_bytes_per_s"] for one in nics} == {2.0**50}
