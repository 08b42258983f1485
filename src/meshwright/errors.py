"""The exception tree.

::

    MeshwrightError
    ├── InputError      a file or value cannot be read: exit status 2, one clear message with its place
    └── UsageError      a command was called in a way that cannot work: exit status 2

A layout that cannot run is not an exception: it is a list of findings (``findings.py``).
"""

from __future__ import annotations

from meshwright.findings import Place


class MeshwrightError(Exception):
    """Root of all errors that the program raises on purpose."""


class InputError(MeshwrightError):
    """A file or a value that cannot be read.

    ``problems`` holds every problem found, each with its place and the remedy; the command line
    prints all of them and exits with status 2.
    """

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class UsageError(MeshwrightError):
    """The command was called in a way that cannot work (exit status 2)."""


class Problem:
    """One thing wrong with an input: where, what, the offending line and what to write instead."""

    __slots__ = ("excerpt", "message", "place", "remedy")

    def __init__(
        self, place: Place, message: str, *, remedy: str | None = None, excerpt: str | None = None
    ) -> None:
        self.place = place
        self.message = message
        self.remedy = remedy
        self.excerpt = excerpt

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}"
        if self.excerpt:
            text += f"\n  | {self.excerpt}"
        if self.remedy:
            text += f"\n  {self.remedy}"
        return text

    def __repr__(self) -> str:
        return f"Problem({str(self)!r})"
