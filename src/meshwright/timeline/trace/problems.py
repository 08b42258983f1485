"""Problems of a trace, a bounded number of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_PROBLEMS: Final = 100
"""Problems listed; a last one says how many more there are."""


@dataclass(frozen=True, slots=True)
class TraceProblem:
    """One thing wrong: the event's number from 0 (None: the file as a whole), and what it is."""

    event: int | None
    message: str

    def __str__(self) -> str:
        return self.message if self.event is None else f"event {self.event}: {self.message}"


class TraceProblems:
    """Collects problems and counts those that are too many."""

    __slots__ = ("_found", "_more")

    def __init__(self) -> None:
        self._found: list[TraceProblem] = []
        self._more = 0

    def add(self, event: int | None, message: str) -> None:
        """Keep a problem while there is room."""
        if len(self._found) < MAX_PROBLEMS:
            self._found.append(TraceProblem(event, message))
        else:
            self._more += 1

    def listed(self) -> list[TraceProblem]:
        """Return the problems in the order they were found."""
        more = [TraceProblem(None, f"{self._more:,} further problems")] if self._more else []
        return [*self._found, *more]
