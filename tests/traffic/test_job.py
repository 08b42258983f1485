"""All of a job's traffic: unknown where not modelled, given by hand, or without a model."""

from __future__ import annotations

import numpy as np
import pytest

from groups.building import layout_of
from meshwright.job.sections import MoeSection, TrafficItem
from meshwright.origin import Origin
from meshwright.traffic.collective import Collective, ring_factor, unknown
from meshwright.traffic.job import (
    collectives_without_model,
    given_collectives,
    modelled_collectives,
)
from traffic.building import workload


def test_axes_of_one_rank_carry_nothing():
    found = modelled_collectives(workload(tp=2))
    assert {one.axis for one in found} == {"tp"}
    everything = modelled_collectives(workload("mixtral-8x7b", tp=2, cp=2, pp=2, dp=2, ep=2, etp=1))
    assert {one.axis for one in everything} >= {"tp", "cp", "pp", "dp-cp", "ep", "edp", "tp-pp"}


def test_what_is_known_is_finite_and_what_is_not_has_no_bytes():
    jobs = [
        workload(tp=2, cp=2, pp=2, dp=2),
        workload("mixtral-8x7b", tp=2, pp=2, dp=4, ep=4, etp=1, sequence_parallel=True),
        workload("mixtral-8x7b", tp=2, dp=4, ep=4, moe={"dispatcher": "deepep"}),
        workload(tp=2, cp=4, dp=2, cp_kind="a2a+p2p", hierarchical_cp=(2, 2)),
        workload(pp=4, dp=4, training={"schedule": "dualpipe"}),
        workload(dp=8, sharding="zero3", framework="deepspeed"),
        workload("llama-3.2-1b", tp=2, pp=2, dp=2, vp=2, sharding="zero1"),
        workload(tp=2, dp=4, sharding="fsdp", framework="torchtitan"),
    ]
    for work in jobs:
        for one in modelled_collectives(work):
            assert (one.bytes_by_stage is None) == (one.count_by_stage is None)
            if one.is_known:
                assert one.bytes_by_stage.shape == one.count_by_stage.shape == (work.layout.pp,)
                runs = one.count_by_stage > 0
                assert (one.bytes_by_stage[runs] > 0).all()
                assert np.isfinite(one.bytes_by_stage).all()
                assert (one.count_by_stage >= 0).all()
                assert runs.any()
            else:
                assert one.reason
                assert one.origin is Origin.MODELLED


def test_given_by_hand():
    items = [
        TrafficItem(axis="dp", op="all_reduce", bytes=10**9, count=2),
        TrafficItem(axis="ep", op="all_to_all", bytes=5, count=0.5),
    ]
    first, second = given_collectives(items, 3)
    assert first.bytes_by_stage.tolist() == [1e9] * 3
    assert first.count_by_stage.tolist() == [2] * 3
    assert first.origin is Origin.PARSED
    assert second.sent_bytes_by_stage(4).tolist() == [5 * 0.5 * 3 / 4] * 3


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"dp": 4}, {("dp", "all_reduce")}),
        ({"dp": 4, "cp": 2}, {("dp-cp", "all_reduce"), ("cp", "send")}),
        ({"dp": 1, "tp": 4}, {("tp", "all_reduce")}),
        ({"dp": 1, "tp": 4, "sequence_parallel": True}, {("tp", "reduce_scatter")}),
        ({"dp": 1, "pp": 4}, {("pp", "send")}),
        (
            {"dp": 4, "ep": 4},
            {("dp", "all_reduce"), ("ep", "all_gather"), ("ep", "reduce_scatter")},
        ),
        (
            {"dp": 4, "ep": 4, "framework": "torchtitan"},
            {("dp", "all_reduce"), ("ep", "all_to_all")},
        ),
        (
            {"dp": 8, "sharding": "hsdp", "shard_degree": 4, "framework": "torch"},
            {
                ("dp_shard", "all_gather"),
                ("dp_shard", "reduce_scatter"),
                ("dp_replicate", "all_reduce"),
            },
        ),
        ({"dp": 4, "sharding": "zero1"}, {("dp", "reduce_scatter"), ("dp", "all_gather")}),
        ({"dp": 1}, set()),
    ],
)
def test_without_a_model_operations_are_known_and_bytes_are_not(keys, expected):
    found = collectives_without_model(layout_of(**keys), MoeSection(), None)
    assert {(one.axis, one.op) for one in found} == expected
    assert not any(one.is_known for one in found)


def test_bytes_over_a_ring():
    assert ring_factor("all_reduce", 4) == 1.5
    assert ring_factor("all_gather", 4) == ring_factor("reduce_scatter", 4) == 0.75
    assert ring_factor("all_to_all", 4) == 0.75
    assert ring_factor("send", 4) == 1
    assert ring_factor("all_reduce", 1) == 0
    sizes, counts = np.array([8.0, 4.0]), np.array([1.0, 3.0])
    one = Collective("dp", "all_gather", "backward", "parameters", sizes, counts)
    assert one.sent_bytes_by_stage(4).tolist() == [6, 9]
    assert unknown("dp", "all_gather", "backward", "x").sent_bytes_by_stage(4) is None
