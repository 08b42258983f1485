"""Bytes a parameter of every framework and sharding; parameters by stage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.building import DENSE, EXPERTS, LATENT, workload
from meshwright.job.parameters import total_parameters
from meshwright.memory.parameters import stage_parameters
from meshwright.memory.states import fp8_weight_bytes, keeps_gathered, shard_degrees, state_form
from meshwright.traffic.workload import padded_workload


def per_parameter(degree: int = 8, **keys: object) -> float:
    """Return all bytes a parameter of a job of dp 8."""
    form = state_form(workload(dp=8, **keys))
    parts = (form.weights, form.gradients, form.optimizer)
    return sum(float(part.bytes_of(1.0, degree)) for part in parts)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"framework": "megatron"}, 18),
        ({"framework": "megatron", "sharding": "zero1"}, 6 + 12 / 8),
        ({"framework": "megatron", "sharding": "zero1", "gradient_dtype": "bf16"}, 4 + 12 / 8),
        ({"framework": "megatron", "precision": "fp16", "gradient_dtype": "fp16"}, 20),
        ({"framework": "megatron", "precision": "fp16", "gradient_dtype": "fp16", "sharding": "zero1"}, 4 + 16 / 8),
        ({"framework": "megatron", "precision": "fp32"}, 16),
        ({"framework": "megatron", "precision": "fp32", "sharding": "zero1"}, 8 + 8 / 8),
        ({"framework": "megatron", "sharding": "zero1", "optimizer": "sgd"}, 6 + 8 / 8),
        ({"framework": "deepspeed", "sharding": "zero1"}, 4 + 16 / 8),
        ({"framework": "deepspeed", "sharding": "zero2"}, 2 + 18 / 8),
        ({"framework": "deepspeed", "sharding": "zero3"}, 18 / 8),
        ({"framework": "torchtitan", "sharding": "fsdp"}, 16 / 8),
        ({"framework": "deepspeed", "precision": "fp32"}, 16),
        ({"framework": "deepspeed", "sharding": "zero1", "gradient_dtype": "fp32"}, 6 + 12 / 8),
        ({"framework": "deepspeed", "sharding": "zero2", "gradient_dtype": "fp32"}, 2 + 20 / 8),
        ({"framework": "deepspeed", "sharding": "zero3", "gradient_dtype": "fp32"}, 18 / 8),
        ({"framework": "torch", "sharding": "fsdp", "gradient_dtype": "bf16"}, 16 / 8),
        # DDP's buckets hold the gradients again
        ({"framework": "torch"}, 20),
        ({"framework": "torchtitan"}, 20),
        ({"framework": "torch", "gradient_dtype": "bf16"}, 10),
        ({"framework": "torch", "precision": "fp32", "gradient_dtype": "bf16"}, 20),
        ({"framework": "torch", "sharding": "SHARD_GRAD_OP"}, 2 + 16 / 8),
        ({"framework": "nanotron", "sharding": "zero1"}, 8 + 12 / 8),
        ({"framework": "nanotron"}, 8 + 2 + 12),
        ({"framework": "nanotron", "sharding": "zero1", "gradient_dtype": "bf16"}, 6 + 4 / 8),
        ({"framework": "nanotron", "precision": "fp32", "sharding": "zero1"}, 8 + 8 / 8),
    ],
)  # fmt: skip
def test_bytes_a_parameter(keys, expected):
    assert per_parameter(**keys) == pytest.approx(expected)


def test_without_replicas_torch_has_no_ddp():
    form = state_form(workload(dp=1, framework="torch"))
    assert (form.weights.whole, form.gradients.whole, form.optimizer.whole) == (4, 4, 8)


@pytest.mark.parametrize("framework", ["torch", "torchtitan", "deepspeed", "nanotron", "megatron"])
@pytest.mark.parametrize("dtype", [None, "bf16", "fp32"])
def test_what_is_reduced_is_what_is_kept(framework, dtype):
    """Where replicas hold whole gradients the map's bytes an element are those memory keeps."""
    work = workload(dp=8, framework=framework, gradient_dtype=dtype)
    kept = state_form(work).gradients.whole
    buckets = work.gradient_bytes if framework in ("torch", "torchtitan") else 0
    buckets += {"nanotron": 2 + 2 * (work.gradient_bytes == 4)}.get(framework, 0)
    assert kept == work.gradient_bytes + buckets


