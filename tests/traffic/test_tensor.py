"""Tensor parallelism apart from the worked example."""

from __future__ import annotations

import msgspec
import pytest

from meshwright.job.catalogue import find_model
from meshwright.traffic.tensor import tensor_collectives
from meshwright.traffic.workload import NO_BATCH
from traffic.building import count, named, of_layers, on, ops, sent_bytes, workload

M = 16
"""Microbatches of global batch 64 over dp 4."""


def _tp(**keys):
    return on(tensor_collectives(workload(**keys)), "tp")


def _layers(**keys):
    return of_layers(_tp(**keys))


def test_without_tensor_parallelism_nothing_runs():
    assert tensor_collectives(workload(dp=4)) == []


def test_full_recompute_repeats_the_forward_collectives():
    plain = _layers(tp=4, dp=4, sequence_parallel=True)
    full = _layers(tp=4, dp=4, sequence_parallel=True, training={"recompute": "full"})
    forward = count([one for one in plain if one.phase == "forward"])
    assert count(full) == count(plain) + forward
    assert count([one for one in full if one.phase == "recompute"]) == forward
    assert count(_layers(tp=4, dp=4, training={"recompute": "selective"})) == 4 * 32 * M


@pytest.mark.parametrize("framework", ["torch", "torchtitan"])
def test_torch_keeps_the_gathered_input(framework):
    found = _tp(tp=4, dp=4, sequence_parallel=True, framework=framework)
    assert count(of_layers(found)) == 8 * 32 * M
    ends = [one for one in found if one.per == "microbatch"]
    assert ("all_gather", "backward") not in ops(named(ends, "output layer"))


def test_torchtitan_splits_the_sequence_unless_it_is_told_not_to():
    left_out = _layers(tp=4, dp=4, framework="torchtitan")
    assert {one.op for one in left_out} == {"all_gather", "reduce_scatter"}
    told = _layers(tp=4, dp=4, framework="torchtitan", sequence_parallel=False)
    assert {one.op for one in told} == {"all_reduce"}


def test_each_is_what_a_layer_runs():
    for one in _layers(tp=2, pp=4, dp=4):
        assert one.each == 2
        assert one.count_by_stage.tolist() == [one.each * 8 * M] * 4


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
    for one in of_layers(on(known, "tp")):
        assert one.count_by_stage.tolist() == [60, 72, 60]


def test_ends_run_on_their_stages():
    found = _tp(tp=2, pp=4, dp=4)
    [embedding] = named(found, "embedding")
    [output] = named(found, "gradients of the output layer")
    [loss] = named(found, "vocab-parallel")
    assert embedding.count_by_stage.tolist() == [M, 0, 0, 0]
    assert output.count_by_stage.tolist() == [0, 0, 0, M]
    assert loss.count_by_stage.tolist() == [0, 0, 0, 3 * M]


@pytest.mark.parametrize("schedule", ["zb-v", "dualpipev"])
def test_both_ends_are_on_the_first_rank_where_the_pipeline_turns(schedule):
    found = _tp(tp=2, pp=4, dp=4, training={"schedule": schedule})
    for what in ("embedding", "gradients of the output layer", "vocab-parallel"):
        assert [int(times > 0) for times in named(found, what)[0].count_by_stage] == [1, 0, 0, 0]


def test_opposed_pipelines_have_both_ends_twice_with_half_the_microbatches():
    found = _tp(tp=2, pp=4, dp=4, training={"schedule": "dualpipe"})
    assert named(found, "embedding")[0].count_by_stage.tolist() == [M / 2, 0, 0, M / 2]
    assert of_layers(found)[0].count_by_stage.tolist() == [2 * 16 * M / 2] * 4


def test_precision_sets_the_width():
    wide = _layers(tp=2, dp=4, training={"precision": "fp32"})
    narrow = _layers(tp=2, dp=4, training={"precision": "fp16"})
    assert sent_bytes(wide, 2) == 2 * sent_bytes(narrow, 2)


