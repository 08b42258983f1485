"""``topo`` on a cluster file, on several sources, and the files it writes."""

from __future__ import annotations

from pathlib import Path

from cli.running import finding_of, rules_of, run
from support import FIXTURES

TREE = """\
SwitchName=leaf1 Nodes=n[1-2]
SwitchName=leaf2 Nodes=n[3-4]
SwitchName=top Switches=leaf[1-2]
"""


def test_a_cluster_file_is_said_by_tier(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    (tmp_path / "cluster.yaml").write_text("node: dgx-h100\nfabric: {from: topology.conf}\n")
    document = run("topo", tmp_path / "cluster.yaml", "--json").document
    assert document["schema"] == "meshwright/topo/1"
    assert document["files"][0]["format"] == "cluster"
    assert document["hosts"] == ["n1", "n2", "n3", "n4"]
    assert (document["tiers"]["leaves"], document["tiers"]["spines"]) == (2, 1)
    assert "assumed/tree-without-rails" in rules_of(document)


def test_a_preset_is_a_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("preset: superpod-h100 x 2\n")
    ran = run("topo", tmp_path / "c.yaml")
    assert ran.status == 0
    assert "63 × dgx-h100" in ran.out


def test_a_cluster_file_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    (tmp_path / "cluster.yaml").write_text("node: dgx-h100\nnodes: 2\n")
    ran = run("topo", tmp_path / "cluster.yaml", tmp_path / "topology.conf")
    assert ran.status == 2
    assert "give it alone" in ran.err


def test_a_broken_cluster_file_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("node: dgx-h100\nnodes: many\n")
    ran = run("topo", tmp_path / "cluster.yaml")
    assert ran.status == 2
    assert "cluster.yaml:2:8" in ran.err


def test_slurms_file_is_written_from_a_source_and_from_a_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    first, second = tmp_path / "first.conf", tmp_path / "second.conf"
    assert run("topo", tmp_path / "topology.conf", "--slurm", first).status == 0
    (tmp_path / "cluster.yaml").write_text("node: dgx-h100\nfabric: {from: topology.conf}\n")
    assert run("topo", tmp_path / "cluster.yaml", "--slurm", second).status == 0
    assert first.read_text() == second.read_text()
    assert "SwitchName=leaf2 Nodes=n[3-4]" in first.read_text()


def test_slurms_file_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    ran = run("topo", tmp_path / "topology.conf", "--slurm", tmp_path / "topology.conf")
    assert ran.status == 2
    assert "exists" in ran.err
    assert (tmp_path / "topology.conf").read_text() == TREE


def test_slurms_file_needs_switches(tmp_path: Path) -> None:
    matrix = FIXTURES / "topology/nvidia_smi_topo_m/cube_mesh_4gpu.txt"
    ran = run("topo", matrix, "--slurm", tmp_path / "out.conf")
    assert ran.status == 2
    assert not (tmp_path / "out.conf").exists()


def _matrix(links: int) -> str:
    rows = ["\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity"]
    rows += [f"GPU0\t X \tNV{links}\tPIX\t0-7\t0", f"GPU1\tNV{links}\t X \tPIX\t0-7\t0"]
    rows += ["NIC0\tPIX\tPIX\t X \t\t", "", "NIC Legend:", "", "  NIC0: mlx5_0", ""]
    return "\n".join(rows)


def _links(count: int) -> str:
    gpus = []
    for gpu in range(2):
        gpus.append(
            f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-0000000{gpu}-0000-0000-0000-000000000000)"
        )
        gpus += [f"\t Link {link}: 26.562 GB/s" for link in range(count)]
    return "\n".join(gpus) + "\n"


def test_two_files_of_a_host_are_one_host_and_differences_name_both(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(_matrix(17))
    (tmp_path / "links.txt").write_text(_links(18))
    document = run("topo", tmp_path / "topo.txt", tmp_path / "links.txt", "--json").document
    assert len(document["gpus"]) == 2
    assert document["joined"]["joins"][0]["matched"] == 2
    finding = finding_of(document, "topology/conflict-nvlink-count")
    assert {Path(finding["numbers"][side]).name for side in ("left", "right")} == {
        "topo.txt",
        "links.txt",
    }
    assert "17" in finding["message"]
    assert "18" in finding["message"]


def test_files_that_agree_give_no_conflict(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(_matrix(18))
    (tmp_path / "links.txt").write_text(_links(18))
    document = run("topo", tmp_path / "topo.txt", tmp_path / "links.txt", "--json").document
    assert document["joined"]["conflicts"] == []
    assert document["gpus"][0]["uuid"].startswith("GPU-")
    assert document["nearest_nic"] == {"0": [0], "1": [0]}


def test_hosts_spelt_with_and_without_their_domain_are_listed_once(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("SwitchName=s1 Nodes=h[0-3]\n")
    (tmp_path / "b.conf").write_text("SwitchName=s1 Nodes=h0.a.com,H1.a.com,h2.a.com,h3.a.com\n")
    document = run("topo", tmp_path / "a.conf", tmp_path / "b.conf", "--json").document
    assert document["hosts"] == ["h0", "h1", "h2", "h3"]


def test_drivers_views_of_several_hosts_are_no_quarrel(tmp_path: Path) -> None:
    files = []
    for host in ("h0", "h1", "h2"):
        text = (
            "GPU 00000008:01:00.0\n    Fabric\n"
            "        State                             : Completed\n"
            "        Status                            : Success\n"
            "        CliqueId                          : 4\n"
            "        ClusterUUID                       : 11111111-0000-4000-8000-000000000001\n"
        )
        (tmp_path / f"{host}.txt").write_text(text)
        files.append(tmp_path / f"{host}.txt")
    document = run("topo", *files, "--json").document
    assert [one["hosts"] for one in document["nvlink_domains"]] == [["h0", "h1", "h2"]]
    assert "topology/join-refused" not in {one["rule"] for one in document["findings"]}


def test_switches_and_hosts_of_two_trees_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text(TREE)
    (tmp_path / "b.conf").write_text(TREE.replace("n[1-2]", "n1.a.com,n2.a.com"))
    document = run("topo", tmp_path / "a.conf", tmp_path / "b.conf", "--json").document
    assert [one["name"] for one in document["switches"]] == ["leaf1", "leaf2", "top"]
    (tier,) = document["joined"]["tiers"]
    assert (tier["hosts"], tier["switches_by_tier"]) == (4, [2, 1])


def test_blocks_alone_say_how_they_become_domains(tmp_path: Path) -> None:
    (tmp_path / "block.conf").write_text("BlockName=b1 Nodes=n[1-4]\nBlockSizes=4\n")
    ran = run("topo", tmp_path / "block.conf", "--write", tmp_path / "c.yaml")
    assert ran.status == 2
    assert "nvlink_domains: {from: block.conf}" in ran.err
