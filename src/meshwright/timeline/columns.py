"""Time cut into equal columns, for pictures: what a rank does in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import LETTERS, Ints
from meshwright.timeline.program import Floats
from meshwright.timeline.record import Timeline

_FIT = 1e-6
"""Of a slot: how far a start may be off and still count as on its edge."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Starts and ends as a row of a picture shows them, ``[ops]``.

    Of an overlapped pair the first operation gets the first half of their time.
    """

    start_s: Floats
    end_s: Floats


def drawn(timeline: Timeline) -> Drawn:
    """Return the operations one after the other, pairs divided."""
    start_s, end_s = timeline.start_s.copy(), timeline.end_s.copy()
    pair = np.flatnonzero(timeline.overlapped)
    middle_s = (start_s[pair] + end_s[pair + 1]) / 2
    end_s[pair] = start_s[pair + 1] = middle_s
    return Drawn(start_s, end_s)


def column_count(timeline: Timeline, most: int) -> int:
    """Return how many columns show the timeline best, at most ``most``.

    Where all operations start and end on the edges of some slot of time, a slot gets a whole number
    of columns; else all columns are used.
    """
    shown = drawn(timeline)
    length_s = shown.end_s - shown.start_s
    shortest_s = float(length_s[length_s > 0.0].min(initial=np.inf))
    if not np.isfinite(shortest_s):
        return most
    edges_s = np.concatenate([shown.start_s, shown.end_s]) - timeline.begin_s
    for parts in (1, 2, 3, 4):
        slot_s = shortest_s / parts
        if timeline.makespan_s / most > slot_s:  # not the quotient of tiny slots: it overflows
            break
        slots = round(timeline.makespan_s / slot_s)
        if slots > most:
            break
        place = edges_s / slot_s
        if np.all(np.abs(place - np.round(place)) < _FIT * max(slots, 1)):
            return most // slots * slots
    return most


def ranks_shown(ranks: int, rows: int) -> list[int]:
    """Return the ranks that a picture of at most ``rows`` rows shows: all, or the first and the last."""
    if ranks <= rows:
        return list(range(ranks))
    half = max(rows // 2, 1)
    return [*range(half), *range(ranks - half, ranks)]


def operation_at(timeline: Timeline, columns: int, ranks: Sequence[int]) -> Ints:
    """Return the operation in the middle of each column of some ranks, ``[rows, columns]``; -1: none."""
    shown = drawn(timeline)
    middle_s = timeline.begin_s + (np.arange(columns) + 0.5) * timeline.makespan_s / max(columns, 1)
    found = np.full((len(ranks), columns), NOTHING, dtype=np.int64)
    for row, rank in enumerate(ranks):
        at = timeline.of_rank(rank)
        if at.stop == at.start:
            continue
        # of operations that start together the last has a length
        before = np.searchsorted(shown.start_s[at], middle_s, side="right") - 1
        runs = (before >= 0) & (middle_s < shown.end_s[at][before])
        found[row] = np.where(runs, at.start + before, NOTHING)
    return found


def shares(timeline: Timeline, columns: int, ranks: Sequence[int]) -> NDArray[np.float64]:
    """Return the share of each column that some ranks spend in each kind, ``[rows, columns, kinds]``."""
    shown = drawn(timeline)
    edges_s = np.linspace(timeline.begin_s, timeline.finish_s, columns + 1)
    width_s = timeline.makespan_s / max(columns, 1)
    found = np.zeros((len(ranks), columns, len(LETTERS)))
    if width_s <= 0.0:
        return found
    for row, rank in enumerate(ranks):
        at = timeline.of_rank(rank)
        for kind in range(len(LETTERS)):
            chosen = np.flatnonzero(timeline.kind[at] == kind)
            if len(chosen):
                done_s = _until(shown.start_s[at][chosen], shown.end_s[at][chosen], edges_s)
                found[row, :, kind] = np.diff(done_s) / width_s
    return found


def _until(start_s: Floats, end_s: Floats, until_s: Floats) -> Floats:
    """Return the time within intervals that follow one another, until each of some times."""
    after = np.cumsum(end_s - start_s)
    edges_s = np.stack([start_s, end_s], axis=1).ravel()
    done_s = np.stack([np.concatenate([[0.0], after[:-1]]), after], axis=1).ravel()
    return np.asarray(np.interp(until_s, edges_s, done_s))
