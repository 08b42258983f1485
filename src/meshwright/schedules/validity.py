"""Checks a schedule, ours or a user's: every operation once, in an order that can run.

A stage of a microbatch has one forward, and one full backward or one input gradient with one weight
gradient, all on the stage's rank: F before B or I, I before W. Then no rank may wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from meshwright.findings import Number
from meshwright.schedules.orders import Ints, Kind, Orders
from meshwright.schedules.validity_deadlock import cycle, name_of, stuck, told_cycle

MOST_SHOWN = 20
"""Flaws of one kind that are listed."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong with a schedule.

    Parameters
    ----------
    kind
        ``idle-rank``, ``missing-stage``, ``missing-microbatch``, ``rank``, ``missing``, ``twice``,
        ``pair``, ``order`` or ``deadlock``.
    rank, operation
        Where: the rank, and the operation's place in its order, both from 0; -1 where there is none.
    """

    kind: str
    rank: int
    operation: int
    message: str
    numbers: Mapping[str, Number] = field(default_factory=dict)


Check = Iterator[tuple[Ints, Callable[[int], Flaw]]]
"""What is wrong, as numbers, and how one of them is told."""


def flaws_of(orders: Orders, most: int = MOST_SHOWN) -> list[Flaw]:
    """Return what is wrong with a schedule, at most ``most`` of each kind; empty when it can run.

    A deadlock is looked for only in a schedule that has every operation once.
    """
    if not len(orders.kind):
        return [Flaw("missing", -1, -1, "no rank computes anything")]
    found: list[Flaw] = []
    for check in (_idle_ranks, _unnamed, _ranks, _counts, _pairs, _order):
        for wrong, told in check(orders):
            found += [told(one) for one in wrong[:most].tolist()]
            if (more := len(wrong) - most) > 0:
                text = f"{more:,} more of this kind: {found[-1].message} …"
                found.append(Flaw(found[-1].kind, -1, -1, text, {"more": more}))
    return found or deadlock(orders)


def deadlock(orders: Orders) -> list[Flaw]:
    """Return the circle of ranks that wait for one another, if there is one."""
    waits = cycle(orders, stuck(orders))
    if not waits:
        return []
    numbers: dict[str, Number] = {
        "ranks": [one.rank for one in waits],
        "operations": [one.operation for one in waits],
    }
    text = told_cycle(orders, waits)
    return [Flaw("deadlock", waits[0].rank, waits[0].operation, text, numbers)]


def _at(orders: Orders, index: int) -> tuple[int, int]:
    """Return the rank of an operation and its place there."""
    rank = int(np.searchsorted(orders.first, index, side="right")) - 1
    return rank, index - int(orders.first[rank])


def _idle_ranks(orders: Orders) -> Check:
    def told(rank: int) -> Flaw:
        return Flaw("idle-rank", rank, -1, f"rank {rank} computes nothing")

    yield np.flatnonzero(np.diff(orders.first) == 0), told


def _unnamed(orders: Orders) -> Check:
    """Yield the stages and microbatches below the largest that no operation names."""
    for what, numbers in (("stage", orders.stage), ("microbatch", orders.microbatch)):
        least = len(orders.rank_of_stage) if what == "stage" else 0
        count = np.bincount(numbers, minlength=least)

        def told(one: int, what: str = what, count: Ints = count) -> Flaw:
            text = (
                f"{what} {one} is named by no operation; there are {len(count)} ({what} 0 and on)"
            )
            return Flaw(f"missing-{what}", -1, -1, text, {what: one})

        yield np.flatnonzero(count == 0), told


def _ranks(orders: Orders) -> Check:
    home = orders.rank_of_stage[orders.stage]

    def told(index: int) -> Flaw:
        rank, place = _at(orders, index)
        stage, right = int(orders.stage[index]), int(home[index])
        text = (
            f"rank {rank} runs {name_of(orders, index)} as its operation {place}, and stage {stage} is on "
            f"rank {right}"
        )
        return Flaw("rank", rank, place, text, {"stage": stage, "stage_rank": right})

    yield np.flatnonzero(home != orders.rank), told


def _key(orders: Orders) -> tuple[Ints, int]:
    """Return the number of each operation's stage and microbatch, and how many there are."""
    each = orders.microbatches // orders.chains
    return orders.stage * each + orders.microbatch, len(orders.rank_of_stage) * each


