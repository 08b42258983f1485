"""Pipeline sends: each boundary, the wrap of interleaving, tied embeddings."""

from __future__ import annotations

import pytest

from meshwright.traffic.pipeline import pipeline_collectives
from meshwright.units import MIB
from traffic.building import on, workload

A = 64 * MIB
M = 16  # microbatches of global batch 64 over dp 4


def _sends(**keys):
    forward, backward = on(pipeline_collectives(workload(dp=4, **keys)), "pp")
    assert (forward.op, forward.reverse, forward.phase) == ("send", False, "forward")
    assert (backward.op, backward.reverse, backward.phase) == ("send", True, "backward")
    return forward, backward


def test_without_stages_nothing_is_sent():
    assert pipeline_collectives(workload(dp=4)) == []
    assert pipeline_collectives(workload("llama-3.2-1b", dp=4)) == []


@pytest.mark.parametrize(("sequence_parallel", "message"), [(False, A), (True, A / 4)])
def test_one_message_a_boundary_and_microbatch(sequence_parallel, message):
    forward, backward = _sends(tp=4, pp=4, sequence_parallel=sequence_parallel)
    assert forward.bytes_by_stage.tolist() == [message] * 4
    assert backward.bytes_by_stage.tolist() == [message] * 4
    assert forward.count_by_stage.tolist() == [M, M, M, 0]
    assert backward.count_by_stage.tolist() == [0, M, M, M]


def test_sequence_parallelism_without_tp_changes_nothing():
    assert _sends(pp=2, sequence_parallel=True)[0].bytes_by_stage.tolist() == [A, A]


@pytest.mark.parametrize("vp", [2, 4])
def test_interleaving_wraps_round(vp):
    forward, backward = _sends(pp=4, vp=vp)
    assert forward.count_by_stage.tolist() == [vp * M] * 3 + [(vp - 1) * M]
    assert backward.count_by_stage.tolist() == [(vp - 1) * M] + [vp * M] * 3
    assert forward.count_by_stage.sum() == (vp * 4 - 1) * M  # v · p - 1 boundaries
    assert backward.count_by_stage.sum() == (vp * 4 - 1) * M


def test_context_parallelism_shortens_messages():
    assert _sends(pp=2, cp=2)[0].bytes_by_stage.tolist() == [A / 2, A / 2]


@pytest.mark.parametrize(
    "schedule", ["zb-v", "ZBV", "ZBVZeroBubble", "v-half", "v-min", "DualPipeV"]
)
def test_where_the_pipeline_turns_the_last_rank_sends_itself_nothing(schedule):
    """2(p - 1) messages a microbatch and phase, over the same neighbours both ways."""
    training = {"schedule": schedule}
    found = on(pipeline_collectives(workload(dp=4, pp=4, vp=2, training=training)), "pp")
    assert [(one.phase, one.reverse) for one in found] == [
        ("forward", False),
        ("forward", True),
        ("backward", True),
        ("backward", False),
    ]
    for one in found:
        expected = [0, M, M, M] if one.reverse else [M, M, M, 0]
        assert one.count_by_stage.tolist() == expected
        assert one.bytes_by_stage.tolist() == [A] * 4


@pytest.mark.parametrize("schedule", ["dualpipe", "chimera"])
def test_opposed_pipelines_send_half_each_way_and_add_their_gradients(schedule):
    work = workload(dp=4, pp=4, training={"schedule": schedule})
    found = pipeline_collectives(work)
    sends = on(found, "pp")
    assert len(sends) == 4
    for one in sends:
        assert sorted(one.count_by_stage.tolist()) == [0, M / 2, M / 2, M / 2]
    assert sum(one.count_by_stage.sum() for one in sends) == 2 * 3 * M
    [copies] = on(found, "pp_mirror")
    dense, _ = work.parameters_by_stage()
    assert copies.bytes_by_stage.tolist() == (dense * 4).tolist()
    assert dense.tolist() == dense[::-1].tolist()  # each rank holds a stage and its mirror


def test_messages_of_changing_length_are_announced():
    plain = _sends(pp=4)
    training = {"variable_seq_lengths": True}
    found = on(pipeline_collectives(workload(dp=4, pp=4, training=training)), "pp")
    shapes = [one for one in found if one.what.startswith("shapes of")]
    assert [one.count_by_stage.tolist() for one in shapes] == [
        one.count_by_stage.tolist() for one in plain
    ]
    assert {one.bytes_by_stage[0] for one in shapes} == {24}


def test_a_residual_in_fp32_doubles_the_message():
    assert _sends(pp=2, training={"fp32_residual": True})[0].bytes_by_stage[0] == 2 * A


@pytest.mark.parametrize("schedule", [None, "1f1b", "gpipe", "interleaved", "zb-h1"])
def test_other_schedules_send_the_same(schedule):
    training = {} if schedule is None else {"schedule": schedule}
    assert _sends(pp=2, training=training)[0].count_by_stage.tolist() == [M, 0]


def test_without_a_batch_messages_are_unknown():
    found = pipeline_collectives(workload("llama-3.2-1b", dp=4, pp=2, batch={}))
    assert [(one.op, one.phase, one.is_known) for one in found] == [
        ("send", "forward", False),
        ("send", "backward", False),
        ("all_reduce", "backward", True),  # tied embeddings need no batch
    ]


@pytest.mark.parametrize(("training", "width"), [({}, 4), ({"gradient_dtype": "bf16"}, 2)])
def test_tied_embeddings_are_summed_once(training, width):
    [one] = on(
        pipeline_collectives(workload("llama-3.2-1b", dp=4, tp=2, pp=4, training=training)),
        "embedding",
    )
    assert one.op == "all_reduce"
    assert set(one.bytes_by_stage.tolist()) == {128256 / 2 * 2048 * width}
    assert set(one.count_by_stage.tolist()) == {1}


def test_embeddings_of_their_own_need_no_sum():
    assert on(pipeline_collectives(workload(dp=4, pp=4)), "embedding") == []
    # unless multi-token prediction embeds on the last stage once more
    assert on(pipeline_collectives(workload(dp=4, pp=4, training={"mtp_layers": 1})), "embedding")
    # or both ends are on one rank
    folded = workload("llama-3.2-1b", dp=4, pp=4, vp=2, training={"schedule": "zb-v"})
    assert on(pipeline_collectives(folded), "embedding") == []
