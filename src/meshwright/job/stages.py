"""Which layers each pipeline stage holds."""

from __future__ import annotations

from meshwright.job.layout import Layout


def layers_by_stage(layout: Layout, num_layers: int) -> list[int] | None:
    """Return the number of layers of every stage; ``None`` when they cannot be divided so.

    Explicit ``stages`` are taken as given; ``first_stage_layers`` and ``last_stage_layers`` leave
    the rest to be divided evenly (Megatron-Core ``--decoder-first/last-pipeline-num-layers``).
    """
    if layout.stages is not None:
        fits = len(layout.stages) == layout.pp and sum(layout.stages) == num_layers
        return list(layout.stages) if fits else None
    ends = {0: layout.first_stage_layers, layout.pp - 1: layout.last_stage_layers}
    fixed = {stage: layers for stage, layers in ends.items() if layers is not None}
    rest, free = num_layers - sum(fixed.values()), layout.pp - len(fixed)
    if free == 0:
        return [fixed[stage] for stage in range(layout.pp)] if rest == 0 else None
    if rest <= 0 or rest % (free * layout.vp):
        return None
    return [fixed.get(stage, rest // free) for stage in range(layout.pp)]


def layer_ranges(counts: list[int]) -> list[range]:
    """Return the layers of each stage, stages in order (interleaving changes no total)."""
    ranges, first = [], 0
    for count in counts:
        ranges.append(range(first, first + count))
        first += count
    return ranges
