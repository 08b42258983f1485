"""Traffic in a whole plan: which axes are routed, what stays apart, what is said."""

from __future__ import annotations

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import plan_job
from meshwright.errors import InputError
from meshwright.report.map_json import map_json

BATCH = "batch: {global_batch: 64, micro_batch: 1, seq_len: 4096}\n"


@pytest.fixture
def plan(tmp_path):
    def make(text: str):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        made = plan_job(outline_job(load_job(path)))
        assert made.outline.is_legal, made.outline.findings
        return made

    return make


def _rules(made):
    return [one.rule for one in made.outline.findings]


def _finding(made, rule):
    [found] = [one for one in made.outline.findings if one.rule == rule]
    return found


def _axes(made):
    return [route.axis for route in made.routes if route.load_bytes is not None]


def test_minor_collectives_load_no_link_and_are_kept(plan):
    made = plan(
        f"model: llama3-8b\ncluster: dgx-h100 x 2\nlayout: {{tp: 4, dp: 4, sharding: zero1}}\n{BATCH}"
    )
    assert _axes(made) == ["tp", "dp"]
    assert {one.what for one in made.unrouted} == {
        *("tokens", "labels", "loss mask", "positions"),
        *("gradient norm", "loss to be logged"),
    }
    assert "traffic/groups-not-listed" not in _rules(made)
    assert "traffic/not-modelled" not in _rules(made)


def test_every_strategy_at_once(plan):
    made = plan(
        "model: mixtral-8x7b\ncluster: dgx-h100 x 16\n"
        "layout: {tp: 2, cp: 2, pp: 4, ep: 4, etp: 1, framework: megatron, sequence_parallel: true}\n"
        f"moe: {{dispatcher: alltoall}}\n{BATCH}"
    )
    assert _axes(made) == ["tp", "ep", "cp", "dp-cp", "edp", "pp"]
    assert all(route.lost_bytes == 0 for route in made.routes)
    assert "traffic/not-modelled" not in _rules(made)
    assert _finding(made, "assumed/imbalance").remedy.startswith("moe: {imbalance:")


def test_hierarchical_context_parallelism_uses_both_levels(plan):
    made = plan(
        "model: llama3-8b\ncluster: dgx-h100 x 2\n"
        f"layout: {{cp: 4, cp_kind: a2a+p2p, hierarchical_cp: [2, 2], framework: megatron}}\n{BATCH}"
    )
    assert _axes(made) == ["cp_l0", "cp_l1", "dp-cp"]


def test_the_default_dispatcher_is_said_with_what_another_would_change(plan):
    made = plan(
        "model: mixtral-8x7b\ncluster: dgx-h100 x 2\n"
        f"layout: {{ep: 8, framework: megatron}}\n{BATCH}"
    )
    note = _finding(made, "assumed/dispatcher")
    assert "default allgather" in note.message
    # 2 copies of a token instead of 8 gathered ones
    assert note.numbers["changes"]["ep"] == pytest.approx(2 / 8 - 1, abs=0.01)


def test_unknown_traffic_says_why(plan):
    made = plan(
        "model: mixtral-8x7b\ncluster: dgx-h100 x 2\n"
        f"layout: {{tp: 2, ep: 8, etp: 1, framework: megatron}}\n{BATCH}"
    )
    message = _finding(made, "traffic/not-modelled").message
    assert "only with sequence_parallel: true" in message
    assert "null, not zero" in message


def test_sizes_without_groups_are_said(plan):
    made = plan(
        "model: llama3-8b\ncluster: dgx-h100 x 2\n"
        "layout: {framework: torch, sharding: fsdp}\ntraining: {reshard_after_forward: 3}\n" + BATCH
    )
    note = _finding(made, "traffic/groups-not-listed")
    assert note.numbers["axes"] == ["dp_shard/3"]
    assert "loads no link" in note.message


def test_parameters_that_stay_spread_over_a_host_are_gathered_inside_it(plan):
    made = plan(
        "model: llama3-8b\ncluster: dgx-h100 x 2\n"
        "layout: {framework: torch, sharding: fsdp}\ntraining: {reshard_after_forward: 8}\n" + BATCH
    )
    assert "traffic/groups-not-listed" not in _rules(made)
    [inside] = [route for route in made.routes if route.axis == "dp_shard/8"]
    assert inside.ranks.tolist() == [list(range(8)), list(range(8, 16))]
    assert {(one.op, one.phase) for one in inside.collectives} == {("all_gather", "backward")}
    kinds = made.fabric.links.classes
    loaded = inside.load_bytes.nonzero()[0]
    assert {kinds[made.fabric.links.class_of_link[link]].kind for link in loaded} == {"nvlink"}


