"""The page of ``pipeline``: idle shares and their causes, the schedule drawn, what a change would buy."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_compare import Alternative
from meshwright.chain.pipeline_framework import CONVENTIONS
from meshwright.chain.pipeline_run import PipelinePage, PipelineRun
from meshwright.chain.pipeline_work import GivenWork
from meshwright.findings import Severity
from meshwright.report.gantt_text import gantt_text
from meshwright.report.pipeline_compare_text import compare_text
from meshwright.report.pipeline_json import split_of
from meshwright.report.pipeline_orders import orders_text, warmup_text
from meshwright.report.pipeline_tables import ROWS, changes_text, ranks_text, share, shares_text
from meshwright.report.text import counted, findings_text, paragraph
from meshwright.timeline.program import splits_backward
from meshwright.units import format_seconds, plural

_STAGES_TOLD = 24
_WHOSE = ("1f1b", "interleaved", "zb-v")
"""Schedules whose order or rules are not the same everywhere."""


def pipeline_text(
    page: PipelinePage, others: Sequence[Alternative] = (), *, with_orders: bool = False
) -> str:
    """Return the page; ``others``: rows of the table of what changes would buy."""
    ask, run = page.ask, page.run
    parts = [paragraph(_title(page)), f"{counted(page.findings)}."]
    if ask is not None and run is not None:
        parts[-1] = paragraph(f"{parts[-1]} {_said(page, ask, run)}")
    parts.append(findings_text(page.findings, Severity.ERROR, Severity.WARNING))
    if ask is not None and run is not None:
        parts += _simulated(page, ask, run)
        parts += [orders_text(run.orders)] if with_orders else []
        parts += [compare_text(others)] if others else []
    parts.append(findings_text(page.findings, Severity.NOTE))
    if ask is not None and run is not None:
        parts.append(_close(ask))
    return "\n\n".join(part for part in parts if part)


def _title(page: PipelinePage) -> str:
    ask = page.ask
    if ask is None:
        return f"{page.title}: no pipeline to simulate."
    count = plural(ask.microbatches, "microbatch", "microbatches")
    chunks = page.run.orders.chunks if page.run is not None else ask.chunks or 1
    several = f" of {chunks} stages" if chunks > 1 else ""
    return f"{page.title}: {ask.schedule}, {plural(ask.pp, 'rank')}{several}, {count}."


def _said(page: PipelinePage, ask: PipelineAsk, run: PipelineRun) -> str:
    measured, formula = run.measured, page.formula_bubble_fraction
    text = (
        f"A step takes {format_seconds(measured.makespan_s)}, of which {share(measured.bubble_fraction)} is "
        "idle"
    )
    if formula is not None and abs(formula - measured.bubble_fraction) < 5e-4:
        text += ", as the formula says"
    elif formula is not None:
        text += f"; the formula, for equal stages and free messages, says {share(formula)}"
    unit = "" if ask.unit_is_time else " Times are multiples of a stage's mean forward."
    return f"{text}.{unit}{_durations(ask, run)}"


def _durations(ask: PipelineAsk, run: PipelineRun) -> str:
    """Return the durations that were given by hand, left out ones with them."""
    if not isinstance(ask.work, GivenWork) or not ask.unit_is_time:
        return ""
    work = ask.work
    times = f"F {format_seconds(work.forward_s)}, I {format_seconds(work.input_s)}"
    both = "" if splits_backward(run.orders) else " (B = I + W)"
    factors = ", times its factor" if work.factors else ""
    return f" A stage takes {times}, W {format_seconds(work.weight_s)}{both}{factors}."


def _simulated(page: PipelinePage, ask: PipelineAsk, run: PipelineRun) -> list[str]:
    return [
        shares_text(page, run),
        ranks_text(ask, run),
        gantt_text(run.timeline, rows=ROWS),
        warmup_text(ask, run) or "",
        _reordered(run),
        changes_text(run, page.steps),
        _stages(ask, run),
        _split(ask, run),
    ]


def _reordered(run: PipelineRun) -> str:
    found = run.reordered
    if found is None:
        return ""
    usual, other = format_seconds(found.usual_s), format_seconds(found.other_s)
    kept = "the first" if found.made_for_times else "the second, which is no slower,"
    return paragraph(
        f"Made for these times the order takes {other}, the one made for F = I = W {usual}: {kept} is kept."
    )


def _stages(ask: PipelineAsk, run: PipelineRun) -> str:
    """List the layers of each stage, where a model is given and its stages differ."""
    layers = ask.work.stage_layers(run.orders)
    if layers is None or len(set(layers)) == 1:
        return ""
    listed = ", ".join(map(str, layers[:_STAGES_TOLD]))
    more = f" … {layers[-1]}" if len(layers) > _STAGES_TOLD else ""
    return paragraph(f"Layers by stage: {listed}{more}.")


def _split(ask: PipelineAsk, run: PipelineRun) -> str:
    split, given = split_of(ask), ask.work.rank_layers()
    if split is None or given is None or split.layers == given:
        return ""
    slowest_s = float(run.stage_times.total_s.max())
    if run.orders.chunks > 1 or split.slowest_s * ask.scale >= slowest_s * (1 - 1e-6):
        return ""
    return paragraph(
        f"The most even split by FLOPs (sought for one stage a rank) is stages: {list(split.layers)}: its slowest stage takes "
        f"{format_seconds(split.slowest_s)} a microbatch, that of {list(given)} takes "
        f"{format_seconds(slowest_s)}. Memory may ask for another (meshwright memory)."
    )


def _close(ask: PipelineAsk) -> str:
    waits = "sends do not hold up a rank"
    if ask.blocking:
        waits = "ranks wait for their sends"
        waits += ", and messages share no links" if ask.messages.link is not None else ""
    whose = ""
    if ask.orders is None and ask.schedule in _WHOSE:
        order = CONVENTIONS[ask.convention]
        if ask.framework is not None and CONVENTIONS.get(ask.convention) != ask.framework.order:
            order = ask.framework.order
        whose = f"Order and rules: {order}. "
    return paragraph(
        f"{whose}Stage times {ask.work.origin.value}, message times {ask.messages_origin.value}; {waits}. "
        "Simulated; does not validate your environment: compare with a profile of one step."
    )
