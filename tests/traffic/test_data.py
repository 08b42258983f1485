"""Data parallelism of whole parameters: groups, widths, buckets, instances, experts apart."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from meshwright.job.catalogue import find_model
from meshwright.job.parameters import total_parameters
from meshwright.traffic.data import data_collectives
from meshwright.units import MIB
from traffic.building import on, workload

MIXTURE = "mixtral-8x7b"


def _all(**keys):
    return data_collectives(workload(**keys))


@pytest.mark.parametrize(
    ("framework", "training", "width"),
    [
        ("megatron", {}, 4),
        ("megatron", {"precision": "bf16"}, 4),
        ("megatron", {"precision": "fp8"}, 4),
        ("megatron", {"precision": "fp16"}, 2),  # only bf16 implies fp32 gradients
        ("megatron", {"precision": "fp32"}, 4),
        ("megatron", {"precision": "bf16", "gradient_dtype": "bf16"}, 2),
        ("megatron", {"precision": "fp16", "gradient_dtype": "fp32"}, 4),
        ("torch", {}, 4),  # fp32 parameters under autocast
        ("torch", {"gradient_dtype": "bf16"}, 2),
        ("torch", {"precision": "fp32"}, 4),
        ("torch", {"precision": "bf16", "gradient_dtype": "fp32"}, 4),
        ("deepspeed", {}, 2),
    ],
)
def test_the_width_of_gradients(framework, training, width):
    [reduce] = _all(dp=4, framework=framework, training=training)
    total = total_parameters(find_model("llama-3-8b"))
    sent = reduce.bytes_by_stage * reduce.count_by_stage
    assert sent.tolist() == pytest.approx([total * width])


def test_context_parallel_ranks_reduce_too():
    assert {one.axis for one in _all(dp=4, cp=2)} == {"dp-cp"}
    assert {one.axis for one in _all(dp=4, cp=2, sharding="zero1")} == {"dp-cp"}
    assert {one.axis for one in _all(dp=4)} == {"dp"}


def test_stages_hold_what_they_hold():
    [reduce] = _all(dp=4, pp=4)
    model = find_model("llama-3-8b")
    layers = (total_parameters(model) - 2 * model.vocab * model.hidden - model.hidden) / 4
    words = model.vocab * model.hidden
    expected = [layers + words, layers, layers, layers + words + model.hidden]
    assert reduce.bytes_by_stage.tolist() == [held * 4 for held in expected]


def test_all_stages_together_hold_the_model():
    for model in ("llama-3-8b", MIXTURE, "qwen3-30b-a3b"):
        for vp in (1, 2):
            dense, expert = workload(model, dp=1, pp=4, vp=vp).parameters_by_stage()
            assert dense.sum() + expert.sum() == total_parameters(find_model(model))


def test_interleaved_stages_hold_every_other_chunk():
    """The first layers are dense: interleaved, they are the first chunks of several stages."""
    shape = msgspec.structs.replace(find_model(MIXTURE), first_dense_layers=8)
    together = workload(shape, dp=1, pp=4)
    apart = workload(shape, dp=1, pp=4, vp=4)
    assert together.expert_layers_by_stage().tolist() == [0, 8, 8, 8]
    assert apart.expert_layers_by_stage().tolist() == [6, 6, 6, 6]
    assert together.parameters_by_stage()[1].tolist()[0] == 0
    assert len(set(apart.parameters_by_stage()[1].tolist())) == 1


@pytest.mark.parametrize("sharding", ["none", "zero1"])
def test_experts_are_reduced_over_their_own_group(sharding):
    keys = {"tp": 2, "dp": 8, "ep": 4, "etp": 1, "sharding": sharding}
    found = _all(model=MIXTURE, **keys)
    dense, expert = on(found, "dp"), on(found, "edp")
    assert len(dense) == len(expert) == (1 if sharding == "none" else 2)
    model = find_model(MIXTURE)
    one_expert = 3 * model.hidden * model.moe_ffn
    assert expert[0].bytes_by_stage.tolist() == [32 * (8 / 4) * one_expert * 4]
    attention = total_parameters(model) - 32 * 8 * one_expert
    assert dense[0].bytes_by_stage[0] < attention * 4  # the norms and the router are whole
    assert dense[0].bytes_by_stage[0] > attention * 4 / 2
    assert all("expert" in one.what for one in expert)


def test_expert_tensor_parallelism_splits_experts():
    whole = on(_all(model=MIXTURE, tp=2, dp=8, ep=4, etp=1), "edp")[0]
    halves = on(_all(model=MIXTURE, tp=2, dp=8, ep=4, etp=2), "edp")[0]
    assert np.allclose(halves.bytes_by_stage * 2, whole.bytes_by_stage)


def test_a_dense_model_says_nothing_over_edp():
    assert on(_all(dp=8, ep=4), "edp") == []


@pytest.mark.parametrize(
    ("training", "counts"),
    [
        ({}, [1, 1]),
        ({"overlap_grad_reduce": False}, [1, 1]),
        # half of 8.03e9 parameters over 40e6; buckets of later stages are not on the way
        ({"overlap_grad_reduce": True}, [101, 1]),
        ({"overlap_grad_reduce": True, "bucket_size": 10**9}, [5, 1]),
    ],
)
def test_megatron_cuts_the_gradients_of_the_first_stage_into_buckets(training, counts):
    [reduce] = _all(dp=4, pp=2, training=training)
    whole = _all(dp=4, pp=2)[0].bytes_by_stage
    assert reduce.count_by_stage.tolist() == counts
    assert np.allclose(reduce.bytes_by_stage * reduce.count_by_stage, whole)
    overlaps = training.get("overlap_grad_reduce", False)
    assert (reduce.hides_behind is not None) == overlaps
    assert reduce.per == "bucket"


def test_buckets_grow_with_dp():
    [reduce] = _all(dp=64, training={"overlap_grad_reduce": True})
    assert reduce.count_by_stage.tolist() == [np.ceil(8_030_261_248 / 64e6)]


def test_each_chunk_of_a_model_has_a_buffer():
    [reduce] = _all(dp=4, pp=2, vp=4)
    assert reduce.count_by_stage.tolist() == [4, 4]
    assert np.allclose(reduce.bytes_by_stage * 4, _all(dp=4, pp=2)[0].bytes_by_stage)


def test_parameters_are_gathered_ahead_where_that_overlaps():
    gather = _all(dp=4, sharding="zero1")[1]
    assert (gather.op, gather.phase, gather.hides_behind) == ("all_gather", "optimizer", None)
    ahead = _all(dp=4, sharding="zero1", training={"overlap_param_gather": True})[1]
    assert (ahead.phase, ahead.hides_behind) == ("forward", "forward compute of the next step")
    narrow = _all(dp=4, sharding="zero1", training={"fp8_param_gather": True})[1]
    assert (narrow.bytes_by_stage * 2).tolist() == gather.bytes_by_stage.tolist()


def test_instances_of_the_distributed_optimizer():
    """Reduce-scatter and all-gather inside, all-reduce of the shard over the instances."""
    keys = {"dp": 8, "cp": 2, "sharding": "zero1", "distributed_optimizer_instances": 2}
    scatter, between, gather = _all(**keys)
    assert [one.axis for one in (scatter, between, gather)] == [
        "intra_dp-cp",
        "inter_edp",
        "intra_dp-cp",
    ]
    assert between.op == "all_reduce"
    assert between.bytes_by_stage[0] == scatter.bytes_by_stage[0] / 8
    experts = _all(model=MIXTURE, ep=4, dp=8, sharding="zero1", distributed_optimizer_instances=2)
    assert [one.axis for one in experts] == [
        *("intra_dp-cp", "inter_edp", "intra_dp-cp"),
        *("intra_edp", "inter_edp", "intra_edp"),
    ]


@pytest.mark.parametrize(("framework", "bucket"), [("torch", 25), ("torchtitan", 100)])
def test_torch_ddp_reduces_by_buckets_in_the_last_microbatch(framework, bucket):
    [reduce] = _all(dp=4, framework=framework)
    total = total_parameters(find_model("llama-3-8b")) * 4  # fp32 parameters under autocast
    assert reduce.count_by_stage.tolist() == [1 + np.ceil((total / MIB - 1) / bucket)]
    [every] = _all(dp=4, framework=framework, training={"gradient_sync": "every"})
    assert every.count_by_stage[0] == 16 * reduce.count_by_stage[0]


def test_nanotron_reduces_its_fp32_sum_and_gathers_the_weights():
    """One all-reduce whole though the optimizer is sharded; DDP's buckets where it is not."""
    total = total_parameters(find_model("llama-3-8b"))
    reduce, gather = _all(dp=4, framework="nanotron", sharding="zero1")
    assert (reduce.op, gather.op) == ("all_reduce", "all_gather")
    assert reduce.bytes_by_stage.tolist() == [4 * total]
    assert gather.bytes_by_stage.tolist() == [2 * total]
    assert reduce.count_by_stage.tolist() == gather.count_by_stage.tolist() == [1]
    [whole] = _all(dp=4, framework="nanotron")
    buckets = 1 + np.ceil((2 * total / MIB - 1) / 25)
    assert whole.count_by_stage.tolist() == [buckets]
    assert whole.bytes_by_stage[0] * buckets == pytest.approx(4 * total)
    half = {"gradient_dtype": "bf16"}
    reduce, gather = _all(dp=4, framework="nanotron", sharding="zero1", training=half)
    assert reduce.bytes_by_stage[0] * buckets == pytest.approx(2 * total)
    assert gather.bytes_by_stage.tolist() == [2 * total]


