"""The shape of a decoder: what parameter counts, memory, FLOPs and traffic are made from."""

from __future__ import annotations

from typing import Literal

import msgspec

from meshwright.job.mixers import (
    ATTENTION,
    CONVOLUTION,
    DELTA,
    DENSE,
    EXPERTS,
    MAMBA,
    MIXERS,
    MLPS,
    NONE,
    PARALLEL,
    SLIDING,
    WINDOWED,
    DeltaNet,
    Extra,
    Mamba,
    ShortConvolution,
    nested_problems,
)

NormKind = Literal["rms", "layer"]
QkNorm = Literal["none", "head", "full"]
AttentionGate = Literal["none", "head", "full"]

LARGEST_DIMENSION = 2**31 - 1
MOST_LAYERS = 100_000


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Dimensions of one decoder-only language model; what does not apply is 0, False or None.

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
    output_bias: bool = False
    """A bias of the output layer, one a word (GPT-J, Phi)."""

    mixers: str = ""
    """A letter a layer for how it mixes tokens (``mixers.MIXERS``); empty: attention in all."""
    mlps: str = ""
    """A letter a layer for what follows: ``-`` dense, ``E`` experts, ``.`` nothing; empty: by the
    fields of experts below."""
    window: int = 0
    """Most keys that a token of a sliding layer sees (or chosen by an indexer: DeepSeek-V3.2)."""
    sliding_kv_heads: int = 0
    sliding_head_dim: int = 0
    """Of sliding layers where they differ from the others (0: they do not)."""
    attention_gate: AttentionGate = "none"
    """A gate on the output of attention: one value a head, or one a channel (Qwen3-Next)."""
    shared_kv: bool = False
    """One projection makes keys and values (DeepSeek-V4)."""
    mamba: Mamba | None = None
    delta: DeltaNet | None = None
    convolution: ShortConvolution | None = None
    extras: tuple[Extra, ...] = ()

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
    moe_latent: int = 0
    """Width that routed experts work at behind a projection from ``hidden`` and before one back
    (Nemotron 3 Super); 0: they work at ``hidden``."""

    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    """Above 0: latent attention (MLA)."""
    qk_nope_dim: int = 0
    qk_rope_dim: int = 0
    v_head_dim: int = 0
    output_groups: int = 0
    """Groups of heads in a grouped output projection (DeepSeek-V4 ``o_groups``); 0: one projection.

    Without ``o_lora_rank`` a limit on tp alone: parameters and FLOPs are those of one projection.
    """
    o_lora_rank: int = 0
    """Above 0: each output group goes down to this width, all of them together up to ``hidden``."""

    mtp_layers: int = 0
    """Multi-token prediction layers behind the last layer; no part of the published sizes."""
    max_positions: int | None = None
    """Longest sequence the model was made for."""
    block: str = "transformer"
    source: str = ""
    mark: str = ""
    """S read in the source, D derived, V counted by running code, P from memory (not checked)."""
    note: str = ""
    unverified: str = ""
    """Why the shape may not be the model's (an unknown family read as another); empty: it is."""

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

    @property
    def has_attention(self) -> bool:
        """Tell whether any layer has heads of attention."""
        return not self.mixers or bool(set(self.mixers) - set("MGLC."))

    @property
    def unmodelled_layers(self) -> tuple[str, ...]:
        """Name the kinds of layers whose activations and tp, cp traffic are not modelled.

        Their parameters and FLOPs are. Empty for attention of one shape and an MLP or experts in
        every layer; a window changes neither activations nor traffic.
        """
        mixers, mlps = set(self.mixers), set(self.mlps)
        found = [MIXERS[one] for one in MIXERS if one in mixers - {ATTENTION, SLIDING, NONE}]
        if NONE in mixers | mlps:
            found.append("layers of one part alone")
        if self.sliding_kv_heads or self.sliding_head_dim:
            found.append("sliding attention with heads of its own")
        if self.attention_gate == "full":
            found.append("gated attention")
        if self.o_lora_rank:
            found.append("low-rank output projection")
        if self.moe_latent:
            found.append("experts at a latent width")
        return (*found, *(one.name for one in self.extras if one.multiply_adds))


def mixer_of(model: Model, layer: int) -> str:
    """Return the letter of how layer ``layer`` (from 0) mixes tokens (``mixers.MIXERS``)."""
    return model.mixers[layer] if model.mixers else ATTENTION


def mlp_of(model: Model, layer: int) -> str:
    """Return the letter of what follows in layer ``layer`` (from 0): ``mixers.MLPS``."""
    if model.mlps:
        return model.mlps[layer]
    return EXPERTS if is_moe_layer(model, layer) else DENSE


def is_moe_layer(model: Model, layer: int) -> bool:
    """Tell whether layer ``layer`` (from 0) is a mixture of experts."""
    if model.mlps:
        return model.mlps[layer] == EXPERTS
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
    "output_groups",
    "o_lora_rank",
    "mtp_layers",
    "window",
    "sliding_kv_heads",
    "sliding_head_dim",
    "moe_latent",
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
    for field in ("mamba", "delta", "convolution"):
        problems += nested_problems(getattr(model, field), field)
    for one in model.extras:
        problems += nested_problems(one, "extras")
    return problems or _wrong_letters(model) or _contradictions(model)


def _wrong_letters(model: Model) -> list[tuple[str, str]]:
    """Return what is wrong with the letters of the layers."""
    problems = []
    for field, known in (("mixers", MIXERS), ("mlps", MLPS)):
        letters = getattr(model, field)
        if not letters:
            continue
        if len(letters) != model.num_layers:
            message = f"has {len(letters)} letters for {model.num_layers} layers"
            problems.append((field, message))
        if strange := sorted(set(letters) - set(known)):
            message = f"has {strange[0]!r}, which is none of {' '.join(known)}"
            problems.append((field, message))
    needed = {"mamba": MAMBA + PARALLEL, "delta": DELTA, "convolution": CONVOLUTION}
    problems += [
        (field, f"layers of {' or '.join(letters)} in mixers need it")
        for field, letters in needed.items()
        if set(letters) & set(model.mixers) and getattr(model, field) is None
    ]
    if set(model.mixers) & WINDOWED and not model.window:
        problems.append(("window", f"layers of {SLIDING} in mixers need it"))
    if EXPERTS in model.mlps and not model.is_moe:
        problems.append(("experts", f"layers of {EXPERTS} in mlps need them"))
    return problems


def _contradictions(model: Model) -> list[tuple[str, str]]:
    problems = []
    for field in ("kv_heads", "sliding_kv_heads"):
        heads = getattr(model, field)
        if heads and model.heads % heads:
            message = f"{model.heads} heads cannot share {heads} key/value heads evenly"
            problems.append((field, message))
    if model.output_groups and model.heads % model.output_groups:
        message = f"{model.heads} heads cannot form {model.output_groups} output groups evenly"
        problems.append(("output_groups", message))
    if model.is_moe:
        problems += _wrong_experts(model)
    if model.ffn < 1 and any(mlp_of(model, layer) == DENSE for layer in range(model.num_layers)):
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


def _wrong_experts(model: Model) -> list[tuple[str, str]]:
    problems = []
    if not 1 <= model.top_k <= model.experts:
        problems.append(("top_k", f"{model.top_k} of {model.experts} experts cannot be chosen"))
    if model.moe_ffn < 1:
        problems.append(("moe_ffn", "a mixture of experts needs the width of one expert"))
    if model.moe_layer_offset >= model.moe_layer_period:
        message = f"must be below moe_layer_period, {model.moe_layer_period}"
        problems.append(("moe_layer_offset", message))
    return problems
