"""Divide things into groups of one size at the least cost: exact, without trying every division.

What is best for the things that are left does not depend on how the others were grouped, so each
set of things left is solved once (Held and Karp's way with subsets, J. SIAM 10(1), 1962).
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

MAX_STEPS = 350_000
"""Groups looked at for all sets of things left: 16 things in pairs or fours, 20 in tens."""

Group = tuple[int, ...]
Cost = tuple[int, tuple[int, ...]]
"""What is the least of the groups' greatest, then the least of the groups' sums, in this order."""


def num_divisions(total: int, size: int) -> int:
    """Return in how many ways ``total`` things can be divided into groups of ``size``."""
    # The first thing's group, then the rest alike.
    return math.prod(math.comb(left - 1, size - 1) for left in range(total, 0, -size))


def num_steps(total: int, size: int) -> int:
    """Return at most how many groups ``best_division`` looks at."""
    if size == 1:
        return total
    return sum(
        # Sets of things grouped so far hold the first thing; the next one's group is then chosen.
        (math.comb(total - 1, done - 1) if done else 1) * math.comb(total - done - 1, size - 1)
        for done in range(0, total, size)
    )


def best_division(
    things: Sequence[int], size: int, cost: Callable[[Group], Cost]
) -> tuple[Group, ...]:
    """Return the division with the least greatest cost, then sums; the first one in order of equals.

    Groups and things in them keep the order given. ``size`` divides the number of things, and
    ``num_steps`` is at most ``MAX_STEPS``: the caller refuses others.
    """
    if size == 1:
        return tuple((thing,) for thing in things)
    search = _Search(things, size, cost)
    everything = (1 << len(things)) - 1
    limit = search.least_greatest(everything)
    search.keep_up_to(limit)
    left = everything
    groups: list[Group] = []
    while left:
        found = search.least_sums(left)
        if found is None:  # pragma: no cover - a division with this greatest cost was found
            raise ArithmeticError("no division")
        mask = found[1]
        groups.append(tuple(things[at] for at in range(len(things)) if mask >> at & 1))
        left -= mask
    return tuple(groups)


class _Search:
    """Solves sets of things left, a bit each; the lowest one's group is chosen next."""

    def __init__(self, things: Sequence[int], size: int, cost: Callable[[Group], Cost]) -> None:
        self._size = size
        self._limit = sys.maxsize
        self._costs = {
            sum(1 << at for at in group): cost(tuple(things[at] for at in group))
            for group in combinations(range(len(things)), size)
        }
        """Greatest and sums of every group, by its bits."""
        first = next(iter(self._costs.values()))
        self._none = tuple(0 for _ in first[1])
        self.least_greatest = functools.cache(self._least_greatest)
        self.least_sums = functools.cache(self._least_sums)

    def keep_up_to(self, limit: int) -> None:
        """Leave out groups with a greater cost: the rest are divided by sums."""
        self._limit = limit

    def _groups(self, left: int) -> Iterator[int]:
        bits = [1 << at for at in range(left.bit_length()) if left >> at & 1]
        for others in combinations(bits[1:], self._size - 1):
            yield bits[0] + sum(others)

    def _least_greatest(self, left: int) -> int:
        if not left:
            return -sys.maxsize
        return min(
            max(self._costs[group][0], self.least_greatest(left - group))
            for group in self._groups(left)
        )

    def _least_sums(self, left: int) -> tuple[tuple[int, ...], int] | None:
        """Return the sums and the first group; ``None`` where no division is left."""
        if not left:
            return self._none, 0
        best: tuple[tuple[int, ...], int] | None = None
        for group in self._groups(left):
            greatest, sums = self._costs[group]
            rest = self.least_sums(left - group) if greatest <= self._limit else None
            if rest is None:
                continue
            total = tuple(map(int.__add__, sums, rest[0]))
            if best is None or total < best[0]:
                best = total, group
        return best
