"""What each remedy for an idle pipeline buys: other microbatches, another schedule, another split.

Every row does the same work in a step: with twice the microbatches each is half as large (its time and
its activations are taken as half; small microbatches run kernels less well, which is not modelled).
A factor of a stage goes with its part of the model, a factor of a rank stays on the rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_refused import forbidden
from meshwright.chain.pipeline_run import PipelineRun, run_ask
from meshwright.chain.pipeline_work import JobWork
from meshwright.schedules.make import BY_COSTS
from meshwright.schedules.make_asked import asked
from meshwright.schedules.names import MANY_CHUNKS, SCHEDULES, TWO_CHUNKS, TWO_DIRECTIONS

MOST_OPERATIONS = 400_000
"""Rows of more operations are left out: a table is to be there at once."""
MOST_GREEDY = 40_000
"""The same for greedy schedules, which put one operation after the other."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One row. ``None`` where a rule forbids it or it was left out as too large (``refused`` says why).

    ``change``: ``given``, ``microbatches``, ``schedule`` or ``split``; ``peak_microbatches``: most
    activations on any rank, as microbatches of a p-th of the model of the given size; ``copies``: copies of
    the model a rank's weights belong to; ``framework_runs``: whether the job's framework has the schedule,
    ``None`` where no job says. ``total_bytes``: all the most loaded rank takes, and whether it ``fits``;
    ``None``: not known.
    """

    change: str
    schedule: str
    microbatches: int
    chunks: int
    makespan_s: float | None = None
    bubble_fraction: float | None = None
    peak_microbatches: float | None = None
    peak_bytes: float | None = None
    copies: int = 1
    stages: tuple[int, ...] | None = None
    refused: str | None = None
    framework_runs: bool | None = None
    total_bytes: float | None = None
    fits: bool | None = None


def alternatives(ask: PipelineAsk, given: PipelineRun) -> list[Alternative]:
    """Return the rows, the given one (which ran) first."""
    rows = [_ran("given", ask, given)]
    if ask.orders is None:
        rows += [_row("microbatches", one) for one in _other_microbatches(ask)]
    rows += [_row("schedule", one) for one in _other_schedules(ask)]
    return rows + list(_other_split(ask, given))


def _other_microbatches(ask: PipelineAsk) -> Iterator[PipelineAsk]:
    counts = [ask.microbatches // 2] if ask.microbatches % 2 == 0 else []
    for count in [*counts, 2 * ask.microbatches, 4 * ask.microbatches]:
        yield replace(ask, microbatches=count, scale=ask.scale * ask.microbatches / count)


def _other_schedules(ask: PipelineAsk) -> Iterator[PipelineAsk]:
    for schedule in SCHEDULES:
        for chunks in _chunks(schedule, ask):
            waits = ask.blocking if ask.blocking_stated else schedule in ask.holding
            yield replace(
                ask, schedule=schedule, chunks=chunks, group=None, blocking=waits, orders=None
            )


def _chunks(schedule: str, ask: PipelineAsk) -> list[int | None]:
    """Return the chunks a rank that are tried of a schedule, the given ones left out."""
    same = ask.orders is None and schedule == ask.schedule
    if schedule not in MANY_CHUNKS:
        return [] if same else [None]
    tried = [2, 4] if schedule == "interleaved" else [2]
    return [chunks for chunks in tried if not (same and chunks == ask.chunks)]


def _other_split(ask: PipelineAsk, given: PipelineRun) -> Iterator[Alternative]:
    """Yield the most even split of the layers, where it is faster."""
    work, several = ask.work, (*TWO_DIRECTIONS, *MANY_CHUNKS, *TWO_CHUNKS)
    if not isinstance(work, JobWork) or ask.schedule in several or ask.orders is not None:
        return
    split = work.best_split()
    if split is None or split.layers == tuple(work.work.stage_layers):
        return
    better = replace(work, work=replace(work.work, stage_layers=split.layers))
    row = _row("split", replace(ask, work=better))
    if row.makespan_s is not None and row.makespan_s < given.measured.makespan_s:
        yield replace(row, stages=split.layers)


def _row(change: str, ask: PipelineAsk) -> Alternative:
    made = asked(ask.schedule, ask.pp, ask.microbatches, ask.options)
    most = MOST_GREEDY if made.schedule in BY_COSTS else MOST_OPERATIONS
    refused = None
    size = (ask.micro_batch or 0) * ask.scale
    if size != int(size):
        refused = f"a microbatch would be {size:g} sequences; micro_batch is {ask.micro_batch}."
    elif errors := forbidden(ask):
        refused = errors[0].message
    elif made.operations > most:
        refused = f"{made.operations:,} operations are over the {most:,} of a row."
    if refused is not None:
        return Alternative(change, made.schedule, made.microbatches, made.chunks, refused=refused)
    return _ran(change, ask, run_ask(ask))


def _ran(change: str, ask: PipelineAsk, run: PipelineRun) -> Alternative:
    peak, framework = run.peak_bytes, ask.framework
    total_bytes = _total_bytes(ask, run)
    return Alternative(
        change=change,
        schedule=run.orders.schedule,
        microbatches=ask.microbatches,
        chunks=run.orders.chunks,
        makespan_s=run.measured.makespan_s,
        bubble_fraction=run.measured.bubble_fraction,
        peak_microbatches=float(run.peak_microbatches.max()) * ask.scale,
        peak_bytes=None if peak is None else float(peak.max()),
        copies=run.orders.chains,
        framework_runs=None
        if framework is None or ask.orders is not None
        else run.orders.schedule in framework.runs,
        total_bytes=total_bytes,
        fits=None if total_bytes is None or ask.room is None else ask.room.fits(total_bytes),
    )


def _total_bytes(ask: PipelineAsk, run: PipelineRun) -> float | None:
    """Return what the most loaded rank takes; ``None`` where it is not known."""
    layers = ask.work.rank_layers()
    if ask.room is None or ask.orders is not None or layers is None:
        return None
    return ask.room.total_bytes(run.orders, ask.scale, layers, ask.group)
