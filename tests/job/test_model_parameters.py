"""Parameter counts: published totals, and what each rank holds."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.job.catalogue import find_model, model_names
from meshwright.job.model import Model
from meshwright.job.parameters import (
    StageLayers,
    active_parameters,
    parameter_parts,
    parameters_per_rank,
    total_parameters,
)

TINY = Model(
    name="tiny",
    num_layers=2,
    hidden=8,
    ffn=20,
    heads=4,
    kv_heads=2,
    head_dim=3,
    vocab=10,
)


def changed(model, **fields):
    return msgspec.structs.replace(model, **fields)


def whole(model):
    return StageLayers(tuple(range(model.num_layers)), has_embedding=True, has_output=True)


def on_one_rank(model, stage):
    held = parameters_per_rank(model, stage, tp=1, ep=1, etp=1)
    return held.dense + held.expert


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("gpt-oss-20b", 20_914_757_184),
        ("gpt-oss-120b", 116_829_156_672),
        ("deepseek-v3", 671_026_404_352),
    ],
)
def test_published_totals(name, expected):
    assert total_parameters(find_model(name)) == expected


def test_counts_by_hand():
    """8 wide, 4 heads of 3 with 2 key/value heads, gated 20 wide, two layers, 10 words."""
    layer = 8 * 12 + 2 * (8 * 6) + 12 * 8 + 3 * 8 * 20 + 2 * 8
    assert total_parameters(TINY) == 2 * layer + 2 * 10 * 8 + 8
    biased = changed(
        TINY, gated_mlp=False, qkv_bias=True, o_bias=True, mlp_bias=True, norm_bias=True
    )
    layer = 9 * 12 + 2 * (9 * 6) + 12 * 8 + 8 + 9 * 20 + 20 * 8 + 8 + 4 * 8
    assert total_parameters(biased) == 2 * layer + 2 * 10 * 8 + 16
    both_norms = total_parameters(changed(TINY, qk_norm="head")) - total_parameters(TINY)
    assert both_norms == 2 * (3 + 3)
    both_norms = total_parameters(changed(TINY, qk_norm="full")) - total_parameters(TINY)
    assert both_norms == 2 * (12 + 6)


def test_active_leaves_out_idle_experts():
    model = changed(TINY, experts=6, top_k=2, moe_ffn=5, mlp_bias=True, first_dense_layers=1)
    one_expert = 3 * 8 * 5 + 2 * 5 + 8
    assert total_parameters(model) - active_parameters(model) == 4 * one_expert
    assert active_parameters(TINY) == total_parameters(TINY)


@pytest.mark.parametrize("name", model_names())
def test_one_rank_holds_the_whole_model(name):
    model = find_model(name)
    assert on_one_rank(model, whole(model)) == total_parameters(model)


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("stages", [2, 5])
def test_stages_add_up(name, stages):
    model = find_model(name)
    cuts = np.array_split(np.arange(model.num_layers), stages)
    held = sum(
        on_one_rank(
            model,
            StageLayers(tuple(cut.tolist()), has_embedding=i == 0, has_output=i == stages - 1),
        )
        for i, cut in enumerate(cuts)
    )
    copy = parameter_parts(model).embedding if model.tied_embeddings else 0
    assert held == total_parameters(model) + copy


@settings(deadline=None)
@given(st.data())
def test_sharded_parts_are_conserved(data):
    """Over the ranks, every part adds up to its own size times the ranks that copy it."""
    tp = data.draw(st.integers(1, 8), label="tp")
    etp = data.draw(st.integers(1, 4), label="etp")
    ep = data.draw(st.integers(1, 4), label="ep")
    flags = {
        field: data.draw(st.booleans(), label=field)
        for field in ("gated_mlp", "qkv_bias", "o_bias", "mlp_bias", "norm_bias", "router_bias")
    }
    model = changed(
        TINY,
        hidden=tp * data.draw(st.integers(1, 9)),
        heads=2 * tp,
        kv_heads=tp,
        ffn=tp * data.draw(st.integers(1, 9)),
        vocab=tp * data.draw(st.integers(1, 9)),
        experts=ep * 3,
        top_k=2,
        moe_ffn=etp * 4,
        shared_ffn_total=tp * 2,
        first_dense_layers=1,
        **flags,
    )
    held = parameters_per_rank(model, whole(model), tp=tp, ep=ep, etp=etp)
    parts = parameter_parts(model)
    layers = [parts.dense_layer, parts.moe_layer]
    replicated = parts.final_norm + sum(
        layer.attention_replicated + layer.mlp_replicated + layer.router + layer.norms
        for layer in layers
    )
    bias = parts.moe_layer.experts_replicated
    dense = total_parameters(model) - parts.moe_layer.experts_sharded - bias
    assert math.isclose(held.dense * tp, dense + (tp - 1) * replicated)
    assert math.isclose(held.expert * ep * etp, parts.moe_layer.experts_sharded + etp * bias)


def test_key_value_heads_are_copied_only_where_the_framework_does():
    stage = StageLayers((0,), has_embedding=False, has_output=False)
    common = {"tp": 4, "ep": 1, "etp": 1}
    split = parameters_per_rank(TINY, stage, **common).dense
    copied = parameters_per_rank(TINY, stage, **common, kv_replication=True).dense
    # Two heads of keys and of values over four ranks: half a head each, or one whole head each.
    assert copied - split == 2 * (8 * 3) / 2
    same = {"tp": 2, "ep": 1, "etp": 1}
    assert (
        parameters_per_rank(TINY, stage, **same).dense
        == parameters_per_rank(TINY, stage, **same, kv_replication=True).dense
    )


def test_latent_down_projections_are_held_whole():
    model = find_model("deepseek-v3")
    layer = parameter_parts(model).moe_layer
    assert layer.attention_replicated == 7168 * (1536 + 512 + 64) + 1536 + 512
    assert layer.experts_sharded == 256 * 3 * 7168 * 2048
    assert layer.router == 256 * 7168


def test_multi_token_prediction_comes_on_top():
    model = find_model("deepseek-v3")
    last = StageLayers((60,), has_embedding=False, has_output=True)
    more = msgspec.structs.replace(last, mtp_layers=1)
    parts = parameter_parts(model)
    extra = parts.moe_layer.total + 2 * 7168 * 7168 + 3 * 7168 + parts.embedding
    assert on_one_rank(model, more) - on_one_rank(model, last) == extra


def test_degrees_may_be_arrays():
    model = find_model("mixtral-8x7b")
    tp, ep, etp = np.array([1, 2, 16]), np.array([1, 8, 4]), np.array([1, 1, 2])
    for copies in (False, True):
        held = parameters_per_rank(
            model, whole(model), tp=tp, ep=ep, etp=etp, kv_replication=copies
        )
        for i in range(3):
            one = parameters_per_rank(
                model,
                whole(model),
                tp=int(tp[i]),
                ep=int(ep[i]),
                etp=int(etp[i]),
                kv_replication=copies,
            )
            assert (held.dense[i], held.expert[i]) == (one.dense, one.expert)
