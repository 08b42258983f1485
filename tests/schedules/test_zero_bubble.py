"""Every zero-bubble and V-shaped schedule: each operation once, no deadlock, the memory cap kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.schedules.greedy.v_shaped_closed import zb_v_closed
from meshwright.schedules.greedy.v_shaped_greedy import zb_v
from meshwright.schedules.greedy.v_shaped_pattern import v_half, v_min
from meshwright.schedules.greedy.zero_bubble import zb_h1, zb_h2, zero_bubble
from meshwright.schedules.greedy.zero_bubble_plan import Costs, least_idle
from meshwright.schedules.loops import one_forward_one_backward
from meshwright.schedules.orders import Kind, Orders
from meshwright.schedules.peaks import peaks
from meshwright.timeline.core import run
from meshwright.timeline.measure import Measured, measure
from meshwright.timeline.program import StageTimes, program_of

ONE_STAGE = (zb_h1, zb_h2)
TWO_STAGES = (zb_v, zb_v_closed, v_half, v_min)
RANKS = (*range(1, 13), 16)

costs_of_any_kind = st.builds(
    Costs,
    forward=st.sampled_from([0.5, 1.0, 2.0, 7.0]),
    input=st.sampled_from([0.0, 0.3, 1.0, 2.0, 9.0]),
    weight=st.sampled_from([0.0, 0.1, 1.0, 3.0]),
    send=st.sampled_from([0.0, 0.1, 1.0, 25.0]),
)


def microbatch_counts(pp: int) -> list[int]:
    few = {1, 2, pp - 1, pp, pp + 1, 2 * pp - 1, 2 * pp, 3 * pp + 1, 5 * pp + 2} - {0}
    return sorted(few.union(range(1, 4 * pp)) if pp <= 6 else few)


def ran(orders: Orders) -> Measured:
    """Run with F = I = W = 1; a deadlock raises."""
    program = program_of(orders, StageTimes.equal(orders.chain_length))
    return measure(program, run(program))


def assert_valid(orders: Orders, pp: int, microbatches: int, chunks: int) -> None:
    """Hold that each rank has each operation of its stages once, and after what it needs."""
    assert (orders.ranks, orders.microbatches, orders.chunks) == (pp, microbatches, chunks)
    assert np.array_equal(orders.rank_of_stage[orders.stage], orders.rank)
    shape = (4, pp * chunks, microbatches)
    place = np.full(shape, -1)
    index = orders.kind, orders.stage, orders.microbatch
    place[index] = np.arange(len(orders.kind))
    assert len(orders.kind) == 3 * pp * chunks * microbatches
    assert (place[[Kind.FORWARD, Kind.INPUT, Kind.WEIGHT]] >= 0).all()
    assert (place[Kind.FORWARD] < place[Kind.INPUT]).all()
    assert (place[Kind.INPUT] < place[Kind.WEIGHT]).all()
    assert (np.diff(place, axis=2)[[Kind.FORWARD, Kind.INPUT, Kind.WEIGHT]] > 0).all()
    ran(orders)


def most_halves(orders: Orders) -> int:
    """Return the most a rank holds, in halves: F takes two, I and W give one back each."""
    change = np.array([2, -2, -1, -1])[orders.kind]
    return max(int(np.cumsum(change[orders.of_rank(rank)]).max()) for rank in range(orders.ranks))


@pytest.mark.parametrize("make", ONE_STAGE)
@pytest.mark.parametrize("pp", RANKS)
def test_one_stage_schedules_are_valid(make, pp):
    for microbatches in microbatch_counts(pp):
        assert_valid(make(pp, microbatches), pp, microbatches, 1)


@pytest.mark.parametrize("make", TWO_STAGES)
@pytest.mark.parametrize("pp", RANKS)
def test_two_stage_schedules_are_valid(make, pp):
    for microbatches in microbatch_counts(pp):
        assert_valid(make(pp, microbatches), pp, microbatches, 2)


@pytest.mark.parametrize("pp", range(2, 17))
def test_never_slower_than_1f1b_where_all_take_the_same_time(pp):
    for microbatches in microbatch_counts(pp):
        plain = ran(one_forward_one_backward(pp, microbatches)).makespan_s
        first = ran(zb_h1(pp, microbatches)).makespan_s
        second = ran(zb_h2(pp, microbatches)).makespan_s
        assert second <= first <= plain
        for make in (zb_v, zb_v_closed):  # a chunk is half a stage, so each takes twice as long
            assert ran(make(pp, microbatches)).makespan_s <= 2 * plain


@pytest.mark.parametrize("pp", RANKS)
def test_peaks_and_idle_time_of_zb_h1(pp):
    for microbatches in microbatch_counts(pp):
        orders = zb_h1(pp, microbatches)
        until_input, until_weight = peaks(orders)
        assert (until_weight == min(microbatches, pp)).all()
        if microbatches > pp:  # of fewer, early ranks run all forwards before the first gradient
            assert until_input.tolist() == [pp - rank for rank in range(pp)]
        if microbatches >= pp:
            assert ran(orders).makespan_s == 3 * microbatches + pp - 1  # (p-1)(tF + tI - tW)


@pytest.mark.parametrize("pp", RANKS)
def test_peaks_and_idle_time_of_zb_h2(pp):
    for microbatches in microbatch_counts(pp):
        orders = zb_h2(pp, microbatches)
        until_input, _ = peaks(orders)
        assert until_input.tolist() == [
            min(microbatches, 2 * (pp - rank) - 1) for rank in range(pp)
        ]
        assert most_halves(orders) <= 4 * pp
        if microbatches >= 2 * pp - 1:
            found = ran(orders)
            assert (found.span_s == 3 * microbatches).all()
            assert found.makespan_s == 3 * microbatches + pp - 1


@pytest.mark.parametrize("make", [zb_v, zb_v_closed])
@pytest.mark.parametrize("pp", RANKS)
def test_peaks_and_idle_time_of_zb_v(make, pp):
    for microbatches in microbatch_counts(pp):
        orders = make(pp, microbatches)
        _, until_weight = peaks(orders)
        assert until_weight.max() <= 2 * pp
        if microbatches >= 2 * pp - 1:
            found = ran(orders)
            assert (until_weight == 2 * pp).all()
            assert (found.span_s == 6 * microbatches).all()
            assert found.makespan_s == 6 * microbatches + pp - 1


@pytest.mark.parametrize("pp", [*range(1, 25), 32, 48, 64])
def test_peaks_of_v_half_and_v_min(pp):
    for microbatches in {1, max(pp - 1, 1), pp, 2 * pp + 1}:
        for make, most in (
            (v_half, 2 * (pp // 2 + 1)),
            (v_min, 2 * ((pp + 1) // 3 + 1)),
        ):
            _, until_weight = peaks(make(pp, microbatches))
            assert until_weight.max() <= most
            assert microbatches < pp or until_weight.max() == most


@settings(deadline=None, max_examples=60)
@given(
    pp=st.integers(1, 9),
    microbatches=st.integers(1, 30),
    cap=st.integers(1, 20),
    costs=costs_of_any_kind,
)
def test_any_costs_and_cap_give_a_valid_order_within_the_cap(pp, microbatches, cap, costs):
    orders = zero_bubble(pp, microbatches, cap, costs)
    assert_valid(orders, pp, microbatches, 1)
    assert most_halves(orders) <= 2 * cap


@settings(deadline=None, max_examples=60)
@given(pp=st.integers(1, 9), microbatches=st.integers(1, 30), costs=costs_of_any_kind)
def test_zb_v_is_valid_for_any_costs(pp, microbatches, costs):
    orders = zb_v(pp, microbatches, costs)
    assert_valid(orders, pp, microbatches, 2)
    assert peaks(orders)[1].max() <= 2 * pp


def test_costs_change_the_order():
    # The input gradient takes four times as long as a forward: rank 0 has time for more forwards.
    slow = Costs(forward=1.0, input=4.0, weight=1.0)
    times = StageTimes.equal(4, 1.0, 4.0, 1.0)
    made_for_it = program_of(zb_h2(4, 12, slow), times)
    made_for_equal = program_of(zb_h2(4, 12), times)
    assert not np.array_equal(made_for_it.orders.kind, made_for_equal.orders.kind)
    assert run(made_for_it).makespan_s < run(made_for_equal).makespan_s


def test_one_microbatch_in_memory_leaves_one_at_a_time():
    orders = zero_bubble(3, 4, 1)
    for rank in range(3):
        assert (
            orders.kind[orders.of_rank(rank)][:-2].tolist()
            == ([Kind.FORWARD, Kind.INPUT, Kind.WEIGHT] * 4)[:-2]
        )
    assert peaks(orders)[1].tolist() == [1, 1, 1]


def test_no_memory_at_all_is_refused():
    with pytest.raises(ValueError, match="at least 1 microbatch"):
        zero_bubble(2, 4, 0)
    with pytest.raises(ValueError, match="no plan"):
        least_idle([])
