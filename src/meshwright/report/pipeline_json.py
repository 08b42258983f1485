"""The document of ``pipeline --json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_compare import Alternative
from meshwright.chain.pipeline_run import PipelinePage, PipelineRun
from meshwright.chain.pipeline_work import JobWork
from meshwright.findings import by_severity
from meshwright.origin import Origin, weakest
from meshwright.report.pipeline_orders import group_of, orders_json, warmup_of
from meshwright.report.pipeline_reasons import Reason, reasons_of
from meshwright.schedules.best_split import Split
from meshwright.timeline.ablation import AblationStep

SCHEMA = "meshwright/pipeline/1"
_OF_RUN = (
    "makespan_s",
    "bubble_fraction",
    "span_bubble_fraction",
    "peak_in_flight",
    "peak_until_input_gradient",
    "peak_activation_bytes",
    "busy_s",
    "span_s",
    "idle",
    "send_s",
    "blocking",
    "reorder",
    "rank_of_stage",
    "layers",
    "stage_times",
    "best_split",
    "warmup",
    "changes",
)
"""Keys that are null where nothing ran."""


def pipeline_json(
    page: PipelinePage, others: Sequence[Alternative] = (), *, with_orders: bool = False
) -> dict[str, Any]:
    """Return the document."""
    ask, run = page.ask, page.run
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "title": page.title,
        **_asked(ask),
        "chunks": None if run is None else run.orders.chunks,
        **dict.fromkeys(_OF_RUN),
        "formula_bubble_fraction": page.formula_bubble_fraction,
    }
    if run is not None and ask is not None:
        document |= _of_run(run) | _of_stages(ask, run)
        document["warmup"] = warmup_of(run.orders, group_of(ask)).tolist()
        document["changes"] = [
            _step(*one) for one in zip(page.steps, reasons_of(run, page.steps), strict=True)
        ]
    if with_orders:
        document["orders"] = None if run is None else orders_json(run.orders)
    if others:
        document["alternatives"] = [_alternative(one) for one in others]
    document["findings"] = [one.to_json() for one in by_severity(page.findings)]
    document["origin"] = {} if ask is None or run is None else _origins(ask)
    return document


def _asked(ask: PipelineAsk | None) -> dict[str, Any]:
    if ask is None:
        return dict.fromkeys(("schedule", "ranks", "microbatches", "convention", "group", "unit"))
    return {
        "schedule": ask.schedule,
        "ranks": ask.pp,
        "microbatches": ask.microbatches,
        "convention": ask.convention,
        "group": group_of(ask),
        "unit": "seconds" if ask.unit_is_time else "mean forwards of a stage",
    }


def _of_run(run: PipelineRun) -> dict[str, Any]:
    measured, idle = run.measured, run.idle
    return {
        "makespan_s": measured.makespan_s,
        "bubble_fraction": measured.bubble_fraction,
        "span_bubble_fraction": measured.span_bubble_fraction,
        "peak_in_flight": run.peak_in_flight.tolist(),
        "peak_until_input_gradient": measured.peak_until_input.tolist(),
        "peak_activation_bytes": None if run.peak_bytes is None else run.peak_bytes.tolist(),
        "busy_s": measured.busy_s.tolist(),
        "span_s": measured.span_s.tolist(),
        "idle": {
            "total_s": idle.total_s.tolist(),
            "warm_up_s": idle.warm_up_s.tolist(),
            "cool_down_s": idle.cool_down_s.tolist(),
            "communication_s": idle.communication_s.tolist(),
            "imbalance_s": idle.imbalance_s.tolist(),
        },
        "send_s": _sends(run),
        "blocking": run.blocking,
        "reorder": _reordered(run),
    }


def _of_stages(ask: PipelineAsk, run: PipelineRun) -> dict[str, Any]:
    times, layers = run.stage_times, ask.work.stage_layers(run.orders)
    return {
        "rank_of_stage": run.orders.rank_of_stage.tolist(),
        "layers": None if layers is None else list(layers),
        "stage_times": {
            "forward_s": times.forward_s.tolist(),
            "input_gradient_s": times.input_s.tolist(),
            "weight_gradient_s": times.weight_s.tolist(),
            "recompute_s": times.recompute_s.tolist(),
        },
        "best_split": _split(split_of(ask)),
    }


def split_of(ask: PipelineAsk) -> Split | None:
    """Return the most even split of a job's layers; ``None`` where none is sought."""
    return ask.work.best_split() if isinstance(ask.work, JobWork) else None


def _split(split: Split | None) -> dict[str, Any] | None:
    if split is None:
        return None
    return {"layers": list(split.layers), "stage_s": split.stage_s.tolist()}


def _step(step: AblationStep, reason: Reason) -> dict[str, Any]:
    return {
        "step": step.name,
        "makespan_s": step.measured.makespan_s,
        "change_s": step.change_s,
        "bubble_fraction": step.measured.bubble_fraction,
        "why": reason.text,
        "numbers": dict(reason.numbers),
    }


def _sends(run: PipelineRun) -> list[dict[str, Any]]:
    """Return the time of a message alone on its path, for each pair of ranks that sends any."""
    program, rank = run.program, run.orders.rank
    there = np.flatnonzero(program.message_s > 0.0)
    ranks = len(run.messages.send_s)
    pairs = np.unique(rank[program.need[there]] * ranks + rank[there])
    return [
        {"from": pair // ranks, "to": pair % ranks, "send_s": float(run.messages.send_s.flat[pair])}
        for pair in pairs.tolist()
    ]


def _reordered(run: PipelineRun) -> dict[str, Any] | None:
    found = run.reordered
    if found is None:
        return None
    return {
        "kept": "made for these times" if found.made_for_times else "made for F = I = W",
        "usual_makespan_s": found.usual_s,
        "reordered_makespan_s": found.other_s,
    }


def _alternative(one: Alternative) -> dict[str, Any]:
    return {
        "change": one.change,
        "schedule": one.schedule,
        "microbatches": one.microbatches,
        "chunks": one.chunks,
        "makespan_s": one.makespan_s,
        "bubble_fraction": one.bubble_fraction,
        "peak_microbatches": one.peak_microbatches,
        "peak_activation_bytes": one.peak_bytes,
        "copies": one.copies,
        "stages": None if one.stages is None else list(one.stages),
        "refused": one.refused,
        "framework_runs": one.framework_runs,
        "total_bytes": one.total_bytes,
        "fits": one.fits,
    }


def _origins(ask: PipelineAsk) -> dict[str, str]:
    modelled = weakest([Origin.MODELLED, ask.work.origin, ask.messages_origin])
    return {
        "stage_times": ask.work.origin.value,
        "send_s": ask.messages_origin.value,
        "makespan_s": modelled.value,
        "bubble_fraction": modelled.value,
        "span_bubble_fraction": modelled.value,
        "formula_bubble_fraction": Origin.MODELLED.value,
        "peak_in_flight": Origin.MODELLED.value,
        "peak_activation_bytes": Origin.MODELLED.value,
    }