@pytest.mark.parametrize("schedule", ["dualpipe", "chimera"])
def test_the_copies_of_opposed_pipelines_add_up_between_mirrored_stages(plan, schedule):
    made = plan(
        "model: llama3-8b\ncluster: dgx-h100 x 2\n"
        f"layout: {{tp: 2, pp: 4, dp: 2, framework: megatron}}\n"
        f"training: {{schedule: {schedule}}}\n{BATCH}"
    )
    assert "traffic/groups-not-listed" not in _rules(made)
    [mirror] = [route for route in made.routes if route.axis == "pp_mirror"]
    stages = made.routes[0].stage_of_group  # any array by stage: ranks 4 s … 4 s + 3 are stage s
    assert stages.max() == 3
    assert sorted(mirror.ranks.tolist()) == [[r, 12 + r] for r in range(4)] + [
        [r, 4 + r] for r in range(4, 8)
    ]
    [copies] = mirror.collectives
    assert mirror.load_bytes.sum() > 0
    assert copies.bytes_by_stage[0] == copies.bytes_by_stage[3]


def test_multi_token_prediction_left_out_is_said(plan):
    text = (
        "model: deepseek-v3\ncluster: dgx-h100 x 8\n"
        f"layout: {{ep: 64, framework: megatron}}\n{BATCH}moe: {{dispatcher: deepep}}\n"
    )
    left_out = plan(text)
    assert _finding(left_out, "assumed/mtp-layers").numbers["mtp_layers"] == 1
    assert _finding(left_out, "assumed/dispatch-dtype").numbers["changes"]["ep"] < -0.2
    said = plan(text + "training: {mtp_layers: 0}\n")
    assert "assumed/mtp-layers" not in _rules(said)


def test_resharding_left_out_is_said(plan):
    made = plan(
        "model: llama3-8b\ncluster: dgx-h100 x 2\n"
        f"layout: {{framework: torch, sharding: fsdp}}\n{BATCH}"
    )
    note = _finding(made, "assumed/reshard-after-forward")
    assert note.numbers["changes"]["dp_shard"] < -0.2


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ("cp: 2, framework: megatron", True),
        ("framework: torch, sharding: fsdp", True),
        ("framework: megatron", False),  # gradients once a step need no batch
    ],
)
def test_a_missing_batch_is_said_where_it_matters(plan, layout, says):
    made = plan(f"model: llama3-8b\ncluster: dgx-h100 x 2\nlayout: {{{layout}}}\n")
    assert ("batch/incomplete" in _rules(made)) == says


def test_stages_of_ranks_follow_the_order(plan):
    """Pipeline stages not outermost: every ring carries its own stage's gradients."""
    made = plan(
        "model: llama3-8b\ncluster: dgx-h100 x 2\n"
        f"layout: {{pp: 2, dp: 8, order: tp-cp-ep-pp-dp, framework: megatron}}\n{BATCH}"
    )
    [dp] = [route for route in made.routes if route.axis == "dp"]
    assert sorted(dp.stage_of_group.tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("moe", "{imbalance: 0.5}"),
        ("moe", "{capacity_factor: 0}"),
        ("training", "{reshard_after_forward: 1}"),
        ("training", "{reshard_after_forward: sometimes}"),
        ("training", "{mtp_layers: -1}"),
        ("training", "{gradient_sync: never}"),
    ],
)
def test_values_that_cannot_be_are_refused(plan, section, line):
    with pytest.raises(InputError):
        plan(f"model: llama3-8b\ncluster: dgx-h100 x 2\nlayout: {{tp: 2}}\n{section}: {line}\n")


def test_tied_embeddings_carry_the_padded_rows(plan):
    """151,669 rows over tp 4 are 152,064 in Megatron, 151,808 with a multiple of 64."""
    text = (
        "model: {name: m, num_layers: 8, hidden: 1024, ffn: 4096, heads: 16, kv_heads: 16, head_dim: 64,\n"
        "  vocab: 151669, tied_embeddings: true}\ncluster: dgx-h100 x 1\n"
        "layout: {framework: megatron, tp: 4, pp: 2, dp: 1%s}\n" + BATCH
    )
    for more, rows in (("", 152_064), (", vocab_divisible_by: 64", 151_808)):
        made = plan(text % more)
        [route] = [one for one in made.routes if one.axis == "embedding"]
        assert route.collectives[0].bytes_by_stage.tolist() == [rows / 4 * 1024 * 4] * 2
    assert 152_064 / 4 * 1024 * 4 == 155_713_536


def test_what_is_not_known_says_what_it_hides_behind(plan):
    made = plan("cluster: dgx-h100 x 2\nlayout: {tp: 4, dp: 4}\n")
    rows = [row for axis in map_json(made)["axes"] for row in axis["collectives"]]
    assert rows
    assert all(row["bytes"] is None and row["reason"] and "hides_behind" in row for row in rows)
