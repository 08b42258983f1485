"""The batch of a job with what a schedule makes of it: microbatches, idle share, tokens of an expert."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from meshwright.chain.jobfile import Job
from meshwright.chain.judge import context_of
from meshwright.chain.outline import outline_job
from meshwright.chain.outlined import Outline
from meshwright.findings import Finding, has_errors
from meshwright.job.batch import implied_dp, resolve_batch
from meshwright.memory.in_flight import interleaved_group
from meshwright.origin import Origin
from meshwright.rules.arithmetic import divisors
from meshwright.rules.experts import tokens_per_expert
from meshwright.rules.job import check_rest
from meshwright.rules.pipeline import PIPELINE_RULES, bubble_fraction
from meshwright.rules.registry import RuleContext, run_rules
from meshwright.rules.sequence import sequence_factor, tokens_of_rank
from meshwright.schedules.names import schedule_name

_PREFIXES = ("batch/", "pipeline/", "sequence/", "experts/", "precision/tokens-multiple")
_MOST_ROWS = 64


@dataclass(frozen=True, slots=True)
class TradeOff:
    """One micro-batch at the same global batch and dp."""

    micro_batch: int
    num_microbatches: int
    bubble_fraction: float
    is_legal: bool
    """Whether the schedule takes this number of microbatches."""


@dataclass(frozen=True, slots=True)
class BatchPage:
    """What ``batch`` shows; ``None`` where a figure does not follow.

    ``warmup[pp]``: forwards of chunks a pipeline rank runs before it alternates; ``first_forwards``:
    before its first backward, one more where any are left.
    """

    outline: Outline
    dp_origin: Origin
    tokens_of_rank: int | None
    tokens_per_expert: float | None
    sequence_factor: int
    schedule: str | None
    bubble_fraction: float | None
    warmup: tuple[int, ...] | None
    first_forwards: tuple[int, ...] | None
    trade_offs: tuple[TradeOff, ...]
    findings: tuple[Finding, ...]


def batch_page(job: Job) -> BatchPage:
    """Derive every batch figure of a job, dp included. Raises ``InputError``."""
    section = job.file.layout
    origin = Origin.STATED if section.dp is not None else Origin.MODELLED
    implied = implied_dp(job.file.batch)
    open_world = section.dp is None and section.world_size is None and job.file.cluster is None
    if open_world and job.file.placement.ranks is None and section.ici is None:
        origin = Origin.ASSUMED if implied is None else Origin.MODELLED
        if implied is not None:
            section = msgspec.structs.replace(section, dp=implied)
            job = dataclasses.replace(job, file=msgspec.structs.replace(job.file, layout=section))
    outline = outline_job(job)
    context = context_of(outline)
    layout = outline.layout
    more = [one for one in check_rest(context) if one.rule.startswith(_PREFIXES)]
    schedule = schedule_name(job.file.training.schedule, layout.vp) if layout.pp > 1 else None
    count = outline.batch.microbatches_per_pass
    warmup = _warmup(outline, schedule, count)
    return BatchPage(
        outline=outline,
        dp_origin=origin,
        tokens_of_rank=tokens_of_rank(context),
        tokens_per_expert=tokens_per_expert(context),
        sequence_factor=sequence_factor(context),
        schedule=schedule,
        bubble_fraction=_bubble(outline, schedule, count),
        warmup=warmup,
        first_forwards=_first_forwards(outline, schedule, count, warmup),
        trade_offs=_trade_offs(outline, context, schedule),
        findings=(*outline.findings, *more),
    )


def _chunks(outline: Outline, schedule: str | None) -> int | None:
    """Return the chunks of a rank where the closed forms hold (1F1B, GPipe, interleaved)."""
    layout = outline.layout
    if layout.pp < 2 or layout.vp < 1 or schedule not in ("1f1b", "gpipe", "interleaved"):
        return None
    return layout.vp if schedule == "interleaved" else 1


def _bubble(outline: Outline, schedule: str | None, count: int | None) -> float | None:
    chunks = _chunks(outline, schedule)
    if chunks is None or not count:
        return 0.0 if outline.layout.pp == 1 else None
    return bubble_fraction(outline.layout.pp, count, chunks)


def _warmup(outline: Outline, schedule: str | None, count: int | None) -> tuple[int, ...] | None:
    """Return the warm-up of every rank (Megatron ``schedules.py``; equal in torch with its group)."""
    chunks, layout = _chunks(outline, schedule), outline.layout
    if chunks is None or not count or schedule == "gpipe" or layout.pp > _MOST_ROWS**2:
        return None
    if schedule == "1f1b":
        return tuple(min(count, layout.pp - 1 - rank) for rank in range(layout.pp))
    group = outline.job.file.training.microbatch_group
    group = group or interleaved_group(layout.framework, layout.pp, count)
    ahead = (chunks - 1) * group
    return tuple(
        min(count * chunks, 2 * (layout.pp - 1 - rank) + ahead) for rank in range(layout.pp)
    )


def _first_forwards(
    outline: Outline, schedule: str | None, count: int | None, warmup: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Return the forwards of every rank before its first backward: 1F1B begins with a forward."""
    chunks = _chunks(outline, schedule)
    if warmup is None or chunks is None or not count:
        return None
    return tuple(min(one + 1, count * chunks) for one in warmup)


def _trade_offs(
    outline: Outline, context: RuleContext, schedule: str | None
) -> tuple[TradeOff, ...]:
    """Return micro-batches that the same global batch allows, with the idle share of each."""
    batch, layout, figures = outline.batch, outline.layout, outline.job.file.batch
    chunks = _chunks(outline, schedule)
    if chunks is None or batch.global_batch is None or layout.dp < 1 or batch.contradictions:
        return ()
    rows = []
    open_figures: dict[str, None] = {"num_microbatches": None}
    if figures.local_batch is None:
        open_figures["grad_accum"] = None  # it counts microbatches
    sequences = batch.local_batch if figures.local_batch else batch.global_batch // layout.dp
    for micro in divisors(sequences or 1)[:_MOST_ROWS]:
        again = resolve_batch(
            msgspec.structs.replace(
                figures, micro_batch=micro, **open_figures, global_batch=batch.global_batch
            ),
            layout.dp,
            layout.framework,
            layout.pp,
        )
        count = again.microbatches_per_pass
        if count and not again.contradictions:
            found = run_rules(PIPELINE_RULES, dataclasses.replace(context, batch=again))
            idle = bubble_fraction(layout.pp, count, chunks)
            rows.append(TradeOff(micro, count, idle, not has_errors(found)))
    return tuple(rows)
