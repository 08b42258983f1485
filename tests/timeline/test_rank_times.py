"""Where a rank's time went: small cases by hand, columns of pictures, curves."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.schedules.loops import gpipe, one_forward_one_backward
from meshwright.timeline.columns import column_count, drawn, operation_at, ranks_shown, shares
from meshwright.timeline.core import run
from meshwright.timeline.program import Messages, StageTimes, program_of
from meshwright.timeline.rank_times import rank_times
from meshwright.timeline.record import timeline_of
from meshwright.timeline.simulate import simulate
from timeline.trace_samples import timeline_named, uneven


def ran(orders, times, send_s=0.0, *, blocking=False):
    program = program_of(orders, times, Messages.uniform(orders.ranks, send_s))
    return timeline_of(program, simulate(program, blocking=blocking), blocking=blocking)


def test_two_ranks_by_hand():
    """F on rank 0 to 1, message to 1.25, F to 2.25, B to 3.75, message to 4, B to 5.5."""
    times = rank_times(ran(one_forward_one_backward(2, 1), StageTimes.equal(2, 1, 1, 0.5), 0.25))
    np.testing.assert_allclose(times.compute_s, [2.5, 2.5])
    np.testing.assert_allclose(times.exposed_s, [0.25, 0.25])
    np.testing.assert_allclose(times.overlapped_s, [0.0, 0.0])
    np.testing.assert_allclose(times.idle_s, [2.75, 2.75])
    np.testing.assert_allclose(times.start_s, [0.0, 1.25])
    np.testing.assert_allclose(times.end_s, [5.5, 3.75])
    assert times.bubble_fraction == pytest.approx(1 - 5 / 11)
    assert times.span_bubble_fraction == pytest.approx(1 - 2.5 / 5.5)


def test_messages_behind_compute_are_overlapped():
    """Rank 1 computes for twice as long: the second message comes while it runs the first forward."""
    times = StageTimes.equal(2).scaled(np.array([1.0, 2.0]))
    found = rank_times(ran(gpipe(2, 2), times, 0.5))
    # messages to rank 1 travel 1 to 1.5 and 2 to 2.5; it starts at 1.5
    assert found.exposed_s[1] == pytest.approx(0.5)
    assert found.overlapped_s[1] == pytest.approx(0.5)


def test_messages_that_travel_together_count_once():
    times = StageTimes.equal(2).scaled(np.array([0.25, 4.0]))
    found = rank_times(ran(gpipe(2, 3), times, 1.0))
    # they travel 0.25 to 1.25, 0.5 to 1.5, 0.75 to 1.75; rank 1 computes from 1.25
    assert found.exposed_s[1] == pytest.approx(1.0)
    assert found.overlapped_s[1] == pytest.approx(0.5)


def test_a_rank_held_in_its_sends_waits_for_messages_both_ways():
    plain = rank_times(ran(one_forward_one_backward(2, 4), StageTimes.equal(2), 0.5))
    held = rank_times(ran(one_forward_one_backward(2, 4), StageTimes.equal(2), 0.5, blocking=True))
    assert np.all(held.span_s >= plain.span_s)
    for times in (plain, held):
        np.testing.assert_allclose(times.compute_s + times.exposed_s + times.idle_s, times.span_s)
    # F0's message; F1's with B0's, F2's with B1's, F3's with B2's; B3's holds only who receives it
    assert held.exposed_s.tolist() == [5 * 0.5, 4 * 0.5]


def test_a_pair_waits_for_the_later_of_its_messages():
    timeline = timeline_named("dualpipe", send_s=0.5, seed=5)
    pair = np.flatnonzero(timeline.overlapped)
    np.testing.assert_array_equal(timeline.start_s[pair], timeline.end_s[pair])
    np.testing.assert_array_equal(timeline.start_s[pair], timeline.start_s[pair + 1])
    waits = np.flatnonzero(timeline.sender >= 0)
    np.testing.assert_allclose(timeline.arrival_s[waits] - timeline.sent_s[waits], 0.5)
    assert np.all(timeline.start_s[waits] >= timeline.arrival_s[waits] - 1e-12)
    times = rank_times(timeline)
    assert np.all(times.exposed_s <= 0.5 * np.diff(timeline.first) + 1e-9)
    np.testing.assert_allclose(times.compute_s + times.exposed_s + times.idle_s, times.span_s)


def test_no_operations():
    times = rank_times(ran(one_forward_one_backward(2, 0), StageTimes.equal(2)))
    assert times.span_s.tolist() == [0.0, 0.0]
    assert times.bubble_fraction == 0.0
    assert times.span_bubble_fraction == 0.0


@pytest.mark.parametrize(("most", "columns"), [(45, 45), (73, 45), (90, 90), (140, 135), (44, 44)])
def test_columns_fall_on_the_edges_of_operations(most, columns):
    """1F1B of 4 x 12 lasts 45 units of a forward."""
    assert column_count(timeline_named("1f1b"), most) == columns


def test_columns_where_no_slot_fits():
    assert column_count(timeline_named("1f1b", seed=3), 80) == 80


def test_shares_of_columns_add_up_to_the_busy_time():
    for schedule in ("1f1b", "zb-h1", "dualpipe"):
        timeline = timeline_named(schedule, send_s=0.2, seed=11)
        share = shares(timeline, 37, range(4))
        busy = share.sum(axis=(1, 2)) * timeline.makespan_s / 37
        np.testing.assert_allclose(busy, rank_times(timeline).compute_s)
        assert share.min() >= -1e-12
        assert share.sum(axis=2).max() <= 1 + 1e-9


def test_the_operation_of_a_column_runs_in_its_middle():
    timeline = uneven()
    at = operation_at(timeline, 61, range(4))
    middle_s = (np.arange(61) + 0.5) * timeline.makespan_s / 61
    shown = drawn(timeline)
    for rank in range(4):
        for column, operation in enumerate(at[rank]):
            now = middle_s[column]
            of_rank = timeline.of_rank(rank)
            running = [
                index
                for index in range(of_rank.start, of_rank.stop)
                if shown.start_s[index] <= now < shown.end_s[index]
            ]
            assert running == ([operation] if operation >= 0 else [])


def test_ranks_shown():
    assert ranks_shown(4, 8) == [0, 1, 2, 3]
    assert ranks_shown(100, 6) == [0, 1, 2, 97, 98, 99]


def test_microbatches_of_the_second_direction_are_numbered_on():
    timeline = timeline_named("dualpipe")
    assert timeline.microbatches == 12
    assert sorted(set(timeline.number.tolist())) == list(range(12))
    up = timeline.stage >= timeline.stages
    assert timeline.number[up].min() == 6


def test_run_gives_the_makespan():
    program = program_of(gpipe(3, 5), StageTimes.equal(3))
    timeline = timeline_of(program, run(program))
    assert timeline.makespan_s == run(program).makespan_s == 21.0
