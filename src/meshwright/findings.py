"""Findings: what is wrong, what will run badly, what was assumed.

A finding is data. It names its rule, the place, the numbers and a remedy that can be pasted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

Number = int | float | str | bool | None | Sequence["Number"] | Mapping[str, "Number"]


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Will not run, or gives wrong results."""
    WARNING = "warning"
    """Will run badly, or silently differs from what was meant."""
    NOTE = "note"
    """Something assumed, unknown or worth knowing."""


class Place(msgspec.Struct, frozen=True):
    """Where a value stands: a file with line and column (both from 1), and the path of the key.

    Either part may be missing: a finding about a switch has a subject and no file.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    subject: str | None = None

    def __str__(self) -> str:
        if self.file is None:
            return self.subject or "-"
        parts = [self.file]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)


class Finding(msgspec.Struct, frozen=True):
    """One finding; see the module docstring."""

    rule: str
    severity: Severity
    place: Place
    message: str
    numbers: Mapping[str, Number] = {}
    remedy: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the finding as the interface's JSON object; ``place`` is ``file:line:column``."""
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "place": str(self.place),
            "subject": self.place.subject,
            "message": self.message,
            "numbers": dict(self.numbers),
            "remedy": self.remedy,
        }


_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, errors first; the job's own before those of its topology files."""
    return sorted(
        findings,
        key=lambda finding: (_RANK[finding.severity], finding.rule.startswith("topology/")),
    )


def has_errors(findings: Iterable[Finding]) -> bool:
    """Tell whether any finding is an error (exit status 1)."""
    return any(finding.severity is Severity.ERROR for finding in findings)
