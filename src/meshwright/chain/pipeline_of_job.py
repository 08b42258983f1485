"""The pipeline of a job: its schedule, its stages' durations from FLOPs, its messages by their routes."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.chain.context import context_of
from meshwright.chain.jobfile import Job
from meshwright.chain.outline import outline_job
from meshwright.chain.outlined import Outline
from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_framework import FRAMEWORKS, waits_for_sends
from meshwright.chain.pipeline_messages import JobMessages, job_messages
from meshwright.chain.pipeline_rates import JobTimes, job_model_work, job_times
from meshwright.chain.pipeline_refused import flaws
from meshwright.chain.pipeline_room import room_of
from meshwright.chain.pipeline_run import PipelinePage
from meshwright.chain.pipeline_work import given_work
from meshwright.errors import InputError, Problem, UsageError
from meshwright.findings import Finding, has_errors
from meshwright.origin import Origin
from meshwright.rules.job import check_rest
from meshwright.rules.told_pipeline import foreign_schedule_note, other_batch_note
from meshwright.schedules.make_asked import asked
from meshwright.schedules.names import MANY_CHUNKS, SCHEDULES, TWO_CHUNKS, schedule_name
from meshwright.schedules.orders import Orders
from meshwright.timeline.program import Messages
from meshwright.traffic.workload import MESH
from meshwright.units import plural


@dataclass(frozen=True, slots=True)
class Changes:
    """What the command line says instead of the job; ``None``: as the job has it.

    ``durations_s``: forward, input gradient, weight gradient of one stage; ``factors``: on all three, of
    each rank or stage.
    """

    schedule: str | None = None
    microbatches: int | None = None
    chunks: int | None = None
    group: int | None = None
    convention: str | None = None
    durations_s: tuple[float, float, float] | None = None
    factors: tuple[float, ...] = ()
    send_s: float | None = None
    efficiency: float | None = None
    blocking: bool | None = None
    reorder: bool = False
    orders: Orders | None = None

    @property
    def other_schedule(self) -> bool:
        """Whether another schedule is asked for than the job's."""
        given = (self.schedule, self.microbatches, self.chunks, self.group, self.convention)
        return self.orders is not None or any(one is not None for one in given)


def forbidden_page(outline: Outline) -> PipelinePage:
    """Return the page of a job that a rule forbids."""
    return PipelinePage(outline.job.name, None, None, None, (), tuple(outline.findings))


def ask_of_job(job: Job, changes: Changes) -> tuple[PipelineAsk | None, Outline]:
    """Return what a job asks, and its outline; no question where a rule forbids the job.

    Raises ``InputError`` where the number of microbatches does not follow, ``UsageError`` where the
    changes do not fit the job.
    """
    outline = outline_job(job)
    layout, orders = outline.layout, changes.orders
    if not outline.is_legal:
        return None, outline
    if orders is not None and orders.ranks != layout.pp:
        raise UsageError(f"the schedule has {plural(orders.ranks, 'rank')}, the job pp {layout.pp}")
    schedule = _schedule_of(outline, changes)
    if not changes.other_schedule:
        rest = check_rest(context_of(outline))
        outline.findings += [one for one in rest if one.rule.startswith("pipeline/")]
    if orders is not None:
        outline.findings += flaws(orders.schedule, orders)
    if has_errors(outline.findings):
        return None, outline
    return _ask(outline, changes, schedule), outline


