"""The event core: program order on each rank, messages between ranks, nothing else.

A rank runs its operations in order; one starts when the rank is free and the message it waits for
has arrived. Messages are asynchronous and meet no other here (``contended.py``: links that are
shared; ``blocking.py``: ranks that wait for their sends). Each operation is visited once: a rank goes
on until it waits for an operation that has not run, and is taken up again when that one has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.errors import MeshwrightError
from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import Ints
from meshwright.timeline.program import Floats, Program


@dataclass(frozen=True, slots=True)
class Times:
    """When every operation ran, ``[ops]`` each.

    ``arrival_s``: when the message it waits for was there; 0 where it waits for none.
    """

    start_s: Floats
    end_s: Floats
    arrival_s: Floats

    @property
    def makespan_s(self) -> float:
        """From the first start to the last end."""
        return float(self.end_s.max() - self.start_s.min()) if len(self.end_s) else 0.0


class DeadlockError(MeshwrightError):
    """No rank can go on.

    ``stuck``: the operation that each rank waits at, in the order of the ranks; -1 for a rank that
    is done.
    """

    def __init__(self, stuck: Ints) -> None:
        super().__init__("the schedule deadlocks")
        self.stuck = stuck


def run(program: Program) -> Times:
    """Run a program. Raises ``DeadlockError``."""
    first = program.orders.first.tolist()
    need, message = program.need.tolist(), program.message_s.tolist()
    duration = program.duration_s.tolist()
    count = len(need)
    start, end, arrival = [0.0] * count, [-1.0] * count, [0.0] * count
    waiter = [-1] * count  # rank that waits for an operation; for the end of a pair two can
    second: dict[int, int] = {}
    position, clock = first[:-1], [0.0] * (len(first) - 1)
    ready = list(range(len(first) - 1))[::-1]
    while ready:
        rank = ready.pop()
        index, stop, now = position[rank], first[rank + 1], clock[rank]
        while index < stop:
            other = need[index]
            if other >= 0:
                there = end[other]
                if there < 0.0:
                    if waiter[other] >= 0:
                        second[other] = waiter[other]
                    waiter[other] = rank
                    break
                there += message[index]
                arrival[index] = there
                if there > now:  # noqa: PLR1730 (a call of max costs a third of the loop)
                    now = there
            start[index] = now
            now += duration[index]
            end[index] = now
            if waiter[index] >= 0:
                ready.append(waiter[index])
                if index in second:
                    ready.append(second[index])
            index += 1
        position[rank], clock[rank] = index, now
    check_done(position, first)
    return times_of(program, start, end, arrival)


def times_of(program: Program, start: list[float], end: list[float], arrival: list[float]) -> Times:
    """Return the times of a run.

    The first operation of an overlapped pair, which has no length (``Program``), stands where both
    start.
    """
    times = Times(np.array(start), np.array(end), np.maximum(arrival, 0.0))
    pair = np.flatnonzero(program.orders.overlapped)
    times.start_s[pair] = times.end_s[pair] = times.start_s[pair + 1]
    return times


def check_done(position: list[int], first: list[int]) -> None:
    """Raise ``DeadlockError`` where some rank has not come to its end."""
    if position != first[1:]:
        stuck = [at if at < last else NOTHING for at, last in zip(position, first[1:], strict=True)]
        raise DeadlockError(np.array(stuck))
