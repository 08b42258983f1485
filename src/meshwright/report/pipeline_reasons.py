"""Why a step takes longer: the reason of every row of the table of changes, with its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshwright.chain.pipeline_run import PipelineRun
from meshwright.findings import Number
from meshwright.schedules.orders import Orders
from meshwright.timeline.ablation import AblationStep
from meshwright.units import format_seconds

Floats = NDArray[np.float64]
_SAME = 1e-6
"""Share of the makespan below which a change is none."""
_EVEN = 5e-3
"""Share of the mean below which stages are called even."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one step changes the makespan, with the numbers in it."""

    text: str
    numbers: Mapping[str, Number] = field(default_factory=dict)


def reasons_of(run: PipelineRun, steps: Sequence[AblationStep]) -> list[Reason]:
    """Return a reason for each step."""
    return [_REASONS[step.name](run, step) for step in steps]


def _equal(run: PipelineRun, step: AblationStep) -> Reason:
    del run, step
    return Reason("the schedule itself, with stages of the mean time and free messages")


def _unequal(run: PipelineRun, step: AblationStep) -> Reason:
    """Name the slowest stage, or, where a rank has several, the rank with most to do."""
    orders = run.orders
    alone = orders.chain_length == orders.ranks and orders.chains == 1
    name = "stage" if alone else "rank"
    work_s = run.stage_times.total_s if alone else run.measured.busy_s
    mean_s, most_s = float(work_s.mean()), float(work_s.max())
    if most_s <= mean_s * (1 + _EVEN):
        return Reason(
            f"each {name} has as much to do, but its stages or its forwards and backwards differ"
        )
    ratio = most_s / mean_s
    who = np.flatnonzero(work_s >= most_s * (1 - _SAME)).tolist()
    numbers: dict[str, Number] = {f"slowest_{name}s": who, "over_mean": ratio}
    text = f"{_named(name, who)} {ratio:.2f} × the mean"
    if len(who) > 1:
        least = int(work_s.argmin())
        numbers["least_over_mean"] = float(work_s[least]) / mean_s
        text += f", {name} {least} {numbers['least_over_mean']:.2f} ×"
    return Reason(f"{text}{_waits(run, step, (most_s, mean_s), alone=alone)}", numbers)


def _named(name: str, who: Sequence[int]) -> str:
    if len(who) == 1:
        return f"{name} {who[0]} takes"
    listed = ", ".join(map(str, who[:4]))
    return f"{name}s {listed}{' …' if len(who) > 4 else ''} take"


def _waits(
    run: PipelineRun, step: AblationStep, most_mean_s: tuple[float, float], *, alone: bool
) -> str:
    most_s, mean_s = most_mean_s
    change_s = step.change_s
    if change_s < -_SAME * step.measured.makespan_s:
        return ", but what is fast stands where the others wait most: the step is shorter"
    if change_s <= _SAME * step.measured.makespan_s:
        return ", which fits into time that is idle anyway"
    if not alone:
        return ", and the others wait"
    each = run.orders.microbatches - 1
    whole_s = each * (most_s - mean_s)
    text = ", and every microbatch waits for the slowest"
    if abs(change_s - whole_s) <= _SAME * step.measured.makespan_s:
        text += (
            f": (m-1) × the difference = {each} × ({format_seconds(most_s)} - {format_seconds(mean_s)})"
            f" = {format_seconds(whole_s)}"
        )
    return text


def _messages(run: PipelineRun, step: AblationStep) -> Reason:
    """Tell whether messages are seen once, on a microbatch's way there and back, or all the time."""
    sends_s = run.program.message_s[run.program.message_s > 0.0]
    if step.change_s <= _SAME * step.measured.makespan_s or not len(sends_s):
        return Reason("all messages hide behind work")
    crossings = _crossings(run.orders)
    mean_s = float(sends_s.mean())
    count = step.change_s / mean_s
    numbers: dict[str, Number] = {"messages": count, "crossings": crossings, "mean_s": mean_s}
    each = f"{count:.0f} messages of {format_seconds(mean_s)}"
    if count <= crossings * (1 + _EVEN) + _EVEN:
        return Reason(
            f"as long as {each}; a microbatch's way through all ranks and back has {crossings}, which is the "
            "most that shows at the beginning and the end of the step. All others hide behind work",
            numbers,
        )
    return Reason(
        f"as long as {each}: more than the {crossings} of one microbatch's way through all ranks and back, "
        "so ranks wait in the steady state too, where they have nothing else to do meanwhile",
        numbers,
    )


def _crossings(orders: Orders) -> int:
    """Return the messages of one microbatch, forward and backward."""
    ranks = orders.rank_of_stage[: orders.chain_length]
    return 2 * int(np.count_nonzero(np.diff(ranks)))


def _shared(run: PipelineRun, step: AblationStep) -> Reason:
    del run
    if step.change_s <= _SAME * step.measured.makespan_s:
        return Reason("some messages have one link, but hardly at one time")
    return Reason("messages that are on one link at the same time share its rate")


def _blocking(run: PipelineRun, step: AblationStep) -> Reason:
    if step.change_s <= _SAME * step.measured.makespan_s:
        return Reason("a rank waits until what it sends is there, which costs nothing here")
    if not np.any(run.program.message_s > 0.0):
        return Reason("a rank waits until the other is ready to receive what it sends")
    return Reason("a rank goes on only when what it sends is there, in the steady state too")


_REASONS = {
    "equal stages": _equal,
    "given stages": _unequal,
    "messages": _messages,
    "shared links": _shared,
    "blocking sends": _blocking,
}
