"""Parameters on a rank by pipeline stage, as the memory model needs them: ends and units apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.job.layer_parts import LayerParts
from meshwright.job.parameters import parameter_parts
from meshwright.traffic.workload import Workload

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StageParameters:
    """Counts on one rank, by stage ``[pp]``, before sharding over data parallelism.

    ``dense`` and ``expert`` are all; ``output`` is the output layer's share; ``embedding`` the
    input embedding's; ``unit`` the largest layer, the unit FSDP gathers; ``shapes`` the elements
    of one weight of each shape that occurs.
    """

    dense: Floats
    expert: Floats
    embedding: Floats
    output: Floats
    unit: Floats
    shapes: Floats

    @property
    def total(self) -> Floats:
        """All parameters a rank holds."""
        return self.dense + self.expert


def stage_parameters(work: Workload) -> StageParameters:
    """Return the parameters of every stage of a padded job (``padded_workload``)."""
    dense, expert = work.parameters_by_stage()
    model, tp = work.model, work.layout.tp
    rows = model.vocab * model.hidden / tp
    first, last = work.embedding_stages(), work.output_stages()
    moe = work.expert_layers_by_stage() > 0
    plain = work.layers_by_stage() > work.expert_layers_by_stage()
    sizes = _layer_sizes(work)
    unit = np.maximum(np.where(plain, sizes[0], 0.0), np.where(moe, sizes[1], 0.0))
    return StageParameters(
        dense=dense,
        expert=expert,
        embedding=first * rows,
        output=last * rows,
        unit=unit,
        shapes=_shapes(work, plain, moe),
    )


def _layer_sizes(work: Workload) -> tuple[float, float]:
    """Return the parameters a rank holds of one layer without and of one with experts."""
    parts, layout = parameter_parts(work.model), work.layout

    def on_rank(layer: LayerParts | None) -> float:
        if layer is None:
            return 0.0
        sharded = layer.attention_sharded + layer.mlp_sharded + layer.shared_expert
        experts = layer.experts_sharded / work.expert_tp + layer.experts_replicated
        return sharded / layout.tp + layer.dense - sharded + experts / layout.ep

    return on_rank(parts.dense_layer), on_rank(parts.moe_layer)


def _shapes(work: Workload, plain: NDArray[np.bool_], moe: NDArray[np.bool_]) -> Floats:
    """Return the elements of one weight of each shape on a stage: attention, MLP, expert, shared."""
    parts, tp = parameter_parts(work.model), work.layout.tp
    layer = parts.dense_layer
    attention = layer.attention_sharded / tp
    if work.model.is_mla:
        attention += layer.attention_replicated
    mlp = layer.mlp_sharded / tp
    expert = 0.0
    if parts.moe_layer is not None:
        one = parts.moe_layer.experts_sharded / work.model.experts
        expert = one / work.expert_tp + parts.moe_layer.shared_expert / tp
    shapes: Floats = (plain | moe) * attention + plain * mlp + moe * expert
    return shapes
