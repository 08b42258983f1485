"""What a run of a schedule comes to: makespan, busy time, both bubbles, activations in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.schedules.orders import Ints, Orders
from meshwright.schedules.peaks import peaks
from meshwright.timeline.core import Times
from meshwright.timeline.program import Floats, Program


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one run; arrays are by rank, ``[ranks]``.

    Parameters
    ----------
    makespan_s
        From the first start to the last end of all ranks.
    busy_s
        Time in F, B, I and W, recompute included.
    span_s
        From the start of a rank's first operation to the end of its last.
    peak_until_input, peak_until_weight
        Most stage chunks whose activations a rank holds at once, from F to the end of B or I, and
        from F to the end of B or W.
    """

    makespan_s: float
    busy_s: Floats
    span_s: Floats
    peak_until_input: Ints
    peak_until_weight: Ints

    @property
    def bubble_fraction(self) -> float:
        """Return 1 - Σ busy / (ranks · makespan)."""
        whole_s = len(self.busy_s) * self.makespan_s
        return max(1.0 - float(self.busy_s.sum()) / whole_s, 0.0) if whole_s > 0.0 else 0.0

    @property
    def span_bubble_by_rank(self) -> Floats:
        """Return 1 - busy / (end - start) of each rank; 0 for a rank without time."""
        busy = np.divide(
            self.busy_s, self.span_s, out=np.ones_like(self.span_s), where=self.span_s > 0.0
        )
        return np.maximum(1.0 - busy, 0.0)  # a rank that never waits is rounded to about 0

    @property
    def span_bubble_fraction(self) -> float:
        """Return the largest ``span_bubble_by_rank``: the bubble of the zero-bubble papers."""
        return float(self.span_bubble_by_rank.max(initial=0.0))


def measure(program: Program, times: Times) -> Measured:
    """Measure a run.

    Bubbles: 1F1B's and interleaved's papers (arXiv 2104.04473) count the makespan, zero-bubble
    (arXiv 2401.10241) the span of a rank.
    """
    orders = program.orders
    span_s = np.zeros(orders.ranks)
    used = np.diff(orders.first) > 0
    first, last = orders.first[:-1][used], orders.first[1:][used] - 1
    span_s[used] = times.end_s[last] - times.start_s[first]
    until_input, until_weight = peaks(orders)
    return Measured(
        makespan_s=times.makespan_s,
        busy_s=by_rank(program.duration_s, orders),
        span_s=span_s,
        peak_until_input=until_input,
        peak_until_weight=until_weight,
    )


def by_rank(values: Floats, orders: Orders) -> Floats:
    """Return the sum of each rank's operations, ``[ranks]``."""
    total: Floats = np.bincount(orders.rank, weights=values, minlength=orders.ranks).astype(float)
    return total
