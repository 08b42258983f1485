"""The register of validity rules: one small function a rule, with its id and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from meshwright.cluster.gpus import GpuModel
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.job.batch import Batch
from meshwright.job.layout import Layout
from meshwright.job.model import Model
from meshwright.job.sections import LayoutSection, MoeSection, TrainingSection


@dataclass(frozen=True, slots=True)
class Hardware:
    """What rules may know of a cluster. ``None``: not known, or not the same everywhere."""

    gpus_per_host: int | None = None
    domain_gpus: int | None = None
    """GPUs of the smallest NVLink domain (or host without NVLink)."""
    hosts_of_axis: Mapping[str, int] = field(default_factory=dict)
    """Hosts that one group touches at most, by axis, where the placement is known."""
    islands_of_axis: Mapping[str, int] = field(default_factory=dict)
    """The same for NVLink domains (or hosts without NVLink)."""
    gpus: tuple[GpuModel, ...] = ()
    """The GPU models of the cluster, as far as they are known."""
    preset: str | None = None
    """The host preset that the job names in one line (``dgx-h100`` of ``dgx-h100 x 2``)."""


Trial = Callable[[Mapping[str, object]], frozenset[str]]
"""Gives the ids of the rules that are errors of the job with other values of some keys."""


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What a rule may look at. ``place`` gives the place of a key of the job file."""

    layout: Layout
    place: Callable[[str], Place] = field(default=lambda path: Place(subject=path))
    slots: int | None = None
    """GPUs of the cluster, where there is one."""
    model: Model | None = None
    batch: Batch | None = None
    section: LayoutSection = field(default_factory=LayoutSection)
    moe: MoeSection = field(default_factory=MoeSection)
    training: TrainingSection = field(default_factory=TrainingSection)
    hardware: Hardware | None = None
    trial: Trial | None = None
    """Where given, remedies that would break another rule are left out."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What a rule found: where (key of the job file), why, with which numbers, what to do."""

    key: str
    message: str
    numbers: Mapping[str, Number]
    remedy: str


Check = Callable[[RuleContext], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One validity rule. ``frameworks`` empty: holds for all; ``versions`` empty: all known here."""

    id: str
    severity: Severity
    source: str
    frameworks: tuple[str, ...]
    check: Check
    summary: str
    versions: str = ""

    def applies_to(self, layout: Layout) -> bool:
        """Tell whether the layout's framework knows the rule."""
        return not self.frameworks or layout.framework in self.frameworks

    def findings(self, context: RuleContext) -> Iterator[Finding]:
        """Run the rule."""
        for violation in self.check(context):
            yield Finding(
                rule=self.id,
                severity=self.severity,
                place=context.place(violation.key),
                message=violation.message,
                numbers=violation.numbers,
                remedy=violation.remedy,
            )


def rule(
    rule_id: str,
    *,
    source: str,
    severity: Severity = Severity.ERROR,
    frameworks: tuple[str, ...] = (),
    versions: str = "",
) -> Callable[[Check], Rule]:
    """Make a rule of a check; the first line of its docstring is the rule's summary."""

    def make(check: Check) -> Rule:
        summary = (check.__doc__ or "").strip().splitlines()[0]
        return Rule(rule_id, severity, source, frameworks, check, summary, versions)

    return make


def run_rules(rules: Iterable[Rule], context: RuleContext) -> list[Finding]:
    """Return the findings of all rules that the layout's framework knows, in their order."""
    return [
        finding
        for one in rules
        if one.applies_to(context.layout)
        for finding in one.findings(context)
    ]
