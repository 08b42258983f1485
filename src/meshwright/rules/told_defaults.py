"""Notes on what a job leaves out: which default counts, and what another value would change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.findings import Finding
from meshwright.job.sections import TrainingSection
from meshwright.rules.note import PlaceOf, note
from meshwright.traffic.axes import degree_of_axis
from meshwright.traffic.data_fsdp import reshard_of
from meshwright.traffic.expert import dispatcher_of, expert_collectives
from meshwright.traffic.job import modelled_collectives
from meshwright.traffic.workload import Workload

NOTABLE_SHARE = 0.10
"""A default is worth a note when turning it changes a load by more than this."""


def assumed_notes(work: Workload, place: PlaceOf) -> list[Finding]:
    """Say what of a model is left out, or taken as even, because the job does not say it."""
    findings = narrow_format_notes(work.training, place)
    mtp = work.model.mtp_layers
    if mtp and work.training.mtp_layers is None:
        findings.append(
            note(
                "assumed/mtp-layers",
                place("training.mtp_layers"),
                f"{work.model.name} has {mtp} multi-token prediction layer{'s' if mtp > 1 else ''}; training.mtp_layers "
                "is left out, so none is counted.",
                f"training: {{mtp_layers: {mtp}}}",
                mtp_layers=mtp,
            )
        )
    routed = any(one.copies or one.axis == "ep" for one in expert_collectives(work))
    if routed and dispatcher_of(work) != "allgather" and work.moe.imbalance is None:
        findings.append(
            note(
                "assumed/imbalance",
                place("moe.imbalance"),
                "moe.imbalance is left out: tokens are spread evenly over experts (1.0). Time follows the busiest "
                "rank, and its load grows in proportion.",
                "moe: {imbalance: 1.3}, the largest over the mean of your own counts",
            )
        )
    return findings


def narrow_format_notes(training: TrainingSection, place: PlaceOf) -> list[Finding]:
    """Say that a format below 16 bits is counted as bf16, in what is sent and in memory."""
    precision = training.precision
    if precision not in ("fp8", "mxfp8", "nvfp4"):
        return []
    return [
        note(
            "assumed/precision-as-bf16",
            place("training.precision"),
            f"precision {precision}: what is sent and what memory holds is counted as bf16; rules of shapes use "
            f"{precision}.",
            precision=precision,
        )
    ]


def default_notes(work: Workload, place: PlaceOf) -> list[Finding]:
    """Say which left-out key would change a load by over 10 % if it were turned."""
    before = _sent_by_axis(work)
    findings = []
    for key, value, other in _turned(work):
        after = _sent_by_axis(other)
        changes = {
            axis: after[axis] / before[axis] - 1
            for axis in before
            if before[axis] > 0
            and axis in after
            and abs(after[axis] / before[axis] - 1) > NOTABLE_SHARE
        }
        if changes:
            listed = ", ".join(f"{axis} {change:+.0%}" for axis, change in changes.items())
            findings.append(
                note(
                    f"assumed/{key.split('.')[1].replace('_', '-')}",
                    place(key),
                    f"{key} is left out; {work.layout.framework}'s default {value[0]} is assumed. With {value[1]} the load "
                    f"of a rank would change: {listed}.",
                    f"{key.split('.')[1]}: {value[0]}, to say so",
                    changes={axis: round(change, 4) for axis, change in changes.items()},
                )
            )
    return findings


_Turned = tuple[str, tuple[str, str], Workload]


def _turned(work: Workload) -> list[_Turned]:
    """Return (key, (default, other), workload with the other) for each key left out."""
    return [*_turned_layout(work), *_turned_experts(work), *_turned_training(work)]


def _turned_layout(work: Workload) -> Iterator[_Turned]:
    layout = work.layout
    left_out = "sequence_parallel" in layout.assumed and layout.framework in ("megatron", "torch")
    if left_out and layout.tp > 1:
        other = msgspec.structs.replace(layout, sequence_parallel=True)
        yield "layout.sequence_parallel", ("false", "true"), replace(work, layout=other)
    if "sharding" in layout.assumed and layout.framework == "megatron":
        other = msgspec.structs.replace(layout, sharding="zero1", shard_degree=layout.dp)
        yield "layout.sharding", ("none", "zero1"), replace(work, layout=other)


def _turned_experts(work: Workload) -> Iterator[_Turned]:
    moe = work.moe
    if not work.model.is_moe or work.layout.ep == 1:
        return
    default = dispatcher_of(work)
    if moe.dispatcher is None:
        turned: Literal["alltoall", "deepep"] = "alltoall" if default == "allgather" else "deepep"
        other = msgspec.structs.replace(moe, dispatcher=turned)
        yield "moe.dispatcher", (default, turned), replace(work, moe=other)
    if default == "deepep" and moe.dispatch_dtype is None:
        other = msgspec.structs.replace(moe, dispatch_dtype="fp8")
        yield "moe.dispatch_dtype", ("bf16", "fp8"), replace(work, moe=other)


def _turned_training(work: Workload) -> Iterator[_Turned]:
    training = work.training
    if training.reshard_after_forward is None and work.layout.sharding in ("fsdp", "hsdp"):
        reshards = bool(reshard_of(work))
        words = ("true", "false") if reshards else ("false", "true")
        other = msgspec.structs.replace(training, reshard_after_forward=not reshards)
        yield "training.reshard_after_forward", words, replace(work, training=other)
    if training.gradient_dtype is None:
        wide = work.gradient_bytes == 4
        words = ("fp32", "bf16") if wide else ("bf16", "fp32")
        other = msgspec.structs.replace(training, gradient_dtype="bf16" if wide else "fp32")
        yield "training.gradient_dtype", words, replace(work, training=other)


def _sent_by_axis(work: Workload) -> dict[str, float]:
    """Return what the busiest rank sends a step on each axis (only known collectives)."""
    sent: dict[str, NDArray[np.float64]] = {}
    for one in modelled_collectives(work):
        total = one.sent_bytes_by_stage(degree_of_axis(work.layout, one.axis) or 2)
        if total is not None:
            # Dispatchers differ in which of these axes they use: compare their sum.
            axis = "ep" if one.axis in ("etp", "ep-etp") else one.axis
            sent[axis] = sent.get(axis, np.zeros(1)) + total
    return {axis: float(total.max()) for axis, total in sent.items()}
