"""Parameter counts in closed form, split by how parallelism shards them.

How Megatron-Core shards each part (``attention.py``, ``multi_latent_attention.py``, ``mlp.py``,
``moe/experts.py``, ``moe/shared_experts.py``, ``models/gpt/gpt_model.py``):

=====================  ===========================================================================
part                   held by a rank
=====================  ===========================================================================
embedding, output      rows over tp; vocabulary padding is the caller's (pass the padded ``vocab``)
position               whole, on the stage of the embedding
attention_sharded      1/tp: q, k, v (column) with their biases, o (row), the latent up-projections
attention_replicated   whole: bias of o (row), q/k norms, latent down-projections and their norms
mlp_sharded            1/tp: both matrices, bias of the first (column)
mlp_replicated         whole: bias of the second (row)
router                 whole on every rank, with the gate of the shared expert
experts_sharded        1/(ep*etp)
experts_replicated     1/ep: bias of the second matrix
shared_expert          1/tp: it uses the dense tp group, never etp
norms                  whole
=====================  ===========================================================================

With more tp ranks than key/value heads Megatron-Core keeps ``linear_qkv`` split evenly over tp and
gathers its *output*; frameworks that copy key/value heads hold one on each rank
(``kv_replication=True``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from meshwright.job.model import Model, is_moe_layer, moe_layers

Degree = Any
"""An int, or an array of ints: one entry a candidate layout."""
Count = Any
"""A float, or an array of floats shaped as the degrees broadcast."""


class LayerParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of one layer, whole (before any sharding)."""

    attention_sharded: int
    attention_replicated: int
    key_value: int
    """The share of ``attention_sharded`` that makes keys and values, per-head (0 for latent)."""
    mlp_sharded: int = 0
    mlp_replicated: int = 0
    router: int = 0
    experts_sharded: int = 0
    experts_replicated: int = 0
    shared_expert: int = 0
    norms: int

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
        )


class ParameterParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a model by part, whole (before any sharding)."""

    embedding: int
    output: int
    """0 when tied to the embedding."""
    position: int
    embedding_norm: int
    final_norm: int
    dense_layer: LayerParts
    """A layer without experts; its MLP counts 0 where the model has no such layer."""
    moe_layer: LayerParts | None
    num_dense_layers: int
    num_moe_layers: int
    mtp_projection: int
    """Of one multi-token prediction layer, besides a layer of the last layer's kind (1/tp)."""
    mtp_norms: int
    """The three norms of one multi-token prediction layer (whole)."""


class StageLayers(msgspec.Struct, frozen=True):
    """What one pipeline rank holds: layer numbers from 0, and the ends of the model."""

    layers: tuple[int, ...]
    has_embedding: bool
    has_output: bool
    mtp_layers: int = 0
    """Multi-token prediction layers, which Megatron puts on the last stage."""


class RankParameters(msgspec.Struct, frozen=True):
    """Parameters on one rank, before data-parallel sharding; floats, or arrays over layouts."""

    dense: Count
    """Reduced over the dense data-parallel group (with cp)."""
    expert: Count
    """Routed experts: reduced over the expert data-parallel group."""


def parameter_parts(model: Model) -> ParameterParts:
    """Return the closed-form counts by part.

    Formulas: Hugging Face modelling code, equal to its count on the meta device for 29 models.
    """
    norm = model.hidden * (2 if model.norm_bias else 1)
    num_moe_layers = model.num_moe_layers
    return ParameterParts(
        embedding=model.vocab * model.hidden,
        output=0 if model.tied_embeddings else model.vocab * model.hidden,
        position=model.learned_positions * model.hidden,
        embedding_norm=norm if model.embedding_norm else 0,
        final_norm=norm if model.final_norm else 0,
        dense_layer=_dense_layer(model, norm),
        moe_layer=_moe_layer(model, norm) if model.is_moe else None,
        num_dense_layers=model.num_layers - num_moe_layers,
        num_moe_layers=num_moe_layers,
        mtp_projection=2 * model.hidden * model.hidden if model.mtp_layers else 0,
        mtp_norms=3 * norm if model.mtp_layers else 0,
    )


def total_parameters(model: Model) -> int:
    """Return the size of the model as published: without multi-token prediction layers."""
    parts = parameter_parts(model)
    moe = parts.num_moe_layers * parts.moe_layer.total if parts.moe_layer is not None else 0
    return _outside_layers(parts) + parts.num_dense_layers * parts.dense_layer.total + moe


def active_parameters(model: Model) -> int:
    """Return the parameters one token meets: ``top_k`` of the routed experts, all the rest.

    Both embeddings count, as in the published figures.
    """
    parts = parameter_parts(model)
    if parts.moe_layer is None:
        return total_parameters(model)
    routed = parts.moe_layer.total - parts.moe_layer.dense
    idle = routed - routed // model.experts * model.top_k
    return total_parameters(model) - parts.num_moe_layers * idle


