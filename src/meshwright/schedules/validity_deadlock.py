"""Finds ranks that wait for one another for ever, and says in which circle.

Rule: arXiv 2104.04473 and torch's runtime run a rank's operations in order; a schedule can run if
and only if the operations with their waits have no circle. No time is needed to tell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.schedules.needs import NOTHING, needs
from meshwright.schedules.orders import LETTERS, Ints, Orders

_MOST_TOLD = 8
"""Ranks of a circle that are told; the message says how many more there are."""


class Wait(NamedTuple):
    """A rank stands at an operation and waits for another.

    ``operation``: its place in the rank's order; ``number``, ``needs``: both, over all ranks.
    """

    rank: int
    operation: int
    number: int
    needs: int


def stuck(orders: Orders, need: Ints | None = None) -> Ints:
    """Return the operation that each rank cannot pass, ``[ranks]``; ``NOTHING`` for one that ends.

    Each operation is visited once. ``need``: from ``needs``, where the caller has it.
    """
    waits = (needs(orders) if need is None else need).tolist()
    first = orders.first.tolist()
    position, last = first[:-1], first[1:]
    done = bytearray(len(waits) + 1)
    done[-1] = 1  # what waits for nothing waits for number -1
    waiters: dict[int, list[int]] = {}
    ready = list(range(orders.ranks))[::-1]
    while ready:
        rank = ready.pop()
        index, stop = position[rank], last[rank]
        while index < stop and done[waits[index]]:
            done[index] = 1
            if index in waiters:
                ready += waiters.pop(index)
            index += 1
        position[rank] = index
        if index < stop:
            waiters.setdefault(waits[index], []).append(rank)
    return np.array(
        [at if at < stop else NOTHING for at, stop in zip(position, last, strict=True)],
        dtype=np.int64,
    )


def cycle(orders: Orders, stuck: Ints) -> list[Wait]:
    """Return the shortest way round that no rank can leave; empty where no rank is stuck.

    Parameters
    ----------
    stuck
        From ``stuck``, or from ``timeline.core.DeadlockError``.
    """
    need, rank_of = needs(orders), orders.rank
    held = np.flatnonzero(stuck != NOTHING)
    shortest: list[Wait] = []
    seen: set[int] = set()
    for start in held.tolist():
        way: dict[int, Wait] = {}
        rank = start
        while rank not in seen and rank not in way:
            index = int(stuck[rank])
            needed = int(need[index])
            way[rank] = Wait(rank, index - int(orders.first[rank]), index, needed)
            rank = int(rank_of[needed])
        if rank in way:
            found = list(way.values())[list(way).index(rank) :]
            if not shortest or len(found) < len(shortest):
                shortest = found
        seen |= set(way)
    return shortest


def name_of(orders: Orders, index: int) -> str:
    """Return an operation as torch's CSV form writes it."""
    return f"{orders.stage[index]}{LETTERS[orders.kind[index]]}{orders.microbatch[index]}"


def _awaited(orders: Orders, number: int) -> str:
    """Return what is waited for; an overlapped pair gives its results together."""
    if number and orders.overlapped[number - 1]:
        return f"({name_of(orders, number - 1)};{name_of(orders, number)})"
    return name_of(orders, number)


def told_cycle(orders: Orders, waits: list[Wait]) -> str:
    """Return a circle in words."""
    rank_of = orders.rank
    if len(waits) == 1:
        (one,) = waits
        return (
            f"rank {one.rank} waits at its operation {one.operation} ({name_of(orders, one.number)}) for "
            f"{_awaited(orders, one.needs)}, which comes later in its own order"
        )
    parts = [
        f"waits at its operation {one.operation} ({name_of(orders, one.number)}) for "
        f"{_awaited(orders, one.needs)} of rank {rank_of[one.needs]}"
        for one in waits[:_MOST_TOLD]
    ]
    if len(waits) > _MOST_TOLD:
        parts.append(f"waits, and so on over {len(waits) - _MOST_TOLD} more ranks to the first")
    return f"rank {waits[0].rank} " + ", which ".join(parts)
