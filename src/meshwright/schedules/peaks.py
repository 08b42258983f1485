"""How many stage chunks each rank keeps activations of: by the order alone, no time."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from meshwright.schedules.orders import Ints, Kind, Orders

Number = TypeVar("Number", np.int64, np.float64)


def peaks(orders: Orders) -> tuple[Ints, Ints]:
    """Return the most chunks in flight by rank until B or I and until B or W, ``[ranks]`` each.

    The order alone decides: a rank's operations never overlap one another.
    """
    begins = (orders.kind == Kind.FORWARD).astype(np.int64)
    full = orders.kind == Kind.BACKWARD
    return (
        _highest(begins - (full | (orders.kind == Kind.INPUT)), orders),
        _highest(begins - (full | (orders.kind == Kind.WEIGHT)), orders),
    )


def _highest(change: Ints, orders: Orders) -> Ints:
    return highest(running(change, orders), orders)


def running(change: NDArray[Number], orders: Orders) -> NDArray[Number]:
    """Return the running sum of each rank's changes, ``[ops]``."""
    total: NDArray[Number] = np.zeros(len(change) + 1, dtype=change.dtype)
    np.cumsum(change, out=total[1:])
    return total[1:] - np.repeat(total[orders.first[:-1]], np.diff(orders.first))


def highest(values: NDArray[Number], orders: Orders) -> NDArray[Number]:
    """Return the largest value of each rank's operations, ``[ranks]``; 0 for a rank without."""
    found = np.zeros(orders.ranks, dtype=values.dtype)
    used = np.diff(orders.first) > 0
    if used.any():
        found[used] = np.maximum.reduceat(values, orders.first[:-1][used])
    return found
