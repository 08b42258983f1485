"""Which layers each pipeline stage holds."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.job.layout import Layout


def layers_by_stage(layout: Layout, num_layers: int) -> list[int] | None:
    """Return the number of layers of every stage; ``None`` when they cannot be divided so.

    Explicit ``stages`` are taken as given; ``first_stage_layers`` and ``last_stage_layers`` leave
    the rest to be divided evenly (Megatron-Core ``--decoder-first/last-pipeline-num-layers``).
    Every stage that is not explicit divides into ``vp`` chunks (``transformer_config.py``).
    """
    if layout.stages is not None:
        fits = len(layout.stages) == layout.pp and sum(layout.stages) == num_layers
        return list(layout.stages) if fits and min(layout.stages) >= 0 else None
    first, last = layout.first_stage_layers, layout.last_stage_layers
    if layout.pp == 1 and None not in (first, last) and first != last:
        return None
    ends = {layout.pp - 1: last, 0: first if layout.pp > 1 or first is not None else last}
    fixed = {stage: layers for stage, layers in ends.items() if layers is not None}
    if any(layers % layout.vp for layers in fixed.values()):
        return None
    rest, free = num_layers - sum(fixed.values()), layout.pp - len(fixed)
    if free == 0:
        return [fixed[stage] for stage in range(layout.pp)] if rest == 0 else None
    if rest <= 0 or rest % (free * layout.vp):
        return None
    return [fixed.get(stage, rest // free) for stage in range(layout.pp)]


def layers_held(counts: Sequence[int], chunks: int = 1) -> list[tuple[int, ...]]:
    """Return the layers each stage holds, numbered from 0.

    Interleaved, stage ``r`` holds the ``chunks`` model stages ``c · pp + r``, each a ``chunks``-th
    of its layers; an explicit map that does not divide so is read as one chunk a stage.
    """
    if any(count % chunks for count in counts):
        chunks = 1
    held: list[list[int]] = [[] for _ in counts]
    first = 0
    for _ in range(chunks):
        for stage, count in enumerate(counts):
            held[stage] += range(first, first + count // chunks)
            first += count // chunks
    return [tuple(layers) for layers in held]