def parameters_per_rank(
    model: Model,
    stage: StageLayers,
    *,
    tp: Degree,
    ep: Degree,
    etp: Degree,
    kv_replication: bool = False,
) -> RankParameters:
    """Return the parameters one rank holds before data-parallel sharding.

    Parameters
    ----------
    stage
        Layers and ends of the model on the rank's pipeline stage (all of its virtual chunks).
    tp, ep, etp
        Degrees (ints, or arrays that broadcast). Where a degree does not divide a part the result
        is a fraction: whether that may run is a question for the rules.
    kv_replication
        Key/value heads are copied when ``tp`` exceeds them (not in Megatron-Core).

    Notes
    -----
    A tied model holds a copy of the embedding on the stage of the output, a model with multi-token
    prediction on the stage of those layers (Megatron ``gpt_model.py``).
    """
    parts = parameter_parts(model)
    kinds = [is_moe_layer(model, layer) for layer in stage.layers]
    kinds += [moe_layers(model)[-1]] * stage.mtp_layers
    sharded, replicated = _ends(model, parts, stage)
    dense = sharded / tp + replicated
    expert = 0.0 * (1 / ep)
    for layer, count in (
        (parts.dense_layer, kinds.count(False)),
        (parts.moe_layer, kinds.count(True)),
    ):
        if layer is None or count == 0:
            continue
        dense = dense + count * _dense_on_rank(model, layer, tp, kv_replication=kv_replication)
        expert = expert + count * (layer.experts_sharded / etp + layer.experts_replicated) / ep
    return RankParameters(dense=dense, expert=expert)


def _outside_layers(parts: ParameterParts) -> int:
    return parts.embedding + parts.output + parts.position + parts.embedding_norm + parts.final_norm


def _ends(model: Model, parts: ParameterParts, stage: StageLayers) -> tuple[int, int]:
    """Return (over tp, whole) parameters of a stage outside its layers."""
    sharded = stage.mtp_layers * parts.mtp_projection
    replicated = stage.mtp_layers * parts.mtp_norms
    needs_words = stage.has_embedding or stage.mtp_layers > 0
    if needs_words:
        sharded += parts.embedding
        replicated += parts.position + parts.embedding_norm
    if stage.has_output:
        shares_words = model.tied_embeddings and not needs_words
        sharded += parts.embedding if shares_words else parts.output
        replicated += parts.final_norm
    return sharded, replicated


def _dense_on_rank(model: Model, layer: LayerParts, tp: Degree, *, kv_replication: bool) -> Count:
    sharded = layer.attention_sharded + layer.mlp_sharded + layer.shared_expert
    whole = layer.attention_replicated + layer.mlp_replicated + layer.router + layer.norms
    if not kv_replication:
        return sharded / tp + whole
    # max(tp, kv_heads), written so that it holds for arrays as well.
    copies = (tp + model.kv_heads + abs(tp - model.kv_heads)) / 2
    return (sharded - layer.key_value) / tp + layer.key_value * copies / model.kv_heads / tp + whole


def _dense_layer(model: Model, norm: int) -> LayerParts:
    sharded, replicated, key_value = _attention(model)
    mlp_sharded, mlp_replicated = _mlp(model, model.ffn)
    return LayerParts(
        attention_sharded=sharded,
        attention_replicated=replicated,
        key_value=key_value,
        mlp_sharded=mlp_sharded,
        mlp_replicated=mlp_replicated,
        norms=model.norms_per_layer * norm,
    )


def _moe_layer(model: Model, norm: int) -> LayerParts:
    sharded, replicated, key_value = _attention(model)
    expert_sharded, expert_replicated = _mlp(model, model.moe_ffn)
    matrices = 3 if model.gated_mlp else 2
    router = model.hidden * model.experts
    if model.router_bias:
        router += model.experts
    if model.shared_expert_gate:
        router += model.hidden
    return LayerParts(
        attention_sharded=sharded,
        attention_replicated=replicated,
        key_value=key_value,
        router=router,
        experts_sharded=model.experts * expert_sharded,
        experts_replicated=model.experts * expert_replicated,
        shared_expert=matrices * model.hidden * model.shared_ffn_total,
        norms=model.norms_per_layer * norm,
    )


def _mlp(model: Model, width: int) -> tuple[int, int]:
    """Return (over tp, whole) parameters of one MLP or routed expert of inner width ``width``."""
    into = 2 if model.gated_mlp else 1
    sharded = (into + 1) * model.hidden * width
    if not model.mlp_bias or width == 0:
        return sharded, 0
    return sharded + into * width, model.hidden


def _attention(model: Model) -> tuple[int, int, int]:
    """Return (over tp, whole, key/value share of the first) parameters of one attention."""
    if model.is_mla:
        return (*_latent_attention(model), 0)
    query = model.heads * model.head_dim
    key_value = 2 * model.kv_heads * model.head_dim
    rows = model.hidden + (1 if model.qkv_bias else 0)
    sharded = rows * (query + key_value) + query * model.hidden
    if model.attention_sinks:
        sharded += model.heads
    whole = model.hidden if model.o_bias else 0
    if model.qk_norm == "head":
        whole += 2 * model.head_dim
    elif model.qk_norm == "full":
        whole += query + key_value // 2
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
