"""Parameters of one layer by part, in closed form: what mixes tokens, what follows, norms.

Formulas: the modelling classes of ``transformers`` 5.24, equal to their counts on the meta device;
what tp shards: Megatron-Core ``ssm/mamba_mixer.py``, ``ssm/gated_delta_net.py`` and the files that
``parameters.py`` names.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from meshwright.job.mixers import (
    CONVOLUTION,
    DELTA,
    DENSE,
    EXPERTS,
    LIGHTNING,
    MAMBA,
    PARALLEL,
    SLIDING,
    WITH_ATTENTION,
    DeltaNet,
    Mamba,
)
from meshwright.job.model import Model, mixer_of, mlp_of


class LayerParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of one layer, whole (before any sharding).

    The parts of attention are those of whatever mixes tokens in the layer.
    """

    attention_sharded: int
    attention_replicated: int
    key_value: int
    """The share of ``attention_sharded`` that makes keys and values, per-head (0 for latent)."""
    kv_heads: int
    """Heads that ``key_value`` is made of."""
    mlp_sharded: int = 0
    mlp_replicated: int = 0
    router: int = 0
    experts_sharded: int = 0
    experts_replicated: int = 0
    shared_expert: int = 0
    norms: int
    extras: int = 0
    """A family's own weights (``Model.extras``), held whole."""

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.dense + self.experts_sharded + self.experts_replicated

    @property
    def dense(self) -> int:
        """All but the routed experts."""
        return (
            self.attention_sharded
            + self.attention_replicated
            + self.mlp_sharded
            + self.mlp_replicated
            + self.router
            + self.shared_expert
            + self.norms
            + self.extras
        )


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What tells layers of one model apart: letters of ``Model.mixers`` and ``mlps``, and extras."""

    mixer: str
    mlp: str
    extras: tuple[int, ...] = ()
    """Numbers in ``Model.extras`` of what the layer has."""


def layer_kind(model: Model, layer: int) -> LayerKind:
    """Return the kind of layer ``layer`` (from 0)."""
    mixer = mixer_of(model, layer)
    extras = tuple(i for i, one in enumerate(model.extras) if one.is_in(layer, mixer))
    return LayerKind(mixer, mlp_of(model, layer), extras)


def norm_size(model: Model) -> int:
    """Return the parameters of one norm over ``hidden``."""
    return model.hidden * (2 if model.norm_bias else 1)


def parts_of(model: Model, kind: LayerKind) -> LayerParts:
    """Return the parameters of a layer of one kind."""
    sharded, replicated, key_value = _mixer(model, kind.mixer)
    mlp_sharded, mlp_replicated = _mlp(model, model.hidden, model.ffn)
    has_experts, is_dense = kind.mlp == EXPERTS, kind.mlp == DENSE
    expert = _mlp(model, model.moe_latent or model.hidden, model.moe_ffn)
    matrices = 3 if model.gated_mlp else 2
    return LayerParts(
        attention_sharded=sharded,
        attention_replicated=replicated,
        key_value=key_value,
        kv_heads=attention_shape(model, kind.mixer)[0],
        mlp_sharded=mlp_sharded if is_dense else 0,
        mlp_replicated=mlp_replicated if is_dense else 0,
        router=_router(model) if has_experts else 0,
        experts_sharded=model.experts * expert[0] if has_experts else 0,
        experts_replicated=model.experts * expert[1] if has_experts else 0,
        shared_expert=matrices * model.hidden * model.shared_ffn_total if has_experts else 0,
        norms=model.norms_per_layer * norm_size(model),
        extras=sum(model.extras[i].parameters for i in kind.extras),
    )


def attention_shape(model: Model, mixer: str) -> tuple[int, int, int]:
    """Return key/value heads and the widths of a key and a value head of one kind of attention."""
    if mixer != SLIDING:
        return model.kv_heads, model.head_dim, model.value_dim
    key = model.sliding_head_dim or model.head_dim
    value = model.sliding_head_dim or model.value_dim
    return model.sliding_kv_heads or model.kv_heads, key, value


def _router(model: Model) -> int:
    """Return the router's parameters with what else of a mixture is whole on every rank."""
    router = model.hidden * model.experts
    if model.router_bias:
        router += model.experts
    if model.shared_expert_gate:
        router += model.hidden
    return router + 2 * model.hidden * model.moe_latent


def _mlp(model: Model, outer: int, width: int) -> tuple[int, int]:
    """Return (over tp, whole) parameters of one MLP or routed expert of inner width ``width``."""
    into = 2 if model.gated_mlp else 1
    sharded = (into + 1) * outer * width
    if not model.mlp_bias or width == 0:
        return sharded, 0
    return sharded + into * width, outer


