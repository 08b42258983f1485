"""Where the time of every rank went: compute, communication that shows, idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.schedules.needs import NOTHING
from meshwright.timeline.exposed import apart
from meshwright.timeline.exposed import exposed_s as exposed_by_operation
from meshwright.timeline.program import Floats
from meshwright.timeline.record import Timeline


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Seconds of every rank, ``[ranks]`` each: ``span_s`` = compute + exposed + idle.

    Parameters
    ----------
    start_s, end_s
        First start and last end of the rank's own operations; both the begin of the step for a rank
        without any.
    span_s
        The step: from the first start to the last end of all ranks.
    compute_s
        Operations.
    exposed_s
        The rank does nothing while a message that holds it is on its way (``exposed.py``).
    overlapped_s
        A message to the rank is on its way while it computes.
    idle_s
        The rest: nothing to compute, and what it waits for was not yet on its way.
    """

    start_s: Floats
    end_s: Floats
    span_s: Floats
    compute_s: Floats
    exposed_s: Floats
    overlapped_s: Floats
    idle_s: Floats

    @property
    def bubble_fraction(self) -> float:
        """Return 1 - Σ compute / Σ span."""
        whole_s = float(self.span_s.sum())
        return 1.0 - float(self.compute_s.sum()) / whole_s if whole_s > 0.0 else 0.0

    @property
    def span_bubble_fraction(self) -> float:
        """Return the largest 1 - compute / (end - start) of a rank: the zero-bubble papers' measure."""
        own_s = self.end_s - self.start_s
        busy = np.divide(self.compute_s, own_s, out=np.ones_like(own_s), where=own_s > 0.0)
        return float((1.0 - busy).max(initial=0.0))


def rank_times(timeline: Timeline) -> RankTimes:
    """Return where the time of every rank went."""
    compute_s = _sum_by_rank(timeline, timeline.end_s - timeline.start_s)
    exposed_s = _sum_by_rank(timeline, exposed_by_operation(timeline))
    span_s = np.full(timeline.ranks, timeline.makespan_s)
    start_s, end_s = np.full((2, timeline.ranks), timeline.begin_s)
    used = np.diff(timeline.first) > 0
    start_s[used] = timeline.start_s[timeline.first[:-1][used]]
    end_s[used] = timeline.end_s[timeline.first[1:][used] - 1]
    return RankTimes(
        start_s=start_s,
        end_s=end_s,
        span_s=span_s,
        compute_s=compute_s,
        exposed_s=exposed_s,
        overlapped_s=np.array([_overlapped(timeline, rank) for rank in range(timeline.ranks)]),
        idle_s=np.maximum(span_s - compute_s - exposed_s, 0.0),
    )


def _sum_by_rank(timeline: Timeline, values: Floats) -> Floats:
    return np.bincount(timeline.rank, weights=values, minlength=timeline.ranks).astype(np.float64)


def _overlapped(timeline: Timeline, rank: int) -> float:
    """Return how long the rank computes while any message to it is on its way."""
    at = timeline.of_rank(rank)
    waits = np.flatnonzero(timeline.sender[at] != NOTHING)
    # messages may be on their way together: only what a message adds to those before it counts
    sent_s, there_s = apart(timeline.sent_s[at][waits], timeline.arrival_s[at][waits])
    if not len(sent_s):
        return 0.0
    done = computed(timeline, rank, np.concatenate([sent_s, there_s]))
    return float(np.sum(done[len(sent_s) :] - done[: len(sent_s)]))


def computed(timeline: Timeline, rank: int, until_s: Floats) -> Floats:
    """Return how long a rank has computed until each of some times."""
    at = timeline.of_rank(rank)
    start_s, end_s = timeline.start_s[at], timeline.end_s[at]
    if not len(start_s):
        return np.zeros_like(until_s)
    after = np.cumsum(end_s - start_s)
    edges_s = np.stack([start_s, end_s], axis=1).ravel()
    done_s = np.stack([np.concatenate([[0.0], after[:-1]]), after], axis=1).ravel()
    return np.asarray(np.interp(until_s, edges_s, done_s))