@pytest.mark.parametrize(
    ("keys", "axes"),
    [
        ({"sharding": "zero2"}, ["dp", "dp"]),
        ({"sharding": "zero3"}, ["dp", "dp", "dp"]),
        ({"sharding": "zero3", "cp": 2}, ["dp-cp", "dp-cp", "dp-cp"]),
        ({"sharding": "fsdp"}, ["dp", "dp", "dp"]),
        ({"sharding": "zero1", "framework": "torch"}, ["dp", "dp"]),
        ({"sharding": "zero2", "framework": "nanotron"}, ["dp", "dp"]),
        ({"sharding": "zero1", "framework": "nanotron", "cp": 2}, ["dp-cp", "dp-cp"]),
    ],
)
def test_what_is_not_modelled_is_unknown_and_never_zero(keys, axes):
    found = _all(dp=8, **keys)
    assert [one.axis for one in found] == axes
    for one in found:
        assert one.bytes_by_stage is None
        assert one.count_by_stage is None
        assert one.sent_bytes_by_stage(8) is None
        assert one.reason


def test_experts_of_unmodelled_sharding_are_unknown_too():
    found = _all(model=MIXTURE, dp=8, ep=4, sharding="zero2")
    assert {one.axis for one in found} == {"dp", "edp"}
    assert not any(one.is_known for one in found)


def test_experts_on_a_mesh_without_sharding_are_unknown():
    found = _all(model=MIXTURE, tp=2, dp=4, ep=1, framework="torch")
    assert [one.is_known for one in found] == [
        True
    ]  # without ep experts are parameters like others
