"""``topo --write``: a cluster file that a job can use."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.running import rules_of, run
from meshwright.chain.cluster_of_job import load_cluster
from meshwright.cluster.readers import read_topology
from meshwright.report.cluster_file import write_cluster
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


CABLES = """vendid=0x2c9
devid=0xd2f2
sysimgguid=0xc0{0}
switchguid=0xc0{0}(c0{0})
Switch\t40 "S-00000000000000c0"\t\t# "leaf" enhanced port 0 lid 1 lmc 0
[1]\t"H-00000000000000a1"[1](a1) \t\t# "n1 mlx5_0" lid 2 4xNDR
[2]\t"H-00000000000000a2"[1](a2) \t\t# "n2 mlx5_0" lid 3 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xa1
caguid=0xa1
Ca\t1 "H-00000000000000a1"\t\t# "n1 mlx5_0"
[1](a1) \t"S-00000000000000c0"[1]\t\t# lid 2 lmc 0 "leaf" lid 1 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xa2
caguid=0xa2
Ca\t1 "H-00000000000000a2"\t\t# "n2 mlx5_0"
[1](a2) \t"S-00000000000000c0"[2]\t\t# lid 3 lmc 0 "leaf" lid 1 4xNDR
"""
PORTS = """CA  2  1 0x00000000000000a1 4x NDR - SW  1  1 0x00000000000000c0 ( 'n1 mlx5_0' - 'leaf' )
CA  3  1 0x00000000000000a2 4x NDR - SW  1  2 0x00000000000000c0 ( 'n2 mlx5_0' - 'leaf' )
SW  1  1 0x00000000000000c0 4x NDR - CA  2  1 0x00000000000000a1 ( 'leaf' - 'n1 mlx5_0' )
SW  1  2 0x00000000000000c0 4x NDR - CA  3  1 0x00000000000000a2 ( 'leaf' - 'n2 mlx5_0' )
"""
LINKS = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-00{gpu})\n"
    + "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(9))
    for gpu in range(4)
)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "topo.txt").write_text(MATRIX.read_text())
    (tmp_path / "links.txt").write_text(LINKS)
    (tmp_path / "ib.txt").write_text(CABLES.replace("{0}", ""))
    (tmp_path / "ports.txt").write_text(PORTS)
    return tmp_path


def test_several_files_of_one_kind_are_all_written(files):
    sources = ["topo.txt", "links.txt", "ib.txt", "ports.txt"]
    ran = run("topo", *sources, "--write", "cluster.yaml", cwd=files)
    assert ran.status == 0, ran.out
    written = yaml.safe_load((files / "cluster.yaml").read_text())
    assert written["node"] == {"from": ["topo.txt", "links.txt"], "gpu": "H100 SXM 80G"}
    assert written["fabric"] == {"from": ["ib.txt", "ports.txt"]}
    assert written["allocation"] == "n[1-2]"
    (files / "job.yaml").write_text("cluster: cluster.yaml\nlayout: {tp: 4}\n")
    mapped = run("map", "job.yaml", "--json", cwd=files)
    assert mapped.status == 0, mapped.err
    assert mapped.document["cluster"]["hosts"] == 2
    assert mapped.document["cluster"]["leaves"] == 1
    rules = rules_of(mapped.document)
    assert "topology/joined-by-number" in rules
    assert "topology/gpu-model-unknown" not in rules
    assert not [rule for rule in rules if rule.startswith("topology/conflict")]


def test_the_order_of_files_changes_no_written_key(files):
    run("topo", "topo.txt", "links.txt", "ib.txt", "--write", "a.yaml", cwd=files)
    run("topo", "ib.txt", "links.txt", "topo.txt", "--write", "b.yaml", cwd=files)
    one, other = (yaml.safe_load((files / name).read_text()) for name in ("a.yaml", "b.yaml"))
    assert one == other


def test_a_file_that_is_not_used_is_named(files):
    (files / "blocks.conf").write_text("BlockName=b0 Nodes=n[1-2]\nBlockSizes=2\n")
    run("topo", "topo.txt", "ib.txt", "blocks.conf", "--write", "cluster.yaml", cwd=files)
    text = (files / "cluster.yaml").read_text()
    assert "# Not used: blocks.conf: blocks of hosts; nvlink_domains: {from: …}" in text
    assert "could not be joined" not in text


def test_labels_alone_are_written_as_a_fabric(tmp_path):
    items = [
        {
            "kind": "Node",
            "metadata": {
                "name": f"n{i}",
                "labels": {
                    "network.topology.nvidia.com/leaf": f"l{i // 2}",
                    "network.topology.nvidia.com/spine": "s",
                    "nvidia.com/gpu.clique": f"c0ffee.{i // 2}",
                },
            },
        }
        for i in range(4)
    ]
    (tmp_path / "labels.json").write_text(json.dumps({"kind": "NodeList", "items": items}))
    ran = run("topo", "labels.json", "--write", "cluster.yaml", cwd=tmp_path)
    assert ran.status == 0
    written = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    assert written["fabric"] == {"from": "labels.json"}
    assert written["nvlink_domains"] == {"c0ffee.0": "n[0-1]", "c0ffee.1": "n[2-3]"}
    document = "node: gb200-nvl72\n" + (tmp_path / "cluster.yaml").read_text()
    (tmp_path / "cluster2.yaml").write_text(document)
    (tmp_path / "job.yaml").write_text("cluster: cluster2.yaml\nlayout: {tp: 4}\n")
    mapped = run("map", "job.yaml", "--json", cwd=tmp_path)
    assert mapped.status == 0, mapped.err
    assert mapped.document["cluster"]["leaves"] == 2
    assert mapped.document["cluster"]["nvlink_domains"] == 2


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_written_file_gives_the_fabric_of_its_sources(tmp_path, sizes, with_root, turned):
    """Hosts, leaves and host by leaf come back, whatever the tree and the order of files."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    hosts = iter(range(sum(sizes)))
    leaves = {f"s{at}": [f"n{next(hosts)}" for _ in range(size)] for at, size in enumerate(sizes)}
    lines = [f"SwitchName={name} Nodes={','.join(found)}" for name, found in leaves.items()]
    lines += [f"SwitchName=top Switches={','.join(leaves)}"] if with_root else []
    (folder / "topology.conf").write_text("\n".join(lines) + "\n")
    (folder / "topo.txt").write_text(MATRIX.read_text())
    sources = [read_topology(folder / "topology.conf"), read_topology(folder / "topo.txt")]
    write_cluster(sources[::-1] if turned else sources, str(folder / "cluster.yaml"))
    fabric = load_cluster(folder / "cluster.yaml").fabric
    assert sorted(fabric.host_names) == sorted(f"n{i}" for i in range(sum(sizes)))
    assert fabric.network.num_leaves == len(leaves)
    assert fabric.num_slots == 4 * sum(sizes)
    names = fabric.network.switch_names
    of_host = dict(zip(fabric.host_names, fabric.leaf_of_slot[::4].tolist(), strict=True))
    for leaf, found in leaves.items():
        for host in found:
            assert names[fabric.network.switch_of_leaf[of_host[host]]] == leaf


