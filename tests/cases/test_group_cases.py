"""Users' questions on groups of frameworks other than Megatron: every value a case checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import axis_of, finding_of, groups_of, run
from support import shared_path

pytestmark = [pytest.mark.captured, pytest.mark.process]


def checks_of(case: str) -> dict[str, Any]:
    return dict(json.loads(shared_path(f"cases/{case}.json").read_text())["expected"]["checks"])


@pytest.fixture
def write(tmp_path: Path):
    def one(text: str) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return one


def test_groups_deepspeed_ep2(write):
    checks = checks_of("groups-deepspeed-ep2")
    job = write("layout: {dp: 16, ep: 2, framework: deepspeed, world_size: 16}\n")
    document = run("groups", job, "--json").document
    assert groups_of(document, "ep") == checks["ep_groups"]
    assert groups_of(document, "edp") == checks["expert_dp_groups"]
    assert groups_of(document, "dp") == [checks["dense_dp_group"]]
    assert all(one["verified"] for one in document["axes"])


def test_multi_node_fsdp2_hybrid(write):
    checks = checks_of("multi-node-fsdp2-hybrid")
    job = write("layout: {sharding: HYBRID_SHARD, framework: torch}\ncluster: dgx-h100 x 4\n")
    ran = run("groups", job, "--json")
    assert ran.status == 0
    mesh = ran.document["mesh"]
    assert mesh["dims"] == checks["mesh_dims"]
    assert mesh["shape"] == [4, 8]
    like = mesh["reshard_after_forward_is_like"]
    assert like == {"true": checks["reshard_true_like"], "false": checks["reshard_false_like"]}
    assert mesh["reshard_after_forward"] is True
    page = " ".join(run("groups", job).out.split())
    assert "HYBRID_SHARD is, in FSDP2, this mesh with reshard_after_forward=True" in page
    # the target alone: the mesh is named, and what is missing is asked for
    open_job = write("layout: {sharding: hsdp, framework: torch}\ncluster: dgx-h100 x 4\n")
    asked = run("groups", open_job, "--json")
    assert asked.status == 1
    assert asked.document["mesh"]["dims"] == checks["mesh_dims"]
    assert (
        "shard_degree: " in finding_of(asked.document, "sharding/hsdp-needs-shard-degree")["remedy"]
    )


def test_hsdp_shard_over_four_nodes(write):
    checks = checks_of("hsdp-shard-over-four-nodes")
    job = write(
        "layout: {sharding: hsdp, shard_degree: 32, dp: 64, framework: torch}\ncluster: dgx-h100 x 8\n"
    )
    document = run("groups", job, "--json").document
    assert document["mesh"]["shape"] == checks["mesh"]
    assert groups_of(document, "dp_shard") == checks["shard_groups"]
    copies = groups_of(document, "dp_replicate")
    assert len(copies) == checks["replicate_groups_count"]
    [mine] = [group for group in copies if 5 in group]
    assert mine == checks["replicate_group_of_rank_5"]
    mapped = run("map", job, "--json").document
    for axis, key in (("dp_shard", "shard"), ("dp_replicate", "replicate")):
        ops = sorted({one["op"] for one in axis_of(mapped, axis)["collectives"]})
        assert ops == checks["collectives"][key]
    # the classic setting shards over a host and cannot say this
    classic = write("layout: {sharding: HYBRID_SHARD, framework: torch}\ncluster: dgx-h100 x 8\n")
    assert run("groups", classic, "--json").document["mesh"]["shape"] == [8, 8]


def test_pg_name_to_ranks_from_the_line_itself(write):
    case = json.loads(shared_path("cases/pg-name-to-ranks.json").read_text())
    checks, line = case["expected"]["checks"], case["artefacts"][0]["text"]
    job = write(
        "layout: {world_size: 64, tp: 4, pp: 2, cp: 1, dp: 8, ep: 8, etp: 1, order: tp-cp-ep-dp-pp}\n"
        "cluster: {node: {gpus: 8}, hosts: 'n[00-07]'}\n"
    )
    document = run("groups", job, "--name", line, "--json").document
    [match] = document["lookup"]["matches"]
    assert match["ranks"] == checks["ep_group"]
    assert match["rank_of_group_rank"] == checks["group_rank_5"]
    assert match["axis"] == "ep"
    [group] = document["groups"]
    assert group["hosts"] == checks["hosts"]
    tensor = run("groups", job, "--rank", "37", "--name", "tp", "--json").document
    assert groups_of(tensor, "tp") == [checks["tp_group_of_rank_37"]]
