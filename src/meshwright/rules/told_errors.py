"""What ``map`` says of rules that it does not run itself: the errors that ``check`` would name."""

from __future__ import annotations

from meshwright.findings import Finding, Severity
from meshwright.rules.job import check_rest
from meshwright.rules.registry import RuleContext

_SHOWN = 8
"""Rules named at most; the first with its message."""


def unjudged_errors(context: RuleContext) -> list[Finding]:
    """Warn where a layout whose groups exist breaks other rules, so that its figures mean little.

    One warning with the ids of all of them. Memory is not asked here.
    """
    errors = [one for one in check_rest(context) if one.severity is Severity.ERROR]
    if not errors:
        return []
    first = f"{errors[0].rule}: {errors[0].message}"
    others = ", ".join(one.rule for one in errors[1:_SHOWN])
    more = f" Also {others}{', …' if len(errors) > _SHOWN else ''}." if others else ""
    count = "an error" if len(errors) == 1 else f"{len(errors)} errors"
    return [
        Finding(
            "layout/will-not-run",
            Severity.WARNING,
            errors[0].place,
            f"check finds {count} in this layout, so what is shown is of a job that will not run. {first}{more}",
            {"rules": [one.rule for one in errors]},
            "meshwright check: every rule with its remedy, and legal layouts nearby",
        )
    ]
