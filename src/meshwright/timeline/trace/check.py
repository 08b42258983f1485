"""Check a file against the trace event format: fields, slices, counters, flows, asynchronous events.

Stricter than viewers are: events of a track must stand in the order of time, slices must lie inside
each other or apart, and every flow must be bound at both ends. Source: "Trace Event Format" of the
Chromium project (catapult-project/catapult docs/trace-event-format.md).
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, Final

from meshwright.errors import InputError
from meshwright.timeline.trace.fields import field_problems, is_track_event
from meshwright.timeline.trace.items import EVENTS, Item, trace_items
from meshwright.timeline.trace.pairs import AsyncEvents, Flows, LegacyAsync
from meshwright.timeline.trace.problems import TraceProblem, TraceProblems
from meshwright.timeline.trace.text import TraceText, open_trace
from meshwright.timeline.trace.tracks import Tracks

_DOCUMENT: Final[dict[str, tuple[type, ...]]] = {
    "otherData": (dict,),
    "stackFrames": (dict,),
    "samples": (list,),
    "systemTraceEvents": (str, dict),
}
"""Types of the keys beside the events that the format names."""


def check_trace(path: str) -> list[TraceProblem]:
    """Return what is wrong with a file, the first ones if there are many; empty when nothing is."""
    try:
        with open_trace(path, strict=True) as text:
            return check_text(text)
    except InputError as error:
        return [TraceProblem(None, str(problem)) for problem in error.problems]


def check_bytes(content: bytes) -> list[TraceProblem]:
    """Return what is wrong with the text of a trace."""
    return check_text(TraceText("trace", io.BytesIO(content), strict=True))


def check_text(text: TraceText) -> list[TraceProblem]:
    """Return what is wrong with a text; one that is no JSON gives a problem without an event."""
    problems = TraceProblems()
    try:
        _check_items(trace_items(text), problems)
    except InputError as error:
        for problem in error.problems:
            problems.add(None, str(problem))
    return problems.listed()


def _check_items(items: Iterable[Item], problems: TraceProblems) -> None:
    tracks, flows = Tracks(problems), Flows(problems)
    nestable, legacy = AsyncEvents(problems), LegacyAsync(problems)
    for item in items:
        if item.key != EVENTS or item.position < 0:
            _check_member(item.key, item.value, problems)
            continue
        event = item.value
        found = field_problems(event)
        for message in found:
            problems.add(item.position, message)
        if found:
            continue
        phase = event["ph"]
        if phase == "C":
            tracks.counter(item.position, event)
        elif phase in "bne":
            nestable.event(item.position, event)
        elif phase in "STpF":
            legacy.event(item.position, event)
        elif is_track_event(event):
            tracks.event(item.position, event)
            if phase in "stf":
                flows.event(item.position, event)
    for part in (tracks, flows, nestable, legacy):
        part.finish()


def _check_member(key: str, value: Any, problems: TraceProblems) -> None:
    if key == "displayTimeUnit" and value not in ("ms", "ns"):
        problems.add(None, "displayTimeUnit is neither 'ms' nor 'ns'")
    if key in _DOCUMENT and not isinstance(value, _DOCUMENT[key]):
        names = " or ".join(one.__name__ for one in _DOCUMENT[key])
        problems.add(None, f"{key} is no {names}")
