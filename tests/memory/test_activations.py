"""Activations of a layer: against the paper's forms, tensor by tensor, and how they move."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.building import BATCH, DENSE, EXPERTS, LATENT, workload
from meshwright.job.model import Model
from meshwright.memory.activations import Cut, megatron_layer, torch_layer, whole_layer_bytes
from meshwright.memory.korthikanti import STRATEGIES, bytes_per_layer, first_stage_bytes
from meshwright.memory.peak import imbalance_of
from support import shared_path


@pytest.mark.golden
def test_korthikanti():
    compared = 0
    with shared_path("reference/golden/korthikanti.csv").open() as file:
        for row in csv.DictReader(file):
            heads, hidden, tp = int(row["heads"]), int(row["hidden"]), int(row["tp"])
            elements = 2048 * int(row["mbs"]) * hidden
            found = bytes_per_layer(row["strategy"], elements, tp, 5 * heads * 2048 / hidden)
            assert found == pytest.approx(float(row["bytes_per_layer"]), rel=1e-9), row
            vp = int(row["vpp"])
            stage = first_stage_bytes(found, int(row["layers"]), int(row["pp"]), vp)
            column = "first_stage_bytes_L_layers_x_interleave_penalty"
            assert stage == pytest.approx(float(row[column]), rel=1e-9), row
            compared += 1
    assert compared == 4 * len(STRATEGIES)
    with pytest.raises(ValueError, match="no strategy"):
        bytes_per_layer("some", 1, 1, 1)


def test_a_gpt_layer_with_sequence_parallelism_is_the_papers_32_over_t():
    """34·sbh/t with dropout masks, 32 without them; the log-sum-exp comes on top."""
    gpt = Model(
        name="gpt", num_layers=1, hidden=256, ffn=1024, heads=8, kv_heads=8, head_dim=32, vocab=128,
        gated_mlp=False,
    )  # fmt: skip
    tokens, tp = 512, 4
    found = whole_layer_bytes(gpt, Cut(tokens, 2, tp, tp), experts=False)
    assert found == tokens * 256 * 32 / tp + 4 * tokens * 8 / tp


def test_a_gated_layer_is_the_sum_of_its_tensors():
    """(T/t)·(8h + 2(2n + 2g)d + 6f + 4n) bytes."""
    tokens, tp = 256, 2
    found = whole_layer_bytes(DENSE, Cut(tokens, 2, tp, tp), experts=False)
    assert found == tokens / tp * (8 * 64 + 2 * (16 + 8) * 8 + 6 * 192 + 4 * 8)


def test_without_sequence_parallelism_the_norms_are_whole():
    one, both = Cut(256, 2, 4, 1), Cut(256, 2, 4, 4)
    difference = whole_layer_bytes(DENSE, one, experts=False) - whole_layer_bytes(
        DENSE, both, experts=False
    )
    assert difference == 8 * 256 * 64 * (1 - 1 / 4)


def test_latent_attention_keeps_both_parts_of_query_and_key():
    tokens = 128
    found = whole_layer_bytes(LATENT, Cut(tokens, 2, 1, 1), experts=False)
    heads = 4 * (2 * 24 + 2 * 16)
    latents = 2 * (32 + 16) + 8
    assert found == tokens * (8 * 64 + 2 * (heads + latents) + 4 * 4 + 6 * 192)


def test_experts_count_routed_copies_and_their_imbalance():
    even = whole_layer_bytes(EXPERTS, Cut(128, 2, 1, 1), experts=True)
    skewed = whole_layer_bytes(EXPERTS, Cut(128, 2, 1, 1, imbalance=2.0), experts=True)
    assert skewed - even == 2 * 128 * 2 * (64 + 3 * 32)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, 1.0),
        ({"imbalance": 1.5}, 1.5),
        ({"imbalance": 1.5, "capacity_factor": 1.25}, 1.25),
        ({"imbalance": 1.5, "capacity_factor": 2.0, "pad_to_capacity": True}, 2.0),
    ],
)
def test_capacity_bounds_imbalance(keys, expected):
    assert imbalance_of(workload(EXPERTS, dp=4, ep=4, **BATCH, **keys)) == expected


@pytest.mark.parametrize("form", [megatron_layer, torch_layer])
@pytest.mark.parametrize("model", [DENSE, EXPERTS, LATENT])
@pytest.mark.parametrize("tp", [1, 4])
def test_recomputation_keeps_less_and_works_more(form, model, tp):
    cut = Cut(256, 2, tp, tp)
    kinds = [form(model, cut, kind, experts=model.is_moe) for kind in ("none", "selective", "full")]
    kept = [one.kept for one in kinds]
    assert kept[0] > kept[1] > kept[2] > 0
    assert kinds[0].working < kinds[2].working
    assert kept[2] == 2 * 256 * 64 / tp


@given(st.sampled_from([DENSE, EXPERTS, LATENT]), st.integers(1, 4096), st.sampled_from([1, 2, 4]))
def test_bytes_grow_with_tokens_and_arrays_are_candidates(model, tokens, tp):
    both = whole_layer_bytes(
        model, Cut(np.array([tokens, 2 * tokens]), 2, tp, tp), experts=model.is_moe
    )
    assert both[1] == pytest.approx(2 * both[0])
    one = whole_layer_bytes(model, Cut(tokens, 2, tp, tp), experts=model.is_moe)
    assert both[0] == pytest.approx(one)


@pytest.mark.parametrize("framework", ["torch", "torchtitan", "megatron"])
def test_routed_tokens_do_not_grow_with_tp(framework):
    """Experts cut over tp as an MLP take all tokens of the context-parallel rank, whatever tp is."""
    from meshwright.memory.activations import routed_tokens
    from meshwright.memory.peak import cut_of

    sequence = {"sequence_parallel": True} if framework == "megatron" else {}
    counts = [
        routed_tokens(EXPERTS, cut_of(workload(EXPERTS, framework=framework, tp=tp, dp=2, **keys)))
        for tp in (1, 2, 4, 8)
        for keys in [{**BATCH, **(sequence if tp > 1 else {})}]
    ]
    assert counts == [BATCH["micro_batch"] * BATCH["seq_len"] * EXPERTS.top_k] * 4


def test_experts_that_stay_whole_take_a_share_of_the_tokens():
    """ep beside tp, each expert on one rank: the tp ranks dispatch different tokens."""
    from meshwright.memory.activations import routed_tokens
    from meshwright.memory.peak import cut_of

    keys = {"tp": 4, "dp": 2, "ep": 8, "etp": 1, "framework": "torchtitan", **BATCH}
    tokens = BATCH["micro_batch"] * BATCH["seq_len"]
    assert routed_tokens(EXPERTS, cut_of(workload(EXPERTS, **keys))) == tokens / 4 * EXPERTS.top_k
