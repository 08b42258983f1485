"""Time in which a rank does nothing while a message that holds it is under way: one definition for all.

A message holds the rank whose next operation waits for it; of an overlapped pair's two the later one. With
blocking sends it also holds the rank that sends it, and every message of a rank holds it from when both its
ends are ready to when it is there (``blocking.py``). The time before that is no message's: the other rank
was not ready.
"""

from __future__ import annotations

import numpy as np

from meshwright.schedules.needs import NOTHING
from meshwright.timeline.program import Floats
from meshwright.timeline.record import Timeline


def free_s(timeline: Timeline) -> Floats:
    """Return when each operation's rank was done with the one before, ``[ops]``; at first: the begin."""
    found = np.empty_like(timeline.end_s)
    found[1:] = timeline.end_s[:-1]
    found[timeline.first[:-1][np.diff(timeline.first) > 0]] = timeline.begin_s
    return found


def exposed_s(timeline: Timeline) -> Floats:
    """Return the exposed part of the gap in front of each operation, ``[ops]``; a pair's at its first."""
    if not len(timeline.start_s):
        return np.zeros(0)
    return _held(timeline) if timeline.blocking else _awaited(timeline)


def _awaited(timeline: Timeline) -> Floats:
    done_s = free_s(timeline)
    pair = np.flatnonzero(timeline.overlapped)
    done_s[pair + 1] = done_s[pair]
    found = np.zeros(len(done_s))
    waits = np.flatnonzero(timeline.sender != NOTHING)
    there_s = np.minimum(timeline.start_s[waits], timeline.arrival_s[waits])
    found[waits] = np.maximum(there_s - np.maximum(done_s[waits], timeline.sent_s[waits]), 0.0)
    later = timeline.arrival_s[pair + 1] >= timeline.arrival_s[pair]
    found[pair] = np.where(later, found[pair + 1], found[pair])
    found[pair + 1] = 0.0
    return found


def _held(timeline: Timeline) -> Floats:
    done_s, rank = free_s(timeline), timeline.rank
    found = np.zeros(len(done_s))
    waits = np.flatnonzero(timeline.sender != NOTHING)
    target, source = rank[waits], rank[timeline.sender[waits]]
    for one in range(timeline.ranks):
        at, own = timeline.of_rank(one), waits[(target == one) | (source == one)]
        edges_s, covered_s = _covered(timeline.sent_s[own], timeline.arrival_s[own])
        if len(edges_s):
            until = np.interp(timeline.start_s[at], edges_s, covered_s)
            found[at] = until - np.interp(done_s[at], edges_s, covered_s)
    return np.maximum(found, 0.0)


def _covered(begin_s: Floats, end_s: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the time that some intervals cover, and how much is covered until each."""
    begin_s, end_s = apart(begin_s, end_s)
    after = np.cumsum(end_s - begin_s)
    edges_s = np.stack([begin_s, end_s], axis=1).ravel()
    return edges_s, np.stack([after - (end_s - begin_s), after], axis=1).ravel()


def apart(begin_s: Floats, end_s: Floats) -> tuple[Floats, Floats]:
    """Return intervals in order of their begins, each without what those before it cover."""
    order = np.argsort(begin_s, kind="stable")
    begin_s, end_s = begin_s[order], np.maximum.accumulate(end_s[order])
    begin_s = np.maximum(begin_s, np.concatenate([[-np.inf], end_s[:-1]])[: len(begin_s)])
    return begin_s, np.maximum(begin_s, end_s)
