"""What each property of a job adds to the time of its pipeline: one step more at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshwright.schedules.orders import Orders
from meshwright.timeline.idle import Idle, idle_by_cause
from meshwright.timeline.measure import Measured, measure
from meshwright.timeline.program import Messages, Program, StageTimes, program_of
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
    idle: Idle
    change_s: float

    @property
    def busiest_rank(self) -> int:
        """The rank that works longest: the least the makespan can be."""
        return int(self.measured.busy_s.argmax())


def ablation(
    orders: Orders, times: StageTimes, messages: Messages | None = None, *, blocking: bool = False
) -> list[AblationStep]:
    """Run a schedule with equal stages of the mean time and free messages, then step by step as given.

    Steps that change nothing are left out: equal stages as given, messages that take no time, links
    that none shares. With ``blocking`` the last step is the one with blocking sends, links not shared.
    """
    steps: list[AblationStep] = []
    for name, program, waits in _programs(orders, times, messages, blocking=blocking):
        ran = simulate(program, blocking=waits)
        measured = measure(program, ran)
        before = steps[-1].measured.makespan_s if steps else measured.makespan_s
        change_s = measured.makespan_s - before
        steps.append(AblationStep(name, measured, idle_by_cause(program, ran), change_s))
    return steps


def _programs(
    orders: Orders, times: StageTimes, messages: Messages | None, *, blocking: bool
) -> Iterator[tuple[str, Program, bool]]:
    equal = StageTimes(
        *(
            np.full_like(values, values.mean())
            for values in (times.forward_s, times.input_s, times.weight_s, times.recompute_s)
        )
    )
    yield "equal stages", program_of(orders, equal), False
    if any(
        np.ptp(values)
        for values in (times.forward_s, times.input_s, times.weight_s, times.recompute_s)
    ):
        yield "given stages", program_of(orders, times), False
    if messages is not None and np.any(messages.send_s > 0.0):
        yield "messages", program_of(orders, times, Messages(messages.send_s)), False
        if not blocking and messages.link is not None and np.any(messages.link >= 0):
            yield "shared links", program_of(orders, times, messages), False
    if blocking:
        yield "blocking sends", program_of(orders, times, messages), True
