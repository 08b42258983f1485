"""Every rule on one job: what ``check`` asks beyond what an outline needs to exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.chain.outline import Outline
from meshwright.chain.plan import workload_of
from meshwright.job.stages import layers_by_stage
from meshwright.memory.communicators import communicators
from meshwright.memory.constants import default_constants
from meshwright.memory.device import device_of, domain_gpus
from meshwright.memory.fixes import fixes
from meshwright.memory.job import JobMemory, job_memory
from meshwright.placement.place import Placement
from meshwright.rules.job import check_rest
from meshwright.rules.memory import check_memory
from meshwright.rules.registry import Hardware, RuleContext
from meshwright.traffic.job import modelled_collectives

_SPREAD = ("tp", "ep")
"""Axes whose spread over hosts rules ask for."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was checked of a job, and what was not and why; layers by stage where they divide."""

    checked: tuple[str, ...]
    not_checked: tuple[str, ...]
    stages: tuple[int, ...] | None


def judge(outline: Outline, placement: Placement | None = None) -> Judgement:
    """Add the findings of every other rule to an outline; ``placement`` where ranks have a place."""
    if outline.job.file.groups is not None:
        return Judgement(("groups",), ("layout (groups are given by hand)",), None)
    outline.findings += check_rest(context_of(outline, placement))
    memory = memory_of(outline) if outline.is_legal else None
    if memory is not None:
        context = RuleContext(outline.layout, outline.job.place)
        outline.findings += check_memory(memory, fixes(memory), context)
    stages = None
    if outline.model is not None and min(outline.layout.pp, outline.layout.vp) > 0:
        stages = layers_by_stage(outline.layout, outline.model.num_layers)
    checked, not_checked = _coverage(outline, memory)
    return Judgement(checked, not_checked, None if stages is None else tuple(stages))


def context_of(outline: Outline, placement: Placement | None = None) -> RuleContext:
    """Return what rules may look at."""
    file = outline.job.file
    return RuleContext(
        layout=outline.layout,
        place=outline.job.place,
        slots=outline.num_gpus if outline.cluster is not None else None,
        model=outline.model,
        batch=outline.batch,
        section=file.layout,
        moe=file.moe,
        training=file.training,
        hardware=None if outline.fabric is None else hardware_of(outline, placement),
    )


def hardware_of(outline: Outline, placement: Placement | None = None) -> Hardware:
    """Return hosts and NVLink domains, and how far groups spread where ranks have a place."""
    fabric = outline.fabric
    if fabric is None or not fabric.num_slots:
        return Hardware()
    sizes = np.diff(fabric.slot_start)
    even = bool(sizes[0] > 0 and (sizes == sizes[0]).all())
    hosts: dict[str, int] = {}
    islands: dict[str, int] = {}
    if placement is not None and outline.is_legal:
        hosts = _spread(outline, fabric.host_of_slot, placement)
        islands = _spread(outline, fabric.island_of_slot, placement)
    return Hardware(
        gpus_per_host=int(sizes[0]) if even else None,
        domain_gpus=int(np.bincount(fabric.island_of_slot).max()),
        hosts_of_axis=hosts,
        islands_of_axis=islands,
    )


def _spread(
    outline: Outline, domain_of_slot: NDArray[np.integer[Any]], placement: Placement
) -> dict[str, int]:
    """Return by axis the most domains that a group has members in."""
    slots, found = placement.slot_by_rank, {}
    if len(slots) < outline.layout.world_size or (slots < 0).any():
        return {}
    for kind in outline.kinds:
        if kind.axis not in _SPREAD or kind.axis in found or kind.degree < 2:
            continue
        domains = np.sort(domain_of_slot[slots[kind.members()]], axis=1)
        found[kind.axis] = int((np.diff(domains, axis=1) > 0).sum(axis=1).max()) + 1
    return found


def memory_of(outline: Outline) -> JobMemory | None:
    """Return the memory of a legal job; ``None`` without a model."""
    work = workload_of(outline)
    if work is None:
        return None
    constants, fabric = default_constants(), outline.fabric
    said = modelled_collectives(work) if outline.kinds else []
    held = communicators(outline.kinds, said, domain_gpus(fabric), constants)
    return job_memory(work, device_of(fabric), constants, held)


def _coverage(
    outline: Outline, memory: JobMemory | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what was checked, and what was not with the reason."""
    checked, missing = ["rank grid", "batch figures"], []
    of_model = ("layers by stage", "heads and widths", "vocabulary", "number formats", "experts")
    if outline.model is not None:
        checked += of_model
    else:
        missing += [f"{one} (no model)" for one in of_model]
    batch, layout = outline.batch, outline.layout
    if batch.seq_len is not None:
        checked.append("sequence length")
    elif layout.cp > 1 or layout.sequence_parallel:
        missing.append("sequence length (no seq_len)")
    if layout.pp > 1:
        known = batch.microbatches_per_pass is not None
        (checked if known else missing).append(
            "microbatches of the schedule" + ("" if known else " (their number is not known)")
        )
    if outline.fabric is not None:
        checked.append("NVLink domains")
    else:
        missing.append("NVLink domains (no cluster)")
    if memory is not None:
        checked.append("memory")
    else:
        why = "no model" if outline.model is None else "the layout is not legal"
        missing.append(f"memory ({why})")
    return tuple(checked), tuple(missing)
