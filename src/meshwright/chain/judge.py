"""Every rule on one job: what ``check`` asks beyond what an outline needs to exist."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.chain.context import context_of, hardware_of, trying
from meshwright.chain.kinds_of_job import add_training_kinds
from meshwright.chain.outlined import Outline
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
from meshwright.rules.told_defaults import narrow_format_notes
from meshwright.schedules.names import TWO_CHUNKS, schedule_name
from meshwright.traffic.job import modelled_collectives

__all__ = ["Judgement", "context_of", "hardware_of", "judge", "memory_of"]


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
    outline.findings += check_rest(trying(outline, placement))
    memory = memory_of(outline) if outline.is_legal else None
    if memory is not None:
        outline.findings += check_memory(memory, fixes(memory), trying(outline))
        outline.findings += narrow_format_notes(outline.job.file.training, outline.job.place)
    stages = None
    if outline.model is not None and min(outline.layout.pp, outline.layout.vp) > 0:
        folded = schedule_name(outline.job.file.training.schedule) in TWO_CHUNKS
        stages = layers_by_stage(outline.layout, outline.model.num_layers, folded=folded)
    checked, not_checked = _coverage(outline, memory)
    return Judgement(checked, not_checked, None if stages is None else tuple(stages))


def memory_of(outline: Outline) -> JobMemory | None:
    """Return the memory of a legal job; ``None`` without a model."""
    work = workload_of(outline)
    if work is None:
        return None
    add_training_kinds(outline)
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
    why = _why_no_memory(outline, memory)
    if why is None:
        checked.append("memory")
    else:
        missing.append(f"memory ({why})")
    return tuple(checked), tuple(missing)


def _why_no_memory(outline: Outline, memory: JobMemory | None) -> str | None:
    """Return why it is not said whether the job fits; ``None`` where it is."""
    if memory is None:
        return "no model" if outline.model is None else "the layout is not legal"
    if memory.missing:
        return f"no {', '.join(memory.missing)}"
    if memory.peak is None:
        return f"activations of {', '.join(memory.work.model.unmodelled_layers)} are not modelled"
    return "the GPU is not known" if memory.device.capacity_bytes is None else None
