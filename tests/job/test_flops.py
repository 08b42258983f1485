"""FLOPs of a token: against Megatron-LM's own count, and against what they must be."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.job.catalogue import find_model
from meshwright.job.flops import flops_per_token, utilisation
from meshwright.job.model import Model
from meshwright.job.parameters import active_parameters
from support import shared_path


def _model(config: dict) -> Model:
    heads = config["num_attention_heads"]
    latent = config.get("multi_latent_attention", False)
    head_dim = config["hidden_size"] // heads
    return Model(
        name="golden",
        num_layers=config["num_layers"],
        hidden=config["hidden_size"],
        ffn=config["ffn_hidden_size"],
        heads=heads,
        kv_heads=config.get("num_query_groups", heads),
        head_dim=config["qk_head_dim"] + config["qk_pos_emb_head_dim"] if latent else head_dim,
        vocab=config["padded_vocab_size"],
        gated_mlp=config.get("swiglu", True),
        experts=config.get("num_experts", 0),
        top_k=config.get("moe_router_topk", 0),
        moe_ffn=config.get("moe_ffn_hidden_size", 0),
        shared_ffn_total=config.get("moe_shared_expert_intermediate_size", 0),
        q_lora_rank=config.get("q_lora_rank", 0),
        kv_lora_rank=config.get("kv_lora_rank", 0),
        qk_nope_dim=config.get("qk_head_dim", 0),
        qk_rope_dim=config.get("qk_pos_emb_head_dim", 0),
        v_head_dim=config.get("v_head_dim", 0) if latent else 0,
    )


@pytest.mark.golden
def test_equals_megatrons_own_count():
    """``num_floating_point_operations`` run on each configuration; printed with seven digits."""
    path = shared_path("reference/golden/megatron_memory_flops.csv")
    with path.open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) > 10
    for row in rows:
        config = json.loads(row["config_json"])
        found = flops_per_token(
            _model(config), config["seq_length"], mtp_layers=config.get("mtp_num_layers", 0)
        )
        total = found.causal * int(row["gbs"]) * config["seq_length"]
        assert total == pytest.approx(float(row["flops_per_global_batch"]), rel=3e-7), row["model"]


def test_of_one_layer_by_hand():
    model = Model(
        name="one", num_layers=1, hidden=8, ffn=16, heads=2, kv_heads=1, head_dim=4, vocab=32
    )
    found = flops_per_token(model, 10)
    assert found.projections == 6 * (8 * (8 + 2 * 4) + 8 * 8)
    assert found.core_full == 2 * found.core_causal == 12 * 10 * 8
    assert found.mlp == 6 * 3 * 8 * 16
    assert found.logits == 6 * 8 * 32
    assert found.causal == found.projections + found.core_causal + found.mlp + found.logits
    assert found.full - found.causal == found.core_causal
    assert found.forward == found.causal / 3


def test_recompute_adds_a_forward_of_what_is_recomputed():
    found = flops_per_token(find_model("llama-3-8b"), 8192)
    assert found.hardware("none") == found.causal
    assert found.hardware("selective") - found.causal == pytest.approx(found.core_causal / 3)
    layers = found.causal - found.logits
    assert found.hardware("full") == pytest.approx(found.causal + layers / 3)


@pytest.mark.parametrize("name", ["llama-3-8b", "llama-3-70b", "mixtral-8x7b", "deepseek-v3"])
def test_near_six_times_the_active_parameters(name):
    """The rule of thumb 6 · P: without attention's core, and without the embedding, which multiplies nothing."""
    model = find_model(name)
    found = flops_per_token(model, 1)
    rule = 6 * (active_parameters(model) - model.vocab * model.hidden)
    assert found.causal == pytest.approx(rule, rel=0.01)


@given(st.integers(1, 1 << 20), st.integers(2, 64))
def test_only_the_core_grows_with_the_sequence(length, times):
    model = find_model("llama-3-8b")
    one, other = flops_per_token(model, length), flops_per_token(model, length * times)
    assert other.core_causal == pytest.approx(times * one.core_causal)
    assert other.causal - other.core_causal == pytest.approx(one.causal - one.core_causal)


def test_a_padded_vocabulary_costs_its_rows():
    model = find_model("llama-3-8b")
    more = flops_per_token(model, 4096, vocab=128512).causal - flops_per_token(model, 4096).causal
    assert more == 6 * model.hidden * (128512 - model.vocab)


def test_utilisation_is_work_over_peak():
    assert utilisation(9600, 5e10, 989.4e12) == pytest.approx(0.4851, abs=1e-4)
