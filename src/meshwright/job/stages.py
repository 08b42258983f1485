"""Which layers each pipeline stage holds.

A **chain** lists the layers of every model stage in the order a microbatch passes them: ``pp · vp``
of them. Rank ``r`` holds the model stages ``c · pp + r``, or, where the chain turns back at the last
rank (V-shaped schedules), ``r`` and ``2 · pp - 1 - r``.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.job.layout import Layout


def layers_by_stage(layout: Layout, num_layers: int, *, folded: bool = False) -> list[int] | None:
    """Return the number of layers of every rank of a pipeline; ``None`` when they cannot be divided so.

    See ``layers_by_chunk``; a rank holds all its chunks.
    """
    chain = layers_by_chunk(layout, num_layers)
    if chain is None:
        return None
    held = [0] * layout.pp
    for rank, layers in zip(
        ranks_of_chain(layout.pp, len(chain), folded=folded), chain, strict=True
    ):
        held[rank] += layers
    return held


def layers_by_chunk(layout: Layout, num_layers: int) -> list[int] | None:
    """Return the layers of every model stage of the chain; ``None`` when they cannot be divided so.

    ``stages`` are taken as given: ``pp`` entries, each of which divides into ``vp`` equal chunks, or
    ``pp · vp`` entries in the order of the chain (Megatron-Core
    ``--pipeline-model-parallel-layout``, torchtitan ``module_fqns_per_model_part``).
    ``first_stage_layers`` and ``last_stage_layers`` leave the rest to be divided evenly (Megatron-Core
    ``--decoder-first/last-pipeline-num-layers``); every stage divides into ``vp`` chunks
    (``transformer_config.py``). Torchtitan divides what is not given by a rule of its own.
    """
    if layout.pp < 1 or layout.vp < 1:
        return None
    if layout.stages is not None:
        return _as_given(layout, layout.stages, num_layers)
    first, last = layout.first_stage_layers, layout.last_stage_layers
    if layout.framework == "torchtitan" and first is None and last is None:
        return torchtitan_split(num_layers, layout.pp * layout.vp)
    counts = _even(layout, num_layers)
    return None if counts is None else [count // layout.vp for count in counts] * layout.vp


def ranks_of_chain(pp: int, stages: int, *, folded: bool = False) -> list[int]:
    """Return the rank of every model stage: round and round, or there and back."""
    if pp < 1:
        return []
    turns = [range(pp), range(pp - 1, -1, -1)] if folded else [range(pp)]
    return [rank for lap in range(-(-stages // pp)) for rank in turns[lap % len(turns)]][:stages]


def torchtitan_split(num_layers: int, stages: int) -> list[int] | None:
    """Return torchtitan's own split; ``None`` where it refuses.

    Embedding and output count as a layer each, the first stages take what is over
    (pytorch/torchtitan torchtitan/distributed/pipeline_parallel.py
    ``generate_llm_fqn_per_model_part``). An end may hold no layer besides.
    """
    if stages == 1:
        return [num_layers]
    each, over = divmod(num_layers + 2, stages)
    if each < 1:
        return None
    counts = [each + (stage < over) for stage in range(stages)]
    counts[0] -= 1
    counts[-1] -= 1
    return counts


def _as_given(layout: Layout, stages: Sequence[int], num_layers: int) -> list[int] | None:
    pp, vp = layout.pp, layout.vp
    if sum(stages) != num_layers or min(stages, default=-1) < 0:
        return None
    if len(stages) == pp * vp:
        return list(stages)
    if len(stages) != pp or any(layers % vp for layers in stages):
        return None
    return [layers // vp for layers in stages] * vp


def _even(layout: Layout, num_layers: int) -> list[int] | None:
    """Return the layers of every rank, the same but for ends that are given."""
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


def chunks_of(layout: Layout, stage_layers: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """Return the layers of every model stage of a chain whose stages stand on ``ranks``.

    As the layout says, where it speaks of such a chain and of ``stage_layers`` by rank; else each rank's
    layers are divided over its stages, the first of them take what is over.
    """
    chain = layers_by_chunk(layout, sum(stage_layers))
    if chain is not None and len(chain) == len(ranks):
        held = [0] * len(stage_layers)
        for rank, layers in zip(ranks, chain, strict=True):
            held[rank] += layers
        if held == list(stage_layers):
            return chain
    left = [ranks.count(rank) for rank in range(len(stage_layers))]
    rest, found = list(stage_layers), []
    for rank in ranks:
        layers = -(-rest[rank] // left[rank])
        rest[rank] -= layers
        left[rank] -= 1
        found.append(layers)
    return found


def held_of_chain(chain: Sequence[int], pp: int, *, folded: bool = False) -> list[tuple[int, ...]]:
    """Return the layers each rank holds of a chain, numbered from 0."""
    held: list[list[int]] = [[] for _ in range(pp)]
    first = 0
    for rank, layers in zip(ranks_of_chain(pp, len(chain), folded=folded), chain, strict=True):
        held[rank] += range(first, first + layers)
        first += layers
    return [tuple(layers) for layers in held]


def layers_held(counts: Sequence[int], chunks: int = 1) -> list[tuple[int, ...]]:
    """Return the layers each stage holds, numbered from 0.

    Interleaved, stage ``r`` holds the ``chunks`` model stages ``c · pp + r``, each a ``chunks``-th
    of its layers; an explicit map that does not divide so is read as one chunk a stage.
    """
    if any(count % chunks for count in counts):
        chunks = 1
    return held_of_chain([count // chunks for count in counts] * chunks, len(counts))
