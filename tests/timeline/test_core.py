"""The event core: hand examples, a slow reference, deadlocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.loops import gpipe, one_forward_one_backward
from meshwright.schedules.orders import Kind, loop_ranks, orders_of, rows_of
from meshwright.timeline.blocking import run_blocking
from meshwright.timeline.contended import run_contended
from meshwright.timeline.core import DeadlockError, run
from meshwright.timeline.program import Messages, StageTimes, program_of
from meshwright.timeline.simulate import simulate
from timeline.samples import some_messages, some_orders, some_times

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.INPUT, Kind.WEIGHT  # noqa: E741


def slow_starts(orders, times, messages):
    """Return start and end of each (kind, stage, microbatch) by repeated relaxation.

    A pair that runs together starts when the inputs of both are there and ends after both.
    """
    stage_rank = orders.rank_of_stage.tolist()
    length = orders.chain_length
    cost = {
        F: times.forward_s,
        B: times.input_s + times.weight_s + times.recompute_s,
        I: times.input_s + times.recompute_s,
        W: times.weight_s,
    }
    names = list(zip(orders.kind.tolist(), orders.stage.tolist(), orders.microbatch, strict=True))
    backward = {(s, m): (k, s, m) for k, s, m in names if k in (B, I)}
    start, end, done = (dict.fromkeys(names, 0.0) for _ in range(3))

    def input_s(name):
        kind, stage, microbatch = name
        other = None
        if kind == F and stage % length > 0:
            other = (F, stage - 1, microbatch)
        if kind in (B, I) and stage % length < length - 1:
            other = backward[stage + 1, microbatch]
        if other is None:
            return 0.0
        return done[other] + messages.send_s[stage_rank[other[1]], stage_rank[stage]]

    before = None
    while before != done:
        before = dict(done)
        for rank in range(orders.ranks):
            now, together = 0.0, []
            for index in range(*orders.of_rank(rank).indices(len(names))):
                together.append(names[index])
                if orders.overlapped[index]:
                    continue
                now = max([now, *(input_s(name) for name in together)])
                for name in together:
                    start[name] = end[name] = now
                now += sum(cost[kind][stage % length] for kind, stage, _ in together)
                end[together[-1]] = now
                done.update(dict.fromkeys(together, now))
                together = []
    return [start[name] for name in names], [end[name] for name in names]


def same(first, second):
    return np.array_equal(first.start_s, second.start_s) and np.array_equal(
        first.arrival_s, second.arrival_s
    )


@given(st.data(), some_orders())
def test_equals_a_slow_reference(data, orders):
    times = data.draw(some_times(orders.chain_length))
    messages = data.draw(some_messages(orders.ranks))
    found = run(program_of(orders, times, messages))
    start, end = slow_starts(orders, times, messages)
    assert found.start_s.tolist() == start
    assert found.end_s.tolist() == end


def test_two_stages_by_hand():
    # F=1, B=2, message 0.5. Rank 0: F0 0-1, F1 1-2; rank 1: F0 1.5-2.5, B0 2.5-4.5, F1 4.5-5.5,
    # B1 5.5-7.5; rank 0: B0 5-7, B1 8-10.
    program = program_of(
        one_forward_one_backward(2, 2), StageTimes.equal(2), Messages.uniform(2, 0.5)
    )
    found = run(program)
    assert found.start_s.tolist() == [0.0, 1.0, 5.0, 8.0, 1.5, 2.5, 4.5, 5.5]
    assert found.end_s.tolist() == [1.0, 2.0, 7.0, 10.0, 2.5, 4.5, 5.5, 7.5]
    assert found.arrival_s.tolist() == [0.0, 0.0, 5.0, 8.0, 1.5, 0.0, 2.5, 0.0]
    assert found.makespan_s == 10.0


def test_a_pair_that_runs_together_by_hand():
    # Rank 0 runs the second microbatch's F together with the first one's B.
    rows = np.array([(F, 0, 0, 0), (F, 0, 1, 1), (B, 0, 0, 0), (B, 0, 1, 0)])
    other = np.array([(F, 1, 0, 0), (B, 1, 0, 0), (F, 1, 1, 0), (B, 1, 1, 0)])
    orders = orders_of("pair", [rows, other], loop_ranks(2))
    program = program_of(orders, StageTimes.equal(2), Messages.uniform(2, 0.5))
    # Rank 1: F 1.5-2.5, B 2.5-4.5. The pair starts at 5 and takes 3; both results leave at 8.
    # Rank 1: F 8.5-9.5, B 9.5-11.5; rank 0: B 12-14.
    found = run(program)
    assert found.start_s.tolist() == [0.0, 5.0, 5.0, 12.0, 1.5, 2.5, 8.5, 9.5]
    assert found.end_s.tolist() == [1.0, 5.0, 8.0, 14.0, 2.5, 4.5, 9.5, 11.5]
    assert same(run_contended(program), found)
    assert same(run_blocking(program), found)


def test_messages_by_pair_of_ranks():
    send_s = np.array([[0.0, 1.0, 9.0], [2.0, 0.0, 3.0], [9.0, 4.0, 0.0]])
    program = program_of(gpipe(3, 1), StageTimes.equal(3), Messages(send_s))
    # F 0-1, 1 to rank 1: F 2-3, 3 to rank 2: F 6-7, B 7-9, 4: B 13-15, 2: B 17-19.
    assert run(program).start_s.tolist() == [0.0, 17.0, 2.0, 13.0, 6.0, 7.0]


def test_a_turn_on_one_rank_costs_no_message():
    orders = orders_of(
        "v", [rows_of([(F, 0, 0), (F, 1, 0), (B, 1, 0), (B, 0, 0)])], np.array([0, 0])
    )
    program = program_of(orders, StageTimes.equal(2), Messages.uniform(1, 5.0))
    assert run(program).makespan_s == 6.0


@pytest.mark.parametrize("core", [run, run_contended, run_blocking])
def test_a_deadlock_names_where_each_rank_is_stuck(core):
    # Rank 0 wants B0 before F1; rank 1 wants F1 before B0.
    orders = orders_of(
        "stuck",
        [
            rows_of([(F, 0, 0), (B, 0, 0), (F, 0, 1), (B, 0, 1)]),
            rows_of([(F, 1, 0), (F, 1, 1), (B, 1, 0), (B, 1, 1)]),
            rows_of([]),
        ],
        loop_ranks(2),
    )
    with pytest.raises(DeadlockError, match="deadlocks") as error:
        core(program_of(orders, StageTimes.equal(2)))
    assert error.value.stuck.tolist() == [1, 5, -1]


@pytest.mark.parametrize("core", [run, run_contended, run_blocking])
def test_nothing_to_run(core):
    orders = orders_of("nothing", [rows_of([]), rows_of([])], loop_ranks(2))
    found = core(program_of(orders, StageTimes.equal(2)))
    assert found.start_s.tolist() == []
    assert found.makespan_s == 0.0


@given(st.data(), some_orders())
def test_times_double_when_all_costs_double(data, orders):
    times = data.draw(some_times(orders.chain_length))
    messages = data.draw(some_messages(orders.ranks))
    twice = Messages(2 * messages.send_s, messages.link)
    double = times.scaled(np.full(orders.chain_length, 2.0))
    for blocking in (False, True):
        once = simulate(program_of(orders, times, messages), blocking=blocking)
        again = simulate(program_of(orders, double, twice), blocking=blocking)
        assert again.end_s.tolist() == pytest.approx((2 * once.end_s).tolist(), abs=1e-9)


def test_simulate_takes_the_core_that_is_needed():
    orders, times = one_forward_one_backward(3, 4), StageTimes.equal(3)
    plain = Messages.uniform(3, 3.0)
    shared = Messages(plain.send_s, np.zeros((3, 3), dtype=np.int64))
    program = program_of(orders, times, plain)
    assert same(simulate(program), run(program))
    program = program_of(orders, times, shared)
    assert same(simulate(program), run_contended(program))
    assert same(simulate(program, blocking=True), run_blocking(program))
    spans = {simulate(program).makespan_s, simulate(program, blocking=True).makespan_s}
    assert len(spans | {run(program).makespan_s}) == 3
