"""Activations of every rank over time, in stage chunks and bytes.

A stage chunk's activations are there from the start of its forward. One part is free when its B or I
ends, the other when its B or W ends (arXiv 2401.10241, section 2: the input gradient frees what the
weight gradient does not need). A rank's operations follow one another, so its order is the order of
time and every operation is one step of the function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.schedules.orders import Ints, Kind, Orders
from meshwright.schedules.peaks import highest, running
from meshwright.timeline.core import Times
from meshwright.timeline.program import Floats, Program


@dataclass(frozen=True, slots=True)
class MemoryOverTime:
    """A step function of every rank; rank r has the steps ``first[r]`` to ``first[r + 1] - 1``.

    Parameters
    ----------
    first[ranks + 1]
        As in ``Orders``.
    time_s[ops], kept_bytes[ops]
        What is kept from that time on, up to the rank's next step.
    chunks_until_input[ops], chunks_until_weight[ops]
        The same in stage chunks of which any part, and of which the last part, is kept.
    peak_bytes[ranks], peak_at_s[ranks]
        The most that is kept, and when it first is.
    """

    first: Ints
    time_s: Floats
    kept_bytes: Floats
    chunks_until_input: Ints
    chunks_until_weight: Ints
    peak_bytes: Floats
    peak_at_s: Floats

    def of_rank(self, rank: int) -> tuple[Floats, Floats]:
        """Return the times and bytes of a rank's steps."""
        steps = slice(int(self.first[rank]), int(self.first[rank + 1]))
        return self.time_s[steps], self.kept_bytes[steps]


def memory_over_time(
    program: Program, times: Times, until_input_bytes: Floats, until_weight_bytes: Floats
) -> MemoryOverTime:
    """Return what every rank keeps over time.

    Parameters
    ----------
    until_input_bytes, until_weight_bytes
        Activations of one microbatch by stage of the model, ``[stages]``: what B or I frees, and what
        B or W frees. Together they are all that a forward leaves.
    """
    orders = program.orders
    stage = orders.stage % orders.chain_length
    begins = (orders.kind == Kind.FORWARD).astype(np.int64)
    full = orders.kind == Kind.BACKWARD
    change_input = begins - (full | (orders.kind == Kind.INPUT))
    change_weight = begins - (full | (orders.kind == Kind.WEIGHT))
    kept_bytes = running(
        change_input * np.asarray(until_input_bytes, dtype=np.float64)[stage]
        + change_weight * np.asarray(until_weight_bytes, dtype=np.float64)[stage],
        orders,
    )
    time_s = np.where(begins == 1, times.start_s, times.end_s)
    return MemoryOverTime(
        first=orders.first,
        time_s=time_s,
        kept_bytes=kept_bytes,
        chunks_until_input=running(change_input, orders),
        chunks_until_weight=running(change_weight, orders),
        peak_bytes=highest(kept_bytes, orders),
        peak_at_s=_first_peak_s(kept_bytes, time_s, orders),
    )


def _first_peak_s(kept_bytes: Floats, time_s: Floats, orders: Orders) -> Floats:
    found = np.zeros(orders.ranks)
    for rank in range(orders.ranks):
        of_rank = orders.of_rank(rank)
        if of_rank.start < of_rank.stop:
            found[rank] = time_s[of_rank][int(kept_bytes[of_rank].argmax())]
    return found
