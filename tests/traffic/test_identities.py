"""What must hold between strategies, whatever the job."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.job.catalogue import find_model
from meshwright.job.parameters import total_parameters
from meshwright.traffic.data import data_collectives
from meshwright.traffic.expert import expert_collectives
from meshwright.traffic.job import modelled_collectives
from meshwright.traffic.pipeline import pipeline_collectives
from meshwright.traffic.tensor import tensor_collectives
from traffic.building import named, of_layers, on, sent_bytes, workload

BATCH = {"micro_batch": 1, "num_microbatches": 8, "seq_len": 4096}
degrees = st.sampled_from((2, 4, 8))
dense = st.sampled_from(("llama-3-8b", "llama-3.2-1b", "qwen3-8b"))
schedules = st.sampled_from(("1f1b", "gpipe", "zb-h1", "zb-v", "v-min", "dualpipe", "chimera"))


def _sent(collectives, degree):
    return sum(one.sent_bytes_by_stage(degree).sum() for one in collectives)


@given(tp=degrees, model=dense, pp=st.sampled_from((1, 2, 4)))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(tp, model, pp):
    """Splitting the sequence moves the same bytes; Megatron's gathers for weights come on top."""
    sent = {}
    for name, keys in {
        "plain": {"framework": "torch"},
        "split": {"framework": "torch", "sequence_parallel": True},
        "again": {"framework": "megatron", "sequence_parallel": True},
    }.items():
        work = workload(model, BATCH, tp=tp, pp=pp, dp=2, **keys)
        sent[name] = _sent(of_layers(on(tensor_collectives(work), "tp")), tp)
    assert sent["split"] == pytest.approx(sent["plain"])
    assert sent["again"] == pytest.approx(sent["plain"] * 10 / 8)


@given(dp=degrees, model=dense, pp=st.sampled_from((1, 2)))
def test_the_distributed_optimizer_moves_what_an_all_reduce_moves(dp, model, pp):
    """With gradients as wide as parameters."""
    training = {"gradient_dtype": "bf16"}
    whole, split = (
        _sent(data_collectives(workload(model, BATCH, training, dp=dp, pp=pp, sharding=one)), dp)
        for one in ("none", "zero1")
    )
    assert split == pytest.approx(whole)


@given(dp=degrees, model=dense)
def test_sharded_parameters_move_three_times_their_bytes_a_microbatch(dp, model):
    keys = {"framework": "torchtitan", "sharding": "fsdp", "dp": dp}
    training = {"reshard_after_forward": True, "gradient_dtype": "bf16"}
    work = workload(model, BATCH, training, **keys)
    total = total_parameters(find_model(model)) * 2
    assert _sent(data_collectives(work), dp) == pytest.approx(3 * total * 8 * (dp - 1) / dp)


@given(shard=degrees, copies=st.sampled_from((1, 2, 4)))
def test_hybrid_sharding_is_sharding_and_one_sum_of_shards(shard, copies):
    keys = {"framework": "torch", "dp": shard * copies}
    hybrid = data_collectives(
        workload("llama-3-8b", BATCH, sharding="hsdp", shard_degree=shard, **keys)
    )
    alone = data_collectives(
        workload("llama-3-8b", BATCH, framework="torch", dp=shard, sharding="fsdp")
    )
    inside = on(hybrid, "dp_shard")
    assert _sent(inside, shard) == pytest.approx(_sent(on(alone, "dp_shard"), shard))
    between = on(hybrid, "dp_replicate")
    assert bool(between) == (copies > 1)
    scattered = [one for one in inside if one.op == "reduce_scatter"]
    if between:
        assert sum((b.bytes_by_stage * b.count_by_stage).sum() for b in between) * shard == (
            pytest.approx(sum((s.bytes_by_stage * s.count_by_stage).sum() for s in scattered))
        )


