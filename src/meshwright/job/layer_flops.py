"""Multiply-adds of one token in one layer, forward, by part.

As Megatron-LM counts (``megatron/training/training.py``: ``attn_layer_flops``, ``mamba_layer_flops``,
``gdn_layer_flops`` of ``num_floating_point_operations``): the causal half of attention, a state
space's scan as 7 FLOPs a channel and state, a delta rule as four products of ``value_dim``² a head
with its convolution. Windows, chosen keys and what a family has of its own count as they are
computed, which Megatron-LM leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.job.layer_parts import (
    LayerKind,
    attention_shape,
    delta_gates,
    delta_input,
    layer_kind,
    mamba_input,
)
from meshwright.job.mixers import (
    CONVOLUTION,
    DELTA,
    DENSE,
    EXPERTS,
    LIGHTNING,
    MAMBA,
    PARALLEL,
    WINDOWED,
    WITH_ATTENTION,
    DeltaNet,
    Mamba,
    mean_keys,
)
from meshwright.job.model import Model

_SCAN = 3.5
"""Multiply-adds a channel and state: Megatron-LM counts 7 FLOPs."""


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Multiply-adds of one token in one layer, forward."""

    projections: float
    """Of what mixes tokens."""
    core: float
    """Of attention, the causal half."""
    recurrence: float
    """Of state spaces, delta rules and convolutions: the same whatever the sequence's length."""
    mlp: float
    experts: float
    """The routed experts a token meets, with the projections to and from a latent width."""
    shared_experts: float
    extras: float
    """What a family has of its own (``Model.extras``)."""

    @property
    def total(self) -> float:
        """All parts."""
        return (
            self.projections
            + self.core
            + self.recurrence
            + self.mlp
            + self.experts
            + self.shared_experts
            + self.extras
        )


def layer_work(model: Model, layer: int, seq_len: int) -> LayerWork:
    """Return the multiply-adds of one token in layer ``layer`` (from 0) at a sequence length."""
    return work_of(model, layer_kind(model, layer), seq_len)


def work_of(model: Model, kind: LayerKind, seq_len: int) -> LayerWork:
    """Return the multiply-adds of one token in a layer of one kind."""
    matrices = 3 if model.gated_mlp else 2
    outer = model.moe_latent or model.hidden
    routed = matrices * outer * model.moe_ffn * model.top_k + 2 * model.hidden * model.moe_latent
    projections, recurrence = _mixer(model, kind.mixer)
    core, extras = _core(model, kind.mixer, seq_len), 0.0
    for one in (model.extras[i] for i in kind.extras):
        extras += one.multiply_adds
        keys = mean_keys(seq_len, one.core_most * one.core_stride) / one.core_stride
        core += one.core_width * keys
    return LayerWork(
        projections=projections,
        core=core,
        recurrence=recurrence,
        mlp=matrices * model.hidden * model.ffn if kind.mlp == DENSE else 0,
        experts=routed if kind.mlp == EXPERTS else 0,
        shared_experts=(
            matrices * model.hidden * model.shared_ffn_total if kind.mlp == EXPERTS else 0
        ),
        extras=extras,
    )


def _core(model: Model, mixer: str, seq_len: int) -> float:
    """Return the products of queries with keys and of weights with values, causally."""
    if mixer not in WITH_ATTENTION:
        return 0.0
    _, key_dim, value_dim = attention_shape(model, mixer)
    keys = mean_keys(seq_len, model.window if mixer in WINDOWED else 0)
    return keys * model.heads * (key_dim + value_dim)


def _mixer(model: Model, mixer: str) -> tuple[float, float]:
    """Return the multiply-adds of (projections, recurrence)."""
    projections = recurrence = 0.0
    if mixer in WITH_ATTENTION:
        projections = _projections(model, mixer)
    if mixer in (MAMBA, PARALLEL) and model.mamba is not None:
        projections += _mamba(model.hidden, model.mamba)
        recurrence = _SCAN * model.mamba.inner * model.mamba.state
    elif mixer == DELTA and model.delta is not None:
        projections, recurrence = _delta(model.hidden, model.delta)
    elif mixer == LIGHTNING:
        # As linear attention: each token adds k·v to a head's state, and reads it with q.
        projections = 5 * model.hidden * model.heads * model.head_dim
        recurrence = 2 * model.heads * model.head_dim * model.head_dim
    elif mixer == CONVOLUTION and model.convolution is not None:
        projections = 4 * model.hidden * model.hidden
        recurrence = model.convolution.kernel * model.hidden
    return projections, recurrence


def _projections(model: Model, mixer: str) -> int:
    """Return the multiply-adds of the projections of one attention."""
    hidden, heads = model.hidden, model.heads
    kv_heads, key_dim, value_dim = attention_shape(model, mixer)
    query, values = heads * key_dim, heads * value_dim
    if model.is_mla:
        into = hidden * query
        if model.q_lora_rank:
            into = model.q_lora_rank * (hidden + query + 1)
        latent = model.kv_lora_rank * (hidden + heads * (model.qk_nope_dim + value_dim) + 1)
        return into + latent + hidden * model.qk_rope_dim + values * hidden
    into = model.q_lora_rank * (hidden + query) if model.q_lora_rank else hidden * query
    into += hidden * kv_heads * (key_dim + (0 if model.shared_kv else value_dim))
    into += hidden * {"head": heads, "full": values}.get(model.attention_gate, 0)
    if model.o_lora_rank:
        groups = max(1, model.output_groups)
        return into + values * model.o_lora_rank + groups * model.o_lora_rank * hidden
    return into + values * hidden


def _mamba(hidden: int, mamba: Mamba) -> float:
    """Return the multiply-adds of a state space's projections."""
    found = hidden * (mamba_input(mamba) + mamba.inner)
    if mamba.version == 1:
        found += mamba.inner * (2 * mamba.dt_rank + 2 * mamba.state)
    return found


def _delta(hidden: int, delta: DeltaNet) -> tuple[float, float]:
    """Return the multiply-adds of a delta rule: (projections, recurrence)."""
    projections = hidden * (delta_input(delta) + delta.values) + delta_gates(hidden, delta)
    rule = 4 * delta.value_heads * delta.value_dim * delta.value_dim
    return projections, rule + delta.conv * (2 * delta.keys + delta.values)
