"""Tracks of a trace: time goes on, slices nest or lie apart, flows end inside a slice."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from meshwright.timeline.trace.problems import TraceProblems

_Key = tuple[Any, ...]
_OPEN = float("inf")
"""End of a slice that was begun and has not ended yet."""


@dataclass(slots=True)
class _Track:
    """One thread: the time of its last event, and the slices around it, the outermost first.

    ``slices``: end and number of the event; ``waiting``: flow ends that bind to the next slice.
    """

    now: float = -_OPEN
    slices: list[tuple[float, int]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


class Tracks:
    """Follows every thread and counter; ``finish`` says what is open at the end."""

    def __init__(self, problems: TraceProblems) -> None:
        self._problems = problems
        self._tracks: defaultdict[_Key, _Track] = defaultdict(_Track)
        self._counters: dict[_Key, float] = {}

    def event(self, index: int, event: dict[str, Any]) -> None:
        """Take an event of a thread."""
        track = self._tracks[event["pid"], event["tid"]]
        now = event["ts"]
        if now < track.now:
            self._problems.add(index, f"ts {now} is before {track.now} of the track's last event")
            return
        track.now = now
        phase = event["ph"]
        if phase == "X":
            self._slice(track, index, now, now + event["dur"])
        elif phase == "B":
            self._slice(track, index, now, _OPEN)
        elif phase == "E":
            self._end(track, index, now)
        elif phase in "st" or (phase == "f" and "bp" in event):
            _leave(track, now, touching=True)
            if not track.slices:
                self._problems.add(index, "the flow event lies in no slice")
        elif phase == "f":
            track.waiting.append(index)

    def counter(self, index: int, event: dict[str, Any]) -> None:
        """Take a counter."""
        key = event["pid"], event["name"], event.get("id")
        if event["ts"] < self._counters.get(key, -_OPEN):
            self._problems.add(index, "ts is before that of the counter's last event")
        self._counters[key] = event["ts"]

    def finish(self) -> None:
        """Say which slices were not ended and which flow ends found no slice."""
        for track in self._tracks.values():
            for end, index in track.slices:
                if end == _OPEN:
                    self._problems.add(index, "B without E")
            for index in track.waiting:
                self._problems.add(index, "no slice follows that the flow could end at")

    def _slice(self, track: _Track, index: int, now: float, end: float) -> None:
        _leave(track, now)
        if track.slices and track.slices[-1][0] < end:
            around = track.slices[-1]
            what = "" if end == _OPEN else f" and ends at {end}"
            self._problems.add(
                index,
                f"the slice begins inside event {around[1]}, which ends at {around[0]},{what}",
            )
        track.slices.append((end, index))
        track.waiting.clear()

    def _end(self, track: _Track, index: int, now: float) -> None:
        _leave(track, now)
        crossed = [at for at in range(len(track.slices)) if track.slices[at][0] < _OPEN]
        begun = [at for at in range(len(track.slices)) if track.slices[at][0] == _OPEN]
        if not begun:
            self._problems.add(index, "E without B")
            return
        if crossed and crossed[-1] > begun[-1]:
            inner = track.slices[crossed[-1]]
            self._problems.add(
                index, f"it ends a slice while event {inner[1]} inside it runs to {inner[0]}"
            )
        del track.slices[begun[-1] :]


def _leave(track: _Track, now: float, *, touching: bool = False) -> None:
    """Leave the slices that have ended; ``touching``: one that ends now still counts."""
    while track.slices:
        end = track.slices[-1][0]
        if end > now or (touching and end == now):
            return
        track.slices.pop()
