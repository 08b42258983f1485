"""InfiniBand tools' text: reading lines with bounds, naming those of no known form."""

from __future__ import annotations

import re
from collections.abc import Callable

from meshwright.errors import InputError, Problem
from meshwright.findings import Place

_MAX_PROBLEMS = 20
_MAX_LINE_CHARACTERS = 4096
_EXCERPT_CHARACTERS = 200
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


def take_lines(text: str, path: str, tool: str, take: Callable[[str, int], bool]) -> None:
    """Give each non-blank line, stripped, and its number to ``take``, which tells if it is known.

    Raises
    ------
    InputError
        The text is empty or binary, a line is longer than 4096 characters, or lines are of no
        known form (up to 20 are named; a last one without a line end is called cut off).
    """
    bad = _CONTROL.search(text)
    if bad is not None:
        row = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        raise InputError(Problem(Place(path, row, column), "the file holds binary data"))
    problems: list[Problem] = []
    lines = text.split("\n")
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if line and (len(raw) > _MAX_LINE_CHARACTERS or not take(line, number)):
            problems.append(_problem(raw, number, path, tool, last=number == len(lines)))
            if len(problems) >= _MAX_PROBLEMS:
                break
    if problems:
        raise InputError(*problems)
    if not text.strip():
        raise InputError(Problem(Place(path, 1, 1), "the file is empty", remedy=_remedy(tool)))


def _problem(raw: str, number: int, path: str, tool: str, *, last: bool) -> Problem:
    message = f"this is no line of {tool}"
    if len(raw) > _MAX_LINE_CHARACTERS:
        message = f"the line is longer than {_MAX_LINE_CHARACTERS} characters"
    elif last:
        message = f"the file is cut off within this line ({message})"
    place = Place(path, number, len(raw) - len(raw.lstrip()) + 1)
    excerpt = raw.strip()[:_EXCERPT_CHARACTERS]
    return Problem(place, message, remedy=_remedy(tool), excerpt=excerpt)


def _remedy(tool: str) -> str:
    return f"Save the whole output of {tool} again."
