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
    "schedule", ["zb-v", "ZBV", "v-half", "v-min", "dualpipe", "dualpipev", "chimera"]
)
def test_schedules_that_fold_the_pipeline_are_not_modelled(schedule):
    found = pipeline_collectives(workload(dp=4, pp=4, vp=2, training={"schedule": schedule}))
    assert [(one.axis, one.is_known) for one in found] == [("pp", False)] * 2


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
