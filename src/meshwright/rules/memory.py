"""Rules on memory: a layout that does not fit is invalid; what a mean over stages hides.

The rules need a job's memory beside the layout, so they are made for one (``memory_rules``) and
then run as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from meshwright.findings import Finding, Severity
from meshwright.memory.fixes import Fix, together
from meshwright.memory.job import JobMemory
from meshwright.rules.registry import Rule, RuleContext, Violation
from meshwright.rules.remedies import lawful
from meshwright.schedules.names import NAMES, schedule_name
from meshwright.units import format_binary_bytes, format_count

LITTLE_ROOM = 0.05
"""Less room than this share of the capacity is worth a warning."""
NOTABLE_MEAN = 0.10
"""A mean over stages that is this much too low is worth a note."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a rule looks at: the memory of a job, fixes, and the rules a fix must keep."""

    memory: JobMemory
    fixes: Sequence[Fix]
    context: RuleContext


_Check = Callable[[_Asked], Iterator[Violation]]


def memory_rules(memory: JobMemory, fixes: Sequence[Fix]) -> tuple[Rule, ...]:
    """Return the rules on one job's memory; fixes that would break another rule are left out."""
    return tuple(
        Rule(
            id=f"memory/{name}",
            severity=severity,
            source=source,
            frameworks=(),
            check=partial(_run, check, memory, fixes),
            summary=(check.__doc__ or "").strip(),
        )
        for name, severity, source, check in _RULES
    )


def _run(
    check: _Check, memory: JobMemory, fixes: Sequence[Fix], context: RuleContext
) -> Iterator[Violation]:
    return check(_Asked(memory, lawful_fixes(fixes, context), context))


def lawful_fixes(fixes: Sequence[Fix], context: RuleContext) -> list[Fix]:
    """Return the fixes that break no rule of the job."""
    return [fix for fix in fixes if lawful(context, fix.change)]


def check_memory(memory: JobMemory, fixes: Sequence[Fix], context: RuleContext) -> list[Finding]:
    """Return the findings of all memory rules of a job."""
    rules = memory_rules(memory, fixes)
    return [finding for one in rules for finding in one.findings(context)]


def _too_much(asked: _Asked, capacity: float, worst: int) -> Violation:
    memory = asked.memory
    combined = together(memory)
    if not lawful(asked.context, ", ".join(fix.change for fix in combined)):
        combined = []
    total = float(memory.total[worst])
    largest = memory.terms(worst)[memory.dominant]
    return Violation(
        "cluster" if memory.device.gpu else "layout",
        f"stage {worst} needs {format_binary_bytes(total)} a rank, "
        f"{memory.device.gpu or 'the GPU'} has {format_binary_bytes(capacity)}: "
        f"{format_binary_bytes(total - capacity)} too much. Largest term: {memory.dominant}, "
        f"{format_binary_bytes(largest)}.",
        {
            "stage": worst,
            "total_bytes": total,
            "capacity_bytes": capacity,
            "missing_bytes": total - capacity,
            "dominant": memory.dominant,
        },
        _remedy(asked.fixes, combined),
    )


def _remedy(fixes: Sequence[Fix], combined: Sequence[Fix] = ()) -> str:
    if not fixes:
        return "no single change that is known here helps: more GPUs, or a smaller model or batch"
    if len(combined) > 1:
        listed = ", then ".join(
            f"{fix.change} (saves {format_binary_bytes(fix.saved_bytes)}; {fix.cost})"
            for fix in combined
        )
        return f"no single change is enough; together: {listed}"
    chosen = [fix for fix in fixes if fix.fits] or list(fixes)
    listed = "; or ".join(
        f"{fix.change} (saves {format_binary_bytes(fix.saved_bytes)}; {fix.cost})"
        for fix in chosen[:_NAMED]
    )
    return listed if chosen[0].fits else f"no single change is enough; most help: {listed}"