def _ask(outline: Outline, changes: Changes, schedule: str) -> PipelineAsk:
    """Return what a job asks that no rule forbids."""
    job, layout, orders = outline.job, outline.layout, changes.orders
    chunks = _chunks_of(outline, changes, schedule)
    count = orders.microbatches if orders is not None else _microbatches(outline, changes)
    times = _times(outline, changes, asked(schedule, layout.pp, count, {"chunks": chunks}).chunks)
    sends = _sends(outline, changes, is_time=times.is_time)
    stated = changes.blocking
    return PipelineAsk(
        title=job.name,
        schedule=schedule if orders is None else orders.schedule,
        pp=layout.pp,
        microbatches=count,
        chunks=chunks if orders is None else orders.chunks,
        work=times.work,
        messages=sends.messages,
        group=_group_of(outline, changes, schedule),
        convention=changes.convention or ("torch" if layout.framework in MESH else "megatron"),
        blocking=waits_for_sends(outline, schedule) if stated is None else stated,
        blocking_stated=stated is not None,
        reorder=changes.reorder,
        orders=orders,
        messages_origin=sends.origin,
        unit_is_time=times.is_time,
        by_options=False,
        place=job.place,
        notes=(
            *outline.findings,
            *_notes(outline, changes, schedule),
            *times.notes,
            *sends.notes,
        ),
        framework=FRAMEWORKS.get(layout.framework),
        holding=tuple(one for one in SCHEDULES if waits_for_sends(outline, one)),
        micro_batch=outline.batch.micro_batch,
        room=room_of(outline),
    )


def _notes(outline: Outline, changes: Changes, schedule: str) -> list[Finding]:
    """Return what the command line or the framework makes other than the job says."""
    found, place, count = [], outline.job.place, outline.batch.microbatches_per_pass
    framework = FRAMEWORKS.get(outline.layout.framework)
    if framework is not None and changes.orders is None and schedule not in framework.runs:
        found.append(
            foreign_schedule_note(
                schedule, framework.name, framework.runs, place("training.schedule")
            )
        )
    asked_for = None if changes.orders is not None else changes.microbatches
    if None not in (asked_for, count) and asked_for != count:
        found.append(other_batch_note(asked_for or 0, count or 0, place("batch")))
    return found


def _schedule_of(outline: Outline, changes: Changes) -> str:
    given = changes.schedule or outline.job.file.training.schedule
    vp = changes.chunks or (outline.layout.vp if changes.schedule is None else 1)
    name = schedule_name(given, vp)
    if name is not None:
        return name
    if changes.schedule is not None:
        return asked(changes.schedule, 1, 1, {}).schedule  # says which are known
    place = outline.job.place("training.schedule")
    remedy = f"one of {', '.join(SCHEDULES)}"
    raise InputError(Problem(place, f"{given!r} is no schedule known here", remedy=remedy))


def _chunks_of(outline: Outline, changes: Changes, schedule: str) -> int | None:
    """Return the stages a rank holds; ``None``: as many as the schedule has by itself.

    Of the job's chunks another schedule keeps those that it can use.
    """
    if changes.chunks is not None or schedule in TWO_CHUNKS:
        return changes.chunks
    keeps = schedule in MANY_CHUNKS or not changes.other_schedule
    return outline.layout.vp if keeps else None


def _group_of(outline: Outline, changes: Changes, schedule: str) -> int | None:
    """Return the microbatches of a group: the job's where it is the job's schedule that is asked for."""
    if changes.group is not None or changes.other_schedule or schedule != "interleaved":
        return changes.group
    return outline.job.file.training.microbatch_group


def _microbatches(outline: Outline, changes: Changes) -> int:
    count = changes.microbatches or outline.batch.microbatches_per_pass
    if count is None:
        message = "the number of microbatches does not follow from the batch"
        remedy = "batch: {global_batch: 64, micro_batch: 1}, or -m 64"
        raise InputError(Problem(outline.job.place("batch"), message, remedy=remedy))
    return count


def _times(outline: Outline, changes: Changes, chunks: int) -> JobTimes:
    if changes.durations_s is None:
        return job_times(outline, chunks, changes.efficiency)
    pp, orders = outline.layout.pp, changes.orders
    stages = pp * chunks if orders is None else orders.chain_length
    work = given_work(changes.durations_s, pp, stages, changes.factors, job_model_work(outline))
    return JobTimes(work, True, ())  # noqa: FBT003


def _sends(outline: Outline, changes: Changes, *, is_time: bool) -> JobMessages:
    if changes.send_s is not None:
        return JobMessages(Messages.uniform(outline.layout.pp, changes.send_s), Origin.STATED)
    return job_messages(outline, changes.orders, is_time=is_time)
