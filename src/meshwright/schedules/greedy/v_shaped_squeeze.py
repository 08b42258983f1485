"""Press the beginning and the end of a repeated V pattern together without more memory.

From the first microbatch's last leg to the last microbatch's first leg the pattern is left as it is.
What is before and after moves to earlier free slots, in the order of time; then all is run again
with every operation as early as its rank and its message allow. Source: sail-sg/
zero-bubble-pipeline-parallelism megatron/core/pipeline_parallel/zerobubble/scheduler/zbv_greedy.py
(``reorder``, ``eager_execution_time``).
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from meshwright.schedules.greedy.v_shaped_lines import ExplicitLine, ImpliedLine
from meshwright.schedules.greedy.v_shaped_slots import (
    BACKWARD_DOWN,
    BACKWARD_UP,
    FORWARD_DOWN,
    WEIGHT,
    weight_slots,
)
from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import Ints

_DOWN = (FORWARD_DOWN, BACKWARD_DOWN)


def squeezed(slots: Ints, *, weights_too: bool) -> Ints:
    """Return the slots ``[ranks, 4 legs, microbatches]`` of the squeezed pattern.

    Parameters
    ----------
    weights_too
        Weight gradients are moved like the rest, at the beginning and at the end. Else they take
        the free slots by themselves, and only the end is squeezed.
    """
    weights = _weights(slots)
    line = ExplicitLine if weights_too else ImpliedLine
    lines = [line(*of_rank) for of_rank in zip(slots, weights, strict=True)]
    most = max(line.most for line in lines)
    table = _Table(slots, weights)
    for rank, leg, number in _to_move(slots, weights, weights_too=weights_too):
        now, earliest = table.slot(rank, leg, number), table.earliest(rank, leg, number)
        table.move(rank, leg, number, lines[rank].move(now, earliest, most))
    slots = table.slots()
    return _run_early(slots, table.weights() if weights_too else _weights(slots))


def _weights(slots: Ints) -> Ints:
    """Return the slots of the weight gradients of every rank, ``[ranks, 2 · microbatches]``."""
    return np.stack([weight_slots(of_rank, apart=False)[0] for of_rank in slots])


def _to_move(slots: Ints, weights: Ints, *, weights_too: bool) -> list[list[int]]:
    """Return the operations to move, as (rank, leg, number), in the order of time, rank and leg."""
    slot, operations = _listed(slots, weights if weights_too else weights[:, :0])
    rank, leg, number = operations
    order = np.lexsort((leg, rank, slot))
    rank, leg, number = operations[:, order]
    begin = np.flatnonzero((leg == BACKWARD_UP) & (rank == 0))[0]
    ends = np.flatnonzero((leg == FORWARD_DOWN) & (number == slots.shape[2] - 1))
    ends = ends[ends > begin]
    moved = np.zeros(len(order), dtype=bool)
    moved[:begin] = weights_too
    if len(ends):
        moved[ends[0] + 1 :] = True
    found: list[list[int]] = operations[:, order[moved]].T.tolist()
    return found


def _listed(slots: Ints, weights: Ints) -> tuple[Ints, Ints]:
    """Return the slots of all operations, ``[ops]``, and their rank, leg and number, ``[3, ops]``.

    Those of the legs come first, in the order of the array. The number is the microbatch; of a
    weight gradient its place among the rank's.
    """
    legs, places = np.indices(slots.shape), np.indices(weights.shape)
    weight = np.stack([places[0], np.full_like(places[0], WEIGHT), places[1]])
    operations = np.concatenate([legs.reshape(3, -1), weight.reshape(3, -1)], axis=1)
    return np.concatenate([slots.ravel(), weights.ravel()]), operations


class _Table:
    """The slots while operations move.

    Parameters
    ----------
    slots[ranks, 4 legs, microbatches], weights[ranks, 2 · microbatches]
        Where the operations are.
    """

    def __init__(self, slots: Ints, weights: Ints) -> None:
        self._of_rank: list[list[list[int]]] = [
            [*legs, row] for legs, row in zip(slots.tolist(), weights.tolist(), strict=True)
        ]
        backward = slots[:, BACKWARD_DOWN:].reshape(len(slots), -1)
        self._backward: list[list[int]] = np.sort(backward, axis=1).tolist()

    def slot(self, rank: int, leg: int, number: int) -> int:
        """Return where an operation is."""
        return self._of_rank[rank][leg][number]

    def earliest(self, rank: int, leg: int, number: int) -> int:
        """Return the first slot after all that an operation needs."""
        mine = self._of_rank[rank]
        after = mine[leg][number - 1] if number else NOTHING
        if leg == WEIGHT:
            return 1 + max(after, self._backward[rank][number])
        if leg > FORWARD_DOWN:
            after = max(after, mine[leg - 1][number])
        sender = rank - 1 if leg in _DOWN else rank + 1
        if 0 <= sender < len(self._of_rank):
            after = max(after, self._of_rank[sender][leg][number])
        return 1 + after

    def move(self, rank: int, leg: int, number: int, slot: int) -> None:
        """Note an operation's new slot."""
        if leg in (BACKWARD_DOWN, BACKWARD_UP):
            backward = self._backward[rank]
            del backward[bisect_left(backward, self.slot(rank, leg, number))]
            insort(backward, slot)
        self._of_rank[rank][leg][number] = slot

    def slots(self) -> Ints:
        """Return where the legs are, ``[ranks, 4 legs, microbatches]``."""
        return np.array([legs[:WEIGHT] for legs in self._of_rank], dtype=np.int64)

    def weights(self) -> Ints:
        """Return where the weight gradients are, ``[ranks, 2 · microbatches]``."""
        return np.array([legs[WEIGHT] for legs in self._of_rank], dtype=np.int64)


def _run_early(slots: Ints, weights: Ints) -> Ints:
    """Return the slots of the legs when every rank keeps its order and waits only for messages."""
    ranks, legs, microbatches = slots.shape
    slot, (rank, leg, _) = _listed(slots, weights)
    order = np.lexsort((leg, rank, slot))
    index = np.arange(len(slot))
    down = np.isin(leg, _DOWN)
    sender = rank + np.where(down, -1, 1)
    sent = (leg < WEIGHT) & (sender >= 0) & (sender < ranks)
    need = np.where(sent, index + (sender - rank) * legs * microbatches, NOTHING)
    clock, start = [0] * ranks, [0] * len(slot)
    for at, on, other in zip(
        order.tolist(), rank[order].tolist(), need[order].tolist(), strict=True
    ):
        now = clock[on]
        if other != NOTHING and start[other] >= now:
            now = start[other] + 1
        start[at] = now
        clock[on] = now + 1
    return np.array(start[: slots.size], dtype=np.int64).reshape(slots.shape)
