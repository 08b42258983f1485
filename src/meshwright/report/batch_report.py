"""The answer of ``batch``: the chain of batch figures, and what a pipeline makes of them."""

from __future__ import annotations

from typing import Any

from meshwright.chain.batch_of_job import BatchPage
from meshwright.findings import Severity, by_severity
from meshwright.job.batch import FIGURES
from meshwright.origin import Origin
from meshwright.report.text import counted, findings_text, if_sensible, paragraph, table
from meshwright.units import format_count

SCHEMA = "meshwright/batch/1"
_LISTED_RANKS = 32


def batch_json(page: BatchPage) -> dict[str, Any]:
    """Return the document of ``batch --json``."""
    batch, layout = page.outline.batch, page.outline.layout
    return {
        "schema": SCHEMA,
        "job": page.outline.job.name,
        "world_size": if_sensible(layout.world_size),
        "dp": layout.dp,
        **{name: getattr(batch, name) for name in FIGURES},
        "microbatches_per_pass": batch.microbatches_per_pass,
        "seq_len": batch.seq_len,
        "sequence_factor": page.sequence_factor,
        "tokens_per_step": batch.tokens_per_step,
        "tokens_per_microbatch_and_rank": page.tokens_of_rank,
        "tokens_per_expert": page.tokens_per_expert,
        "schedule": page.schedule,
        "formula_bubble_fraction": page.bubble_fraction,
        "warmup": None if page.warmup is None else list(page.warmup),
        "forwards_before_first_backward": None
        if page.first_forwards is None
        else list(page.first_forwards),
        "trade_offs": [
            {
                "micro_batch": one.micro_batch,
                "num_microbatches": one.num_microbatches,
                "formula_bubble_fraction": one.bubble_fraction,
                "legal": one.is_legal,
            }
            for one in page.trade_offs
        ],
        "findings": [one.to_json() for one in by_severity(page.findings)],
        "origin": _origins(page),
    }


def _origins(page: BatchPage) -> dict[str, str]:
    figures = page.outline.job.file.batch
    assumed = page.outline.batch.assumed
    origins = {}
    for name in (*FIGURES, "seq_len"):
        stated = getattr(figures, name) is not None
        other = Origin.ASSUMED if name in assumed else Origin.MODELLED
        origins[name] = (Origin.STATED if stated else other).value
    return origins | {
        "dp": page.dp_origin.value,
        "tokens_per_step": Origin.MODELLED.value,
        "formula_bubble_fraction": Origin.MODELLED.value,
        "warmup": Origin.MODELLED.value,
    }


def batch_text(page: BatchPage) -> str:
    """Return the page of ``batch``."""
    parts = [paragraph(f"{page.outline.job.name}: {counted(page.findings)}.")]
    loud = findings_text(page.findings, Severity.ERROR, Severity.WARNING)
    parts += [loud] if loud else []
    parts.append(_figures_table(page))
    parts += _pipeline_parts(page)
    quiet = findings_text(page.findings, Severity.NOTE)
    parts += [quiet] if quiet else []
    return "\n\n".join(parts)


def _figures_table(page: BatchPage) -> str:
    batch, origins = page.outline.batch, _origins(page)
    rows = [("dp", f"{page.outline.layout.dp}", origins["dp"], "replicas")]
    counts = page.outline.job.file.batch.local_batch is None
    counts = counts and page.outline.job.file.batch.grad_accum is not None
    meaning = {
        "global_batch": "micro_batch × num_microbatches × dp",
        "micro_batch": "sequences of one microbatch",
        "num_microbatches": "microbatches of a replica in a step",
        "local_batch": f"sequences of a replica in one {'microbatch' if counts else 'pass'}",
        "grad_accum": "microbatches of a replica in a step" if counts else "passes of a step",
    }
    for name, what in meaning.items():
        value = getattr(batch, name)
        origin = "-" if value is None else origins[name]
        rows.append((name, "-" if value is None else f"{value}", origin, what))
    length = "-" if batch.seq_len is None else f"{batch.seq_len}"
    rows.append(("seq_len", length, "-" if batch.seq_len is None else "stated", "tokens"))
    rows.append(
        (
            "seq_len factor",
            f"{page.sequence_factor}",
            "modelled",
            "seq_len must be a multiple of it",
        )
    )
    if batch.tokens_per_step is not None:
        shown = format_count(batch.tokens_per_step)
        rows.append(("tokens_per_step", shown, "modelled", "global_batch × seq_len"))
    if page.tokens_of_rank is not None:
        rows.append(
            ("tokens of a rank", f"{page.tokens_of_rank}", "modelled", "micro_batch × seq_len / cp")
        )
    if page.tokens_per_expert is not None:
        rows.append(
            (
                "tokens of an expert",
                f"{page.tokens_per_expert:g}",
                "modelled",
                "a microbatch, evenly spread",
            )
        )
    return table(("figure", "value", "origin", ""), rows)


def _pipeline_parts(page: BatchPage) -> list[str]:
    layout, parts = page.outline.layout, []
    if page.bubble_fraction is not None and layout.pp > 1:
        count = page.outline.batch.microbatches_per_pass
        parts.append(
            paragraph(
                f"Pipeline {page.schedule}, pp {layout.pp}, vp {layout.vp}, {count} microbatches a pass: "
                f"{100 * page.bubble_fraction:.1f} % idle by (pp-1)/(vp·m + pp-1), stages even."
            )
        )
    if page.warmup is not None and len(page.warmup) <= _LISTED_RANKS:
        first = page.first_forwards or ()
        parts.append(
            paragraph(
                f"By pipeline rank: warm-up forwards {', '.join(map(str, page.warmup))}; forwards before "
                f"the first backward {', '.join(map(str, first))}."
            )
        )
    if len(page.trade_offs) > 1:
        rows = [
            (
                f"{one.micro_batch}",
                f"{one.num_microbatches}",
                f"{100 * one.bubble_fraction:.1f} %" + ("" if one.is_legal else ", not legal"),
            )
            for one in page.trade_offs
        ]
        parts.append(
            "The same global batch with other micro-batches (kernels gain, the pipeline loses):\n"
            + table(("micro_batch", "microbatches", "idle"), rows)
        )
    return parts
