"""The answer of ``rules``: every rule with id, source, framework and versions."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from meshwright.report.text import paragraph
from meshwright.rules.catalogue import Known

SCHEMA = "meshwright/rules/1"


def rules_json(rules: Sequence[Known]) -> dict[str, Any]:
    """Return the document of ``rules --json``."""
    return {
        "schema": SCHEMA,
        "rules": [msgspec.to_builtins(one) for one in rules],
        "findings": [],
    }


def rules_text(rules: Sequence[Known]) -> str:
    """Return the list of rules, by room; a single rule is explained."""
    if len(rules) == 1:
        return rule_text(rules[0])
    count = Counter(one.severity for one in rules)
    counted = ", ".join(f"{number} {name}s" for name, number in sorted(count.items()))
    lines = [f"{len(rules)} rules: {counted}. meshwright rules ID explains one."]
    room = ""
    for one in rules:
        head = one.id.split("/")[0]
        if head != room:
            room = head
            lines += ["", f"{room}: {one.arises}"]
        lines.append(paragraph(f"{one.id} ({one.severity}): {one.summary}", "  ", "  "))
    return "\n".join(lines)


def rule_text(one: Known) -> str:
    """Return the page of one rule."""
    parts = [
        f"{one.id} ({one.severity})",
        paragraph(one.summary, "  "),
        paragraph(f"Source: {one.source}", "  ", "  "),
        paragraph(
            f"Framework: {', '.join(one.frameworks) or 'all'}. Versions: {one.versions}.",
            "  ",
            "  ",
        ),
        paragraph(f"Arises in: {one.arises}.", "  ", "  "),
    ]
    remedy = one.remedy or "made from the numbers of each finding: the nearest legal values"
    parts.append(paragraph(f"Remedy: {remedy}.", "  ", "  "))
    if one.example:
        parts += ["  A job that breaks it:", textwrap.indent(one.example, "    ")]
    return "\n".join(parts)
