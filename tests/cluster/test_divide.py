"""Dividing into groups: the same answer as trying every division, first in order of equals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.nodes.divide import MAX_STEPS, best_division, num_divisions, num_steps

Group = tuple[int, ...]


def _divisions(things: Group, size: int) -> Iterator[tuple[Group, ...]]:
    if not things:
        yield ()
        return
    first, rest = things[0], things[1:]
    for others in combinations(rest, size - 1):
        left = tuple(one for one in rest if one not in others)
        for division in _divisions(left, size):
            yield ((first, *others), *division)


SHAPES = [(1, 1), (4, 1), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4), (9, 3), (5, 5)]


@settings(deadline=None)
@given(st.sampled_from(SHAPES), st.integers(0, 2**32), st.integers(1, 6))
def test_as_good_as_every_division(shape: tuple[int, int], seed: int, spread: int) -> None:
    total, size = shape
    things = tuple(range(10, 10 + total))

    def cost(group: Group) -> tuple[int, tuple[int, int]]:
        # Few values, so that many divisions are equal.
        made = hash((seed, group))
        return made % spread, (made // 7 % spread - 1, made // 49 % spread)

    def key(groups: tuple[Group, ...]) -> tuple[int, int, int]:
        costs = [cost(group) for group in groups]
        return (
            max(one[0] for one in costs),
            sum(one[1][0] for one in costs),
            sum(one[1][1] for one in costs),
        )

    every = list(_divisions(things, size))
    assert len(every) == num_divisions(total, size)
    assert best_division(things, size, cost) == min(every, key=key)


@pytest.mark.parametrize("shape", SHAPES)
def test_groups_looked_at_are_counted(shape: tuple[int, int]) -> None:
    total, size = shape
    seen = set()
    for division in _divisions(tuple(range(total)), size):
        left = frozenset(range(total))
        for group in division:
            seen.add((left, group))
            left -= frozenset(group)
    assert len(seen) <= num_steps(total, size)


def test_a_box_of_sixteen_is_divided_and_large_ones_are_not() -> None:
    for size in (1, 2, 4, 8, 16):
        assert num_steps(16, size) <= MAX_STEPS
    for total, size in ((64, 32), (64, 16), (32, 16), (128, 64), (128, 2), (1024, 2), (1024, 512)):
        assert num_steps(total, size) > MAX_STEPS