def _mixer(model: Model, mixer: str) -> tuple[int, int, int]:
    """Return (over tp, whole, key/value share of the first) parameters of what mixes tokens."""
    sharded = whole = key_value = 0
    if mixer in WITH_ATTENTION:
        sharded, whole, key_value = _attention(model, mixer)
    if mixer in (MAMBA, PARALLEL) and model.mamba is not None:
        more = _mamba1(model, model.mamba) if model.mamba.version == 1 else _mamba2(model)
        sharded, whole = sharded + more[0], whole + more[1]
    elif mixer == DELTA and model.delta is not None:
        sharded, whole = _delta(model.hidden, model.delta)
    elif mixer == LIGHTNING:
        # Queries, keys, values, the gate and the output, and a norm over all heads (MiniMax).
        width = model.heads * model.head_dim
        sharded, whole = 5 * model.hidden * width, width
    elif mixer == CONVOLUTION and model.convolution is not None:
        bias = 5 * model.hidden if model.convolution.bias else 0
        sharded = model.hidden * (4 * model.hidden + model.convolution.kernel) + bias
    return sharded, whole, key_value


def _attention(model: Model, mixer: str) -> tuple[int, int, int]:
    """Return (over tp, whole, key/value share of the first) parameters of one attention."""
    if model.is_mla:
        return (*_latent_attention(model), 0)
    kv_heads, key_dim, value_dim = attention_shape(model, mixer)
    query, values = model.heads * key_dim, model.heads * value_dim
    key_value = kv_heads * (key_dim + (0 if model.shared_kv else value_dim))
    rows = model.hidden + (1 if model.qkv_bias else 0)
    sharded, whole = rows * query, model.hidden if model.o_bias else 0
    if model.q_lora_rank:  # down whole, with its norm, and up over tp
        sharded = model.q_lora_rank * query
        whole += model.hidden * model.q_lora_rank + model.q_lora_rank
    sharded += rows * key_value
    if model.o_lora_rank:
        sharded += values * model.o_lora_rank
        sharded += max(1, model.output_groups) * model.o_lora_rank * model.hidden
    else:
        sharded += values * model.hidden
    if model.attention_sinks:
        sharded += model.heads
    gates = {"head": model.heads, "full": values}
    sharded += rows * gates.get(model.attention_gate, 0)
    if model.qk_norm == "head":
        whole += 2 * key_dim
    elif model.qk_norm == "full":
        whole += query + kv_heads * key_dim
    return sharded, whole, rows * key_value


def _latent_attention(model: Model) -> tuple[int, int]:
    """Return (over tp, whole) parameters of DeepSeek's latent attention."""
    query = model.heads * model.head_dim
    latent = model.kv_lora_rank
    down = latent + model.qk_rope_dim
    sharded = latent * model.heads * (model.qk_nope_dim + model.v_head_dim)
    sharded += model.heads * model.v_head_dim * model.hidden
    whole = model.hidden * down + latent
    if model.q_lora_rank:
        sharded += model.q_lora_rank * query
        whole += model.hidden * model.q_lora_rank + model.q_lora_rank
        down += model.q_lora_rank
    else:
        sharded += model.hidden * query
    if model.qkv_bias:  # Hugging Face biases the down-projections only
        whole += down
    if model.o_bias:
        whole += model.hidden
    return sharded, whole


def mamba_input(mamba: Mamba) -> int:
    """Return the width of the input projection: what Mamba-2 makes in one, Mamba-1 in two steps."""
    if mamba.version == 1:
        return 2 * mamba.inner
    return 2 * mamba.inner + 2 * mamba.groups * mamba.state + mamba.heads


def _mamba1(model: Model, mamba: Mamba) -> tuple[int, int]:
    inner, state, rank = mamba.inner, mamba.state, mamba.dt_rank
    projections = 3 * model.hidden * inner + inner * (rank + 2 * state) + rank * inner + inner
    kernel = inner * (mamba.conv + (1 if mamba.conv_bias else 0))
    sharded = projections + kernel + inner * state + inner
    whole = rank + 2 * state if mamba.inner_norms else 0
    if mamba.proj_bias:
        sharded, whole = sharded + 2 * inner, whole + model.hidden
    return sharded, whole


def _mamba2(model: Model) -> tuple[int, int]:
    mamba = model.mamba
    assert mamba is not None
    channels = mamba.inner + 2 * mamba.groups * mamba.state
    sharded = model.hidden * (mamba_input(mamba) + mamba.inner)
    sharded += channels * (mamba.conv + (1 if mamba.conv_bias else 0)) + 3 * mamba.heads
    sharded += mamba.inner if mamba.gated_norm else 0
    if not mamba.proj_bias:
        return sharded, 0
    return sharded + mamba_input(mamba), model.hidden


def delta_input(delta: DeltaNet) -> int:
    """Return the width of all projections that read the hidden states, low-rank gates apart."""
    into = 2 * delta.keys + delta.values + delta.value_heads
    return into + (delta.values + delta.value_heads if delta.rule == "gated" else 0)


def delta_gates(hidden: int, delta: DeltaNet) -> int:
    """Return the parameters of Kimi's two low-rank gates (0 for the gated rule)."""
    if delta.rule == "gated":
        return 0
    return delta.value_dim * (2 * hidden + delta.keys + delta.values)


def _delta(hidden: int, delta: DeltaNet) -> tuple[int, int]:
    sharded = hidden * (delta_input(delta) + delta.values) + delta_gates(hidden, delta)
    sharded += delta.conv * (2 * delta.keys + delta.values) + delta.value_heads
    sharded += delta.keys if delta.rule == "kimi" else delta.value_heads
    return sharded, delta.value_dim
