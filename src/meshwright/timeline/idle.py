"""Why ranks are idle: warm-up, cool-down, waiting for communication, imbalance.

A rank is idle in the gaps in front of its operations, the first gap from the start of the run, and
from its last operation to the end of the run. Each gap in front of an operation is divided at the end
of the operation of another rank that it waits for:

- **communication**: from there to the start, the time of the message itself and, with blocking sends,
  all time in which the rank is held in its messages;
- what comes before is **warm-up** up to the rank's first backward, **cool-down** after its last
  forward (up to the first backward it is warm-up all the same), and **imbalance** in between: in
  the steady phase another stage, or the order itself, keeps the rank waiting.

What follows a rank's last operation is cool-down. The parts are all of a rank's idle time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import Kind, Orders
from meshwright.timeline.core import Times
from meshwright.timeline.measure import by_rank
from meshwright.timeline.program import Bools, Floats, Program


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time of each rank by cause, ``[ranks]``."""

    warm_up_s: Floats
    cool_down_s: Floats
    communication_s: Floats
    imbalance_s: Floats

    @property
    def total_s(self) -> Floats:
        """All idle time: the makespan without the rank's busy time."""
        return self.warm_up_s + self.cool_down_s + self.communication_s + self.imbalance_s


def idle_by_cause(program: Program, times: Times) -> Idle:
    """Divide every rank's idle time by its cause (see the module)."""
    orders, need = program.orders, program.need
    if not len(need):
        return Idle(*(np.zeros(orders.ranks) for _ in range(4)))
    free_s = _free_s(orders, times)
    gap_s = times.start_s - free_s
    other_end_s = np.where(need != NOTHING, times.end_s[need], free_s)
    pair = np.flatnonzero(orders.overlapped)  # the first waits for what either of them needs
    other_end_s[pair] = np.maximum(other_end_s[pair], other_end_s[pair + 1])
    other_s = np.minimum(np.maximum(other_end_s - free_s, 0.0), gap_s)
    warm_up, cool_down = _phases(orders)
    tail_s = np.full(orders.ranks, times.makespan_s)
    used = np.diff(orders.first) > 0
    tail_s[used] = times.end_s.max() - times.end_s[orders.first[1:][used] - 1]
    return Idle(
        warm_up_s=by_rank(np.where(warm_up, other_s, 0.0), orders),
        cool_down_s=by_rank(np.where(cool_down, other_s, 0.0), orders) + tail_s,
        communication_s=by_rank(gap_s - other_s, orders),
        imbalance_s=by_rank(np.where(warm_up | cool_down, 0.0, other_s), orders),
    )


def _free_s(orders: Orders, times: Times) -> Floats:
    """Return when each operation's rank was done with the one before."""
    free_s = np.empty_like(times.end_s)
    free_s[1:] = times.end_s[:-1]
    free_s[orders.first[:-1][np.diff(orders.first) > 0]] = times.start_s.min()
    return free_s


def _phases(orders: Orders) -> tuple[Bools, Bools]:
    """Return which operations come up to the first backward, and which others after the last forward.

    A rank without backwards has only its first operation in warm-up.
    """
    forward = orders.kind == Kind.FORWARD
    backward = (orders.kind == Kind.BACKWARD) | (orders.kind == Kind.INPUT)
    warm_up, cool_down = np.zeros_like(forward), np.zeros_like(forward)
    for rank in range(orders.ranks):
        of_rank = orders.of_rank(rank)
        if of_rank.start == of_rank.stop:
            continue
        begins = of_rank.start + int(backward[of_rank].argmax())  # 0 where there is none
        ends = of_rank.stop - int(forward[of_rank][::-1].argmax())
        warm_up[of_rank.start : begins + 1] = True
        cool_down[max(ends, begins + 1) : of_rank.stop] = True
    return warm_up, cool_down
