"""Expert parallelism: dispatchers, sizes, balance, tensor-sharded and shared experts."""

from __future__ import annotations

import pytest

from meshwright.traffic.expert import expert_collectives, router_collectives, spread
from traffic.building import named, on, ops, sent_bytes, workload

MIXTURE = "mixtral-8x7b"  # 8 experts, top 2, hidden 4096, 32 layers of them
M = 8
"""Microbatches of global batch 64 over dp 8."""
T, H, K, E = 8192, 4096, 2, 8


def _all(dispatcher=None, moe=None, **keys):
    keys = {"model": MIXTURE, "dp": 8, "ep": 4} | keys
    return expert_collectives(workload(moe={"dispatcher": dispatcher} | (moe or {}), **keys))


def _sizes(found, phase="forward"):
    return {one.what: float(one.bytes_by_stage[0]) for one in found if one.phase == phase}


def test_one_rank_has_all_experts():
    assert _all(ep=1) == []
    assert _all(model="llama-3-8b") == []


@pytest.mark.parametrize("dispatcher", [None, "allgather"])
def test_megatron_gathers_by_default(dispatcher):
    found = _all(dispatcher)
    assert {one.axis for one in found} == {"ep"}
    assert _sizes(found) == {
        "tokens to experts": 4 * T * H * 2,
        "routing map": 4 * T * E,
        "probabilities": 4 * T * E * 4,
        "results back": 4 * T * H * 2,
    }
    assert [one for one in ops(found) if one[1] == "backward"] == [
        ("all_gather", "backward"),
        ("reduce_scatter", "backward"),
        ("reduce_scatter", "backward"),
    ]
    for one in found:
        assert one.count_by_stage.tolist() == [32 * M]


def test_the_volume_of_gathering_does_not_depend_on_balance():
    assert sent_bytes(_all("allgather"), 4) == sent_bytes(_all("allgather", {"imbalance": 3.0}), 4)


def test_all_to_all():
    found = _all("alltoall")
    assert _sizes(found) == {
        "token counts": 4 * E * 8,
        "tokens to experts": T * K * H * 2,
        "results back": T * K * H * 2,
        "probabilities": T * K * 4,
    }
    assert _sizes(found, "backward") == {
        "gradients of results": T * K * H * 2,
        "gradients of tokens": T * K * H * 2,
        "gradients of probabilities": T * K * 4,
    }


@pytest.mark.parametrize(
    ("moe", "factor"),
    [
        ({}, 1),
        ({"imbalance": 1.0}, 1),
        ({"imbalance": 1.5}, 1.5),
        ({"capacity_factor": 1.25}, 1),  # a bound that an even spread does not reach
        ({"imbalance": 1.5, "capacity_factor": 1.25}, 1.25),
        ({"capacity_factor": 0.75}, 0.75),  # the rest is dropped
        ({"imbalance": 1.5, "capacity_factor": 2.0, "pad_to_capacity": True}, 2),
    ],
)
def test_balance_and_capacity(moe, factor):
    assert spread(workload(MIXTURE, dp=8, ep=4, moe=moe)) == factor
    for dispatcher in ("alltoall", "deepep"):
        even, other = (named(_all(dispatcher, one), "tokens to experts") for one in ({}, moe))
        assert other[0].bytes_by_stage[0] == even[0].bytes_by_stage[0] * factor


def test_deepspeed_sends_full_capacity():
    keys = {"framework": "deepspeed", "etp": 1}
    plain = named(_all(None, **keys), "tokens")[0]
    assert (plain.op, float(plain.bytes_by_stage[0])) == ("all_to_all", T * K * H * 2)
    larger = named(_all(None, {"capacity_factor": 1.25}, **keys), "tokens")[0]
    assert larger.bytes_by_stage[0] == 1.25 * plain.bytes_by_stage[0]


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
def test_sequence_parallel_ranks_hold_other_tokens(dispatcher):
    whole = named(_all(dispatcher), "tokens")[0]
    keys = {"tp": 2, "etp": 1, "sequence_parallel": True}
    halves = named(_all(dispatcher, **keys), "tokens")[0]
    assert halves.bytes_by_stage[0] == whole.bytes_by_stage[0] / 2


def test_tensor_sharded_experts_gather_what_came():
    keys = {"tp": 2, "sequence_parallel": True, "etp": 2}
    found = _all("alltoall", **keys)
    exchanged, gathered = on(found, "ep"), on(found, "etp")
    tokens = named(exchanged, "tokens")[0].bytes_by_stage[0]
    assert ops(gathered) == [
        ("all_gather", "forward"),
        ("reduce_scatter", "forward"),
        ("all_gather", "backward"),
        ("reduce_scatter", "backward"),
    ]
    assert {float(one.bytes_by_stage[0]) for one in gathered} == {2 * tokens}
    assert named(on(found, "ep-etp"), "token counts")
    assert {one.axis for one in _all("allgather", **keys)} == {"ep-etp"}
    assert {one.axis for one in _all("allgather", **(keys | {"ep": 1}))} == {"etp"}