def _mean(asked: _Asked) -> Iterator[Violation]:
    """A mean over stages under-reports the heaviest rank."""
    memory = asked.memory
    held = memory.parameters.total
    mean, most = float(np.mean(held)), float(np.max(held))
    if len(held) < 2 or most <= 0 or (most - mean) / most < NOTABLE_MEAN:
        return
    heaviest = int(np.argmax(held))
    share = 100 * (most - mean) / most
    yield Violation(
        "layout.stages" if memory.work.layout.stages is not None else "layout.pp",
        f"stages hold {format_count(mean)} parameters a rank on average, stage {heaviest} "
        f"{format_count(most)}: the mean is {share:.1f} % too low. The embedding stands on the first "
        "stage, head, final norm and multi-token prediction on the last; each stage is listed.",
        {
            "mean_parameters": mean,
            "most_parameters": most,
            "underestimate_pct": share,
            "stage": heaviest,
        },
        "compare the worst stage with the GPU, not the mean; stages: evens them out",
    )


def _unknown(asked: _Asked) -> Iterator[Violation]:
    """Activations or capacity are not known."""
    memory = asked.memory
    if memory.missing:
        values = {"micro_batch": 1, "seq_len": 4096, "num_microbatches": 8}
        asked_for = ", ".join(f"{name}: {values[name]}" for name in memory.missing)
        yield Violation(
            "batch",
            f"not given, and not following from what is: {', '.join(memory.missing)}. Activations are not known "
            "and not in the totals.",
            {"missing": list(memory.missing)},
            f"batch: {{{asked_for}}}, beside what is given",
        )
    if memory.device.capacity_bytes is None:
        yield Violation(
            "cluster",
            "the GPU is not known, so whether the job fits is not said.",
            {"gpu": memory.device.gpu},
            "cluster: dgx-h100 x 2, or --gpu H100",
        )


def _does_not_fit(asked: _Asked) -> Iterator[Violation]:
    """The worst rank needs more than its GPU has."""
    memory = asked.memory
    capacity = memory.device.capacity_bytes
    if memory.fits is False and capacity is not None:
        yield _too_much(asked, capacity, memory.worst_stage)


def _little_room(asked: _Asked) -> Iterator[Violation]:
    """The worst rank fits with less room than the model may be wrong by."""
    memory = asked.memory
    capacity = memory.device.capacity_bytes
    if not memory.fits or capacity is None:
        return
    room = capacity - float(memory.total.max())
    if room < LITTLE_ROOM * capacity:
        yield Violation(
            "cluster",
            f"stage {memory.worst_stage} leaves {format_binary_bytes(room)} of "
            f"{format_binary_bytes(capacity)}, {100 * room / capacity:.1f} %: within what the "
            "model may be wrong by.",
            {"room_bytes": room, "capacity_bytes": capacity, "stage": memory.worst_stage},
            _remedy(asked.fixes),
        )


def _schedule(asked: _Asked) -> Iterator[Violation]:
    """The schedule's microbatches in flight are not known."""
    memory = asked.memory
    name, layout = memory.work.training.schedule, memory.work.layout
    if layout.pp > 1 and schedule_name(name, layout.vp) is None:
        yield Violation(
            "training.schedule",
            f"schedule {name!r} is not known here: microbatches in flight are those of 1F1B.",
            {"schedule": name},
            f"schedule: {', '.join(dict.fromkeys(NAMES.values()))}",
        )


_RULES: tuple[tuple[str, Severity, str, _Check], ...] = (
    ("does-not-fit", Severity.ERROR, "memory room; capacities of data/gpus.json", _does_not_fit),
    ("little-room", Severity.WARNING, "memory room; docs/accuracy.md", _little_room),
    ("mean-hides-worst-stage", Severity.NOTE, "NVIDIA-NeMo/Megatron-Bridge#5077", _mean),
    ("schedule-unknown", Severity.NOTE, "memory/in_flight.py", _schedule),
    ("not-known", Severity.NOTE, "memory room", _unknown),
)
