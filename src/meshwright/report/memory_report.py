"""Memory by stage as JSON and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.findings import Finding, Severity, by_severity
from meshwright.memory.assumptions import assumptions_of
from meshwright.memory.communicators import Communicator
from meshwright.memory.constants import Constant
from meshwright.memory.fixes import Fix
from meshwright.memory.job import JobMemory
from meshwright.memory.korthikanti import PaperRow
from meshwright.memory.megatron_estimator import GAPS, Estimate
from meshwright.memory.peak import recompute_of
from meshwright.memory.states import PerParameter, shard_degrees
from meshwright.origin import Origin
from meshwright.report.text import counted, findings_text, paragraph, table
from meshwright.units import format_binary_bytes, format_count

SCHEMA = "meshwright/memory/1"
LISTED_STAGES = 32
LISTED_FIXES = 6


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """What is shown: a job's memory, its findings, what was measured or estimated beside it."""

    name: str
    memory: JobMemory | None
    findings: Sequence[Finding] = ()
    fixes: Sequence[Fix] = ()
    estimate: Estimate | None = None
    measured: dict[str, Any] = field(default_factory=dict)
    capacity_bytes: float | None = None
    paper: Sequence[PaperRow] = ()


def memory_json(page: MemoryPage) -> dict[str, Any]:
    """Return the document of ``memory --json``."""
    memory = page.memory
    document: dict[str, Any] = {"schema": SCHEMA, "job": page.name}
    if memory is None:
        document |= {"stages": [], "worst_stage": None, "capacity_bytes": page.capacity_bytes}
    else:
        document |= _job_json(page, memory)
    if page.estimate is not None:
        document["megatron_estimator"] = {
            "parameters": page.estimate.parameters,
            "weights_optimizer_bytes": page.estimate.weights_optimizer_bytes,
            "activations_bytes": page.estimate.activations_bytes,
            "total_bytes": page.estimate.total_bytes,
            "gaps": list(GAPS),
        }
    if page.paper:
        document["korthikanti"] = [
            {
                "strategy": row.strategy,
                "bytes_per_layer": row.bytes_per_layer,
                "first_stage_bytes": row.first_stage_bytes,
                "percent_of_tp_baseline": 100 * row.share_of_baseline,
            }
            for row in page.paper
        ]
    if page.measured:
        document["measured"] = page.measured
    document["findings"] = [one.to_json() for one in by_severity(page.findings)]
    document["origin"] = _origins(page)
    return document


def _job_json(page: MemoryPage, memory: JobMemory) -> dict[str, Any]:
    layout, held = memory.work.layout, memory.parameters.total
    mean, most = float(np.mean(held)), float(np.max(held))
    return {
        "world_size": layout.world_size,
        "framework": layout.framework,
        "framework_version": layout.framework_version,
        "sharding": layout.sharding,
        "recompute": recompute_of(memory.work),
        "schedule": None if memory.peak is None else memory.peak.in_flight.schedule,
        "stages": [_stage_json(memory, stage) for stage in range(layout.pp)],
        "worst_stage": memory.worst_stage,
        "dominant": memory.dominant,
        "gpu": memory.device.gpu,
        "capacity_bytes": memory.device.capacity_bytes,
        "fits": memory.fits,
        "missing": list(memory.missing),
        "dispatcher_reason": memory.dispatcher.reason,
        "bytes_per_parameter": _form_json(memory),
        "assumptions": list(assumptions_of(memory.work)),
        "mean_parameters": mean,
        "underestimate_pct": 100 * (most - mean) / most if most else 0.0,
        "fixes": [
            {
                "change": fix.change,
                "cost": fix.cost,
                "saved_bytes": fix.saved_bytes,
                "total_bytes": fix.total_bytes,
                "fits": fix.fits,
            }
            for fix in page.fixes
        ],
        "communicators": [_communicator_json(one) for one in memory.communicators],
        "constants": [_constant_json(one) for one in memory.constants.by_name.values()],
    }


def _communicator_json(one: Communicator) -> dict[str, Any]:
    return {
        "axis": one.axis,
        "name": one.name,
        "ranks": one.ranks,
        "use": one.use,
        "channels": one.channels,
        "peers_inside": one.peers_inside,
        "peers_outside": one.peers_outside,
        "receive_buffer_bytes": one.receive_buffer_bytes,
        "send_buffer_bytes": one.send_buffer_bytes,
        "bytes": one.bytes,
    }


