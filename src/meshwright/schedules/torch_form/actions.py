"""What a rank does between its computations: torch's schedule with its messages written out.

Source of the words: pytorch torch/distributed/pipelining/schedules.py (``_ComputationType``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from meshwright.schedules.orders import LETTERS, Ints, Orders

NO_MICROBATCH = -1
"""Microbatch of an action on a whole stage."""


class Act(IntEnum):
    """What a rank does. The first four are the ``Kind`` of an operation."""

    FORWARD = 0
    BACKWARD = 1
    INPUT = 2
    WEIGHT = 3
    SEND_F = 4
    RECV_F = 5
    SEND_B = 6
    RECV_B = 7
    UNSHARD = 8
    RESHARD = 9
    REDUCE_GRAD = 10


WORDS = (*LETTERS, *(act.name for act in Act if act > Act.WEIGHT))
"""Word of each ``Act`` in torch's CSV form."""


@dataclass(frozen=True, slots=True)
class Actions:
    """Actions of every rank in program order, rank after rank; fields as in ``Orders``.

    ``act[actions]``: an ``Act``; ``microbatch[actions]`` is ``NO_MICROBATCH`` for an action on a whole
    stage; ``overlapped[actions]``: the action runs together with the next.
    """

    schedule: str
    first: Ints
    act: Ints
    stage: Ints
    microbatch: Ints
    overlapped: NDArray[np.bool_]

    @property
    def ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.first) - 1

    def of_rank(self, rank: int) -> slice:
        """Return where the actions of a rank stand."""
        return slice(int(self.first[rank]), int(self.first[rank + 1]))


def actions_of(orders: Orders) -> Actions:
    """Return the operations of a schedule as actions, without messages."""
    return Actions(
        orders.schedule,
        orders.first,
        orders.kind,
        orders.stage,
        orders.microbatch,
        orders.overlapped,
    )


def computations(actions: Actions) -> Orders:
    """Return what the ranks compute.

    A stage sits on the rank that runs its first operation; -1 where it has none
    (``schedules/validity.py`` says so).
    """
    chosen = actions.act <= Act.WEIGHT
    before = np.concatenate([[0], np.cumsum(chosen)])
    first = before[actions.first].astype(np.int64)
    stage = actions.stage[chosen]
    rank_of_stage = np.full(int(stage.max(initial=-1)) + 1, -1, dtype=np.int64)
    rank = np.repeat(np.arange(actions.ranks), np.diff(first))
    rank_of_stage[stage[::-1]] = rank[::-1]  # the first of several is written last
    return Orders(
        schedule=actions.schedule,
        first=first,
        kind=actions.act[chosen],
        stage=stage,
        microbatch=actions.microbatch[chosen],
        overlapped=actions.overlapped[chosen],
        rank_of_stage=rank_of_stage,
    )
