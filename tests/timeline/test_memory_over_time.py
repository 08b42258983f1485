"""Activations over time: a hand example, the peaks of the order, a slow count at every moment."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.loops import one_forward_one_backward
from meshwright.schedules.orders import Kind, loop_ranks, orders_of, rows_of
from meshwright.schedules.peaks import peaks
from meshwright.timeline.core import run
from meshwright.timeline.memory_over_time import memory_over_time
from meshwright.timeline.program import StageTimes, program_of
from timeline.samples import some_orders, some_times


def test_two_parts_by_hand():
    f, i, w = Kind.FORWARD, Kind.INPUT, Kind.WEIGHT
    rows = rows_of([(f, 0, 0), (f, 0, 1), (i, 0, 0), (w, 0, 0), (i, 0, 1), (w, 0, 1)])
    program = program_of(orders_of("by hand", [rows], loop_ranks(1)), StageTimes.equal(1))
    found = memory_over_time(program, run(program), np.array([10.0]), np.array([3.0]))
    times_s, kept = found.of_rank(0)
    assert times_s.tolist() == [0.0, 1.0, 3.0, 4.0, 5.0, 6.0]
    assert kept.tolist() == [13.0, 26.0, 16.0, 13.0, 3.0, 0.0]
    assert found.chunks_until_input.tolist() == [1, 2, 1, 1, 0, 0]
    assert found.chunks_until_weight.tolist() == [1, 2, 2, 1, 1, 0]
    assert (found.peak_bytes.tolist(), found.peak_at_s.tolist()) == ([26.0], [1.0])


def test_the_first_stage_of_1f1b_keeps_most():
    program = program_of(one_forward_one_backward(4, 12), StageTimes.equal(4))
    found = memory_over_time(program, run(program), np.full(4, 5.0), np.zeros(4))
    assert found.peak_bytes.tolist() == [20.0, 15.0, 10.0, 5.0]
    assert found.peak_at_s.tolist() == [3.0, 3.0, 3.0, 3.0]


def test_a_rank_without_operations_keeps_nothing():
    orders = orders_of("idle", [rows_of([(0, 0, 0), (1, 0, 0)]), rows_of([])], loop_ranks(1))
    program = program_of(orders, StageTimes.equal(1))
    found = memory_over_time(program, run(program), np.ones(1), np.ones(1))
    assert found.peak_bytes.tolist() == [2.0, 0.0]
    assert found.of_rank(1)[0].tolist() == []


@given(st.data(), some_orders())
def test_equals_a_count_at_every_moment(data, orders):
    times = data.draw(some_times(orders.chain_length, least=1))
    until_input, until_weight = times.recompute_s, times.forward_s  # any numbers by stage
    program = program_of(orders, times)
    ran = run(program)
    found = memory_over_time(program, ran, until_input, until_weight)
    input_peaks, weight_peaks = peaks(orders)
    for rank in range(orders.ranks):
        rows = range(*orders.of_rank(rank).indices(len(orders.kind)))
        kept = {}
        for index in rows:
            stage, microbatch = int(orders.stage[index]), int(orders.microbatch[index])
            kind = orders.kind[index]
            if kind == Kind.FORWARD:
                kept.setdefault((stage, microbatch), [0.0, 0.0, 0.0])[0] = ran.start_s[index]
            if kind in (Kind.BACKWARD, Kind.INPUT):
                kept[stage, microbatch][1] = ran.end_s[index]
            if kind in (Kind.BACKWARD, Kind.WEIGHT):
                kept[stage, microbatch][2] = ran.end_s[index]
        moments, values = found.of_rank(rank)
        for moment in set(moments.tolist()):
            expected = sum(
                until_input[stage % orders.chain_length] * (begin <= moment < free_input)
                + until_weight[stage % orders.chain_length] * (begin <= moment < free_weight)
                for (stage, _), (begin, free_input, free_weight) in kept.items()
            )
            assert values[np.flatnonzero(moments <= moment)[-1]] == expected
        assert np.all(np.diff(moments) >= 0.0)
        assert values[-1] == 0.0
        assert found.peak_bytes[rank] == values.max()
        at = int(np.flatnonzero(moments == found.peak_at_s[rank])[-1])
        assert found.peak_bytes[rank] in values[: at + 1]
        of_rank = orders.of_rank(rank)
        assert found.chunks_until_input[of_rank].max() == input_peaks[rank]
        assert found.chunks_until_weight[of_rank].max() == weight_peaks[rank]
