"""Readers of state-space models and their hybrids with attention: see ``fields.py``."""

from __future__ import annotations

from meshwright.job.huggingface.fields import (
    Fields,
    Shape,
    biases,
    common,
    expert_sizes,
    layer_letters,
    listed,
)
from meshwright.job.mixers import (
    ATTENTION,
    MAMBA,
    NONE,
    PARALLEL,
    Mamba,
)


def mamba(fields: Fields) -> Shape:
    """Mamba-1 and Falcon-Mamba: nothing but state spaces."""
    hidden = fields.size("hidden_size", field="hidden")
    rank = fields.get("time_step_rank")
    inner = fields.size("intermediate_size", fields.size("expand", 2) * hidden)
    bias = fields.flag("use_bias", default=False)
    space = Mamba(
        version=1,
        inner=inner,
        state=fields.size("state_size", 16),
        dt_rank=-(-hidden // 16) if rank in (None, "auto") else fields.size("time_step_rank"),
        conv=fields.size("conv_kernel", 4),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=bias,
    )
    # Each channel is a head of its own (arXiv 2405.21060, section 7.2).
    return _only_mamba(fields, hidden, space, heads=inner, head_dim=1, tied=True)


def mamba2(fields: Fields) -> Shape:
    """Mamba-2: nothing but state spaces with heads."""
    hidden = fields.size("hidden_size", field="hidden")
    heads = fields.size("num_heads", field="heads")
    width = fields.size("head_dim", 64, field="head_dim")
    space = Mamba(
        version=2,
        inner=fields.size("expand", 2) * hidden,
        state=fields.size("state_size", 128),
        heads=heads,
        groups=fields.size("n_groups", 8),
        conv=fields.size("conv_kernel", 4),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=fields.flag("use_bias", default=False),
    )
    return _only_mamba(fields, hidden, space, heads=heads, head_dim=width, tied=False)


def _only_mamba(
    fields: Fields, hidden: int, space: Mamba, *, heads: int, head_dim: int, tied: bool
) -> Shape:
    layers = fields.size("num_hidden_layers", field="num_layers")
    return {
        "num_layers": layers,
        "hidden": hidden,
        "ffn": 0,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": head_dim,
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", tied),
        "norms_per_layer": 1,
        "mixers": MAMBA * layers,
        "mlps": NONE * layers,
        "mamba": space,
    }


def _mamba2_of(
    fields: Fields, hidden: int, *, bias: bool | None = None, norm: bool = True
) -> Mamba:
    """Return the Mamba-2 that Bamba, Granite 4 and Falcon-H1 describe in the same words."""
    heads = fields.size("mamba_n_heads", 128)
    inner = fields.size("mamba_d_ssm", fields.size("mamba_expand", 2) * hidden)
    return Mamba(
        version=2,
        inner=inner,
        state=fields.size("mamba_d_state", 256),
        heads=heads,
        groups=fields.size("mamba_n_groups", 1),
        conv=fields.size("mamba_d_conv", 4),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        proj_bias=fields.flag("mamba_proj_bias", default=False) if bias is None else bias,
        gated_norm=norm,
    )


def bamba(fields: Fields) -> Shape:
    """Bamba: Mamba-2 with attention in the layers listed."""
    shape = common(fields) | biases(fields) | {"mlp_bias": fields.flag("mlp_bias", default=False)}
    layers = shape["num_layers"]
    letters = listed(layers, fields.numbers("attn_layer_indices"), ATTENTION, MAMBA)
    return shape | {"mixers": letters, "mamba": _mamba2_of(fields, shape["hidden"])}


def granitemoehybrid(fields: Fields) -> Shape:
    """Granite 4: Mamba-2 with some attention; experts beside a shared MLP, or that alone."""
    width = fields.count("shared_intermediate_size", 1024)
    experts: Shape = {}
    if fields.count("num_local_experts", 0):
        experts = expert_sizes(fields, "num_local_experts", "intermediate_size")
        experts |= {"shared_experts": 1, "shared_ffn_total": width}
    shape = common(fields) | biases(fields) | experts
    if not experts:
        shape["ffn"] = width
    layers = shape["num_layers"]
    names = {"mamba": MAMBA, "linear_attention": MAMBA}
    letters = layer_letters(
        fields, layers, names, key=fields.first("layer_types", "layers_block_type")
    )
    letters = letters or MAMBA * layers
    if MAMBA not in letters:
        return shape
    return shape | {"mixers": letters, "mamba": _mamba2_of(fields, shape["hidden"])}


def falcon_h1(fields: Fields) -> Shape:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    shape = common(fields) | biases(fields) | {"mlp_bias": fields.flag("mlp_bias", default=False)}
    into = fields.flag("mamba_proj_bias", default=False)
    if into != fields.flag("projectors_bias", default=into):
        fields.reject("projectors_bias", "other than mamba_proj_bias is not known")
    norm = fields.flag("mamba_rms_norm", default=False)
    space = _mamba2_of(fields, shape["hidden"], bias=into, norm=norm)
    return shape | {"mixers": PARALLEL * shape["num_layers"], "mamba": space}


def jamba(fields: Fields) -> Shape:
    """Jamba: Mamba-1 with attention in every eighth layer, experts in every other."""
    shape = common(fields)
    hidden, layers = shape["hidden"], shape["num_layers"]
    rank = fields.get("mamba_dt_rank")
    space = Mamba(
        version=1,
        inner=fields.size("mamba_expand", 2) * hidden,
        state=fields.size("mamba_d_state", 16),
        dt_rank=-(-hidden // 16) if rank in (None, "auto") else fields.size("mamba_dt_rank"),
        conv=fields.size("mamba_d_conv", 4),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        proj_bias=fields.flag("mamba_proj_bias", default=False),
        inner_norms=True,
    )
    step, first = fields.size("attn_layer_period", 8), fields.count("attn_layer_offset", 4)
    letters = "".join(ATTENTION if i % step == first else MAMBA for i in range(layers))
    found = shape | {"mixers": letters, "mamba": space}
    if fields.size("num_experts", 16) == 1:
        return found
    fields.assume(num_experts=16, num_experts_per_tok=2)
    experts = expert_sizes(fields, "num_experts", "intermediate_size")
    period = fields.size("expert_layer_period", 2, field="moe_layer_period")
    offset = fields.count("expert_layer_offset", 1, field="moe_layer_offset")
    return found | experts | {"moe_layer_period": period, "moe_layer_offset": offset}
