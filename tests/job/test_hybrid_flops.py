"""FLOPs of hybrids: Megatron-LM's formulas written out again, windows, parts that sum."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.job.catalogue import find_model, model_names
from meshwright.job.flops import flops_per_token
from meshwright.job.layer_flops import layer_work
from meshwright.job.mixers import Extra
from meshwright.job.parameters import active_parameters


def mamba_layer(hidden, inner, state, groups, heads):
    """``mamba_layer_flops`` of Megatron-LM, one token, with its 2 · hidden given as ``inner``."""
    return (
        2 * hidden * (2 * inner + 2 * groups * state + heads)
        + 7 * inner * state
        + 2 * inner * hidden
    )


def gdn_layer(hidden, key_dim, value_dim, key_heads, value_heads, kernel):
    """``gdn_layer_flops`` of Megatron-LM, one token."""
    keys, values = key_dim * key_heads, value_dim * value_heads
    return 2 * (
        hidden * (2 * keys + 2 * values + 2 * value_heads)
        + kernel * (2 * keys + values)
        + value_heads * value_dim**2 * 4
        + hidden * values
    )


def attention_layer(hidden, heads, groups, head_dim, seq_len):
    """``attn_layer_flops`` of Megatron-LM, one token."""
    share = head_dim * heads / hidden
    return 4 * hidden * share * (hidden + hidden * groups / heads + seq_len / 2)


@pytest.mark.parametrize("seq_len", [1024, 8192])
def test_nemotron_h_is_megatrons_hybrid_count(seq_len):
    model = find_model("nemotron-h-56b")
    expected = 54 * mamba_layer(8192, 16384, 256, 8, 256)
    expected += 10 * attention_layer(8192, 64, 8, 128, seq_len)
    expected += 54 * 4 * 8192 * 32768
    expected += 2 * 8192 * 131072
    assert flops_per_token(model, seq_len).forward == pytest.approx(expected, rel=1e-12)


def test_nemotron_3_experts_at_a_latent_width_are_megatrons():
    model = find_model("nemotron-3-super-120b-a12b")
    found = flops_per_token(model, 4096)
    experts = model.mlps.count("E")
    routed = 4 * 1024 * 2688 * 22 + 4 * 4096 * 1024
    assert found.experts == pytest.approx(3 * experts * routed)
    assert found.shared_experts == pytest.approx(3 * experts * 4 * 4096 * 5376)


def test_qwen3_next_is_megatrons_delta_rule():
    model = find_model("qwen3-next-80b-a3b")
    work = layer_work(model, 0, 4096)
    assert 2 * (work.projections + work.recurrence) == gdn_layer(2048, 128, 128, 16, 32, 4)
    gated = layer_work(model, 3, 4096)
    assert gated.projections == 2048 * (2 * 4096 + 2 * 512) + 4096 * 2048


@pytest.mark.parametrize(
    "name", ["nemotron-h-8b", "qwen3-next-80b-a3b", "jamba-1.5-mini", "falcon-h1-7b"]
)
def test_projections_and_mlps_are_twice_their_parameters(name):
    """All matrices but routers multiply once: 6 · P without the recurrences and the embedding."""
    model = find_model(name)
    found = flops_per_token(model, 1)
    rule = 6 * (active_parameters(model) - model.vocab * model.hidden)
    assert found.causal - found.recurrence == pytest.approx(rule, rel=0.02)


@pytest.mark.parametrize("name", model_names())
def test_layers_sum_to_the_model(name):
    model = find_model(name)
    found = flops_per_token(model, 8192)
    layers = sum(layer_work(model, layer, 8192).total for layer in range(model.num_layers))
    ends = sum(one.multiply_adds for one in model.extras if one.place != "layers")
    assert 6 * (layers + ends) + found.logits == pytest.approx(found.causal, rel=1e-12)


@given(st.integers(1, 1 << 17), st.integers(1, 1 << 17))
def test_a_window_never_costs_more_than_none(seq_len, window):
    full = find_model("llama-3-8b")
    slid = msgspec.structs.replace(full, mixers="S" * full.num_layers, window=window)
    windowed, plain = flops_per_token(slid, seq_len), flops_per_token(full, seq_len)
    assert windowed.core_causal <= plain.core_causal * (1 + 1e-12)
    assert windowed.projections == plain.projections
    if window >= seq_len:
        assert windowed.core_causal == plain.core_causal


def test_states_cost_the_same_at_any_length():
    model = find_model("mamba-codestral-7b")
    assert flops_per_token(model, 1 << 20).causal == flops_per_token(model, 1).causal
    assert flops_per_token(model, 4096).core_causal == 0


def test_keys_of_many_tokens_cost_their_share():
    model = find_model("llama-3-8b")
    keys = Extra(
        name="keys", parameters=1, multiply_adds=2, core_width=12, core_stride=4, core_most=100
    )
    more = msgspec.structs.replace(model, extras=(keys,))
    short, long = 200, 40_000
    for length, seen in ((short, length_of(short, 4, 100)), (long, length_of(long, 4, 100))):
        found, plain = flops_per_token(more, length), flops_per_token(model, length)
        assert found.core_causal - plain.core_causal == pytest.approx(6 * 32 * 12 * seen, rel=1e-3)
        assert found.extras == 6 * 32 * 2


def length_of(seq_len, stride, most):
    """Keys a token sees on average, counted token by token."""
    return sum(min((i + 0.5) / stride, most) for i in range(seq_len)) / seq_len
