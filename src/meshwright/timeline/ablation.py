"""What each property of a job adds to the time of its pipeline: one step more at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from meshwright.schedules.needs import NOTHING
from meshwright.timeline.core import Times
from meshwright.timeline.measure import Measured, measure
from meshwright.timeline.program import Program, StageTimes, durations
from meshwright.timeline.simulate import simulate


@dataclass(frozen=True, slots=True)
class AblationStep:
    """One run of the table.

    Parameters
    ----------
    name
        ``equal stages``, ``given stages``, ``messages``, ``shared links`` or ``blocking sends``.
    change_s
        Makespan less that of the step before; 0 for the first.
    """

    name: str
    measured: Measured
    change_s: float

    @property
    def busiest_rank(self) -> int:
        """The rank that works longest: the least the makespan can be."""
        return int(self.measured.busy_s.argmax())


def ablation(
    program: Program, times: StageTimes, ran: Times | None = None, *, blocking: bool = False
) -> list[AblationStep]:
    """Run a schedule with equal stages of the mean time and free messages, then step by step as given.

    Steps that change nothing are left out: equal stages as given, messages that take no time, links
    that none shares. With ``blocking`` the last step is the one with blocking sends, links not shared.

    Parameters
    ----------
    program
        The schedule with everything as given, which the last step is.
    times
        The stages' durations in it.
    ran
        When its operations ran, where that is known: it is not run again then.
    """
    steps: list[AblationStep] = []
    variants = list(_variants(program, times, blocking=blocking))
    for at, (name, one) in enumerate(variants):
        is_last = at == len(variants) - 1
        known = ran if is_last else None
        found = known or simulate(one, blocking=blocking and is_last)
        measured = measure(one, found)
        before = steps[-1].measured.makespan_s if steps else measured.makespan_s
        change_s = measured.makespan_s - before
        steps.append(AblationStep(name, measured, change_s))
    return steps


def _variants(
    program: Program, times: StageTimes, *, blocking: bool
) -> Iterator[tuple[str, Program]]:
    """Yield the program of every step; the last one is equal to the given one."""
    no_links = np.full(len(program.need), NOTHING, dtype=np.int64)
    alone = replace(program, link=no_links)
    free = replace(alone, message_s=np.zeros(len(program.need)))
    equal = StageTimes(*(np.full_like(values, values.mean()) for values in times.by_part))
    uneven = any(np.ptp(values) for values in times.by_part)
    yield (
        "equal stages",
        replace(free, duration_s=durations(program.orders, equal)) if uneven else free,
    )
    if uneven:
        yield "given stages", free
    if np.any(program.message_s > 0.0):
        yield "messages", alone
        if not blocking and np.any(program.link[program.message_s > 0.0] >= 0):
            yield "shared links", program
    if blocking:
        yield "blocking sends", program
