"""What the tests of traffic share: a workload from keys, and collectives by axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groups.building import errors_of
from meshwright.job.batch import resolve_batch
from meshwright.job.catalogue import find_model
from meshwright.job.layout import resolve_layout
from meshwright.job.model import Model
from meshwright.job.sections import BatchSection, LayoutSection, MoeSection, TrainingSection
from meshwright.job.stages import layers_by_stage
from meshwright.traffic.collective import Collective
from meshwright.traffic.workload import Workload

BATCH = {"global_batch": 64, "micro_batch": 1, "seq_len": 8192}


def workload(
    model: Model | str = "llama-3-8b",
    batch: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    moe: dict[str, Any] | None = None,
    **keys: Any,
) -> Workload:
    """Return a workload whose layout passes the grid rules."""
    shape = find_model(model) if isinstance(model, str) else model
    section = LayoutSection(**keys)
    layout = resolve_layout(section, None)
    assert errors_of(layout) == []
    layers = layers_by_stage(layout, shape.num_layers)
    assert layers is not None
    return Workload(
        model=shape,
        layout=layout,
        batch=resolve_batch(BatchSection(**(BATCH if batch is None else batch)), layout.dp),
        training=TrainingSection(**(training or {})),
        moe=MoeSection(**(moe or {})),
        section=section,
        stage_layers=tuple(layers),
    )


def on(collectives: Sequence[Collective], axis: str, *, known: bool = True) -> list[Collective]:
    return [one for one in collectives if one.axis == axis and one.is_known == known]


def named(collectives: Sequence[Collective], what: str) -> list[Collective]:
    """Return the collectives whose ``what`` begins so."""
    return [one for one in collectives if one.what.startswith(what)]


def of_layers(collectives: Sequence[Collective]) -> list[Collective]:
    """Return what runs for every layer and microbatch."""
    return [one for one in collectives if one.per == "layer and microbatch"]


def ops(collectives: Sequence[Collective]) -> list[tuple[str, str]]:
    """Return (op, phase) of each."""
    return [(one.op, one.phase) for one in collectives]


def sent_bytes(collectives: Sequence[Collective], degree: int, stage: int = 0) -> float:
    """Return what a rank of a stage sends a step by the collectives given."""
    total = 0.0
    for one in collectives:
        sent = one.sent_bytes_by_stage(degree)
        assert sent is not None
        total += float(sent[stage])
    return total


def count(collectives: Sequence[Collective], stage: int = 0) -> float:
    return float(sum(one.count_by_stage[stage] for one in collectives))  # type: ignore[index]