def test_what_was_written_is_said_once_and_never_in_the_json(files):
    ran = run("topo", "ib.txt", "--write", "cluster.yaml", "--slurm", "tree.conf", cwd=files)
    last = ran.out.rstrip().splitlines()
    assert last[-1] == "Wrote tree.conf."
    assert any(line.startswith("Wrote cluster.yaml: fabric, allocation; 1 thing") for line in last)
    told = run("topo", "ib.txt", "--write", "other.yaml", "--json", cwd=files)
    assert told.document["schema"] == "meshwright/topo/1"
    assert "Wrote" not in told.out


def test_a_written_file_without_a_node_is_read_by_topo(files):
    run("topo", "ib.txt", "--write", "cluster.yaml", cwd=files)
    assert "\n# node: " in (files / "cluster.yaml").read_text()
    document = run("topo", "cluster.yaml", "--json", cwd=files).document
    assert document["hosts"] == ["n1", "n2"]
    assert document["tiers"]["leaves"] == 1
    found = next(one for one in document["findings"] if one["rule"] == "topology/node-unknown")
    assert "node: " in found["remedy"]
    ran = run("topo", "cluster.yaml", "--slurm", "tree.conf", cwd=files)
    assert ran.status == 0
    assert "SwitchName=leaf Nodes=n[1-2]" in (files / "tree.conf").read_text()
    # A job needs the inside of its hosts: nothing is made up for it.
    (files / "job.yaml").write_text("cluster: cluster.yaml\nlayout: {tp: 2}\n")
    assert run("map", "job.yaml", cwd=files).status == 2


def test_a_file_without_node_and_fabric_is_still_refused(tmp_path):
    (tmp_path / "cluster.yaml").write_text("nodes: 2\nfabric: rail-optimized\n")
    ran = run("topo", "cluster.yaml", cwd=tmp_path)
    assert ran.status == 2
    assert "names no node type" in ran.err


def test_hosts_are_written_in_the_order_of_names(tmp_path):
    tree = "SwitchName=s1 Nodes=n18,n[7-9]\nSwitchName=s2 Nodes=n100,n20\nSwitchName=t Switches=s[1-2]\n"
    (tmp_path / "topology.conf").write_text(tree)
    run("topo", "topology.conf", "--write", "c.yaml", "--slurm", "out.conf", cwd=tmp_path)
    assert yaml.safe_load((tmp_path / "c.yaml").read_text())["allocation"] == "n[7-9,18,20,100]"
    assert "SwitchName=s1 Nodes=n[7-9,18]" in (tmp_path / "out.conf").read_text()
    assert "SwitchName=s2 Nodes=n[20,100]" in (tmp_path / "out.conf").read_text()


def test_sources_that_only_check_others_are_not_called_lost(files):
    (files / "topology.conf").write_text("SwitchName=s1 Nodes=n[1-2]\n")
    run("topo", "topo.txt", "ib.txt", "topology.conf", "--write", "cluster.yaml", cwd=files)
    text = (files / "cluster.yaml").read_text()
    assert (
        "# Not used: topology.conf: the cables say where hosts are; topo compares the two" in text
    )


def test_the_nvlink_domains_of_trays_are_named_as_missing(tmp_path):
    rows = ["\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for row in range(4):
        cells = ["X" if row == column else "NV18" for column in range(4)]
        rows.append("\t".join([f"GPU{row}", *cells, "0-71", "0", str(2 + 8 * row)]))
    (tmp_path / "tray.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "topology.conf").write_text(TREE)
    ran = run("topo", "tray.txt", "topology.conf", "--write", "c.yaml", cwd=tmp_path)
    assert "topology/nvlink-domain-unknown" in ran.out
    assert (
        "# Not said by these files: which hosts are one NVLink domain"
        in (tmp_path / "c.yaml").read_text()
    )
