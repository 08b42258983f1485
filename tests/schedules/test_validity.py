"""Broken schedules are told what is wrong, where, and who waits for whom."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.dualpipe import dualpipev
from meshwright.schedules.loops import interleaved, one_forward_one_backward
from meshwright.schedules.make import make_orders
from meshwright.schedules.needs import NOTHING, needs
from meshwright.schedules.orders import Kind
from meshwright.schedules.validity import MOST_SHOWN, flaws_of
from meshwright.schedules.validity_deadlock import cycle, stuck
from meshwright.timeline.core import DeadlockError, run
from meshwright.timeline.program import StageTimes, program_of
from schedule_samples import orders_from

VALID = (
    one_forward_one_backward(4, 6),
    interleaved(3, 6, 2),
    make_orders("interleaved-zb", 3, 6, chunks=2),
    make_orders("zb-v", 3, 6, convention="torch"),
    make_orders("dualpipe", 4, 10),
    dualpipev(2, 5),
    make_orders("chimera", 4, 8),
)


def kinds(orders):
    return {flaw.kind for flaw in flaws_of(orders)}


def without(orders, index):
    """Return a schedule without one operation."""
    keep = np.arange(len(orders.kind)) != index
    return replace(
        orders,
        first=orders.first - (orders.first > index),
        kind=orders.kind[keep],
        stage=orders.stage[keep],
        microbatch=orders.microbatch[keep],
        overlapped=np.zeros(int(keep.sum()), dtype=bool),
    )


def swapped(orders, one, other):
    """Return a schedule with two operations in each other's place, and no pairs."""
    at = np.arange(len(orders.kind))
    at[[one, other]] = at[[other, one]]
    return replace(
        orders,
        kind=orders.kind[at],
        stage=orders.stage[at],
        microbatch=orders.microbatch[at],
        overlapped=np.zeros(len(at), dtype=bool),
    )


@pytest.mark.parametrize("orders", VALID, ids=lambda one: one.schedule)
def test_each_lost_operation_is_named(orders):
    for index in range(0, len(orders.kind), 3):
        kind = int(orders.kind[index])
        broken = without(orders, index)
        flaws = flaws_of(broken)
        assert flaws, index
        numbers = {"stage": int(orders.stage[index]), "microbatch": int(orders.microbatch[index])}
        assert any(flaw.numbers == numbers and flaw.kind == "missing" for flaw in flaws), index
        what = "forward" if kind == Kind.FORWARD else "gradient" if kind != 1 else "backward"
        assert any(what in flaw.message for flaw in flaws)


@pytest.mark.parametrize("orders", VALID, ids=lambda one: one.schedule)
def test_what_stands_twice_is_named(orders):
    for index in range(0, len(orders.kind), 5):
        stage, microbatch = orders.stage.copy(), orders.microbatch.copy()
        other = (index + 7) % len(stage)
        if (orders.kind[index], stage[index], microbatch[index]) == (
            orders.kind[other],
            stage[other],
            microbatch[other],
        ):
            continue
        kind = orders.kind.copy()
        kind[other], stage[other] = kind[index], stage[index]
        microbatch[other] = microbatch[index]
        broken = replace(orders, kind=kind, stage=stage, microbatch=microbatch)
        assert {"twice", "missing"} <= kinds(broken)


@given(seed=st.integers(0, 10**6), which=st.integers(0, len(VALID) - 1))
def test_swapped_operations_run_or_are_told_apart_as_the_core_does(seed, which):
    """Two operations of one rank change places: the checker and the event core agree."""
    orders, random_ = VALID[which], random.Random(seed)
    rank = random_.randrange(orders.ranks)
    begin, end = int(orders.first[rank]), int(orders.first[rank + 1])
    one, other = random_.sample(range(begin, end), 2)
    broken = swapped(orders, one, other)
    flaws = flaws_of(broken)
    times = StageTimes.equal(orders.chain_length)
    if any(flaw.kind == "order" for flaw in flaws):
        assert all(flaw.rank == rank for flaw in flaws if flaw.operation >= 0)
        return
    if not flaws:
        assert run(program_of(broken, times)).makespan_s > 0.0
        return
    assert [flaw.kind for flaw in flaws] == ["deadlock"]
    with pytest.raises(DeadlockError) as caught:
        run(program_of(broken, times))
    assert caught.value.stuck.tolist() == stuck(broken).tolist()
    check_circle(broken, caught.value.stuck)


def check_circle(orders, held):
    """Each rank of the circle stands before what the next one needs."""
    waits = cycle(orders, held)
    assert waits
    need, rank_of = needs(orders), orders.rank
    for wait, following in zip(waits, [*waits[1:], waits[0]], strict=True):
        assert held[wait.rank] == wait.number
        assert need[wait.number] == wait.needs
        assert rank_of[wait.needs] == following.rank
        assert wait.needs >= held[following.rank]


