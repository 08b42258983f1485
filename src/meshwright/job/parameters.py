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
norms, extras          whole
=====================  ===========================================================================

The parts named attention are those of whatever mixes tokens: all matrices, the convolution and the
vectors by head of a Mamba or delta-rule layer are over tp, its norms within a head whole.

With more tp ranks than key/value heads Megatron-Core keeps ``linear_qkv`` split evenly over tp and
gathers its *output*; frameworks that copy key/value heads hold one on each rank
(``kv_replication=True``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from meshwright.job.layer_parts import LayerKind, LayerParts, layer_kind, norm_size, parts_of
from meshwright.job.mixers import DENSE, EXPERTS
from meshwright.job.model import Model, mixer_of

Degree = Any
"""An int, or an array of ints: one entry a candidate layout."""
Count = Any
"""A float, or an array of floats shaped as the degrees broadcast."""


class KindOfLayer(msgspec.Struct, frozen=True):
    """Layers of one kind: how many, and the parameters of one."""

    mixer: str
    mlp: str
    count: int
    parts: LayerParts


class ParameterParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a model by part, whole (before any sharding)."""

    embedding: int
    output: int
    """0 when tied to the embedding (its bias is not)."""
    position: int
    embedding_norm: int
    final_norm: int
    extras_input: int
    """A family's own weights beside the embedding and, below, beside the output."""
    extras_output: int
    kinds: tuple[KindOfLayer, ...]
    """Every kind of layer that occurs, in order; all layers together."""
    dense_layer: LayerParts
    """The first layer without experts; its MLP counts 0 where the model has no such layer."""
    moe_layer: LayerParts | None
    """The first layer with experts."""
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

    Formulas: Hugging Face modelling code, equal to their counts on the meta device.
    """
    norm = norm_size(model)
    counts: dict[LayerKind, int] = {}
    for layer in range(model.num_layers):
        kind = layer_kind(model, layer)
        counts[kind] = counts.get(kind, 0) + 1
    kinds = tuple(
        KindOfLayer(kind.mixer, kind.mlp, count, parts_of(model, kind))
        for kind, count in counts.items()
    )
    plain = [one.parts for one in kinds if one.mlp != EXPERTS]
    experts = [one.parts for one in kinds if one.mlp == EXPERTS]
    num_moe_layers = sum(one.count for one in kinds if one.mlp == EXPERTS)
    bias = model.vocab if model.output_bias else 0
    return ParameterParts(
        embedding=model.vocab * model.hidden,
        output=bias + (0 if model.tied_embeddings else model.vocab * model.hidden),
        position=model.learned_positions * model.hidden,
        embedding_norm=norm if model.embedding_norm else 0,
        final_norm=norm if model.final_norm else 0,
        extras_input=_extras(model, "input"),
        extras_output=_extras(model, "output"),
        kinds=kinds,
        dense_layer=plain[0] if plain else parts_of(model, LayerKind(mixer_of(model, 0), DENSE)),
        moe_layer=experts[0] if experts else None,
        num_dense_layers=model.num_layers - num_moe_layers,
        num_moe_layers=num_moe_layers,
        mtp_projection=2 * model.hidden * model.hidden if model.mtp_layers else 0,
        mtp_norms=3 * norm if model.mtp_layers else 0,
    )


def _extras(model: Model, place: str) -> int:
    return sum(one.parameters for one in model.extras if one.place == place)


def total_parameters(model: Model) -> int:
    """Return the size of the model as published: without multi-token prediction layers."""
    parts = parameter_parts(model)
    return _outside_layers(parts) + sum(one.count * one.parts.total for one in parts.kinds)


def active_parameters(model: Model) -> int:
    """Return the parameters one token meets: ``top_k`` of the routed experts, all the rest.

    Both embeddings count, as in the published figures.
    """
    idle = 0
    for one in parameter_parts(model).kinds:
        routed = one.parts.total - one.parts.dense
        if routed:
            idle += one.count * (routed - routed // model.experts * model.top_k)
    return total_parameters(model) - idle


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
    held = [*stage.layers, *([model.num_layers - 1] * stage.mtp_layers)]
    counts = Counter(layer_kind(model, layer) for layer in held)
    sharded, replicated = _ends(model, parts, stage)
    dense = sharded / tp + replicated
    expert = 0.0 * (1 / ep)
    for kind, count in counts.items():
        layer = parts_of(model, kind)
        dense = dense + count * _dense_on_rank(layer, tp, kv_replication=kv_replication)
        expert = expert + count * (layer.experts_sharded / etp + layer.experts_replicated) / ep
    return RankParameters(dense=dense, expert=expert)


def _outside_layers(parts: ParameterParts) -> int:
    norms = parts.embedding_norm + parts.final_norm
    extras = parts.extras_input + parts.extras_output
    return parts.embedding + parts.output + parts.position + norms + extras


def _ends(model: Model, parts: ParameterParts, stage: StageLayers) -> tuple[int, int]:
    """Return (over tp, whole) parameters of a stage outside its layers."""
    sharded = stage.mtp_layers * parts.mtp_projection
    replicated = stage.mtp_layers * parts.mtp_norms
    needs_words = stage.has_embedding or stage.mtp_layers > 0
    if needs_words:
        sharded += parts.embedding
        replicated += parts.position + parts.embedding_norm + parts.extras_input
    if stage.has_output:
        shares_words = model.tied_embeddings and not needs_words
        sharded += parts.output + (parts.embedding if shares_words else 0)
        replicated += parts.final_norm + parts.extras_output
    return sharded, replicated


def _dense_on_rank(layer: LayerParts, tp: Degree, *, kv_replication: bool) -> Count:
    sharded = layer.attention_sharded + layer.mlp_sharded + layer.shared_expert
    whole = layer.dense - sharded
    if not kv_replication:
        return sharded / tp + whole
    # max(tp, kv_heads), written so that it holds for arrays as well.
    copies = (tp + layer.kv_heads + abs(tp - layer.kv_heads)) / 2
    return (sharded - layer.key_value) / tp + layer.key_value * copies / layer.kv_heads / tp + whole