def _counts(orders: Orders) -> Check:
    """Yield what a stage of a microbatch lacks or has twice."""
    key, count = _key(orders)
    each = orders.microbatches // orders.chains
    table = np.bincount(orders.kind * count + key, minlength=4 * count).reshape(4, count)
    forward, full, inputs, weights = table
    backward = full + inputs
    named = table.sum(axis=0).reshape(-1, each)
    here = np.outer(named.sum(axis=1) > 0, named.sum(axis=0) > 0).ravel()
    for kind, wrong, what in (
        ("missing", here & (forward < 1), "no forward"),
        ("missing", here & (backward < 1), "no backward"),
        ("missing", (inputs > 0) & (weights < 1), "an input gradient and no weight gradient"),
        ("missing", (weights > 0) & (backward < 1), "a weight gradient and no input gradient"),
        ("twice", forward > 1, "more than one forward"),
        ("twice", backward > 1, "more than one backward"),
        ("twice", (weights > 1) | ((weights > 0) & (full > 0)), "its weight gradient twice"),
    ):

        def told(one: int, kind: str = kind, what: str = what) -> Flaw:
            stage, microbatch = divmod(one, each)
            rank = int(orders.rank_of_stage[stage])
            text = f"stage {stage} (rank {rank}) has {what} of microbatch {microbatch}"
            return Flaw(kind, rank, -1, text, {"stage": stage, "microbatch": microbatch})

        yield np.flatnonzero(wrong), told


def _pairs(orders: Orders) -> Check:
    """Yield pairs that are not a forward and a backward of one rank."""
    first = np.flatnonzero(orders.overlapped)
    second = np.minimum(first + 1, len(orders.kind) - 1)
    forwards = orders.kind[[first, second]] == Kind.FORWARD
    backwards = np.isin(orders.kind[[first, second]], (Kind.BACKWARD, Kind.INPUT))
    right = (forwards.any(axis=0) & backwards.any(axis=0)) & ~orders.overlapped[second]
    right &= ~np.isin(first + 1, orders.first)

    def told(index: int) -> Flaw:
        rank, place = _at(orders, index)
        text = (
            f"rank {rank}: {name_of(orders, index)}, its operation {place}, is to run together with the "
            "next, and they are not a forward and a backward"
        )
        return Flaw("pair", rank, place, text)

    yield first[~right], told


def _order(orders: Orders) -> Check:
    """Yield the operations that stand before what they need of their own stage."""
    key, count = _key(orders)
    index, rank_of = np.arange(len(orders.kind)), orders.rank
    for before, after in (
        ((Kind.FORWARD,), (Kind.BACKWARD, Kind.INPUT)),
        ((Kind.INPUT,), (Kind.WEIGHT,)),
    ):
        where = np.full(count, -1)
        chosen = np.isin(orders.kind, before)
        where[key[chosen]] = index[chosen]
        later = np.flatnonzero(np.isin(orders.kind, after))
        needed = where[key[later]]
        wrong = later[(needed > later) & (rank_of[needed] == rank_of[later])]

        def told(one: int, where: Ints = where) -> Flaw:
            (rank, place), other = _at(orders, one), int(where[key[one]])
            later_place = _at(orders, other)[1]
            text = (
                f"rank {rank} runs {name_of(orders, one)} as its operation {place}, before "
                f"{name_of(orders, other)}, its operation {later_place}"
            )
            return Flaw("order", rank, place, text, {"needs_operation": later_place})

        yield wrong, told
