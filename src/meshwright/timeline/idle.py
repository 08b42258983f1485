"""Why ranks are idle: warm-up, cool-down, waiting for communication, imbalance.

A rank is idle in the gaps in front of its operations, the first gap from the start of the run, and
from its last operation to the end of the run. Of each gap in front of an operation

- **communication** is the time in which a message that holds the rank is under way (``exposed.py``);
- the rest, in which another rank is not ready, is **warm-up** up to the rank's first backward,
  **cool-down** after its last forward (up to the first backward it is warm-up all the same), and
  **imbalance** in between: in the steady phase another stage, or the order itself, keeps the rank waiting.

What follows a rank's last operation is cool-down. The parts are all of a rank's idle time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.schedules.orders import Kind
from meshwright.timeline.core import Times
from meshwright.timeline.exposed import exposed_s, free_s
from meshwright.timeline.program import Bools, Floats, Program
from meshwright.timeline.record import Timeline, timeline_of


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


def idle_by_cause(program: Program, times: Times, *, blocking: bool = False) -> Idle:
    """Divide the idle time of a run by its cause; ``blocking``: ranks waited for their sends."""
    return idle_of(timeline_of(program, times, blocking=blocking))


def idle_of(timeline: Timeline) -> Idle:
    """Divide every rank's idle time by its cause (see the module)."""
    if not len(timeline.start_s):
        return Idle(*(np.zeros(timeline.ranks) for _ in range(4)))
    gap_s = timeline.start_s - free_s(timeline)
    message_s = np.minimum(exposed_s(timeline), gap_s)
    other_s = gap_s - message_s
    warm_up, cool_down = _phases(timeline)
    tail_s = np.full(timeline.ranks, timeline.makespan_s)
    used = np.diff(timeline.first) > 0
    tail_s[used] = timeline.finish_s - timeline.end_s[timeline.first[1:][used] - 1]
    rank = timeline.rank

    def summed(values: Floats) -> Floats:
        return np.bincount(rank, weights=values, minlength=timeline.ranks).astype(np.float64)

    return Idle(
        warm_up_s=summed(np.where(warm_up, other_s, 0.0)),
        cool_down_s=summed(np.where(cool_down, other_s, 0.0)) + tail_s,
        communication_s=summed(message_s),
        imbalance_s=summed(np.where(warm_up | cool_down, 0.0, other_s)),
    )


def _phases(timeline: Timeline) -> tuple[Bools, Bools]:
    """Return which operations come up to the first backward, and which others after the last forward.

    A rank without backwards has only its first operation in warm-up.
    """
    forward = timeline.kind == Kind.FORWARD
    backward = (timeline.kind == Kind.BACKWARD) | (timeline.kind == Kind.INPUT)
    warm_up, cool_down = np.zeros_like(forward), np.zeros_like(forward)
    for rank in range(timeline.ranks):
        of_rank = timeline.of_rank(rank)
        if of_rank.start == of_rank.stop:
            continue
        begins = of_rank.start + int(backward[of_rank].argmax())  # 0 where there is none
        ends = of_rank.stop - int(forward[of_rank][::-1].argmax())
        warm_up[of_rank.start : begins + 1] = True
        cool_down[max(ends, begins + 1) : of_rank.stop] = True
    return warm_up, cool_down
