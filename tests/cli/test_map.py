"""``map`` as a process: the worked example, real inputs, and that text and JSON agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import axis_of, finding_of, rules_of, run
from support import ROOT, shared_path

EXAMPLE = ROOT / "examples" / "llama3-8b-16gpu.yaml"
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def example():
    return run("map", EXAMPLE, "--json").document


def test_worked_example_groups(example):
    tp, dp = axis_of(example, "tp"), axis_of(example, "dp")
    assert example["layout"]["dp"] == 4  # four replicas
    assert (tp["num_groups"], tp["degree"]) == (4, 4)
    assert tp["span"]["host"] == {
        "domains": [1, 1],
        "members": [4, 4],
        "crossings": [0, 0],
        "groups_crossing": 0,
        "groups_per_domain": 2,
    }
    assert set(tp["path_kinds"]) == {"nvlink"}
    assert dp["span"]["host"]["domains"] == [2, 2]
    assert dp["span"]["host"]["members"] == [2, 2]


def test_worked_example_loads_and_bounds(example):
    """Figures worked by hand from bytes over stated rates."""
    tp, dp = axis_of(example, "tp"), axis_of(example, "dp")
    assert tp["sent_bytes"] == pytest.approx(261.7e9, rel=1e-3)
    assert tp["bound_s"] == pytest.approx(0.582, rel=1e-3)
    assert dp["bound_s"] == pytest.approx(0.090, rel=5e-3)
    nics = [one for one in example["links"]["all"] if one["kind"] == "nic"]
    assert len(nics) == 32
    for nic in nics:
        assert nic["load_bytes"] == pytest.approx(4.52e9, rel=5e-3)
        assert list(nic["load_by_axis"]) == ["dp"]
    out = [
        one
        for one in example["links"]["all"]
        if (one["kind"], one["direction"]) == ("nvlink", "out")
    ]
    assert [one["load_bytes"] for one in out] == [pytest.approx(270.8e9, rel=1e-3)] * 16


def test_worked_example_collectives(example):
    tp, dp = axis_of(example, "tp"), axis_of(example, "dp")
    known = [one for one in tp["collectives"] if one["bytes"] is not None]
    assert sum(one["count_per_step"] for one in known) == 5248
    assert {one["bytes"] for one in known} == {64 * 2**20, 32 * 2**10}
    by_op = {one["op"]: one for one in dp["collectives"]}
    assert by_op["reduce_scatter"]["bytes"] == pytest.approx(8.03e9, rel=1e-3)
    assert by_op["all_gather"]["bytes"] == pytest.approx(4.02e9, rel=2e-3)
    times = sum(one["time_s"] for one in known)
    assert times == pytest.approx(tp["bound_s"] + tp["latency_s"])


def test_not_modelled_is_null_with_its_reason_and_said(tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(
        "model: llama3-8b\ncluster: dgx-h100 x 2\n"
        "layout: {tp: 4, framework: torchtitan, sharding: fsdp}\n"
        "batch: {global_batch: 16, micro_batch: 1, seq_len: 8192}\n"
    )
    document = run("map", job, "--json").document
    every = [one for axis in document["axes"] for one in axis["collectives"]]
    unknown = [one for one in [*every, *document["unrouted"]] if one["bytes"] is None]
    assert unknown
    assert all(one["reason"] and one["count_per_step"] is None for one in unknown)
    assert "null, not zero" in finding_of(document, "traffic/not-modelled")["message"]


def test_text_says_what_the_json_says(example):
    out = run("map", EXAMPLE).out
    for text in (
        "261.7 GB",
        "0.582 s",
        "4.52 GB",
        "0.0904 s",
        "270.8 GB",
        "4 replicas",
        "{r, r+4, r+8, r+12}",
    ):
        assert text in out
    assert "inside one host" in out
    assert "2 members on each of 2" in out
    assert "8 rails carry the same" in out
    assert "does not validate your environment" in out
    assert max(map(len, out.splitlines())) <= 80


def test_turned_order_warns_with_ratio_and_remedy(tmp_path):
    turned = tmp_path / "turned.yaml"
    turned.write_text(EXAMPLE.read_text().replace("tp-cp-ep-dp-pp ", "dp-cp-ep-tp-pp "))
    ran = run("map", turned, "--json")
    assert ran.status == 0
    finding = finding_of(ran.document, "placement/tp-leaves-nvlink")
    assert finding["severity"] == "warning"
    assert finding["place"] == f"{turned}:7:10"
    assert finding["numbers"]["ratio"] == pytest.approx(4.5, abs=0.01)
    assert finding["numbers"]["groups"] == finding["numbers"]["of"] == 4
    assert "order: tp-cp-ep-dp-pp" in finding["remedy"]
    assert "4.5 ×" in finding["message"]
    tp, dp = axis_of(ran.document, "tp"), axis_of(ran.document, "dp")
    assert tp["span"]["host"]["groups_crossing"] == 4
    assert tp["bound_s"] == pytest.approx(2.617, rel=2e-3)
    assert dp["span"]["host"]["groups_crossing"] == 0
    assert "4.5 ×" in run("map", turned).out


def test_json_holds_the_interface_keys(example):
    assert example["schema"] == "meshwright/map/1"
    for one in example["axes"]:
        assert {
            "axis",
            "degree",
            "num_groups",
            "span",
            "collectives",
            "path_kinds",
            "bottleneck",
            "exposed_s",
        } <= set(one)
        assert one["exposed_s"] is None
        assert sum(one["path_kinds"].values()) == pytest.approx(1)
        for item in one["collectives"]:
            assert {"op", "phase", "bytes", "count_per_step", "time_s"} <= set(item)
    links = example["links"]
    assert links["total"] == len(links["all"]) == sum(one["count"] for one in links["classes"])
    assert len(links["busiest"]) == 20
    for one in links["classes"]:
        assert {
            "kind",
            "tier",
            "count",
            "capacity_bytes_per_s",
            "load_bytes",
            "load_by_axis",
            "busy_s",
            "utilisation",
            "example",
        } <= set(one)
        assert one["utilisation"] is None
    for one in links["all"][:50]:
        assert {"id", "kind", "tail", "head"} <= set(one)
    assert example["placement"]["slot_by_rank"][:2] == [["host0", 0], ["host0", 1]]
    assert example["origin"]["links.classes[?@.kind=='nic'].capacity_bytes_per_s"] == "stated"


def test_classes_carry_what_their_links_carry(example):
    total = sum(one["count"] * one["load_bytes"] for one in example["links"]["classes"])
    assert total == pytest.approx(sum(one["load_bytes"] for one in example["links"]["all"]))


def test_same_document_twice():
    assert run("map", EXAMPLE, "--json").out == run("map", EXAMPLE, "--json").out


def test_links_file(tmp_path):
    import numpy as np

    for name in ("links.npz", "links.ndjson"):
        ran = run("map", EXAMPLE, "--links", tmp_path / name)
        assert ran.status == 0
    arrays = np.load(tmp_path / "links.npz", allow_pickle=False)
    assert arrays["load_bytes"].shape == (2, len(arrays["link_class"]))
    assert len((tmp_path / "links.ndjson").read_text().splitlines()) == len(arrays["link_class"])
    again = run("map", EXAMPLE, "--links", tmp_path / "links.npz")
    assert again.status == 2
    assert "exists" in again.err


REAL_NODE_AND_TREE = """\
model: llama3-70b
cluster:
  node: {{from: {node}, gpu: H100-SXM}}
  fabric: {{from: {tree}}}
  allocation: srv[1101-1108,1201-1208]
