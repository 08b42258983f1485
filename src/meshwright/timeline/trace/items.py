"""What a trace file holds, item by item: its events and its other keys, in either form of the format.

A file is an object with ``traceEvents`` and more keys, or the list of events alone, whose closing
bracket may be missing (a program that writes it as it runs may not have come to its end).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from meshwright.timeline.trace.text import TraceText

EVENTS: Final = "traceEvents"
_MAX_KEYS = 1000
_REMEDY = 'a trace event file is {"traceEvents": [...]} or [...]'


class Item(NamedTuple):
    """One event (``position`` from 0), or the value of another key (``position`` -1).

    ``number``: which of the values that were taken together it is (``TraceText.place_of_value``).
    """

    key: str
    position: int
    value: Any
    number: int = 0


def trace_items(text: TraceText) -> Iterator[Item]:
    """Return the items as they stand; an event is given before the next is read.

    Raises ``InputError`` where the text is no trace event file.
    """
    opening = text.character()
    if opening == "[":
        yield from _events(text, closed=False)
    elif opening == "{":
        yield from _members(text)
    elif not opening:
        text.refuse("the file is empty", _REMEDY)
    else:
        text.refuse(f"{opening!r} begins no trace event file", _REMEDY)
    if text.character():
        text.refuse("more text after the end of the trace")


def _members(text: TraceText) -> Iterator[Item]:
    text.take("{", "nothing")
    seen: set[str] = set()
    if text.character() == "}":
        text.refuse(f"the key {EVENTS} is missing", _REMEDY)
    while True:
        if text.character() != '"':
            text.take('"', "the beginning of a key")
        key = text.value()
        if key in seen:
            text.refuse(f"the key {key[:60]!r} stands twice")
        if len(seen) == _MAX_KEYS:
            text.refuse(f"over {_MAX_KEYS:,} keys beside the events")
        seen.add(key)
        text.take(":", f"the key {key[:60]!r}")
        if key == EVENTS:
            yield from _events(text)
        else:
            yield Item(key, -1, text.value())
        if text.take(",}", "a value") == "}":
            break
    if EVENTS not in seen:
        text.refuse(f"the key {EVENTS} is missing", _REMEDY)


def _events(text: TraceText, *, closed: bool = True) -> Iterator[Item]:
    text.take("[", f"{EVENTS}:" if closed else "nothing")
    index = 0
    if text.character() == "]":
        text.take("]", "an event")
        return
    while True:
        if not closed and not text.character():
            return
        for number, value in enumerate(text.values()):
            yield Item(EVENTS, index, value, number)
            index += 1
        if not closed and not text.character():
            return
        if text.take(",]", f"event {index - 1}") == "]":
            return
