"""What every operation waits for: the table of positions and the edges between operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.schedules.orders import Ints, Kind, Orders

NOTHING = -1
"""Waits for nothing but its rank."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Index of the operation of each stage and microbatch, ``[entries, microbatches]``; -1 if none.

    ``backward`` is the one that gives the gradient of the inputs: the full backward or I. ``weight``
    is the one after which nothing of the microbatch is kept: the full backward or W.
    """

    forward: Ints
    backward: Ints
    weight: Ints


def positions(orders: Orders) -> Positions:
    """Return where each stage's operations stand. Where one stands twice, the later place."""
    shape = (len(orders.rank_of_stage), orders.microbatches // orders.chains)
    index = np.arange(len(orders.kind), dtype=np.int64)

    def table(*kinds: Kind) -> Ints:
        found = np.full(shape, NOTHING, dtype=np.int64)
        chosen = np.isin(orders.kind, kinds)
        found[orders.stage[chosen], orders.microbatch[chosen]] = index[chosen]
        return found

    return Positions(
        forward=table(Kind.FORWARD),
        backward=table(Kind.BACKWARD, Kind.INPUT),
        weight=table(Kind.BACKWARD, Kind.WEIGHT),
    )


def needs(orders: Orders, at: Positions | None = None) -> Ints:
    """Return the operation of another stage that each waits for, ``[ops]``; ``NOTHING`` where none.

    A forward waits for the forward of the stage before, a backward for that of the stage after.
    What a backward needs of its own stage's forward, and a weight gradient of its input gradient,
    is on the same rank: their order is checked, not waited for (``schedules/validity.py``). Results
    of an overlapped pair are there when the pair ends, so its second operation is the one waited for.
    """
    at = positions(orders) if at is None else at
    length, stage, kind = orders.chain_length, orders.stage, orders.kind
    found = np.full(len(kind), NOTHING, dtype=np.int64)
    forward = (kind == Kind.FORWARD) & (stage % length > 0)
    found[forward] = at.forward[stage[forward] - 1, orders.microbatch[forward]]
    backward = np.isin(kind, (Kind.BACKWARD, Kind.INPUT)) & (stage % length < length - 1)
    found[backward] = at.backward[stage[backward] + 1, orders.microbatch[backward]]
    waits = np.flatnonzero(found != NOTHING)
    found[waits] += orders.overlapped[found[waits]]
    return found
