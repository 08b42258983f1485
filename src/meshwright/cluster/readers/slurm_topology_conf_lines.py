"""Slurm ``topology.conf``, first step: logical lines and their ``Key=Value`` pairs.

Grammar: ``man topology.conf`` and Slurm's ``parse_config.c``: keys in any case, blanks around
``=`` and quoted values allowed, ``#`` starts a comment, a backslash at a line's end continues it.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from meshwright.errors import InputError, Problem
from meshwright.findings import Place

_PAIR = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(?:\"([^\"]*)\"|([^\s\"=]*))(?=\s|\Z)", re.ASCII)


class Line(msgspec.Struct, frozen=True):
    """A line with its continuations: text, and where each physical part starts in it."""

    text: str
    starts: list[tuple[int, int]]
    """Offset in ``text`` and line in the file, from 1, of each part."""
    comment: str | None
    """What the comment line just above says."""
    ends_file: bool = False

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column in the file, from 1."""
        start, line = self.starts[bisect_right(self.starts, (offset, sys.maxsize)) - 1]
        return line, offset - start + 1

    def error(self, path: str, offset: int, message: str, remedy: str | None = None) -> InputError:
        """Return the refusal of the line for what stands at ``offset``."""
        if self.ends_file:
            message += "; the file ends in this line without a line end, so it may be cut off"
        place = Place(path, *self.place(offset))
        return InputError(Problem(place, message, remedy=remedy, excerpt=self.text.strip()[:200]))


def logical_lines(text: str, path: str) -> Iterator[Line]:
    """Yield the lines that hold more than a comment, each joined with its continuations.

    Raises ``InputError`` when the last line is continued.
    """
    parts: list[str] = []
    starts: list[tuple[int, int]] = []
    length = 0
    comment: str | None = None
    physical = text.split("\n")
    for number, raw in enumerate(physical, 1):
        body, mark, remark = raw.rstrip("\r").partition("#")
        continued = not mark and body.rstrip().endswith("\\")
        if continued:
            body = body.rstrip()[:-1] + " "
        parts.append(body)
        starts.append((length, number))
        length += len(body)
        if continued and number < len(physical):
            continue
        line = Line("".join(parts), starts, comment, number == len(physical))
        if continued:
            raise line.error(path, length - 1, "the last line is continued by a backslash")
        parts, starts, length = [], [], 0
        if line.text.strip():
            yield line
            comment = None
        else:
            comment = remark.strip() if mark else None


def read_pairs(line: Line, path: str) -> dict[str, tuple[str, int]]:
    """Return key (lower case) to value and offset of the value.

    Raises ``InputError`` for a word of another form and for a key that stands twice.
    """
    pairs: dict[str, tuple[str, int]] = {}
    position, end = 0, len(line.text.rstrip())
    while position < end:
        match = _PAIR.match(line.text, position)
        if match is None:
            offset = position + len(line.text[position:]) - len(line.text[position:].lstrip())
            word = line.text[offset:].split(None, 1)[0]
            raise line.error(path, offset, f"{word[:60]!r} is not of the form Key=Value")
        key = match[1].lower()
        group = 2 if match[2] is not None else 3
        if key in pairs:
            raise line.error(path, match.start(1), f"{match[1]}= stands twice in the line")
        pairs[key] = (match[group], match.start(group))
        position = match.end()
    return pairs
