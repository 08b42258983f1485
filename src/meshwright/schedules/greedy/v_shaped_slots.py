"""Slots of time on one rank of V-Half or V-Min: what is in each, and where weight gradients fit.

A microbatch passes a rank on four legs: forward down and up, backward down and up. An operation
takes one slot.
"""

from __future__ import annotations

import numpy as np

from meshwright.schedules.orders import Ints

FORWARD_DOWN, FORWARD_UP, BACKWARD_DOWN, BACKWARD_UP = range(4)
WEIGHT = 4
"""Stands for both stages' weight gradients in the order of their input gradients."""

FREE = 255
"""Mark of an empty slot; any other mark is the leg."""


def marked(slots: Ints, weights: Ints | None = None) -> bytearray:
    """Return the mark of every slot of a rank up to the last one taken.

    Parameters
    ----------
    slots[4, microbatches]
        Slot of each leg.
    weights
        Slots of the weight gradients.
    """
    last = max(int(slots.max()), int(weights.max()) if weights is not None else 0)
    marks = np.full(last + 1, FREE, dtype=np.uint8)
    for leg, row in enumerate(slots):
        marks[row] = leg
    if weights is not None:
        marks[weights] = WEIGHT
    return bytearray(marks.tobytes())


def weight_slots(slots: Ints, *, apart: bool) -> list[Ints]:
    """Return the free slots that a rank's weight gradients take, each as early as it can.

    Parameters
    ----------
    slots[4, microbatches]
        Slot of each leg.
    apart
        Those of the backward down first, then those of the backward up: two arrays ``[microbatches]``.
        Else one array ``[2 · microbatches]`` in the order of the input gradients.
    """
    marks = marked(slots)
    waiting = [0, 0]
    taken: list[list[int]] = [[], []]
    for slot, mark in enumerate(marks):
        if mark == FREE:
            queue = 0 if waiting[0] else 1
            if waiting[queue]:
                waiting[queue] -= 1
                taken[queue].append(slot)
        elif mark >= BACKWARD_DOWN:
            waiting[mark - BACKWARD_DOWN if apart else 0] += 1
    end = len(marks)
    for queue in range(2):
        taken[queue].extend(range(end, end + waiting[queue]))
        end += waiting[queue]
    return [np.array(places, dtype=np.int64) for places in (taken if apart else taken[:1])]


def held(marks: bytearray) -> Ints:
    """Return the chunks in memory after each slot: from their forward to their weight gradient."""
    mark = np.frombuffer(marks, dtype=np.uint8)
    change = np.where(mark <= FORWARD_UP, 1, np.where(mark == WEIGHT, -1, 0))
    return np.cumsum(change, dtype=np.int64)
