"""Try a remedy before it is given: the rules of the same job with other values of some keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from meshwright.findings import Place, Severity
from meshwright.job.batch import resolve_batch
from meshwright.job.layout import resolve_layout
from meshwright.rules.grid import check_grid
from meshwright.rules.job import JOB_RULES
from meshwright.rules.registry import RuleContext, run_rules
from meshwright.schedules.left_out import chunks_left_out


@dataclass(frozen=True, slots=True)
class JobTrial:
    """The rules of a job with changed keys (``layout.tp``, ``batch.seq_len`` …).

    ``context`` is of the job as it stands; ``ranks``: what the world follows from where the job
    does not say it (the GPUs of the cluster, or the rows of a rank table). Memory is not asked,
    nor where groups sit: a changed layout has no placement.
    """

    context: RuleContext
    ranks: int | None
    _known: dict[frozenset[tuple[str, str]], frozenset[str]] = field(default_factory=dict)

    def __call__(self, changes: Mapping[str, object]) -> frozenset[str]:
        """Return the ids of all rules that are errors then."""
        key = frozenset((name, repr(value)) for name, value in changes.items())
        if key not in self._known:
            self._known[key] = errors_of(self.changed(changes))
        return self._known[key]

    def changed(self, changes: Mapping[str, object]) -> RuleContext:
        """Return the context of the job with changed keys."""
        context, hardware = self.context, self.context.hardware
        per_host = hardware.gpus_per_host if hardware is not None else None
        section = msgspec.structs.replace(context.section, **_of("layout", changes))
        training = msgspec.structs.replace(context.training, **_of("training", changes))
        chunks = chunks_left_out(section.framework, training.schedule)
        layout = resolve_layout(section, self.ranks, per_host, chunks)
        batch = context.batch
        if batch is not None:
            figures = msgspec.structs.replace(batch.given, **_of("batch", changes))
            batch = resolve_batch(figures, layout.dp, layout.framework, layout.pp)
        if hardware is not None:
            hardware = replace(hardware, hosts_of_axis={}, islands_of_axis={})
        return replace(
            context,
            layout=layout,
            section=section,
            batch=batch,
            moe=msgspec.structs.replace(context.moe, **_of("moe", changes)),
            training=training,
            hardware=hardware,
            trial=None,
            place=_no_place,
        )


def _no_place(path: str) -> Place:
    return Place(subject=path)


def errors_of(context: RuleContext) -> frozenset[str]:
    """Return the ids of all rules of grid and job that are errors."""
    found = [*check_grid(context), *run_rules(JOB_RULES, context)]
    return frozenset(one.rule for one in found if one.severity is Severity.ERROR)


def _of(section: str, changes: Mapping[str, object]) -> dict[str, object]:
    """Return the changes of one section, without its name."""
    return {
        key.partition(".")[2]: value
        for key, value in changes.items()
        if key.partition(".")[0] == section
    }
