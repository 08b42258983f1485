"""The exception tree.

::

    MeshwrightError
    ├── InputError      a file or value cannot be read: exit status 2, one clear message with its place
    └── UsageError      a command was called in a way that cannot work: exit status 2

A layout that cannot run is not an exception: it is a list of findings (``findings.py``).
"""

from __future__ import annotations

import re

from meshwright.findings import Place

_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def without_controls(text: str) -> str:
    """Return a line with a blank for each character that a terminal obeys or cannot show.

    A terminal must not obey what an untrusted file holds.
    """
    return _UNSEEN.sub(" ", text)


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
        text = f"{self.place}: {_lines(self.message)}"
        if self.excerpt:
            text += f"\n  | {without_controls(self.excerpt)}"
        if self.remedy:
            text += f"\n  {_lines(self.remedy)}"
        return text

    def __repr__(self) -> str:
        return f"Problem({str(self)!r})"


def _lines(text: str) -> str:
    """Clean a text of several lines, which may quote a name from a file."""
    return "\n".join(without_controls(line) for line in text.split("\n"))
