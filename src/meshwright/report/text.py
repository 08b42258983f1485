"""Plain text for a terminal of 80 columns: tables, wrapped findings, no colour needed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from meshwright.errors import without_controls
from meshwright.findings import Finding, Severity, by_severity

WIDTH = 80


def if_sensible(value: int) -> int | None:
    """Return a figure that follows from degrees; ``None`` where it is negative or beyond 64 bits."""
    return value if 0 <= value < 1 << 63 else None


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table; the last column may run to the end of the line."""
    every = [[without_controls(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in every) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]
    return "\n".join(lines)


def paragraph(text: str, indent: str = "", hanging: str = "") -> str:
    """Return text wrapped to the width; ``hanging`` indents all lines but the first."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def finding_text(finding: Finding) -> str:
    """Return one finding: severity, rule, place; message; remedy."""
    head = f"{finding.severity.value:<8} {finding.rule}"
    place = str(finding.place)
    # A long path goes to a line of its own, whole, so that it can be copied.
    fits = len(head) + 3 + len(place) <= WIDTH
    lines = [f"{head}   {place}"] if fits else [head, f"  {place}"]
    lines.append(paragraph(finding.message, "  "))
    if finding.remedy:
        lines.append(paragraph(f"Remedy: {finding.remedy}", "  "))
    return "\n".join(lines)


def findings_text(findings: Sequence[Finding], *severities: Severity) -> str:
    """Return the findings of some severities, errors first, a blank line between."""
    chosen = [finding for finding in by_severity(findings) if finding.severity in severities]
    return "\n\n".join(finding_text(finding) for finding in chosen)


def counted(findings: Sequence[Finding]) -> str:
    """Return ``1 error, 2 warnings, 3 notes``; ``No findings`` when there is none."""
    parts = []
    for severity in Severity:
        count = sum(finding.severity is severity for finding in findings)
        if count:
            parts.append(f"{count} {severity.value}{'s' if count > 1 else ''}")
    return ", ".join(parts) if parts else "No findings"