layout: {{tp: 8, dp: 16, framework: megatron, sequence_parallel: true, sharding: zero1}}
batch: {{global_batch: 128, micro_batch: 1, seq_len: 8192}}
"""


@pytest.mark.captured
def test_real_node_matrix_with_scheduler_tree(tmp_path):
    """The first two leaves of a Slurm tree, a pasted topo -m: TP on NVLink, DP over two leaves."""
    job = tmp_path / "job.yaml"
    job.write_text(
        REAL_NODE_AND_TREE.format(
            node=shared_path("data/topology/nvidia_smi_topo_m/h100_8nic_merged_cells_tabs.txt"),
            tree=shared_path("data/topology/slurm_topology_conf/topograph_tree_96.conf"),
        )
    )
    ran = run("map", job, "--json")
    assert ran.status == 0
    document = ran.document
    tp, dp = axis_of(document, "tp"), axis_of(document, "dp")
    assert tp["span"]["nvlink_domain"]["domains"] == [1, 1]
    assert tp["path_kinds"] == {"nvlink": 1.0}
    assert (dp["degree"], dp["num_groups"]) == (16, 8)
    assert dp["span"]["leaf"]["domains"] == [2, 2]
    assert dp["span"]["leaf"]["members"] == [8, 8]
    note = finding_of(document, "assumed/tree-without-rails")
    assert "all NICs of a host are hung on its leaf" in note["message"]
    assert (
        document["origin"][
            "links.classes[?@.kind=='fabric' && @.tier=='leaf-spine'].capacity_bytes_per_s"
        ]
        == "assumed"
    )
    assert document["cluster"]["hosts"] == 16


def gb200_job(folder: Path) -> Path:
    """Write the job on 80 trays of the GB200 fabric, in the order of the question."""
    fabric = shared_path("data/topology/ibnetdiscover/gb200_superpod_ndr_582ca.txt")
    names = {
        line.split('"')[3].split()[0]
        for line in fabric.read_text().splitlines()
        if line.startswith("Ca")
    }
    hosts: list[str] = []
    for rack, count in (("03", 16), ("04", 16), ("05", 16), ("07", 16), ("06", 8), ("08", 8)):
        hosts += sorted(name for name in names if name.startswith(f"rack{rack}-"))[:count]
    domains = ", ".join(f"rack{n:02d}: 'rack{n:02d}-tray[01-18]'" for n in range(3, 9))
    job = folder / "gb200.yaml"
    job.write_text(
        f"model: deepseek-v3\ncluster:\n  node: gb200\n  fabric: {{from: {fabric}}}\n"
        f"  nvlink_domains: {{{domains}}}\n  allocation: [{', '.join(hosts)}]\n"
        "layout: {tp: 4, ep: 64, etp: 1, framework: megatron, sequence_parallel: true, sharding: zero1}\n"
        "batch: {global_batch: 80, micro_batch: 1, seq_len: 4096}\n"
    )
    return job


@pytest.mark.captured
def test_real_gb200_fabric(tmp_path):
    """EP groups 0-3 in one rack, group 4 over a spine; expert-DP over spines; TP in its tray."""
    ran = run("map", gb200_job(tmp_path), "--json")
    assert ran.status == 0
    document = ran.document
    assert document["world_size"] == 320
    ep, edp, tp = (axis_of(document, name) for name in ("ep", "edp", "tp"))
    near, far = ep["span_classes"]
    assert near["groups"] == [0, 1, 2, 3]
    assert near["reach"] == "nvlink_domain"
    assert near["span"]["nvlink_domain"]["domains"] == 1
    assert far["groups"] == [4]
    assert far["reach"] == "spine"
    assert far["span"]["nvlink_domain"]["domains"] == 2
    assert (edp["num_groups"], edp["degree"]) == (64, 5)
    assert {one["reach"] for one in edp["span_classes"]} == {"spine"}
    assert "fabric" in edp["path_kinds"]
    assert tp["span"]["host"]["domains"] == [1, 1]
    finding = finding_of(document, "placement/ep-groups-uneven")
    assert finding["numbers"]["groups"] == [4]
    assert "rack06, rack08" in finding["message"]
    assert "topology/rail-miscabled" in rules_of(document)
    lines = run("map", gb200_job(tmp_path)).out.splitlines()
    assert not [line for line in lines if len(line) > 80 and "/" not in line]
