"""Users' questions on places, orders and domains: the program on what the user has, every check.

Nothing here reads ``expected`` but to compare; the reason is looked for in a finding.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import finding_of, rules_of, run
from meshwright.cluster.allocations.allocation import ring_crossings
from support import shared_path

pytestmark = [pytest.mark.captured, pytest.mark.process]


def case_of(name: str) -> dict[str, Any]:
    """Return a case."""
    return json.loads(shared_path(f"cases/{name}.json").read_text())


def written(path: Path, text: str) -> Path:
    """Write a file of the user's."""
    path.write_text(text)
    return path


NODE = """NodeName=worker-0 Arch=x86_64 CoresPerSocket=48
   Gres=gpu:h100:8(S:0-1)
   State=IDLE ThreadsPerCore=2
   {}
"""


@pytest.mark.parametrize(
    "node_text", [NODE, "NodeName=another-name Arch=x86_64 CoresPerSocket=48 {}\n", "{}\n"]
)
def test_leaf_only_topology(tmp_path: Path, node_text: str) -> None:
    case = case_of("leaf-only-topology")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    labels = "".join(f"    topology.nebius.com/{k}: {v}\n" for k, v in inputs["labels"].items())
    yaml = f"apiVersion: v1\nkind: Node\nmetadata:\n  name: worker-0\n  labels:\n{labels}"
    ran = run(
        "topo",
        written(tmp_path / "labels.yaml", yaml),
        written(tmp_path / "scontrol.txt", node_text.format(inputs["slurm"])),
        "--json",
    )
    finding = finding_of(ran.document, "topology/leaf-only")
    for key in ("missing", "missing_tier", "expected_text"):
        assert finding["numbers"][key] == checks[key], key
    assert "Leaves under one of them look as far apart as any two" in finding["message"]
    assert checks["expected_text"] in finding["remedy"]
    assert ran.status == 0


def test_slurm_block_segments_broken(tmp_path: Path) -> None:
    case = case_of("slurm-block-segments-broken")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    conf = written(tmp_path / "topology.conf", case["artefacts"][0]["text"])
    asked = ("--allocation", inputs["nodelist"], "--segment", str(inputs["request"]["segment"]))
    document = run("topo", conf, *asked, "--json").document
    segments = document["allocation"]["segments"]
    for key in ("segments_ok", "expected", "groups_crossing"):
        assert segments[key] == checks[key], key
    assert segments["actual"] == inputs["allocation"]
    finding = finding_of(document, "allocation/segments-broken")
    assert "17+17+2" in finding["message"]
    assert "expected 12+12+12" in finding["message"]
    assert "groups 1, 2 (of 12 hosts, counted from 0) cross a block" in finding["message"]
    assert "allocation/segments-broken" in run("topo", conf, *asked).out


def test_order_slurm_name_vs_switch(tmp_path: Path) -> None:
    case = case_of("order-slurm-name-vs-switch")
    checks, hosts = case["expected"]["checks"], case["inputs"]["allocation"]
    conf = written(tmp_path / "topology.conf", case["artefacts"][0]["text"])
    document = run("topo", conf, "--allocation", ",".join(hosts), "--json").document
    found = document["allocation"]
    for key in (
        "name_order",
        "switch_order",
        "ring_crossings_name_order",
        "ring_crossings_switch_order",
    ):
        assert found[key] == checks[key], key
    by_host = {host: leaf for leaf, members in found["by_leaf"].items() for host in members}
    assert ring_crossings(sorted(hosts), by_host) == checks["ring_crossings_string_sort_wrong"]
    finding = finding_of(document, "allocation/order-crosses-switches")
    assert "TopologyParam=SwitchAsNodeRank" in finding["remedy"]
    assert "SLURM_HOSTFILE=hosts.txt srun --distribution=arbitrary" in finding["remedy"]
    listed = finding["remedy"].partition("'")[2].partition("'")[0]
    again = run("topo", conf, "--allocation", listed, "--json").document["allocation"]
    assert again["hosts"] == checks["switch_order"]
    assert again["given_order_crossings"] == checks["ring_crossings_switch_order"]


def test_clique_id_not_unique(tmp_path: Path) -> None:
    case = case_of("clique-id-not-unique")
    labels = written(tmp_path / "labels.txt", case["artefacts"][0]["text"])
    document = run("topo", labels, "--json").document
    found = [domain["hosts"] for domain in document["nvlink_domains"]]
    assert found == case["expected"]["checks"]["domains"]
    assert len({domain["name"] for domain in document["nvlink_domains"]}) == len(found)
    assert "2 NVLink domains" in run("topo", labels).out
    reason = finding_of(document, "topology/clique-not-unique")
    assert reason["numbers"]["clique"] == "32766"
    assert "the pair of cluster UUID and clique id" in reason["message"]


def test_clique_id_not_unique_from_the_driver(tmp_path: Path) -> None:
    """The same question with the ``Fabric`` block of each host, one file a host."""
    case = case_of("clique-id-not-unique")
    uuid_of = {"U1": "11111111-0000-4000-8000-000000000001"}
    files = []
    for gpu in case["inputs"]["gpus"]:
        uuid = uuid_of.get(gpu["cluster_uuid"], "22222222-0000-4000-8000-000000000002")
        text = (
            "GPU 00000008:01:00.0\n    Fabric\n"
            "        State                             : Completed\n"
            "        Status                            : Success\n"
            f"        CliqueId                          : {gpu['clique']}\n"
            f"        ClusterUUID                       : {uuid}\n"
        )
        files.append(written(tmp_path / f"{gpu['host']}.txt", text))
    document = run("topo", *files, "--json").document
    found = [domain["hosts"] for domain in document["nvlink_domains"]]
    assert found == case["expected"]["checks"]["domains"]
    assert rules_of(document).count("assumed/host-from-file-name") == len(files)
    assert "topology/clique-not-unique" in rules_of(document)