def test_dispatch_without_double_copies_sends_less():
    """With 2 experts a rank and top 2, some tokens need one rank only."""
    plain, fused = (named(_all(name), "tokens to")[0] for name in ("alltoall", "deepep"))
    both_on_one_rank = 1 / 7  # the second of 8 experts is on the first one's rank
    assert fused.bytes_by_stage[0] / plain.bytes_by_stage[0] == pytest.approx(
        (2 - both_on_one_rank) / 2
    )
    assert fused.copies is not None
    assert ops(_all("deepep")) == [
        ("all_to_all", one) for one in ("forward",) * 2 + ("backward",) * 2
    ]


def test_fp8_on_the_way_out_bf16_on_the_way_back():
    found = _all("deepep", {"dispatch_dtype": "fp8"})
    out, back = (named(found, what)[0].bytes_by_stage[0] for what in ("tokens to", "results"))
    assert out / back == pytest.approx((1 + 4 / 128) / 2)


def test_node_limited_routing_goes_to_fewer_ranks():
    keys = {"model": "deepseek-v3", "dp": 64, "ep": 64, "etp": 1}
    [copies, *_] = (one.copies for one in _all("deepep", **keys))
    assert (copies.groups, copies.chosen_groups, copies.ranks) == (8, 4, 64)
    assert copies.domains_hit(8) <= 4


@pytest.mark.parametrize(
    ("moe", "training", "hides"),
    [
        ({}, {}, None),
        ({"overlap": "none"}, {}, None),
        ({"overlap": "shared_expert"}, {}, "compute of shared experts"),
        ({"overlap": "microbatch"}, {}, "another microbatch's compute"),
        ({}, {"schedule": "dualpipev"}, "another microbatch's compute"),
    ],
)
def test_what_dispatch_runs_beside(moe, training, hides):
    found = _all("alltoall", moe, training=training, pp=2, vp=2)
    assert {one.hides_behind for one in found} == {hides}


def test_full_recompute_repeats_the_dispatch():
    found = _all("alltoall", training={"recompute": "full"})
    assert _sizes(found, "recompute") == _sizes(found)
    assert _sizes(_all("alltoall", training={"recompute": "selective"}), "recompute") == {}


def test_only_layers_with_experts_dispatch():
    found = _all("alltoall", model="deepseek-v3", pp=1, ep=8)
    assert {float(one.count_by_stage[0]) for one in found} == {58 * M}
    deeper = _all("alltoall", model="deepseek-v3", ep=8, training={"mtp_layers": 1})
    assert {float(one.count_by_stage[0]) for one in deeper} == {59 * M}


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"tp": 2}, "only with sequence_parallel: true"),
        (
            {"framework": "torchtitan", "sharding": "fsdp", "dispatcher": "allgather"},
            "has no dispatcher allgather",
        ),
        ({"batch": {}}, "not given"),
    ],
)
def test_what_is_not_known_says_why(keys, why):
    found = _all(keys.pop("dispatcher", "alltoall"), **keys)
    assert found
    assert all(not one.is_known and why in one.reason for one in found)


def test_torchtitan_exchanges_tokens():
    found = _all(None, framework="torchtitan", sharding="fsdp")
    assert {one.axis for one in found} == {"ep"}
    assert named(found, "tokens to")[0].bytes_by_stage[0] == T * K * H * 2
    split = _all(None, framework="torchtitan", sharding="fsdp", tp=2)
    assert named(split, "tokens to")[0].bytes_by_stage[0] == T / 2 * K * H * 2


def test_router_counts_are_added_once_a_step():
    [one] = router_collectives(workload(MIXTURE, dp=8, ep=4))
    assert one.axis == "dp-cp-tp"
    assert one.bytes_by_stage.tolist() == [E * 4]
    assert one.count_by_stage.tolist() == [32]
    assert one.is_minor
    assert router_collectives(workload(dp=8)) == []


def test_low_latency_kernels_send_a_token_for_each_expert():
    fused = {"ep": 8, "dispatcher": "deepep"}
    normal = _sizes(_all(**fused))["tokens to experts"]
    found = _all(**fused, moe={"deepep_mode": "low_latency"})
    assert _sizes(found) == {"tokens to experts": T * K * H * 2, "results back": T * K * H * 2}
    assert normal <= T * K * H * 2
    assert all(one.is_direct and one.copies is None for one in found)
    eighth = _sizes(_all(**fused, moe={"deepep_mode": "low_latency", "dispatch_dtype": "fp8"}))
    assert eighth["tokens to experts"] == T * K * H * (1 + 4 / 128)