def test_a_circle_of_two_ranks_in_words():
    orders = orders_from("0F0 0B0 0F1 0B1", "1F1 1F0 1B1 1B0")
    (flaw,) = flaws_of(orders)
    assert flaw.kind == "deadlock"
    assert flaw.message == (
        "rank 0 waits at its operation 1 (0B0) for 1B0 of rank 1, "
        "which waits at its operation 0 (1F1) for 0F1 of rank 0"
    )
    assert flaw.numbers == {"ranks": [0, 1], "operations": [1, 0]}


def test_a_rank_that_waits_for_itself():
    orders = orders_from("1F0 0F0 1B0 0B0", ranks_of_stages=[0, 0])
    (flaw,) = flaws_of(orders)
    assert flaw.message == (
        "rank 0 waits at its operation 0 (1F0) for 0F0, which comes later in its own order"
    )


def test_a_pair_waits_for_both_its_messages():
    """Rank 0 pairs what it sends with what it needs back for it: neither can come first."""
    orders = orders_from("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1")
    assert flaws_of(orders) == []
    apart = orders_from("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1")
    pair = np.array([False, True, *[False] * 6])
    assert flaws_of(replace(apart, overlapped=pair))[0].message == (
        "rank 0 waits at its operation 2 (0B0) for 1B0 of rank 1, "
        "which waits at its operation 1 (1F1) for (0F1;0B0) of rank 0"
    )


def test_long_circles_are_cut():
    """Rank 0 wants its second chunk first, all others the second microbatch."""
    p = 20
    back = "{1}B0 {1}B1 {0}B0 {0}B1"
    ranks = ["0F0 20F0 0F1 20F1 " + back.format(0, p)]
    ranks += [f"{s}F1 {s}F0 {p + s}F0 {p + s}F1 " + back.format(s, p + s) for s in range(1, p)]
    (flaw,) = flaws_of(orders_from(*ranks, ranks_of_stages=[*range(p), *range(p)]))
    assert flaw.kind == "deadlock"
    assert sorted(flaw.numbers["ranks"]) == list(range(p))
    assert "and so on over 12 more ranks" in flaw.message


def test_stage_on_two_ranks_and_idle_rank_and_gaps():
    orders = orders_from("0F0 0B0", "1F0 0F1 1B0 0B1", "", "3F4 3B4")
    assert {"rank", "idle-rank", "missing-stage", "missing-microbatch"} <= kinds(orders)
    told = [flaw.message for flaw in flaws_of(orders)]
    assert "rank 1 runs 0F1 as its operation 1, and stage 0 is on rank 0" in told
    assert "rank 2 computes nothing" in told
    assert "stage 2 is named by no operation; there are 4 (stage 0 and on)" in told


def test_backward_before_its_forward():
    (flaw,) = flaws_of(orders_from("0B0 0F0"))
    assert flaw.message == "rank 0 runs 0B0 as its operation 0, before 0F0, its operation 1"
    assert (flaw.kind, flaw.rank, flaw.operation) == ("order", 0, 0)
    assert kinds(orders_from("0F0 0W0 0I0")) == {"order"}


def test_both_forms_of_backward_are_one_too_many():
    assert kinds(orders_from("0F0 0B0 0I0 0W0")) == {"twice"}
    assert kinds(orders_from("0F0 0B0 0W0")) == {"twice"}
    assert kinds(orders_from("0F0 0I0")) == {"missing"}


def test_pairs_must_be_a_forward_and_a_backward_of_one_rank():
    orders = orders_from("0F0 0F1 0B0 0B1")
    for first in ([0], [3], [2], [1, 2]):
        overlapped = np.zeros(4, dtype=bool)
        overlapped[first] = True
        assert "pair" in kinds(replace(orders, overlapped=overlapped)), first
    two = orders_from("0F0 0B0", "1F0 1B0")
    assert "pair" in kinds(replace(two, overlapped=np.array([False, True, False, False])))


def test_nothing_and_much_wrong():
    empty = orders_from("", "")
    assert [flaw.kind for flaw in flaws_of(empty)] == ["missing"]
    orders = one_forward_one_backward(8, 100)
    broken = replace(orders, kind=np.zeros_like(orders.kind))
    flaws = flaws_of(broken)
    assert len(flaws) == 2 * (MOST_SHOWN + 1)
    assert flaws[MOST_SHOWN].numbers == {"more": 800 - MOST_SHOWN}
    assert len(flaws_of(broken, most=3)) == 2 * 4


def test_no_rank_is_stuck_in_a_valid_schedule():
    for orders in VALID:
        assert stuck(orders).tolist() == [NOTHING] * orders.ranks
        assert cycle(orders, stuck(orders)) == []
