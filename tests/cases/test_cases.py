"""Users' questions: run the program on what the user has, compare every value the case checks.

The job files are what each case's ``user_input`` describes; nothing here reads ``expected`` but to
compare. The reason is looked for in a finding or note.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import axis_of, finding_of, groups_of, rules_of, run
from support import shared_path

pytestmark = [pytest.mark.captured, pytest.mark.process]


def checks_of(case: str) -> dict[str, Any]:
    """Return the values a case compares."""
    return json.loads(shared_path(f"cases/{case}.json").read_text())["expected"]["checks"]


def artefact_of(case: str, index: int = 0) -> str:
    """Return a text the user has in hand."""
    return json.loads(shared_path(f"cases/{case}.json").read_text())["artefacts"][index]["text"]


def same_sets(found: list[list[int]], expected: list[list[int]]) -> bool:
    """Compare lists of groups as sets of lists."""
    return sorted(map(tuple, found)) == sorted(map(tuple, expected))


@pytest.fixture
def write(tmp_path: Path):
    """Write a file of the user's."""

    def one(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return one


def test_groups_cp16_dp2(write):
    checks = checks_of("groups-cp16-dp2")
    job = write(
        "job.yaml",
        "layout: {tp: 1, pp: 1, cp: 16, dp: 2, ep: 16, etp: 1, order: tp-cp-ep-dp-pp, framework: megatron, world_size: 32}\n"
        "cluster: {node: {gpus: 8}, nodes: 4}\n",
    )
    every = run("groups", job, "--json").document
    assert same_sets(groups_of(every, "cp"), checks["cp_groups"])
    assert same_sets(groups_of(every, "dp"), checks["dp_groups"])
    assert same_sets(groups_of(every, "ep"), checks["ep_groups"])
    assert same_sets(groups_of(every, "edp"), checks["expert_dp_groups"])
    assert groups_of(every, "dp-cp") == [checks["dp_cp_group"]]

    mine = run("groups", job, "--rank", "17", "--json").document
    place = mine["rank"]["coordinates"]
    expected = checks["rank17"]
    assert place["cp"] == expected["cp_rank"]
    assert place["dp"] == expected["dp_rank"]
    assert place["ep"] == expected["ep_rank"]
    assert place["edp"] == expected["expert_dp_rank"]
    assert groups_of(mine, "cp") == [expected["cp_group"]]
    assert groups_of(mine, "dp") == [expected["dp_group"]]

    mapped = run("map", job, "--json").document
    for axis, name in (
        ("cp", "cp"),
        ("dp", "dp"),
        ("dp-cp", "dp_cp"),
        ("ep", "ep"),
        ("edp", "expert_dp"),
    ):
        one = axis_of(mapped, axis)
        inside = one["num_groups"] - one["span"]["host"]["groups_crossing"]
        assert inside == checks["groups_inside_one_node_of_asked_kinds"][name], axis
    message = finding_of(every, "groups/experts-fold")["message"]
    assert "fold" in message
    assert "independent" in message


def test_groups_trtllm_tp_cp_swap(write):
    checks = checks_of("groups-trtllm-tp-cp-swap")
    for order, when in (("tp-cp", "before"), ("cp-tp", "after")):
        job = write(f"{when}.yaml", f"layout: {{tp: 4, cp: 2, order: {order}, world_size: 8}}\n")
        ran = run("groups", job, "--json")
        assert ran.status == 0
        for axis in ("tp", "cp"):
            assert same_sets(groups_of(ran.document, axis), checks[when][axis])
        note = finding_of(ran.document, "assumed/framework")["message"]
        assert "megatron-core 0.16.1" in note
        assert "between frameworks and releases" in note


def test_pg_name_to_ranks(write):
    checks = checks_of("pg-name-to-ranks")
    job = write(
        "job.yaml",
        "layout: {world_size: 64, tp: 4, pp: 2, cp: 1, dp: 8, ep: 8, etp: 1, order: tp-cp-ep-dp-pp}\n"
        "cluster: {node: {gpus: 8}, hosts: 'n[00-07]'}\n",
    )
    # From the line: [rank37] … (EXPERT_MODEL_PARALLEL_GROUP) Rank 5
    document = run(
        "groups", job, "--rank", "37", "--axis", "EXPERT_MODEL_PARALLEL_GROUP", "--json"
    ).document
    (group,) = document["groups"]
    assert group["ranks"] == checks["ep_group"]
    assert group["hosts"] == checks["hosts"]
    assert group["group_rank"] == 5
    assert group["ranks"][5] == checks["group_rank_5"]
    tensor = run("groups", job, "--rank", "37", "--axis", "tp", "--json").document
    assert groups_of(tensor, "tp") == [checks["tp_group_of_rank_37"]]
    assert (
        "inside one pipeline stage EP groups fold over tp, cp and dp"
        in finding_of(document, "groups/experts-fold")["message"]
    )


def test_mesh_order_tp_must_be_innermost(write):
    checks = checks_of("mesh-order-tp-must-be-innermost")
    for order, name in (("tp-dp-pp", "good"), ("pp-dp-tp", "bad")):
        job = write(
            f"{name}.yaml",
            f"layout: {{tp: 4, dp: 2, pp: 2, order: {order}, framework: torch, world_size: 16}}\n"
            "cluster: {node: {gpus: 8}, nodes: 2}\n",
        )
        groups = run("groups", job, "--axis", "tp", "--json").document
        assert same_sets(groups_of(groups, "tp"), checks[f"tp_groups_{name}"])
        mapped = run("map", job, "--json").document
        crossing = axis_of(mapped, "tp")["span"]["host"]["groups_crossing"]
        assert crossing == checks[f"crossing_{name}"]
        rules = rules_of(mapped)
        assert ("placement/tp-leaves-nvlink" in rules) == (name == "bad")
        if name == "bad":
            assert "order: tp-dp-pp" in finding_of(mapped, "placement/tp-leaves-nvlink")["remedy"]


def test_order_ray_workers_not_node_aligned(write):
    checks = checks_of("order-ray-workers-not-node-aligned")
    write("workers.txt", "B 0\nA 0\nA 1\nA 2\nA 3\nB 1\nB 2\nB 3\n")
    job = write(
        "job.yaml", "layout: {tp: 4, pp: 2, order: tp-pp}\nplacement: {ranks: workers.txt}\n"
    )
    document = run("map", job, "--json").document
    before = axis_of(document, "tp")["span"]["host"]["groups_crossing"]
    assert before == checks["tp_groups_crossing_before"]
    proposed = document["placement"]["proposed"]
    after = {one["axis"]: one["span"]["host"]["groups_crossing"] for one in proposed["axes"]}
    assert after["tp"] == checks["tp_groups_crossing_after"]
    assert after["pp"] == checks["pp_edges_crossing_after"]  # stages of two: one edge a group
    order = [f"{host}{gpu}" for host, gpu in proposed["slot_by_rank"]]
    assert order in checks["acceptable_orders"]
    finding = finding_of(document, "placement/ranks-not-grouped-by-host")
    assert "host by host" in finding["remedy"]


def test_rail_misaligned_groups(write):
    checks = checks_of("rail-misaligned-groups")
    g3 = ", ".join(f"[host0, {gpu}]" for gpu in range(8))
    job = write(
        "job.yaml",
        "cluster: {node: dgx-h100, nodes: 2, fabric: {preset: rail-only}}\n"
        "groups:\n"
        "  - {name: g1, members: [[host0, 0], [host1, 0]]}\n"
        "  - {name: g2, members: [[host0, 0], [host1, 6]]}\n"
        f"  - {{name: g3, members: [{g3}, [host1, 0]]}}\n",
    )
    ran = run("map", job, "--json")
    document = ran.document
    pairs = {one["axis"]: one["unreachable_pairs"][1] for one in document["axes"]}
    assert [name for name, count in pairs.items() if count == 0] == checks["ok"]
    assert [name for name, count in pairs.items() if count > 0] == checks["not_ok"]
    assert pairs["g3"] == checks["g3_unreachable_pairs"]
    messages = [f["message"] for f in document["findings"] if f["rule"] == "routes/no-path"]
    assert all("ordered pairs" in message for message in messages)
    assert checks["criterion"] == "every ordered pair"
    assert "relay" in messages[0]
    assert ran.status == 1


def test_fabrics_not_connected(write):
    checks = checks_of("fabrics-not-connected")
    write("topology.conf", artefact_of("fabrics-not-connected"))
    job = write(
        "job.yaml",
        "layout: {dp: 4, framework: megatron}\n"
        "cluster: {node: {gpus: 1}, fabric: {from: topology.conf}, allocation: [a0, a1, b0, b1]}\n",
    )
    ran = run("map", job, "--json")
    reach = ran.document["reachability"]
    assert reach["reachable"] == checks["reachable"]
    assert reach["components"] == checks["components"]
    finding = finding_of(ran.document, "routes/no-path")
    assert "common root in a scheduler's file would hide that" in finding["message"]
    assert "no RDMA path" in finding["remedy"]
    assert ran.status == 1


def test_choose_4_of_8_pcie(write):
    checks = checks_of("choose-4-of-8-pcie")
    matrix = write("topo.txt", artefact_of("choose-4-of-8-pcie"))
    best = run("topo", matrix, "--pick", "4", "--json").document["choice"]
    assert best["groups"] == [checks["best_four"]]
    assert (best["worst_class"], best["nic_class"]) == ("PIX", "PIX")
    note = finding_of(run("topo", matrix, "--pick", "4", "--json").document, "topology/choice")
    assert "{4, 5, 6, 7}: PIX at worst inside a group; nearest NIC PIX" in note["message"]
    assert "NCCL does not choose GPUs" in note["message"]
    pairs = run("topo", matrix, "--split", "2", "--among", "2,3,4,5", "--json").document["choice"]
    assert pairs["groups"] == checks["pairs"]
    assert pairs["worst_class"] == "PIX"
    assert "NCCL does not choose GPUs" in " ".join(run("topo", matrix, "--pick", "4").out.split())


def test_choose_4_of_8_pcie_path_kinds(write):
    """The paths behind the choice: a pair under one switch stays there, others pass the CPU."""
    write("topo.txt", artefact_of("choose-4-of-8-pcie"))
    for pairs, passes_cpu in ((((2, 3), (4, 5)), False), (((2, 4), (3, 5)), True)):
        gpus = [gpu for pair in pairs for gpu in pair]
        ranks = ", ".join(f"[{rank}, host0, {gpu}]" for rank, gpu in enumerate(gpus))
        job = write(
            "job.yaml",
            "layout: {tp: 2, dp: 2, framework: megatron}\n"
            "cluster: {node: {from: topo.txt}, nodes: 1}\n"
            "traffic: [{axis: tp, op: all_reduce, bytes: 1e9}]\n"
            f"placement: {{ranks: [{ranks}]}}\n",
        )
        document = run("map", job, "--json").document
        assert axis_of(document, "tp")["path_kinds"] == {"pcie": 1.0}
        loaded = [one for one in document["links"]["all"] if one["load_bytes"] > 0]
        assert any("cpu" in one["tail"] + one["head"] for one in loaded) == passes_cpu
        assert len(loaded) == (12 if passes_cpu else 8)


def test_nvl72_domain_not_os_node(write):
    checks = checks_of("nvl72-domain-not-os-node")
    job = write(
        "job.yaml",
        "layout: {ep: 32, world_size: 32, framework: megatron}\n"
        "cluster: gb200-nvl72 x 18\n"
        "moe: {dispatcher: deepep}\n",
    )
    document = run("map", job, "--json").document
    span = axis_of(document, "ep")["span"]
    assert span["nvlink_domain"]["members"] == [checks["value"], checks["value"]]
    assert span["host"]["domains"] == [checks["hosts_in_group"], checks["hosts_in_group"]]
    assert document["cluster"]["nvlink_domain_gpus"] == [checks["domain_gpus"]] * 2
    note = finding_of(document, "vocabulary/nvlink-domain-not-host")
    assert note["numbers"]["ep_ranks_per_nvlink_domain"] == checks["value"]
    assert note["numbers"]["domain_gpus"] == checks["domain_gpus"]
    assert "goes to RDMA" in note["message"]
    assert "with 4 instead of 32" in note["message"]
    assert note["remedy"] == "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=32"


def test_hsdp_shard_over_four_nodes(write):
    checks = checks_of("hsdp-shard-over-four-nodes")
    job = write(
        "job.yaml",
        "layout: {sharding: hsdp, shard_degree: 32, dp: 64, framework: torch}\n"
        "cluster: dgx-h100 x 8\n",
    )
    groups = run("groups", job, "--json").document
    assert same_sets(groups_of(groups, "dp_shard"), checks["shard_groups"])
    replicate = groups_of(groups, "dp_replicate")
    assert len(replicate) == checks["replicate_groups_count"]
    mine = run("groups", job, "--rank", "5", "--axis", "dp_replicate", "--json").document
    assert groups_of(mine, "dp_replicate") == [checks["replicate_group_of_rank_5"]]
    mapped = run("map", job, "--json").document
    shard, copies = axis_of(mapped, "dp_shard"), axis_of(mapped, "dp_replicate")
    assert [copies["degree"], shard["degree"]] == checks["mesh"]
    assert sorted({one["op"] for one in shard["collectives"]}) == checks["collectives"]["shard"]
    assert [one["op"] for one in copies["collectives"]] == checks["collectives"]["replicate"]
    message = finding_of(mapped, "sharding/hsdp-mesh")["message"]
    assert "put each shard group under one" in message