@given(schedule=schedules, pp=st.sampled_from((2, 4)))
def test_no_schedule_changes_what_layers_run(schedule, pp):
    """Layers times microbatches, however they are spread over ranks."""
    flat = workload("llama-3-8b", BATCH, tp=2, dp=2)
    spread = workload("llama-3-8b", BATCH, {"schedule": schedule}, tp=2, pp=pp, dp=2)
    for found, expected in zip(
        on(tensor_collectives(spread), "tp"), on(tensor_collectives(flat), "tp"), strict=True
    ):
        assert found.count_by_stage.sum() == expected.count_by_stage.sum()
        assert found.bytes_by_stage[0] == expected.bytes_by_stage[0]


@given(schedule=schedules, pp=st.sampled_from((2, 4)), vp=st.sampled_from((1, 2)))
def test_gradients_come_back_the_way_activations_went(schedule, pp, vp):
    work = workload("llama-3-8b", BATCH, {"schedule": schedule}, pp=pp, vp=vp, dp=2)
    arriving = {"forward": np.zeros((pp, pp)), "backward": np.zeros((pp, pp))}
    for one in on(pipeline_collectives(work), "pp"):
        for stage, times in enumerate(one.count_by_stage):
            arriving[one.phase][stage, (stage + (-1 if one.reverse else 1)) % pp] += times
    assert arriving["forward"].tolist() == arriving["backward"].T.tolist()


@given(schedule=schedules, pp=st.sampled_from((2, 4)))
def test_ranks_hold_the_model_and_opposed_pipelines_hold_it_twice(schedule, pp):
    work = workload("llama-3-8b", BATCH, {"schedule": schedule}, pp=pp, dp=2)
    held = sum(float(one.sum()) for one in work.parameters_by_stage())
    copies = 2 if work.is_opposed else 1
    assert held == copies * total_parameters(find_model("llama-3-8b"))


@given(
    imbalance=st.floats(1, 4),
    dispatcher=st.sampled_from(("alltoall", "deepep", "hybridep")),
    ep=st.sampled_from((2, 4, 8)),
)
def test_imbalance_scales_and_one_is_balanced(imbalance, dispatcher, ep):
    def tokens(**moe):
        moe = {"dispatcher": dispatcher} | moe
        work = workload("mixtral-8x7b", BATCH, moe=moe, dp=8, ep=ep)
        return float(named(expert_collectives(work), "tokens to")[0].bytes_by_stage[0])

    assert tokens(imbalance=1.0) == tokens()
    assert tokens(imbalance=imbalance) == pytest.approx(imbalance * tokens())


@given(
    keys=st.fixed_dictionaries(
        {
            "tp": st.sampled_from((1, 2)),
            "cp": st.sampled_from((1, 2)),
            "pp": st.sampled_from((1, 2)),
        }
    ),
    model=st.sampled_from(("llama-3-8b", "mixtral-8x7b")),
)
def test_twice_the_microbatches_twice_the_traffic_of_layers(keys, model):
    """And what runs once a step stays."""
    for sharding in ("none", "zero1"):
        once, twice = (
            modelled_collectives(
                workload(
                    model,
                    BATCH | {"num_microbatches": count},
                    dp=4,
                    ep=2 if model.startswith("mix") else 1,
                    etp=1,
                    sequence_parallel=True,
                    sharding=sharding,
                    **keys,
                )
            )
            for count in (8, 16)
        )
        for one, two in zip(once, twice, strict=True):
            factor = 2 if "microbatch" in one.per else 1
            assert (one.count_by_stage * factor).tolist() == two.count_by_stage.tolist()
            assert one.bytes_by_stage.tolist() == two.bytes_by_stage.tolist()


def test_a_step_is_what_its_parts_are():
    """``each`` times layers and microbatches is the count of the step."""
    work = workload("llama-3-8b", BATCH, tp=2, cp=2, pp=2, dp=2, sequence_parallel=True)
    for one in of_layers(modelled_collectives(work)):
        assert one.count_by_stage.sum() == one.each * 32 * 8
    assert sent_bytes(on(modelled_collectives(work), "cp"), 2) > 0
