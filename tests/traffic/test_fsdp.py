"""FSDP2 and HSDP: units, widths, axes, and when torch gathers and reduces."""

from __future__ import annotations

import msgspec
import pytest

from meshwright.job.catalogue import find_model
from meshwright.job.parameters import total_parameters
from meshwright.traffic.data import data_collectives
from meshwright.traffic.data_fsdp import BY_SCHEDULE, units_of
from traffic.building import count, named, on, sent_bytes, workload

M = 8
"""Microbatches of global batch 64 over dp 8."""
TORCH = {"framework": "torch", "sharding": "fsdp", "dp": 8}
TITAN = {"framework": "torchtitan", "sharding": "fsdp", "dp": 8}


def _all(**keys):
    return data_collectives(workload(**keys))


def test_units_hold_the_model():
    for model in ("llama-3-8b", "llama-3.2-1b", "mixtral-8x7b"):
        for keys in (TORCH, TITAN, TORCH | {"pp": 4}, TITAN | {"pp": 2}):
            shape = find_model(model)
            units = units_of(workload(model, **keys))
            held = sum(float((unit.parameters * unit.by_stage).sum()) for unit in units)
            words = shape.vocab * shape.hidden  # tied words on two stages are held twice
            twice = words if shape.tied_embeddings and keys.get("pp", 1) > 1 else 0
            assert held == total_parameters(shape) + twice


def test_units_of_each_framework():
    assert [one.name for one in units_of(workload(**TORCH))] == [
        "layers",
        "root: embedding, norm and output",
    ]
    assert [one.name for one in units_of(workload(**TITAN))] == [
        "layers",
        "embedding",
        "norm and output",
    ]


def test_three_times_the_parameters_a_microbatch():
    """Two gathers and a scatter of every layer: 3 · P · (n - 1)/n elements a rank and microbatch."""
    found = _all(**TORCH, training={"precision": "fp32"})
    layers = [one for one in found if one.what.endswith("layers")]
    model = find_model("llama-3-8b")
    held = total_parameters(model) - 2 * model.vocab * model.hidden - model.hidden
    assert sent_bytes(layers, 8) == pytest.approx(3 * held * 4 * M * 7 / 8)


@pytest.mark.parametrize(
    ("keys", "training", "gathered", "scattered"),
    [
        (TORCH, {}, 2, 2),
        (TORCH, {"gradient_dtype": "fp32"}, 2, 4),
        (TITAN, {}, 2, 4),  # mixed_precision_reduce is fp32
        (TITAN, {"gradient_dtype": "bf16"}, 2, 2),
    ],
)
def test_widths(keys, training, gathered, scattered):
    found = named(_all(**keys, training=training), "")
    layer = [one for one in found if one.what.endswith(" layers")]
    sizes = {one.op: float(one.bytes_by_stage[0]) for one in layer}
    assert sizes["all_gather"] / gathered == sizes["reduce_scatter"] / scattered


def test_the_root_stays_gathered_and_torchtitans_last_unit_too():
    for keys, last in ((TORCH, "root"), (TITAN, "norm and output")):
        rows = [one for one in _all(**keys) if last in one.what and one.op == "all_gather"]
        assert [one.phase for one in rows] == ["forward"]
    always = _all(**TITAN, training={"reshard_after_forward": True})
    rows = [one for one in always if "norm and output" in one.what and one.op == "all_gather"]
    assert [one.phase for one in rows] == ["forward", "backward"]


def test_backward_gathers_over_fewer_ranks():
    found = _all(**TORCH, training={"reshard_after_forward": 2})
    rows = [one for one in found if one.what == "parameters of layers"]
    assert [(one.axis, one.phase) for one in rows] == [
        ("dp_shard", "forward"),
        ("dp_shard/2", "backward"),
    ]
    assert rows[0].bytes_by_stage.tolist() == rows[1].bytes_by_stage.tolist()
    whole = _all(**TORCH, training={"reshard_after_forward": 8})
    assert {one.axis for one in whole} == {"dp_shard"}


def test_context_parallel_ranks_shard_too():
    assert {one.axis for one in _all(**TORCH, cp=2)} == {"dp_shard-cp"}


