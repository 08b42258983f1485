"""Readers of hybrids with delta rules, lightning attention and convolutions."""

from __future__ import annotations

from meshwright.job.huggingface.experts import (
    gated_shared,
)
from meshwright.job.huggingface.fields import (
    Fields,
    Shape,
    biases,
    common,
    dense_or_experts,
    expert_sizes,
    latent_attention,
    layer_letters,
    linear_or_full,
    listed,
    shared,
    sparse_steps,
)
from meshwright.job.mixers import (
    ATTENTION,
    CONVOLUTION,
    DELTA,
    LIGHTNING,
    DeltaNet,
    ShortConvolution,
)


def _gated_delta(fields: Fields) -> DeltaNet:
    return DeltaNet(
        key_heads=fields.size("linear_num_key_heads"),
        value_heads=fields.size("linear_num_value_heads"),
        key_dim=fields.size("linear_key_head_dim"),
        value_dim=fields.size("linear_value_head_dim"),
        conv=fields.size("linear_conv_kernel_dim", 4),
    )


def _qwen_hybrid(fields: Fields, *, has_mlp: bool) -> Shape:
    shape = common(fields, head_dim=256, has_mlp=has_mlp) | biases(fields)
    step = fields.size("full_attention_interval", 4)
    return shape | {
        "qk_norm": "head",
        "attention_gate": "full",
        "mixers": linear_or_full(fields, shape["num_layers"], DELTA, step),
        "delta": _gated_delta(fields),
    }


def qwen3_next(fields: Fields) -> Shape:
    """Qwen3-Next: a gated delta rule in three of four layers, experts in all."""
    shape = _qwen_hybrid(fields, has_mlp=True) | expert_sizes(fields, "num_experts")
    return shape | sparse_steps(fields, "decoder_sparse_step") | gated_shared(fields)


def qwen3_5(fields: Fields) -> Shape:
    """Qwen 3.5 dense."""
    return _qwen_hybrid(fields, has_mlp=True)


def qwen3_5_moe(fields: Fields) -> Shape:
    """Qwen 3.5 MoE."""
    shape = _qwen_hybrid(fields, has_mlp=False) | expert_sizes(fields, "num_experts")
    return shape | gated_shared(fields)


def olmo_hybrid(fields: Fields) -> Shape:
    """OLMo Hybrid: a gated delta rule in three of four layers."""
    shape = common(fields) | biases(fields) | {"qk_norm": "full"}
    letters = linear_or_full(fields, shape["num_layers"], DELTA, 4)
    return shape | {"mixers": letters, "delta": _gated_delta(fields)}


def kimi_linear(fields: Fields) -> Shape:
    """Kimi Linear: Kimi Delta Attention with latent attention in every fourth layer."""
    shape = common(fields, head_dim=1) | biases(fields) | latent_attention(fields)
    layers = shape["num_layers"]
    nested = "linear_attn_config."
    full = fields.numbers(nested + "full_attn_layers")  # from 1
    letters = listed(layers, [one - 1 for one in full], ATTENTION, DELTA)
    if not full:
        letters = layer_letters(fields, layers, {"linear_attention": DELTA})
        letters = letters or "".join(
            ATTENTION if i and i % 4 == 0 else DELTA for i in range(layers)
        )
    heads = fields.size(fields.first(nested + "num_heads", "linear_num_heads"))
    width = fields.size(fields.first(nested + "head_dim", "linear_head_dim"))
    kernel = fields.first(nested + "short_conv_kernel_size", "linear_conv_kernel_dim")
    rule = DeltaNet(
        key_heads=heads,
        value_heads=heads,
        key_dim=width,
        value_dim=width,
        conv=fields.size(kernel, 4),
        rule="kimi",
    )
    experts = {
        "experts": fields.size(fields.first("num_experts", "num_local_experts"), field="experts"),
        "top_k": fields.size(
            fields.first("num_experts_per_token", "num_experts_per_tok"), field="top_k"
        ),
        "moe_ffn": fields.size("moe_intermediate_size", field="moe_ffn"),
    }
    key = fields.first("num_shared_experts", "n_shared_experts")
    first = fields.count("first_k_dense_replace", 1, field="first_dense_layers")
    return (
        shape
        | {"mixers": letters, "delta": rule, "first_dense_layers": first}
        | experts
        | shared(fields, experts["moe_ffn"], key=key, default=1)
        | dense_or_experts(fields, layers)
    )


def minimax(fields: Fields) -> Shape:
    """MiniMax-Text-01: lightning attention in most layers, experts in all."""
    experts = expert_sizes(fields, "num_local_experts", "intermediate_size")
    shape = common(fields) | experts
    layers = shape["num_layers"]
    kinds = fields.numbers("attn_type_list")
    letters = "".join(ATTENTION if one else LIGHTNING for one in kinds)
    return shape | {"mixers": letters or linear_or_full(fields, layers, LIGHTNING, 2)}


def lfm2(fields: Fields) -> Shape:
    """LFM2: short convolutions with some attention."""
    shape = common(fields, tied=True) | {"qk_norm": "head"}
    if fields.flag("block_auto_adjust_ff_dim", default=True):
        shape["ffn"] = _adjusted(fields, shape["ffn"])
    return shape | _convolutions(fields, shape["num_layers"])


def _adjusted(fields: Fields, width: int) -> int:
    times = fields.get("block_ffn_dim_multiplier")
    multiple = fields.size("block_multiple_of", 256)
    width = int(2 * width / 3)
    if isinstance(times, (int, float)) and not isinstance(times, bool) and 0 < times < 100:
        width = int(times * width)
    return -(-width // multiple) * multiple


def _convolutions(fields: Fields, layers: int) -> Shape:
    chosen = fields.numbers("full_attn_idxs")
    names = {"conv": CONVOLUTION, "short_conv": CONVOLUTION, "linear_attention": CONVOLUTION}
    letters = layer_letters(fields, layers, names) or listed(layers, chosen, ATTENTION, CONVOLUTION)
    if CONVOLUTION not in letters:
        return {}
    kernel = fields.size("conv_L_cache", 3)
    bias = fields.flag("conv_bias", default=False)
    return {"mixers": letters, "convolution": ShortConvolution(kernel=kernel, bias=bias)}


def lfm2_moe(fields: Fields) -> Shape:
    """LFM2 MoE: experts behind a dense head of the model."""
    shape = common(fields, tied=True) | {"qk_norm": "head"} | expert_sizes(fields, "num_experts")
    first = fields.count("num_dense_layers", 2, field="first_dense_layers")
    return shape | {"first_dense_layers": first} | _convolutions(fields, shape["num_layers"])
