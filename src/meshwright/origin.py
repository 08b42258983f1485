"""Where a number comes from."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Origin(StrEnum):
    """Origin of a number, strongest first."""

    MEASURED = "measured"
    """In this environment, by evidence given."""
    PARSED = "parsed"
    """Read from the user's files."""
    STATED = "stated"
    """A vendor's figure."""
    CALIBRATED = "calibrated"
    """Fitted on published runs."""
    MODELLED = "modelled"
    """Computed by a model of ours."""
    ASSUMED = "assumed"
    """A default nobody stated."""


_STRENGTH = {origin: index for index, origin in enumerate(Origin)}


def weakest(origins: Iterable[Origin]) -> Origin:
    """Return the weakest of several origins: what a computed number inherits.

    Raises ``ValueError`` when there is none.
    """
    return max(origins, key=_STRENGTH.__getitem__)
