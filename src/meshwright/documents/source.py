"""The text of a document: its lines, and how a problem in it is reported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from meshwright.documents.limits import MAX_EXCERPT, MAX_PROBLEMS, MAX_SHOWN
from meshwright.errors import Problem, without_controls
from meshwright.findings import Place

At = tuple[int, int]
"""Line and column, both from 1."""

NEWLINE: Final = re.compile(r"\r?\n")
"""Line ends of JSON and TOML."""

YAML_NEWLINE: Final = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
"""Line ends as both PyYAML parsers count them."""


class Source:
    """A document's text with its file name; ``lines`` are split when first asked for."""

    __slots__ = ("_last", "_lines", "_newline", "file", "text")

    def __init__(self, file: str, text: str, newline: re.Pattern[str] = NEWLINE) -> None:
        self.file = file
        self.text = text
        self._newline = newline
        self._lines: tuple[str, ...] | None = None
        self._last = (1, 0)
        """A line's number and where it starts."""

    def __repr__(self) -> str:
        return f"Source({self.file!r})"

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines without their ends; ``lines[0]`` is line 1."""
        if self._lines is None:
            self._lines = tuple(self._newline.split(self.text))
        return self._lines

    def excerpt(self, at: At) -> str | None:
        """Return the line at ``at``, cut to ``MAX_EXCERPT`` characters around the column."""
        line, column = at
        text = self._line(line)
        if text is None:
            return None
        if len(text) > MAX_EXCERPT:
            start = 0 if column <= MAX_EXCERPT * 3 // 4 else column - MAX_EXCERPT // 2
            end = start + MAX_EXCERPT - (start > 0)
            cut = text[start : end - 1] + "…" if end < len(text) else text[start:end]
            text = "…" + cut if start else cut
        return without_controls(text).rstrip() or None

    def _line(self, line: int) -> str | None:
        """Return one line, from 1; no other is kept, since there may be millions of short ones.

        It is sought from the line asked for last, so that asking in order is linear all together.
        """
        number, start = self._last if self._last[0] <= line else (1, 0)
        if line < 1:
            return None
        for end in self._newline.finditer(self.text, start):
            if number == line:
                self._last = number, start
                return self.text[start : end.start()]
            number, start = number + 1, end.end()
        self._last = number, start
        return self.text[start:] if number == line else None

    def place(self, at: At, subject: str | None = None) -> Place:
        """Return ``at`` as a place of this file."""
        return Place(self.file, at[0], at[1], subject)

    def problem(
        self, at: At, message: str, *, remedy: str | None = None, subject: str | None = None
    ) -> Problem:
        """Return a problem at ``at`` with its line as the excerpt."""
        place = self.place(at, subject)
        return Problem(place, message, remedy=remedy, excerpt=self.excerpt(at))


class Locator:
    """Turns rising offsets of one text into line and column, in linear time all together."""

    __slots__ = ("_line", "_offset", "_start", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._offset = self._start = 0
        self._line = 1

    def __call__(self, offset: int) -> At:
        """Return the place of ``offset``, which is not below that of the call before."""
        last = self._text.rfind("\n", self._offset, offset)
        if last >= 0:
            self._line += self._text.count("\n", self._offset, offset)
            self._start = last + 1
        self._offset = offset
        return self._line, offset - self._start + 1


class ProblemList:
    """Collects problems, at most ``MAX_PROBLEMS`` of them, and counts the others."""

    __slots__ = ("_more", "_problems")

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._more = 0

    def full(self) -> bool:
        """Count one problem more and return True when no further one is kept.

        Asked before a message is made, so that a hostile file cannot buy a suggestion per key.
        """
        if len(self._problems) < MAX_PROBLEMS:
            return False
        self._more += 1
        return True

    def add(self, problem: Problem) -> None:
        """Keep a problem while there is room for it."""
        if not self.full():
            self._problems.append(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Keep several problems."""
        for problem in problems:
            self.add(problem)

    def in_order(self) -> tuple[Problem, ...]:
        """Return the problems in the order of the document."""
        ordered = sorted(self._problems, key=_position)
        if self._more and ordered:
            last = Place(ordered[-1].place.file)
            ordered.append(Problem(last, f"{self._more:,} further problems are not listed"))
        return tuple(ordered)


def _position(problem: Problem) -> At:
    return problem.place.line or 0, problem.place.column or 0


def shown(value: object) -> str:
    """Return a value for a message: its ``repr``, cut to ``MAX_SHOWN`` characters."""
    # Cutting first keeps the repr of a 16 MiB text from being made at all.
    text = repr(value[: MAX_SHOWN + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