def _form_json(memory: JobMemory) -> dict[str, Any]:
    """Return bytes a parameter: ``whole`` on every rank, ``sharded`` over so many ranks."""
    dense, expert = shard_degrees(memory.work)
    form = memory.form
    parts = {"weights": form.weights, "gradients": form.gradients, "optimizer": form.optimizer}
    return {name: {"whole": one.whole, "sharded": one.sharded} for name, one in parts.items()} | {
        "dense_ranks": dense,
        "expert_ranks": expert,
    }


def _stage_json(memory: JobMemory, stage: int) -> dict[str, Any]:
    terms, peak = memory.terms(stage), memory.peak
    layers, mtp = _layers(memory, stage)
    return {
        "stage": stage,
        "layers": layers,
        "mtp_layers": mtp,
        "parameters": round(float(memory.parameters.total[stage])),
        "weights_bytes": terms["weights"],
        "gradients_bytes": terms["gradients"],
        "optimizer_bytes": terms["optimizer"],
        "activations_bytes": terms.get("activations"),
        "transient_bytes": terms.get("transient"),
        "communicators_bytes": terms["communicators"],
        "dispatcher_bytes": None
        if memory.dispatcher.bytes is None
        else float(memory.dispatcher.bytes[stage]),
        "context_bytes": terms["context"],
        "workspace_bytes": terms["workspace"],
        "fragmentation_bytes": terms["fragmentation"],
        "microbatches_in_flight": None
        if peak is None
        else float(peak.in_flight.microbatches[stage]),
        "allocated_bytes": float(memory.allocated[stage]),
        "reserved_bytes": float(memory.reserved[stage]),
        "total_bytes": float(memory.total[stage]),
    }


def _layers(memory: JobMemory, stage: int) -> tuple[int, int]:
    """Return the model's layers of a stage, and its multi-token prediction layers beside them."""
    mtp = int(memory.work.mtp_by_stage()[stage])
    return int(memory.work.layers_by_stage()[stage]) - mtp, mtp


def _constant_json(one: Constant) -> dict[str, Any]:
    return {
        "name": one.name,
        "value": one.value,
        "origin": one.origin.value,
        "source": one.source,
        "what": one.what,
    }


def _origins(page: MemoryPage) -> dict[str, str]:
    origins = {}
    if page.memory is not None:
        origins = {"stages": Origin.MODELLED.value, "fixes": Origin.MODELLED.value}
        origins["communicators"] = Origin.MODELLED.value
        origins["capacity_bytes"] = Origin.STATED.value
        origins |= {
            f"constants.{name}": one.origin.value
            for name, one in page.memory.constants.by_name.items()
        }
    if page.estimate is not None:
        origins["megatron_estimator"] = Origin.MODELLED.value
    if page.paper:
        origins["korthikanti"] = Origin.MODELLED.value
    if page.measured:
        origins["measured"] = Origin.MEASURED.value
    return origins


def memory_text(page: MemoryPage) -> str:
    """Return the page of ``memory``."""
    parts = [paragraph(f"{page.name}: {counted(page.findings)}.")]
    loud = findings_text(page.findings, Severity.ERROR, Severity.WARNING)
    parts += [loud] if loud else []
    if page.memory is not None:
        parts += _job_text(page, page.memory)
    if page.estimate is not None:
        parts.append(_estimate_text(page.estimate))
    if page.paper:
        parts.append(_paper_table(page.paper))
    if page.measured:
        parts.append("\n".join(_measured_lines(page.measured)))
    quiet = findings_text(page.findings, Severity.NOTE)
    parts += [quiet] if quiet else []
    return "\n\n".join(parts)


def _job_text(page: MemoryPage, memory: JobMemory) -> list[str]:
    worst = memory.worst_stage
    total, capacity = float(memory.total[worst]), memory.device.capacity_bytes
    against = "" if capacity is None else f" of {format_binary_bytes(capacity)}"
    verdict = {True: ": it fits", False: ": it does not fit", None: ""}[memory.fits]
    gpu = memory.device.gpu or ("GPU unknown" if capacity is None else "the capacity given")
    head = (
        f"Worst rank: stage {worst}, {format_binary_bytes(total)}{against} ({gpu}){verdict}. "
        f"Largest term: {memory.dominant}."
    )
    parts = [paragraph(head), _stages_table(memory), _terms_table(memory, worst)]
    if memory.communicators:
        parts.append(_communicators_table(memory))
    if page.fixes:
        lines = [
            paragraph(
                f"{format_binary_bytes(fix.saved_bytes)}{_fits(fix)}: {fix.change} ({fix.cost})",
                "  ",
                "  ",
            )
            for fix in page.fixes[:LISTED_FIXES]
        ]
        parts.append("\n".join(["What single changes save, the cheapest first:", *lines]))
    parts.append(paragraph(_counted_text(memory)))
    share = 100 * memory.constants["fragmentation_share"]
    parts.append(
        paragraph(
            f"Fragmentation is taken as {share:.0f} % of what is allocated, the CUDA context as "
            f"{format_binary_bytes(memory.constants['context_bytes'])}: --set changes either."
        )
    )
    return parts


