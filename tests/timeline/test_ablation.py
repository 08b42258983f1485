"""What each property adds: the steps, their differences, the steps left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.loops import one_forward_one_backward
from meshwright.timeline.ablation import ablation
from meshwright.timeline.program import Messages, StageTimes, program_of
from meshwright.timeline.simulate import simulate
from timeline.samples import some_messages, some_orders, some_times


def test_four_stages_the_last_slower_with_a_send():
    times = StageTimes.equal(4).scaled(np.array([1.0, 1.0, 1.0, 1.5]))
    program = program_of(one_forward_one_backward(4, 12), times, Messages.uniform(4, 0.1))
    steps = ablation(program, times, blocking=True)
    assert [step.name for step in steps] == [
        "equal stages",
        "given stages",
        "messages",
        "blocking sends",
    ]
    # Equal: 15 · 3 · 1.125. Given: rank 3 works 12 · 4.5 without a pause between 3 and 57, and the
    # last microbatch goes back over three stages of 2. Messages: 3 on the way down, 3 on the way up.
    assert [step.measured.makespan_s for step in steps[:3]] == pytest.approx(
        [50.625, 63.0, 63.6], abs=1e-12
    )
    assert [step.change_s for step in steps[:3]] == pytest.approx([0.0, 12.375, 0.6], abs=1e-12)
    assert steps[0].measured.bubble_fraction == pytest.approx(0.2)
    assert steps[1].busiest_rank == 3
    assert steps[3].change_s > 0.0


def test_shared_links_are_a_step():
    messages = Messages(Messages.uniform(3, 2.0).send_s, np.zeros((3, 3), dtype=np.int64))
    times = StageTimes.equal(3)
    steps = ablation(program_of(one_forward_one_backward(3, 6), times, messages), times)
    assert [step.name for step in steps] == ["equal stages", "messages", "shared links"]
    assert steps[2].change_s > 0.0


def test_what_changes_nothing_is_left_out():
    orders, times = one_forward_one_backward(3, 6), StageTimes.equal(3)
    for messages in (None, Messages.uniform(3)):
        (step,) = ablation(program_of(orders, times, messages), times)
        assert (step.name, step.change_s) == ("equal stages", 0.0)


@given(st.data(), some_orders(), st.booleans())
def test_changes_add_up_and_messages_never_help(data, orders, blocking):
    times = data.draw(some_times(orders.chain_length, least=1))
    program = program_of(orders, times, data.draw(some_messages(orders.ranks)))
    ran = simulate(program, blocking=blocking)
    steps = ablation(program, times, ran, blocking=blocking)
    again = ablation(program, times, blocking=blocking)
    assert [step.change_s for step in steps] == [step.change_s for step in again]
    assert steps[-1].measured.makespan_s == ran.makespan_s
    total = steps[0].measured.makespan_s + sum(step.change_s for step in steps)
    assert steps[-1].measured.makespan_s == pytest.approx(total)
    for step in steps:
        if step.name in ("messages", "shared links", "blocking sends"):
            assert step.change_s >= -1e-9
