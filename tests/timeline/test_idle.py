"""Idle time by cause: hand examples, and that the parts are the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.loops import gpipe, interleaved, one_forward_one_backward
from meshwright.schedules.orders import loop_ranks, orders_of, rows_of
from meshwright.timeline.blocking import run_blocking
from meshwright.timeline.core import run
from meshwright.timeline.idle import idle_by_cause
from meshwright.timeline.measure import measure
from meshwright.timeline.program import Messages, StageTimes, program_of
from meshwright.timeline.rank_times import rank_times
from meshwright.timeline.record import timeline_of
from meshwright.timeline.simulate import simulate
from timeline.samples import some_messages, some_orders, some_times


def causes(program, core=run):
    found = idle_by_cause(program, core(program), blocking=core is run_blocking)
    return {
        "warm-up": found.warm_up_s.tolist(),
        "cool-down": found.cool_down_s.tolist(),
        "communication": found.communication_s.tolist(),
        "imbalance": found.imbalance_s.tolist(),
    }


def test_1f1b_by_hand():
    # F=1, B=2. Rank 2: F0 2-3, B0 3-5, F1 5-6, B1 6-8, F2 8-9, B2 9-11. Rank 1: F 1-3, B0 5-7,
    # F2 7-8, B1 8-10, B2 11-13. Rank 0: F 0-3, B0 7-9, B1 10-12, B2 13-15.
    program = program_of(one_forward_one_backward(3, 3), StageTimes.equal(3))
    found = run(program)
    assert found.makespan_s == 15.0
    starts = [found.start_s[program.orders.of_rank(rank)].tolist() for rank in range(3)]
    assert starts == [[0, 1, 2, 7, 10, 13], [1, 2, 5, 7, 8, 11], [2, 3, 5, 6, 8, 9]]
    assert causes(program) == {
        "warm-up": [4.0, 3.0, 2.0],  # rank 0: 3 to 7; rank 1: 0 to 1, 3 to 5
        "cool-down": [2.0, 3.0, 4.0],  # rank 0: 9 to 10, 12 to 13; rank 1: 10 to 11, 13 to 15
        "communication": [0.0] * 3,
        "imbalance": [0.0] * 3,
    }


def test_a_message_is_told_from_the_stage_before():
    # One microbatch: F 0-1, message 0.5, F 1.5-2.5, B 2.5-4.5, message, B 5-7.
    program = program_of(gpipe(2, 1), StageTimes.equal(2), Messages.uniform(2, 0.5))
    assert causes(program) == {
        "warm-up": [3.5, 1.0],  # rank 0 waits from 1 to the end of B at 4.5, rank 1 for F
        "cool-down": [0.0, 2.5],
        "communication": [0.5, 0.5],
        "imbalance": [0.0, 0.0],
    }


def test_time_held_in_sends_is_communication():
    program = program_of(gpipe(2, 2), StageTimes.equal(2), Messages.uniform(2, 0.5))
    # Rank 0: F0 0-1, held 0.5, F1 1.5-2.5, its message until 3; rank 1: F0 1.5-2.5, F1 3-4,
    # B0 4-6, held 0.5, B1 6.5-8.5; rank 0: B0 6.5-8.5, B1 9-11.
    assert causes(program, run_blocking) == {
        "warm-up": [3.0, 1.0],
        "cool-down": [0.0, 2.5],
        "communication": [0.5 + 0.5 + 0.5 + 0.5, 0.5 + 0.5 + 0.5],
        "imbalance": [0.0, 0.0],
    }


def test_a_slow_stage_is_imbalance():
    # The last stage takes 1.5, so in the steady phase each other rank waits 4.5 - 3 for it before
    # every backward. Rank 0 runs F0 F1 F2, then F3 B0 to F11 B8, then B9 to B11: the wait before
    # B0 is warm-up, those before B1 to B7 are imbalance, B8 and on are cool-down.
    times = StageTimes.equal(4).scaled(np.array([1.0, 1.0, 1.0, 1.5]))
    found = causes(program_of(one_forward_one_backward(4, 12), times))
    assert found["imbalance"][3] == 0.0
    assert found["imbalance"][:3] == [7 * 1.5, 8 * 1.5, 9 * 1.5]
    assert found["communication"] == [0.0] * 4


def test_a_rank_without_operations_cools_down():
    orders = orders_of("idle", [rows_of([(0, 0, 0), (1, 0, 0)]), rows_of([])], loop_ranks(1))
    assert causes(program_of(orders, StageTimes.equal(1)))["cool-down"] == [0.0, 3.0]


def test_nothing_at_all():
    orders = orders_of("nothing", [rows_of([])], loop_ranks(1))
    assert set(map(tuple, causes(program_of(orders, StageTimes.equal(1))).values())) == {(0.0,)}


def test_forwards_alone_warm_up_only_before_the_first():
    rows = [rows_of([(0, rank, at) for at in range(3)]) for rank in range(2)]
    times = StageTimes.equal(2).scaled(np.array([2.0, 1.0]))
    found = causes(program_of(orders_of("forward", rows, loop_ranks(2)), times))
    assert found["warm-up"] == [0.0, 2.0]
    assert found["imbalance"] == [0.0, 2.0]
    assert found["cool-down"] == [1.0, 0.0]


@pytest.mark.parametrize("blocking", [False, True])
@given(st.data(), some_orders())
def test_the_parts_are_all_of_the_idle_time(blocking, data, orders):
    times = data.draw(some_times(orders.chain_length))
    messages = data.draw(some_messages(orders.ranks))
    program = program_of(orders, times, Messages(messages.send_s))
    ran = simulate(program, blocking=blocking)
    found, measured = idle_by_cause(program, ran, blocking=blocking), measure(program, ran)
    exposed = rank_times(timeline_of(program, ran, blocking=blocking)).exposed_s
    np.testing.assert_allclose(found.communication_s, exposed, atol=1e-12)
    assert found.total_s.tolist() == (measured.makespan_s - measured.busy_s).tolist()
    for part in (
        found.warm_up_s,
        found.cool_down_s,
        found.communication_s,
        found.imbalance_s,
    ):
        assert np.all(part >= 0.0)


@given(st.data(), some_orders())
def test_the_parts_are_all_of_the_idle_time_on_shared_links(data, orders):
    times = data.draw(some_times(orders.chain_length))
    program = program_of(orders, times, data.draw(some_messages(orders.ranks)))
    ran = simulate(program)
    found, measured = idle_by_cause(program, ran), measure(program, ran)
    idle = measured.makespan_s - measured.busy_s
    assert found.total_s.tolist() == pytest.approx(idle.tolist(), abs=1e-9)


@pytest.mark.parametrize("core", [run, run_blocking])
@given(st.data(), some_orders())
def test_free_messages_are_no_communication(core, data, orders):
    """A rank that is held because the other is not ready waits for that rank, not for a message."""
    times = data.draw(some_times(orders.chain_length))
    found = causes(program_of(orders, times), core)
    assert found["communication"] == [0.0] * orders.ranks


@given(st.integers(1, 8), st.integers(1, 20))
def test_equal_stages_of_1f1b_have_no_imbalance(pp, microbatches):
    found = causes(program_of(one_forward_one_backward(pp, microbatches), StageTimes.equal(pp)))
    assert found["imbalance"] == [0.0] * pp


def test_an_order_may_wait_in_its_steady_phase():
    # Interleaved 1F1B takes F and B in turns whatever they cost: with B = 2F rank 0 waits once.
    found = causes(program_of(interleaved(4, 8, 2), StageTimes.equal(8)))
    assert found["imbalance"] == [1.0, 0.0, 0.0, 0.0]