@pytest.mark.parametrize("batch", [{}, {"global_batch": 64, "micro_batch": 1}, {"seq_len": 128}])
def test_without_a_batch_bytes_are_unknown(batch):
    found = tensor_collectives(workload(tp=4, dp=4, batch=batch))
    assert len(found) == 5
    for one in found:
        assert one.bytes_by_stage is None
        assert one.count_by_stage is None
        assert one.reason == NO_BATCH
        assert one.sent_bytes_by_stage(4) is None


def test_layers_with_experts_have_the_attention_block_alone():
    dense = _layers(tp=2, dp=4, sequence_parallel=True)
    mixture = _layers(model="mixtral-8x7b", tp=2, dp=4, sequence_parallel=True)
    assert count(mixture) == count(dense) / 2  # 32 layers each, all with experts
    assert {one.each for one in mixture} == {1}


def test_shared_experts_and_torchtitans_mixtures_are_blocks():
    """llama-4-maverick: experts in every second of 48 layers, with a shared one."""
    shared = _layers(model="llama-4-maverick", tp=2, dp=4)
    assert count(shared) == 2 * M * 48 * 2
    alone = msgspec.structs.replace(
        find_model("llama-4-maverick"), shared_experts=0, shared_ffn_total=0
    )
    assert count(_layers(model=alone, tp=2, dp=4)) == 2 * M * (24 * 2 + 24)
    titan = _layers(model="mixtral-8x7b", tp=2, dp=4, framework="torchtitan")
    assert count(titan) == 4 * 2 * 32 * M


def test_gradients_of_whole_parameters_are_added_once():
    """The norms of 32 layers and the last one, 4 bytes each; with experts the router too."""
    [one] = named(_tp(tp=4, dp=4, sequence_parallel=True), "gradients of norms")
    assert one.bytes_by_stage.tolist() == pytest.approx([65 * 4096 * 4])
    assert one.count_by_stage.tolist() == [1]
    assert named(_tp(tp=4, dp=4), "gradients of norms") == []
    [mixture] = named(
        _tp(model="mixtral-8x7b", tp=2, dp=4, sequence_parallel=True), "gradients of norms"
    )
    assert mixture.bytes_by_stage.tolist() == pytest.approx([(65 * 4096 + 32 * 8 * 4096) * 4])


def test_user_buffers_hide_behind_their_gemm_and_in_no_log():
    keys = {"tp": 4, "dp": 4, "sequence_parallel": True}
    plain, overlapped = _layers(**keys), _layers(**keys, training={"tp_comm_overlap": True})
    assert count(plain) == count(overlapped)
    assert all("NCCL logs" in one.remark and "GEMM" in one.hides_behind for one in overlapped)
    assert all(one.remark is None for one in plain)


def test_what_each_backward_collective_hides_behind():
    found = _layers(tp=4, dp=4, sequence_parallel=True)
    assert {one.what: one.hides_behind for one in found} == {
        "column-parallel inputs": None,
        "row-parallel outputs": None,
        "gradients of row-parallel outputs": None,
        "gradients of column-parallel inputs": "weight-gradient GEMM",
        "inputs again, for weight gradients": "input-gradient GEMM",
    }


def test_multi_token_prediction_adds_a_layer_an_embedding_and_logits():
    keys = {"model": "deepseek-v3", "tp": 2, "dp": 8, "ep": 8, "etp": 1, "sequence_parallel": True}
    without, one_deep = _tp(**keys), _tp(**keys, training={"mtp_layers": 1})
    rounds = 8
    assert count(of_layers(one_deep)) == count(of_layers(without)) / 61 * 62
    for what in ("embedding", "output layer's input", "vocab-parallel"):
        assert count(named(one_deep, what)) == 2 * count(named(without, what))
    projection = named(one_deep, "multi-token projection's input")
    assert {one.bytes_by_stage[0] for one in projection} == {2 * 8192 * 7168 * 2}
    assert count(projection) == 2 * rounds  # gathered forward, and again for weight gradients
    assert named(without, "multi-token") == []


@pytest.mark.parametrize("framework", ["deepspeed", "nanotron"])
def test_what_was_not_established_is_null_with_the_reason(framework):
    found = tensor_collectives(workload(tp=2, dp=4, sequence_parallel=True, framework=framework))
    assert not any(one.is_known for one in found)
    assert all("not established" in one.reason for one in found)
