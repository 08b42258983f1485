"""DeepSpeed's ZeRO: what each stage runs, how often, over whom."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.job.catalogue import find_model
from meshwright.job.parameters import total_parameters
from meshwright.traffic.data import data_collectives
from traffic.building import ops, sent_bytes, workload

M = 8
"""Microbatches of global batch 64 over dp 8."""
P = total_parameters(find_model("llama-3-8b"))


def _all(sharding, **keys):
    keys = {"dp": 8, "framework": "deepspeed"} | keys
    return data_collectives(workload(sharding=sharding, **keys))


def _total(one):
    return float((one.bytes_by_stage * one.count_by_stage)[0])


def test_zero1_all_reduces_at_the_boundary_and_gathers_after_the_step():
    reduce, gather = _all("zero1")
    assert ops([reduce, gather]) == [("all_reduce", "backward"), ("all_gather", "optimizer")]
    assert _total(reduce) == _total(gather) == P * 2
    assert reduce.count_by_stage[0] == gather.count_by_stage[0] == np.ceil(P / 5e8)


def test_zero2_does_so_every_microbatch():
    reduce, gather = _all("zero2")
    assert _total(reduce) == M * P * 2
    assert _total(gather) == P * 2


@pytest.mark.parametrize("sharding", ["zero1", "zero2"])
def test_reducing_to_owners_moves_half(sharding):
    whole = _all(sharding)[0]
    owners = _all(sharding, training={"use_multi_rank_bucket_allreduce": False})[0]
    assert owners.op == "reduce_scatter"
    assert "reduce to each owner" in owners.remark
    assert sent_bytes([owners], 8) == sent_bytes([whole], 8) / 2


def test_zero3_gathers_twice_and_scatters_every_microbatch():
    found = _all("zero3")
    gathers = [one for one in found if one.op == "all_gather"]
    scatters = [one for one in found if one.op == "reduce_scatter"]
    assert sum(_total(one) for one in scatters) == M * P * 2
    norms = (2 * 32 + 1) * 4096  # under 1e5 elements each: they stay gathered
    for phase in ("forward", "backward"):
        mine = [one for one in gathers if one.phase == phase]
        assert sum(_total(one) for one in mine) == pytest.approx(M * (P - norms) * 2)


def test_the_secondary_partition_keeps_backward_gathers_in_small_groups():
    found = _all("zero3", zero_hpz_partition_size=4)
    axes = {(one.op, one.phase): one.axis for one in found}
    assert axes == {
        ("all_gather", "forward"): "dp",
        ("all_gather", "backward"): "hpz",
        ("reduce_scatter", "backward"): "dp",
    }


def test_smaller_buckets_are_more():
    few, many = _all("zero1")[0], _all("zero1", training={"bucket_size": 50_000_000})[0]
    assert many.count_by_stage[0] == np.ceil(P / 5e7)
    assert _total(many) == _total(few)


def test_ulysses_ranks_share_parameters():
    assert {one.axis for one in _all("zero2", cp=2)} == {"dp-cp"}


def test_experts_have_groups_of_their_own():
    found = _all("zero2", model="mixtral-8x7b", ep=4)
    assert {one.axis for one in found} == {"dp", "edp"}
    assert all(one.what.startswith("expert") == (one.axis == "edp") for one in found)
    held = sum(_total(one) for one in found if one.op == "all_gather")
    model = find_model("mixtral-8x7b")
    experts = 32 * 8 * 3 * model.hidden * model.moe_ffn
    assert held == (total_parameters(model) - experts + experts / 4) * 2


def test_without_a_batch_only_the_boundary_is_known():
    assert all(one.is_known for one in _all("zero1", batch={}))
    assert [one.is_known for one in _all("zero2", batch={})] == [False, True]
    assert [one.op for one in _all("zero3", batch={}) if one.is_known] == []
