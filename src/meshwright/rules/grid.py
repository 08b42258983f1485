"""Rules of the rank grid itself: may these degrees form these groups at all?

The rules stand in files of their concept; here they are put together and run.
"""

from __future__ import annotations

from meshwright.findings import Finding, Severity
from meshwright.rules.deepspeed import DEEPSPEED_RULES
from meshwright.rules.degrees import DEGREE_RULES, MOST_RANKS, WITHOUT_DEGREES, degree_positive
from meshwright.rules.maxtext import MAXTEXT_RULES
from meshwright.rules.megatron import MEGATRON_RULES
from meshwright.rules.mesh import MESH_RULES
from meshwright.rules.nanotron import NANOTRON_RULES
from meshwright.rules.registry import Rule, RuleContext
from meshwright.rules.world import WORLD_RULES

__all__ = ["GRID_RULES", "MOST_RANKS", "check_grid", "is_legal"]

GRID_RULES: tuple[Rule, ...] = (
    *DEGREE_RULES,
    *WORLD_RULES,
    *MEGATRON_RULES,
    *MESH_RULES,
    *DEEPSPEED_RULES,
    *NANOTRON_RULES,
    *MAXTEXT_RULES,
)
"""Rules that need nothing but the layout (and the number of GPUs)."""


def check_grid(context: RuleContext) -> list[Finding]:
    """Return all findings of the grid rules; the groups exist only when none is an error."""
    findings: list[Finding] = []
    counted = not any(degree_positive.check(context))
    for one in GRID_RULES if counted else WITHOUT_DEGREES:
        if one.applies_to(context.layout):
            findings += one.findings(context)
    return findings


def is_legal(context: RuleContext) -> bool:
    """Tell whether no grid rule gives an error."""
    return not any(finding.severity is Severity.ERROR for finding in check_grid(context))
