"""Slurm hostlists: ``a[1-3,7]`` written out, and lists of hosts written short.

Grammar as in Slurm's ``hostlist`` functions (``scontrol show hostnames``): names separated by
commas; a name may hold several brackets of decimal numbers and ranges, with text before, between
and after them; the width of a range's first number is kept (``[08-10]`` is 08, 09, 10).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

_MAX_NAME = 255
"""Characters of a host name (RFC 1123); keeps the memory of an expansion within bounds."""
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_BAD_CHARACTER = re.compile(r"[\s\x00-\x1f\x7f]")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)\Z", re.DOTALL)
_NOT_IN_NAME = re.compile(r"[\s\x00-\x1f\x7f\[\],]")


MAX_NAMES = 2_000_000
"""Names that one hostlist may stand for where nothing says less."""

_Item = str | list[str | list[tuple[int, int, int]]]
"""A plain name, or the texts and brackets of one; a range is (first, last, width)."""


class TooManyNamesError(ValueError):
    """Hostlists that stand for more names than are allowed."""


class Hostlists:
    """Hostlists that may stand for ``limit`` names, all together; counted before any is made."""

    __slots__ = ("_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit

    def expand(self, *texts: str) -> list[str]:
        """Return the names in the order written; an empty text stands for none.

        Raises ``ValueError`` (``TooManyNamesError`` for too many) as ``expand_hostlist`` does, before a
        name of any text is made.
        """
        left = self._left
        found: list[_Item] = []
        for text in texts:
            items = _items(text)
            left -= sum(_count(item, self._limit) for item in items)
            if left < 0:
                raise TooManyNamesError(self._too_many(text, items))
            found += items
        self._left = left
        return [name for item in found for name in _expand_item(item)]

    def _too_many(self, text: str, items: list[_Item]) -> str:
        alone = sum(_count(item, self._limit) for item in items) > self._limit
        with_others = "" if alone else " together with the hostlists before it"
        return f"{_near(text, 0)} stands for more than {self._limit:,} names{with_others}"


def expand_hostlist(text: str, *, limit: int = MAX_NAMES) -> list[str]:
    """Return the names of a hostlist in the order written; an empty text gives an empty list.

    The number of names is computed before any name is made.

    Raises ``ValueError`` naming the offending part: unbalanced or nested brackets, an empty or
    backward range, an empty name, blanks, a name over 255 characters, more than ``limit`` names.
    """
    return Hostlists(limit).expand(text)


def _items(text: str) -> list[_Item]:
    """Return the items of a hostlist, checked and not yet written out."""
    if not text:
        return []
    bad = _BAD_CHARACTER.search(text)
    if bad is not None:
        raise ValueError(f"{_near(text, bad.start())} holds a blank or control character")
    return [_pieces(item) for item in _split_items(text)]


def compress_hostlist(hosts: Iterable[str]) -> str:
    """Return a hostlist text for the names, order and repetitions kept.

    Neighbours that differ in their last number only share a bracket, and consecutive numbers of
    one width a range, so ``expand_hostlist`` gives the names back exactly.

    Raises ``ValueError`` for an empty name, or one with a comma, bracket, blank or control
    character.
    """
    items: list[str] = []
    frame: tuple[str, str] | None = None
    runs: list[tuple[str, str]] = []
    expected = ""
    for host in hosts:
        if not host or _NOT_IN_NAME.search(host):
            raise ValueError(f"{host[:80]!r} cannot stand in a hostlist")
        match = _LAST_NUMBER.match(host)
        new_frame = (match[1], match[3]) if match else None
        if frame is not None and new_frame != frame:
            items.append(_bracketed(frame, runs))
            runs = []
        frame = new_frame
        if match is None:
            items.append(host)
            continue
        number = match[2]
        if runs and number == expected:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
        expected = format(int(number) + 1, f"0{len(runs[-1][0])}d")
    if frame is not None:
        items.append(_bracketed(frame, runs))
    return ",".join(items)


def _bracketed(frame: tuple[str, str], runs: list[tuple[str, str]]) -> str:
    numbers = ",".join(low if low == high else f"{low}-{high}" for low, high in runs)
    single = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"{frame[0]}{numbers}{frame[1]}" if single else f"{frame[0]}[{numbers}]{frame[1]}"


def _near(text: str, position: int) -> str:
    """Return the part of a text around a position, short enough for a message."""
    start = max(0, position - 30)
    part = text[start : start + 60]
    return repr(("..." if start else "") + part + ("..." if start + 60 < len(text) else ""))


def _split_items(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    if "[" not in text and "]" not in text:
        items = text.split(",")
    else:
        items, start, depth = [], 0, 0
        for match in re.finditer(r"[\[\],]", text):
            mark = match[0]
            if mark == "," and not depth:
                items.append(text[start : match.start()])
                start = match.end()
            elif mark != ",":
                depth += 1 if mark == "[" else -1
                if depth not in (0, 1):
                    raise ValueError(f"{_near(text, match.start())} has unbalanced brackets")
        if depth:
            raise ValueError(f"{_near(text, start)} has a bracket that is not closed")
        items.append(text[start:])
    for item in items:
        if not item:
            raise ValueError(f"{_near(text, 0)} holds an empty name (two commas, or one at an end)")
    return items


def _pieces(item: str) -> _Item:
    """Return a plain name, or its texts and brackets; a range is (first, last, width)."""
    if "[" not in item:
        _check_length(item, len(item))
        return item
    pieces: list[str | list[tuple[int, int, int]]] = []
    length = position = 0
    for match in _PIECE.finditer(item):
        if match.start() != position:
            break
        position = match.end()
        if match[2] is not None:
            pieces.append(match[2])
            length += len(match[2])
        else:
            ranges = [_range(part, item) for part in match[1].split(",")]
            pieces.append(ranges)
            length += max(max(width, len(str(last))) for _, last, width in ranges)
    if position != len(item):
        raise ValueError(f"{_near(item, position)} has an empty or unbalanced bracket")
    _check_length(item, length)
    return pieces


def _check_length(item: str, length: int) -> None:
    if length > _MAX_NAME:
        raise ValueError(f"{_near(item, 0)} is longer than the {_MAX_NAME} characters of a name")


def _range(part: str, item: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(part)
    if match is None:
        what = f"the range {part[:40]!r}" if part else "an empty range"
        raise ValueError(f"{_near(item, 0)} has {what}: a bracket holds numbers like 1-3,7")
    low, high = match[1], match[2] or match[1]
    first, last = int(low), int(high)
    if last < first:
        raise ValueError(f"{_near(item, 0)} has the range {part!r}, which runs backwards")
    if high[0] == "0" and len(high) != len(low):
        raise ValueError(f"{_near(item, 0)} has the range {part!r} with two widths")
    return first, last, len(low)


def _count(item: _Item, limit: int) -> int:
    if isinstance(item, str):
        return 1
    count = 1
    for piece in item:
        if not isinstance(piece, str):
            count *= sum(last - first + 1 for first, last, _ in piece)
            if count > limit:  # more brackets would only make the number long
                break
    return count


def _expand_item(item: _Item) -> list[str]:
    if isinstance(item, str):
        return [item]
    choices = [
        [piece]
        if isinstance(piece, str)
        else [
            format(number, f"0{width}d")
            for first, last, width in piece
            for number in range(first, last + 1)
        ]
        for piece in item
    ]
    return ["".join(parts) for parts in itertools.product(*choices)]