def test_hsdp_adds_the_shards_of_its_copies():
    keys = {"framework": "torch", "sharding": "hsdp", "shard_degree": 4, "dp": 8}
    found = _all(**keys)
    assert {one.axis for one in found} == {"dp_shard", "dp_replicate"}
    scatter = next(one for one in found if one.what == "gradients of layers")
    between = next(one for one in found if one.what == "gradient shards of layers")
    assert (between.axis, between.op) == ("dp_replicate", "all_reduce")
    assert between.bytes_by_stage[0] == scatter.bytes_by_stage[0] / 4
    with_cp = _all(**keys, cp=2)
    between = next(one for one in with_cp if one.what == "gradient shards of layers")
    assert between.bytes_by_stage[0] == scatter.bytes_by_stage[0] / 8


@pytest.mark.parametrize(
    ("training", "scatters", "reduces"),
    [
        ({}, M, M),
        ({"gradient_sync": "every"}, M, M),
        ({"gradient_sync": "last"}, 1, 1),
        ({"replica_sync": "last"}, M, 1),
    ],
)
def test_when_gradients_are_reduced(training, scatters, reduces):
    keys = {"framework": "torch", "sharding": "hsdp", "shard_degree": 4, "dp": 8}
    found = [one for one in _all(**keys, training=training) if one.what.endswith(" layers")]
    times = {one.op: float(one.count_by_stage[0]) / 32 for one in found if one.phase == "backward"}
    assert times["reduce_scatter"] == scatters
    assert times["all_reduce"] == reduces
    assert times["all_gather"] == M


def test_copies_of_one_need_no_sum():
    """HSDP of one copy is FSDP."""
    one_copy = {"framework": "torch", "sharding": "hsdp", "shard_degree": 8, "dp": 8}
    assert [_shown(one) for one in _all(**one_copy)] == [_shown(one) for one in _all(**TORCH)]


def _shown(one):
    return one.axis, one.op, one.phase, one.what, one.bytes_by_stage[0], one.count_by_stage[0]


def test_with_stages_torch_gathers_and_reduces_once_a_step():
    found = _all(**TITAN, pp=4)  # torchtitan keeps parameters gathered there
    assert {(one.op, one.phase) for one in found} == {
        ("all_gather", "forward"),
        ("reduce_scatter", "backward"),
    }
    for one in found:
        assert one.count_by_stage.tolist() == (
            [8.0, 9.0, 8.0, 7.0]
            if "layers" in one.what
            else [float(n > 0) for n in one.count_by_stage]
        )


def test_resharding_under_stages_depends_on_the_schedule():
    found = _all(**TORCH, pp=4)
    rows = [one for one in found if one.what == "parameters of layers"]
    assert [one.reason for one in rows] == [BY_SCHEDULE] * 2
    scatter = next(one for one in found if one.what == "gradients of layers")
    assert scatter.count_by_stage.tolist() == [8] * 4


def test_experts_are_sharded_over_their_own_ranks():
    keys = {**TITAN, "model": "mixtral-8x7b", "ep": 4}
    found = _all(**keys)
    experts = on(found, "edp")
    assert {one.what for one in experts} == {"parameters of experts", "gradients of experts"}
    model = find_model("mixtral-8x7b")
    held = 8 / 4 * 3 * model.hidden * model.moe_ffn
    assert {float(one.bytes_by_stage[0]) for one in experts if one.op == "all_gather"} == {held * 2}
    assert count(experts) == 3 * 32 * M


def test_tensor_parallel_experts_without_ep():
    """torchtitan shards experts over tp as any MLP where there is no ep."""
    whole, split = (units_of(workload("mixtral-8x7b", **TITAN, **more)) for more in ({}, {"tp": 2}))
    assert split[0].name == whole[0].name == "layers with experts"
    assert split[0].parameters == pytest.approx(whole[0].parameters / 2, rel=1e-3)


def test_fsdp1s_words():
    kept = _all(dp=8, framework="torch", sharding="SHARD_GRAD_OP")
    assert [_shown(one) for one in kept] == [
        _shown(one) for one in _all(**TORCH, training={"reshard_after_forward": False})
    ]


def test_without_a_batch_microbatches_are_unknown():
    found = data_collectives(workload(**TORCH, batch={}))
    assert found
    assert not any(one.is_known for one in found)
    once = data_collectives(workload(**TORCH, batch={}, training={"gradient_sync": "last"}))
    assert [one.op for one in once if one.is_known] == ["reduce_scatter"] * 2


def test_padded_model_names_are_not_special():
    shape = msgspec.structs.replace(find_model("llama-3-8b"), num_layers=4)
    assert units_of(workload(shape, **TORCH))[0].by_stage.tolist() == [4]
