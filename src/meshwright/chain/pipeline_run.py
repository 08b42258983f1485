"""A pipeline's answer: the schedule made (or refused by rules), run, measured and explained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_refused import forbidden
from meshwright.findings import Finding, has_errors
from meshwright.schedules.closed_forms import ChunkTimes, Sizes, bubble_fraction
from meshwright.schedules.greedy.zero_bubble_plan import Costs
from meshwright.schedules.make import BY_COSTS, make_orders
from meshwright.schedules.make_asked import Options
from meshwright.schedules.orders import Orders
from meshwright.timeline.ablation import AblationStep, ablation
from meshwright.timeline.core import Times
from meshwright.timeline.curves import bytes_curve, chunk_curve
from meshwright.timeline.idle import Idle, idle_of
from meshwright.timeline.measure import Measured, measure
from meshwright.timeline.memory_over_time import MemoryOverTime, memory_over_time
from meshwright.timeline.program import Messages, Program, StageTimes, program_of
from meshwright.timeline.record import Curve, Timeline, timeline_of
from meshwright.timeline.simulate import simulate

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reordered:
    """Two orders of one greedy schedule: ``made_for_times`` tells which is kept, the faster one.

    ``usual_s``: makespan of the one made for F = I = W; ``other_s``: of the one made for the times given.
    """

    made_for_times: bool
    usual_s: float
    other_s: float


@dataclass(frozen=True)
class PipelineRun:
    """A schedule that ran.

    ``kept_bytes[stages of the chain]``: what one microbatch keeps on a stage; ``None``: not known;
    ``reordered``: ``None`` where only one order was tried.
    """

    orders: Orders
    stage_times: StageTimes
    messages: Messages
    program: Program
    times: Times
    measured: Measured
    kept_bytes: Floats | None
    blocking: bool
    reordered: Reordered | None = None

    @cached_property
    def idle(self) -> Idle:
        """Every rank's idle time by cause."""
        return idle_of(self.timeline)

    @cached_property
    def timeline(self) -> Timeline:
        """What ran when, and when messages were under way."""
        return timeline_of(self.program, self.times, blocking=self.blocking)

    @cached_property
    def memory(self) -> MemoryOverTime:
        """Activations of every rank over time; all of a chunk is kept until nothing needs it any more."""
        kept = self.kept_bytes
        if kept is None:
            kept = np.zeros(self.orders.chain_length)
        return memory_over_time(self.program, self.times, np.zeros_like(kept), kept)

    def curves(self) -> list[Curve]:
        """Return what the ranks keep over time: stage chunks, and bytes where they are known."""
        unit = "microbatches" if self.orders.chunks == 1 else "chunks"
        found = [chunk_curve(self.memory, unit)]
        return found if self.kept_bytes is None else [*found, bytes_curve(self.memory)]

    @property
    def peak_bytes(self) -> Floats | None:
        """Most bytes of activations each rank keeps at once, ``[ranks]``; ``None``: not known."""
        return None if self.kept_bytes is None else self.memory.peak_bytes

    @property
    def peak_in_flight(self) -> NDArray[np.int64]:
        """Most stage chunks whose activations a rank holds, until nothing more needs them."""
        return self.measured.peak_until_weight

    @property
    def peak_microbatches(self) -> Floats:
        """The same as whole microbatches of a p-th of the model."""
        share = self.orders.ranks / self.orders.chain_length
        return np.asarray(self.peak_in_flight * share, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class PipelinePage:
    """What ``pipeline`` shows.

    ``ask`` is ``None`` where a rule forbids the job, ``run`` where one forbids the schedule; ``steps``:
    what equal stages, the given ones, messages and blocking sends take, one after the other.
    """

    title: str
    ask: PipelineAsk | None
    run: PipelineRun | None
    formula_bubble_fraction: float | None
    steps: tuple[AblationStep, ...]
    findings: tuple[Finding, ...]


def pipeline_page(ask: PipelineAsk) -> PipelinePage:
    """Answer one question. Raises ``UsageError`` for a schedule that nobody knows."""
    findings = [*ask.notes, *forbidden(ask)]
    if has_errors(findings):
        return PipelinePage(ask.title, ask, None, None, (), tuple(findings))
    run = run_ask(ask)
    steps = ablation(run.program, run.stage_times, run.times, blocking=ask.blocking)
    formula = _formula(run) if ask.orders is None else None
    return PipelinePage(ask.title, ask, run, formula, tuple(steps), tuple(findings))


def run_ask(ask: PipelineAsk) -> PipelineRun:
    """Make the schedule and run it. Raises ``UsageError`` where a rule forbids it.

    With ``reorder`` a greedy schedule is made for the times given, too; the faster order is kept.
    """
    if ask.orders is not None:
        return _run(ask, ask.orders)
    usual = _run(ask, make_orders(ask.schedule, ask.pp, ask.microbatches, **ask.options))
    if not ask.reorder or usual.orders.schedule not in BY_COSTS:
        return usual
    options: Options = {**ask.options, "costs": _costs(usual)}
    other = _run(ask, make_orders(ask.schedule, ask.pp, ask.microbatches, **options))
    usual_s, other_s = usual.measured.makespan_s, other.measured.makespan_s
    faster = other_s < usual_s
    return replace(other if faster else usual, reordered=Reordered(faster, usual_s, other_s))


def _run(ask: PipelineAsk, orders: Orders) -> PipelineRun:
    stage_times = ask.work.times(orders).scaled(np.full(orders.chain_length, ask.scale))
    messages = replace(ask.messages, send_s=ask.messages.send_s * ask.scale)
    program = program_of(orders, stage_times, messages)
    kept = ask.work.kept_bytes(orders)
    times = simulate(program, blocking=ask.blocking)
    return PipelineRun(
        orders=orders,
        stage_times=stage_times,
        messages=messages,
        program=program,
        times=times,
        measured=measure(program, times),
        kept_bytes=None if kept is None else kept * ask.scale,
        blocking=ask.blocking,
    )


def _costs(run: PipelineRun) -> Costs:
    """Return the mean times of a run, for which a greedy order is made."""
    times, sends = run.stage_times, run.program.message_s[run.program.message_s > 0.0]
    return Costs(
        forward=float(times.forward_s.mean()),
        input=float((times.input_s + times.recompute_s).mean()),
        weight=float(times.weight_s.mean()),
        send=float(sends.mean()) if len(sends) else 0.0,
    )


def _formula(run: PipelineRun) -> float | None:
    """Return the idle share by the formula of equal stages and free messages.

    (p-1)/(v·m + p-1) for GPipe, 1F1B and interleaved (arXiv 2104.04473, section 2.2). ``None`` where
    the schedule has none that holds for its sizes and times.
    """
    orders, times = run.orders, run.stage_times
    means = (
        one.mean() for one in (times.forward_s, times.input_s + times.recompute_s, times.weight_s)
    )
    sizes = Sizes(orders.ranks, orders.microbatches, orders.chunks, orders.ranks)
    found = bubble_fraction(orders.schedule, sizes, ChunkTimes(*means))
    return None if found is None or not np.isfinite(found) else float(found)
