"""Events of a trace that belong together by an id: flows, and asynchronous events of both kinds."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from meshwright.timeline.trace.problems import TraceProblems

_Key = tuple[Any, ...]
_Seen = tuple[float, int]
"""Time and number of an event."""


class Flows:
    """Each flow has one start, one end, and its steps between them; files may list them in any order."""

    def __init__(self, problems: TraceProblems) -> None:
        self._problems = problems
        self._seen: dict[str, defaultdict[_Key, list[_Seen]]] = {
            phase: defaultdict(list) for phase in "stf"
        }

    def event(self, index: int, event: dict[str, Any]) -> None:
        """Take a flow event."""
        key = event["cat"], event["name"], event["id"]
        self._seen[event["ph"]][key].append((event["ts"], index))

    def finish(self) -> None:
        """Say which flows are not bound at both ends."""
        starts, steps, ends = (self._seen[phase] for phase in "stf")
        for key in {**starts, **steps, **ends}:
            begun, passed, ended = starts.get(key, []), steps.get(key, []), ends.get(key, [])
            for _, index in begun[1:]:
                self._problems.add(index, f"flow {key[2]} starts twice")
            for _, index in ended[1:]:
                self._problems.add(index, f"flow {key[2]} ends twice")
            for _, index in [] if begun else [*passed, *ended]:
                self._problems.add(index, f"flow {key[2]} has no start")
            for _, index in [] if ended else [*begun, *passed]:
                self._problems.add(index, f"flow {key[2]} has no end")
            if begun and ended:
                self._check_order(key, begun[0], passed, ended[0])

    def _check_order(self, key: _Key, start: _Seen, steps: list[_Seen], end: _Seen) -> None:
        if end[0] < start[0]:
            self._problems.add(end[1], f"flow {key[2]} ends before it starts")
        for time, index in steps:
            if not start[0] <= time <= end[0]:
                self._problems.add(index, f"flow {key[2]} has a step outside its time")


class AsyncEvents:
    """Nestable asynchronous events: b and e balanced, n and e inside, for each category and id."""

    def __init__(self, problems: TraceProblems) -> None:
        self._problems = problems
        self._open: defaultdict[_Key, list[tuple[str, int]]] = defaultdict(list)
        self._now: dict[_Key, float] = {}

    def event(self, index: int, event: dict[str, Any]) -> None:
        """Take an event."""
        key = _async_key(event)
        if event["ts"] < self._now.get(key, event["ts"]):
            self._problems.add(index, "ts is before that of the id's last event")
        self._now[key] = event["ts"]
        around = self._open[key]
        if event["ph"] == "b":
            around.append((event["name"], index))
        elif event["ph"] == "e":
            if not around:
                self._problems.add(index, "e without b")
            elif around.pop()[0] != event["name"]:
                self._problems.add(index, "e has another name than the b it ends")

    def finish(self) -> None:
        """Say what was not ended."""
        for around in self._open.values():
            for _, index in around:
                self._problems.add(index, "b without e")


class LegacyAsync:
    """Asynchronous events of the older kind: S, steps T or p, F."""

    def __init__(self, problems: TraceProblems) -> None:
        self._problems = problems
        self._open: dict[_Key, int] = {}

    def event(self, index: int, event: dict[str, Any]) -> None:
        """Take an event."""
        key = event["cat"], event["name"], event["id"]
        if event["ph"] == "S":
            if key in self._open:
                self._problems.add(index, "S while the same is open")
            self._open[key] = index
        elif key not in self._open:
            self._problems.add(index, f"{event['ph']} without S")
        elif event["ph"] == "F":
            del self._open[key]

    def finish(self) -> None:
        """Say what was not ended."""
        for index in self._open.values():
            self._problems.add(index, "S without F")


def _async_key(event: dict[str, Any]) -> _Key:
    """Return what events of one kind share: a local id holds in its process only."""
    if "id" in event:
        return event["cat"], event.get("scope"), event["id"]
    other = event["id2"]
    if "global" in other:
        return event["cat"], event.get("scope"), "global", other["global"]
    return event["cat"], event.get("scope"), event["pid"], other["local"]
