"""V-Half and V-Min: two stages a rank in the shape of a V, in less memory than 1F1B.

A pattern says in which slot of time each rank does the four legs of microbatch 0; every next
microbatch follows 6 slots later. The pattern is repeated, its beginning and end are pressed together
(``v_shaped_squeeze.py``), and the weight gradients go where a rank would be idle. Source: arXiv
2405.15362 and sail-sg/zero-bubble-pipeline-parallelism
megatron/core/pipeline_parallel/zerobubble/scheduler/zbv_greedy.py (``schedule_from_pattern``).
Durations do not change these orders. The peaks given below are what tests find for p to 24, 32, 48 and
64.
"""

from __future__ import annotations

import numpy as np

from meshwright.schedules.greedy.v_shaped_slots import weight_slots
from meshwright.schedules.greedy.v_shaped_squeeze import squeezed
from meshwright.schedules.orders import Ints, Kind, Orders, orders_of, v_ranks

PERIOD = 6
"""Slots of a microbatch on a rank: forward, input and weight gradient of two stages."""


def v_half(pp: int, microbatches: int) -> Orders:
    """Return V-Half: at most 2(⌊p/2⌋ + 1) chunks held, about half of 1F1B's 2p."""
    rank = np.arange(pp)
    gap = 3 if pp % 2 == 0 else 0  # else two operations would fall into one slot
    legs = [2 * rank, 3 * pp - 2 - rank, 3 * pp + gap - 1 + 2 * rank, 6 * pp + gap - 2 - rank]
    return _repeated("v-half", np.stack(legs, axis=1), microbatches)


def v_min(pp: int, microbatches: int) -> Orders:
    """Return V-Min: at most 2(⌈(p-1)/3⌉ + 1) chunks held, about a third of 1F1B's 2p."""
    rank = np.arange(pp)
    gap = 2 if pp % 3 == 0 else 0  # else two operations would fall into one slot
    legs = [rank, 2 * pp - 1 - rank, 2 * pp + gap + rank, 4 * pp + gap - 1 - rank]
    return _repeated("v-min", np.stack(legs, axis=1), microbatches)


def _repeated(schedule: str, pattern: Ints, microbatches: int) -> Orders:
    """Return the schedule of a pattern ``[ranks, 4 legs]``."""
    slots = pattern[:, :, np.newaxis] + PERIOD * np.arange(microbatches)
    slots = squeezed(slots, weights_too=True)
    slots = squeezed(slots, weights_too=False)
    by_rank = [_rows(slots, rank) for rank in range(len(slots))]
    return orders_of(schedule, by_rank, v_ranks(len(slots)))


def _rows(slots: Ints, rank: int) -> Ints:
    """Return a rank's operations in the order of their slots, ``[6 · microbatches, 3]``."""
    ranks, _, microbatches = slots.shape
    down, up = rank, 2 * ranks - 1 - rank
    # The backward runs down through the second stages: its first leg is of the rank's second stage.
    lines = [(Kind.FORWARD, down), (Kind.FORWARD, up), (Kind.INPUT, up), (Kind.INPUT, down)]
    lines += [(Kind.WEIGHT, up), (Kind.WEIGHT, down)]
    kinds, stages = (np.repeat(column, microbatches) for column in zip(*lines, strict=True))
    rows = np.stack([kinds, stages, np.tile(np.arange(microbatches), len(lines))], axis=1)
    place = np.concatenate([slots[rank].ravel(), *weight_slots(slots[rank], apart=True)])
    return rows[np.argsort(place)]
