"""The shape of a transformer: what parameter counts, memory, FLOPs and traffic are made from."""

from __future__ import annotations

from typing import Literal

import msgspec

NormKind = Literal["rms", "layer"]
QkNorm = Literal["none", "head", "full"]

LARGEST_DIMENSION = 2**31 - 1
MOST_LAYERS = 100_000


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Dimensions of one decoder-only transformer; what does not apply is 0, False or None.

    All numbers are counts (layers, heads, experts) or widths in elements.
    """

    name: str
    num_layers: int
    hidden: int
    ffn: int
    """Inner width of a dense MLP; unused where every layer is a mixture of experts."""
    heads: int
    kv_heads: int
    head_dim: int
    """Width of one query and key head; for latent attention ``qk_nope_dim + qk_rope_dim``."""
    vocab: int
    """Rows of the embedding as the model ships it; frameworks pad this further."""
    tied_embeddings: bool = False
    gated_mlp: bool = True
    """Three matrices (gate, up, down) instead of two."""
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    """Biases of dense MLPs and of routed experts."""
    norm: NormKind = "rms"
    norm_bias: bool = False
    qk_norm: QkNorm = "none"
    """``head``: one weight of ``head_dim`` each for q and k; ``full``: over all heads."""
    norms_per_layer: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    learned_positions: int = 0
    """Rows of a learned position embedding (0: rotary, ALiBi or none)."""
    attention_sinks: bool = False
    """One learned logit a query head (gpt-oss)."""

    experts: int = 0
    top_k: int = 0
    moe_ffn: int = 0
    """Inner width of one routed expert."""
    shared_experts: int = 0
    shared_ffn_total: int = 0
    """Inner width of all shared experts together."""
    shared_expert_gate: bool = False
    router_bias: bool = False
    """A trained bias; the score correction of DeepSeek-V3 is a buffer and does not count."""
    first_dense_layers: int = 0
    moe_layer_period: int = 1
    moe_layer_offset: int = 0
    """From ``first_dense_layers`` on, layer ``i`` has experts when ``i % period == offset``."""
    router_groups: int = 0
    router_topk_groups: int = 0

    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    """Above 0: latent attention (MLA)."""
    qk_nope_dim: int = 0
    qk_rope_dim: int = 0
    v_head_dim: int = 0

    mtp_layers: int = 0
    """Multi-token prediction layers behind the last layer; no part of the published sizes."""
    max_positions: int | None = None
    """Longest sequence the model was made for."""
    block: str = "transformer"
    source: str = ""
    mark: str = ""
    """S read in the source, D derived, V counted by running code, P from memory (not checked)."""
    note: str = ""

    @property
    def is_moe(self) -> bool:
        """Tell whether any layer is a mixture of experts."""
        return self.experts > 0

    @property
    def is_mla(self) -> bool:
        """Tell whether attention is latent (DeepSeek)."""
        return self.kv_lora_rank > 0

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.v_head_dim or self.head_dim

    @property
    def num_moe_layers(self) -> int:
        """Count the layers with experts."""
        return sum(moe_layers(self))


def is_moe_layer(model: Model, layer: int) -> bool:
    """Tell whether layer ``layer`` (from 0) is a mixture of experts."""
    return (
        model.is_moe
        and layer >= model.first_dense_layers
        and layer % model.moe_layer_period == model.moe_layer_offset
    )


def moe_layers(model: Model) -> tuple[bool, ...]:
    """Return for each of the ``num_layers`` layers whether it is a mixture of experts."""
    return tuple(is_moe_layer(model, layer) for layer in range(model.num_layers))


_POSITIVE = ("num_layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "moe_layer_period")
_NOT_NEGATIVE = (
    "ffn",
    "norms_per_layer",
    "learned_positions",
    "experts",
    "top_k",
    "moe_ffn",
    "shared_experts",
    "shared_ffn_total",
    "first_dense_layers",
    "moe_layer_offset",
    "router_groups",
    "router_topk_groups",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_dim",
    "qk_rope_dim",
    "v_head_dim",
    "mtp_layers",
)


def shape_problems(model: Model) -> list[tuple[str, str]]:
    """Return every contradiction in a shape as (field, message); an empty list is a sound shape.

    Meant for shapes people write: a catalogue entry passes.
    """
    problems = [
        (field, f"must be 1 or more, not {getattr(model, field)}")
        for field in _POSITIVE
        if getattr(model, field) < 1
    ]
    problems += [
        (field, f"must be 0 or more, not {getattr(model, field)}")
        for field in _NOT_NEGATIVE
        if getattr(model, field) < 0
    ]
    problems += [
        (field, f"is {getattr(model, field)}: larger than any model")
        for field in (*_POSITIVE, *_NOT_NEGATIVE)
        if getattr(model, field) > (MOST_LAYERS if field == "num_layers" else LARGEST_DIMENSION)
    ]
    return problems or _contradictions(model)


def _contradictions(model: Model) -> list[tuple[str, str]]:
    problems = []
    if model.heads % model.kv_heads:
        problems.append(
            (
                "kv_heads",
                f"{model.heads} heads cannot share {model.kv_heads} key/value heads evenly",
            )
        )
    if model.is_moe:
        if not 1 <= model.top_k <= model.experts:
            problems.append(("top_k", f"{model.top_k} of {model.experts} experts cannot be chosen"))
        if model.moe_ffn < 1:
            problems.append(("moe_ffn", "a mixture of experts needs the width of one expert"))
        if model.moe_layer_offset >= model.moe_layer_period:
            problems.append(
                (
                    "moe_layer_offset",
                    f"must be below moe_layer_period, {model.moe_layer_period}",
                )
            )
    if model.ffn < 1 and model.num_moe_layers < model.num_layers:
        problems.append(("ffn", "a dense layer needs the width of its MLP"))
    if model.is_mla:
        problems += [
            (field, "latent attention (kv_lora_rank above 0) needs it")
            for field in ("qk_nope_dim", "qk_rope_dim", "v_head_dim")
            if getattr(model, field) < 1
        ]
        if model.head_dim != model.qk_nope_dim + model.qk_rope_dim:
            problems.append(("head_dim", "must be qk_nope_dim + qk_rope_dim with latent attention"))
    return problems
