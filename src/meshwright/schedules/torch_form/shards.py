"""FSDP's actions of one rank: gather a stage before its use, drop it after, reduce its gradients.

Source: pytorch torch/distributed/pipelining/schedules.py (``_add_unshard_reshard``,
``_add_reduce_grad``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshwright.schedules.orders import Kind
from meshwright.schedules.torch_form.actions import Act

ACTIVE_STAGES = 3
"""Stages that torch keeps gathered at once."""

Whole = tuple[Act, int]
"""An action on a whole stage."""


def shards_before(
    stages: Sequence[int], pair: Sequence[bool]
) -> tuple[dict[int, list[Whole]], list[Whole]]:
    """Return the UNSHARD and RESHARD before operations of a rank, and the RESHARD after the last.

    ``stages``, ``pair``: stage of each operation, and whether it runs together with the next.
    """
    active: set[int] = set()  # a set, since torch drops stages in the order of one
    before: dict[int, list[Whole]] = {}
    for index, coming in reversed(_changes(stages, pair)):
        drop = [stage for stage in active if stage not in coming]
        for stage in drop:
            active.remove(stage)  # one by one: the set's order depends on how it came about
        fetch = [stage for stage in coming if stage not in active]
        for stage in fetch:
            active.add(stage)
        before[index] = [(Act.RESHARD, stage) for stage in drop]
        before[index] += [(Act.UNSHARD, stage) for stage in fetch]
    return before, [(Act.RESHARD, stage) for stage in active]


def _changes(stages: Sequence[int], pair: Sequence[bool]) -> list[tuple[int, list[int]]]:
    """Return the next stages in the order of their next use wherever they become others, last first.

    ``ACTIVE_STAGES`` of them, and one more where the last comes in a pair with it.
    """
    found: list[tuple[int, list[int]]] = []
    order: list[int] = []  # by next use
    when: dict[int, int] = {}
    coming: list[int] = []
    begin = len(stages)
    for index in range(len(stages) - 1, -1, -1):
        stage = stages[index]
        if not order or order[0] != stage:
            if stage in when:
                order.remove(stage)
            order.insert(0, stage)
        starts = index - 1 if index and pair[index - 1] else index
        when[stage] = starts
        if starts != index:
            continue
        count = ACTIVE_STAGES
        if len(order) > count and when[order[count]] == when[order[count - 1]]:
            count += 1
        now = order[:count]
        others = len(now) != len(coming) or not set(coming).issuperset(now)
        if others and coming:
            found.append((begin, coming))
        coming, begin = now, index
    return [*found, (begin, coming)] if coming else found


def reductions_after(
    kinds: Sequence[int], stages: Sequence[int], microbatches: int
) -> dict[int, list[Whole]]:
    """Return the REDUCE_GRAD behind the last weight gradient of each stage of a rank."""
    weights: Counter[int] = Counter()
    after: dict[int, list[Whole]] = {}
    for index, (kind, stage) in enumerate(zip(kinds, stages, strict=True)):
        if kind in (Kind.BACKWARD, Kind.WEIGHT):
            weights[stage] += 1
            if weights[stage] == microbatches:
                after[index] = [(Act.REDUCE_GRAD, stage)]
    return after
