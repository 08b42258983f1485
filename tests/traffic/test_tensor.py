"""Tensor parallelism apart from the worked example."""

from __future__ import annotations

import pytest

from meshwright.traffic.tensor import tensor_collectives
from traffic.building import count, on, sent_bytes, workload


def _tp(**keys):
    return on(tensor_collectives(workload(**keys)), "tp")


def test_without_tensor_parallelism_nothing_runs():
    assert tensor_collectives(workload(dp=4)) == []


def test_full_recompute_repeats_the_forward_collectives():
    plain = _tp(tp=4, dp=4, sequence_parallel=True)
    full = _tp(tp=4, dp=4, sequence_parallel=True, training={"recompute": "full"})
    forward = count([one for one in plain if one.phase == "forward"])
    assert count(full) == count(plain) + forward
    assert count([one for one in full if one.phase == "recompute"]) == forward
    assert count(_tp(tp=4, dp=4, training={"recompute": "selective"})) == 4 * 32 * 16


@pytest.mark.parametrize("framework", ["torch", "torchtitan"])
def test_torch_keeps_the_gathered_input(framework):
    found = _tp(tp=4, dp=4, sequence_parallel=True, framework=framework)
    assert count(found) == 8 * 32 * 16


def test_context_parallelism_shortens_the_sequence():
    whole = _tp(tp=2, dp=4)[0].bytes_by_stage[0]
    assert _tp(tp=2, dp=4, cp=4)[0].bytes_by_stage[0] == whole / 4


def test_stages_say_as_much_as_they_hold_layers():
    known = tensor_collectives(
        workload(
            tp=2,
            pp=3,
            dp=4,
            stages=(10, 12, 10),
            batch={"micro_batch": 1, "num_microbatches": 3, "seq_len": 128},
        )
    )
    for one in on(known, "tp"):
        assert one.count_by_stage.tolist() == [60, 72, 60]


def test_precision_sets_the_width():
    wide = _tp(tp=2, dp=4, training={"precision": "fp32"})
    narrow = _tp(tp=2, dp=4, training={"precision": "fp16"})
    assert sent_bytes(wide, 2) == 2 * sent_bytes(narrow, 2)


@pytest.mark.parametrize("batch", [{}, {"global_batch": 64, "micro_batch": 1}, {"seq_len": 128}])
def test_without_a_batch_bytes_are_unknown(batch):
    found = tensor_collectives(workload(tp=4, dp=4, batch=batch))
    assert len(found) == 3
    for one in found:
        assert one.bytes_by_stage is None
        assert one.count_by_stage is None
        assert one.sent_bytes_by_stage(4) is None


def test_layers_with_experts_have_the_attention_block_alone():
    dense = _tp(tp=2, dp=4, sequence_parallel=True)
    [mixture] = [tensor_collectives(workload("mixtral-8x7b", tp=2, dp=4, sequence_parallel=True))]
    assert count(on(mixture, "tp")) == count(dense) / 2  # 32 layers each, all with experts
    assert "shared experts and router" in [one.what for one in on(mixture, "tp", known=False)]
    part = on(tensor_collectives(workload("llama-4-maverick", tp=2, dp=4)), "tp")
    assert count(part) == 2 * 16 * (24 * 2 + 24)  # experts in every second of 48 layers