def test_fsdp_in_a_pipeline_keeps_gathered_weights_and_sums_gradients_whole():
    keys = {"framework": "torchtitan", "sharding": "fsdp", "pp": 2}
    work = workload(dp=4, num_microbatches=4, micro_batch=1, seq_len=16, **keys)
    form = state_form(work)
    assert keeps_gathered(work)
    assert (form.weights.whole, form.gradients.whole) == (2.0, 4.0)
    resharded = workload(dp=4, num_microbatches=4, reshard_after_forward=True, **keys)
    assert not keeps_gathered(resharded)
    # gathered again for every microbatch, but the gradients still add up until the last
    assert (state_form(resharded).weights.whole, state_form(resharded).gradients.whole) == (0, 4)
    every = workload(dp=4, num_microbatches=4, gradient_sync="every", **keys)
    assert state_form(every).gradients.whole == 0


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"sharding": "zero1", "cp": 2, "dp": 4}, (8, 8)),
        ({"sharding": "zero1", "cp": 2, "dp": 4, "distributed_optimizer_instances": 2}, (4, 4)),
        ({"sharding": "zero1", "dp": 8, "ep": 4}, (8, 2)),
        ({"sharding": "none", "dp": 8}, (1, 1)),
        ({"sharding": "fsdp", "framework": "torchtitan", "cp": 2, "dp": 4}, (8, 8)),
        ({"sharding": "hsdp", "framework": "torchtitan", "dp": 8, "shard_degree": 4}, (4, 4)),
        ({"sharding": "zero1", "framework": "nanotron", "cp": 2, "dp": 4}, (4, 4)),
    ],
)
def test_ranks_that_share_states(keys, expected):
    assert shard_degrees(workload(**keys)) == expected


def test_an_array_of_degrees_gives_an_array():
    form = state_form(workload(dp=8, sharding="zero1"))
    degrees = np.array([1.0, 2.0, 4.0])
    assert form.optimizer.bytes_of(10.0, degrees).tolist() == [120.0, 60.0, 30.0]


def test_fp8_weights_need_a_second_copy_on_hopper_only():
    assert fp8_weight_bytes("H100 SXM 80G") == 2
    assert fp8_weight_bytes("B200 SXM 180G") == 1
    assert fp8_weight_bytes(None) == 2
    assert fp8_weight_bytes("B200 SXM 180G", "mxfp8") == 2


@pytest.mark.parametrize("model", [DENSE, EXPERTS, LATENT])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_stages_hold_the_whole_model(model, pp):
    parameters = stage_parameters(padded_workload(workload(model, pp=pp, dp=1)))
    assert parameters.total.sum() == pytest.approx(total_parameters(model))
    assert parameters.embedding[0] == model.vocab * model.hidden
    assert parameters.output[-1] == model.vocab * model.hidden


@given(st.sampled_from([1, 2, 4]), st.integers(1, 5000))
def test_megatron_pads_the_vocabulary_to_128_times_tp(tp, vocab):
    import msgspec

    model = msgspec.structs.replace(DENSE, vocab=vocab)
    padded = padded_workload(workload(model, tp=tp, dp=1)).model.vocab
    assert padded % (128 * tp) == 0
    assert vocab <= padded < vocab + 128 * tp
    assert padded_workload(workload(model, tp=tp, dp=1, framework="torch")).model.vocab == vocab


def test_another_multiple_of_the_vocabulary_counts():
    import msgspec

    model = msgspec.structs.replace(DENSE, vocab=1000)
    assert padded_workload(workload(model, tp=2, dp=1, vocab_divisible_by=1)).model.vocab == 1000
    assert padded_workload(workload(model, tp=2, dp=1, vocab_divisible_by=64)).model.vocab == 1024


def test_experts_are_divided_over_ep_and_the_rest_is_not():
    whole = stage_parameters(workload(EXPERTS, dp=4))
    shared = stage_parameters(workload(EXPERTS, dp=4, ep=4))
    assert shared.expert[0] == pytest.approx(whole.expert[0] / 4)
    assert shared.dense[0] == whole.dense[0]
