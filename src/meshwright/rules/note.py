"""One note: a finding that changes nothing and asks for nothing at once."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.findings import Finding, Place, Severity

PlaceOf = Callable[[str], Place]
"""Gives the place of a key of the job file."""


def note(
    rule: str, place: Place, message: str, remedy: str | None = None, **numbers: object
) -> Finding:
    """Return a note; ``numbers`` by keyword."""
    return Finding(rule, Severity.NOTE, place, message, numbers, remedy)  # type: ignore[arg-type]
