"""Readers of Nemotron-H and Zamba 2: layers of one part, blocks that layers share."""

from __future__ import annotations

from typing import Any

from meshwright.job.huggingface.fields import (
    Fields,
    Shape,
    expert_sizes,
)
from meshwright.job.mixers import (
    DENSE,
    EXPERTS,
    MAMBA,
    NONE,
    Extra,
    Mamba,
)

_NEMOTRON = {
    "linear_attention": "M",
    "mamba": "M",
    "full_attention": "*",
    "attention": "*",
    "moe": "E",
    "mlp": "-",
}


def nemotron_h(fields: Fields) -> Shape:
    """Nemotron-H and Nemotron 3: each layer is a state space, attention, an MLP or experts."""
    fields.assume(mamba_num_heads=128, mamba_head_dim=64)
    pattern = _nemotron_pattern(fields)
    layers = len(pattern)
    hidden = fields.size("hidden_size", field="hidden")
    heads = fields.size("num_attention_heads", field="heads")
    bias = fields.flag("attention_bias", default=False)
    width = fields.first("head_dim", "attention_head_dim")
    shape = {
        "num_layers": layers,
        "hidden": hidden,
        "ffn": fields.size("intermediate_size", field="ffn") if DENSE in pattern else 0,
        "heads": heads,
        "kv_heads": fields.size("num_key_value_heads", heads, field="kv_heads"),
        "head_dim": fields.size(width, 128, field="head_dim"),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=False),
        "max_positions": fields.count("max_position_embeddings", field="max_positions") or None,
        "gated_mlp": False,
        "norms_per_layer": 1,
        "qkv_bias": bias,
        "o_bias": bias,
        "mlp_bias": fields.flag("mlp_bias", default=False),
        "mixers": "".join(one if one in "M*" else NONE for one in pattern),
        "mlps": "".join(one if one in "E-" else NONE for one in pattern),
        "mamba": _nemotron_space(fields),
    }
    return shape | (_nemotron_experts(fields) if EXPERTS in pattern else {})


def _nemotron_space(fields: Fields) -> Mamba:
    heads = fields.size("mamba_num_heads")
    return Mamba(
        version=2,
        inner=heads * fields.size("mamba_head_dim"),
        state=fields.size("ssm_state_size", 128),
        heads=heads,
        groups=fields.size("n_groups", 8),
        conv=fields.size("conv_kernel", 4),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=fields.flag("mamba_proj_bias", fields.flag("use_bias", default=False)),
    )


def _nemotron_pattern(fields: Fields) -> str:
    """Return the layers as letters: from ``hybrid_override_pattern`` or ``layers_block_type``."""
    pattern = fields.get("hybrid_override_pattern")
    key = fields.first("layers_block_type", "layer_types")
    kinds: Any = fields.get(key)
    if isinstance(kinds, list) and all(isinstance(one, str) for one in kinds):
        pattern = "".join(_NEMOTRON.get(one, "?") for one in kinds)
    else:
        key = "hybrid_override_pattern"
    if not isinstance(pattern, str) or not pattern:
        fields.reject(key, "is missing")
        return DENSE
    if set(pattern) - set("ME*-") or len(pattern) > 100_000:
        fields.reject(key, "names a kind of layer that is not known here (M, E, * and - are)")
        return DENSE
    return pattern


def _nemotron_experts(fields: Fields) -> Shape:
    experts = expert_sizes(fields, "n_routed_experts")
    width = fields.count("moe_shared_expert_intermediate_size", experts["moe_ffn"])
    return experts | {
        "shared_experts": fields.count("n_shared_experts", 1, field="shared_experts"),
        "shared_ffn_total": width,
        "moe_latent": fields.count("moe_latent_size", field="moe_latent"),
        "router_groups": fields.count("n_group", field="router_groups"),
        "router_topk_groups": fields.count("topk_group", field="router_topk_groups"),
        "mtp_layers": fields.count("num_nextn_predict_layers", field="mtp_layers"),
    }


def zamba2(fields: Fields) -> Shape:
    """Zamba 2: Mamba-2 in every layer; some read the output of transformer blocks they share.

    A block's weights stand where it runs first; a stage that runs it again holds a copy, which is
    not counted.
    """
    hidden = fields.size("hidden_size", field="hidden")
    heads = fields.size("num_attention_heads", field="heads")
    layers = fields.size("num_hidden_layers", field="num_layers")
    ffn = fields.size("intermediate_size", 4 * hidden)
    kinds = fields.words("layers_block_type", layers) or []
    hybrid = tuple(i for i, one in enumerate(kinds) if one in ("hybrid", "g"))
    hybrid = hybrid or tuple(fields.numbers("hybrid_layer_ids"))
    inner = fields.size("mamba_expand", 2) * hidden
    space = Mamba(
        version=2,
        inner=inner,
        state=fields.size("mamba_d_state", 64),
        heads=fields.size("n_mamba_heads", 8),
        groups=fields.size("mamba_ngroups", 1),
        conv=fields.size("mamba_d_conv", 4),
    )
    shape = {
        "num_layers": layers,
        "hidden": hidden,
        "ffn": 0,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": max(1, 2 * hidden // heads),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "max_positions": fields.count("max_position_embeddings", field="max_positions") or None,
        "norms_per_layer": 1,
        "mixers": MAMBA * layers,
        "mlps": NONE * layers,
        "mamba": space,
    }
    return shape | {"extras": _zamba2_blocks(fields, hidden, ffn, hybrid)}


def _zamba2_blocks(
    fields: Fields, hidden: int, ffn: int, hybrid: tuple[int, ...]
) -> tuple[Extra, ...]:
    if not hybrid:
        fields.reject("layers_block_type", "names no hybrid layer")
        return ()
    if fields.flag("add_bias_linear", default=False):
        fields.reject("add_bias_linear", "true is not known")
    rank, blocks = fields.size("adapter_rank", 128), fields.size("num_mem_blocks", 1)
    wide = 2 * hidden  # the block reads the embedding beside the hidden states
    attention = 3 * wide * wide + wide * hidden
    adapters = rank * (hidden + 2 * ffn)
    if fields.flag("use_shared_attention_adapter", default=False):
        adapters += 3 * 2 * rank * wide
    block = attention + 3 * hidden * ffn
    return (
        Extra(
            name="shared attention block",
            parameters=block + wide + hidden,
            at=hybrid[:blocks],
        ),
        Extra(
            name="adapters of the shared block",
            parameters=adapters + hidden * hidden,
            at=hybrid,
            multiply_adds=block + adapters + hidden * hidden,
            core_width=2 * wide,
        ),
    )