def _counted_text(memory: JobMemory) -> str:
    """Say the bytes a parameter, and what was taken for granted."""
    form, (dense, expert) = memory.form, shard_degrees(memory.work)

    def said(part: PerParameter) -> str:
        shown = [f"{part.whole:g}"] if part.whole or not part.sharded else []
        return " + ".join([*shown, *([f"{part.sharded:g}/{dense}"] if part.sharded else [])])

    text = (
        f"Bytes a parameter: weights {said(form.weights)}, gradients {said(form.gradients)}, "
        f"optimizer {said(form.optimizer)}"
    )
    shares_experts = memory.parameters.expert.any() and expert != dense
    text += f" (experts over {expert} ranks)." if shares_experts else "."
    return " ".join([text, *assumptions_of(memory.work)])


def _fits(fix: Fix) -> str:
    return {True: ", fits", False: ", not enough", None: ""}[fix.fits]


def _stages_table(memory: JobMemory) -> str:
    peak = memory.peak
    layers = [_layers(memory, stage) for stage in range(len(memory.total))]
    shown = list(range(min(len(layers), LISTED_STAGES)))
    if memory.worst_stage not in shown:
        shown.append(memory.worst_stage)
    rows = [
        (
            f"{stage}{' worst' if stage == memory.worst_stage and len(layers) > 1 else ''}",
            f"{layers[stage][0]}" + (f" + {layers[stage][1]} MTP" if layers[stage][1] else ""),
            format_count(memory.parameters.total[stage]),
            format_binary_bytes(float(memory.states[stage])),
            "-" if peak is None else format_binary_bytes(float(peak.activations[stage])),
            "-" if peak is None else f"{peak.in_flight.microbatches[stage]:.3g}",
            format_binary_bytes(float(memory.total[stage])),
        )
        for stage in shown
    ]
    header = ("stage", "layers", "parameters", "states", "activations", "in flight", "total")
    text = table(header, rows)
    return text if len(shown) == len(layers) else f"{text}\n{len(layers)} stages; --json lists all"


def _terms_table(memory: JobMemory, stage: int) -> str:
    terms = memory.terms(stage)
    whole = sum(terms.values())
    rows = [
        (name, format_binary_bytes(size), f"{100 * size / whole:.1f} %")
        for name, size in terms.items()
    ]
    return f"Stage {stage}, one rank:\n" + table(("term", "bytes", "share"), rows)


def _communicators_table(memory: JobMemory) -> str:
    rows = [
        (
            one.axis,
            f"{one.ranks}",
            one.use,
            f"{one.channels}",
            f"{one.peers_inside} + {one.peers_outside}",
            format_binary_bytes(one.bytes),
        )
        for one in memory.communicators
    ]
    header = ("axis", "ranks", "use", "channels", "peers in + out", "buffers")
    return "Communicators (outside the framework's allocator):\n" + table(header, rows)


def _estimate_text(estimate: Estimate) -> str:
    text = (
        f"As Megatron's own estimator: {format_binary_bytes(estimate.weights_optimizer_bytes)} weights "
        f"and optimizer, {format_binary_bytes(estimate.activations_bytes)} activations, "
        f"{format_binary_bytes(estimate.total_bytes)} in all. Its gaps: {'; '.join(GAPS)}."
    )
    return paragraph(text)


def _paper_table(paper: Sequence[PaperRow]) -> str:
    rows = [
        (
            row.strategy,
            format_binary_bytes(row.bytes_per_layer),
            format_binary_bytes(row.first_stage_bytes),
            f"{100 * row.share_of_baseline:.1f} %",
        )
        for row in paper
    ]
    head = (
        "Activations as Korthikanti et al. 2022 count them (GPT layers with dropout, no flash attention, "
        "16 bit), by strategy:"
    )
    return f"{paragraph(head)}\n" + table(("strategy", "a layer", "first stage", "of tp"), rows)


def _measured_lines(measured: dict[str, Any]) -> list[str]:
    lines = ["Measured:"]
    for key, value in measured.items():
        if value is None or isinstance(value, list):  # said in the finding, or nothing to say
            continue
        shown = value
        if isinstance(value, (int, float)) and key.endswith(("_bytes", "_per_microbatch")):
            shown = ("-" if value < 0 else "") + format_binary_bytes(abs(value))
        lines.append(paragraph(f"{key.removesuffix('_bytes')}: {shown}", "  ", "  "))
    return lines
