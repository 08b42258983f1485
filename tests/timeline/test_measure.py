"""Makespan, bubbles and peaks: the golden rows, hand examples, closed forms."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.loops import (
    gpipe,
    interleaved,
    looped_bfs,
    one_forward_one_backward,
)
from meshwright.schedules.orders import Kind, Orders, loop_ranks, orders_of, rows_of
from meshwright.schedules.peaks import peaks
from meshwright.timeline.core import run
from meshwright.timeline.measure import measure
from meshwright.timeline.program import StageTimes, program_of
from support import shared_path

GOLDEN = "reference/golden/pipeline_makespan.csv"
ROWS = {
    "GPipe": 30,
    "1F1B": 30,
    "megatron-1F1B": 6,
    "megatron-interleaved": 27,
    "torch:LoopedBFS": 36,
    "torch:Interleaved1F1B": 33,
}
"""Rows of the golden file that these schedules have."""


def order_of(name: str, pp: int, microbatches: int, chunks: int) -> Orders:
    if name == "GPipe":
        return gpipe(pp, microbatches)
    if name.endswith("1F1B") and chunks == 1:
        return one_forward_one_backward(pp, microbatches)
    if name == "torch:LoopedBFS":
        return looped_bfs(pp, microbatches, chunks)
    if group := re.search(r"group=(\d+)", name):
        return interleaved(pp, microbatches, chunks, int(group[1]))
    return interleaved(pp, microbatches, chunks, microbatches // max(1, microbatches // pp))


def golden_rows(name: str) -> list[dict[str, str]]:
    with shared_path(GOLDEN).open(newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["schedule"].split("(")[0] == name]


@pytest.mark.golden
@pytest.mark.parametrize("name", ROWS)
def test_golden_rows_to_the_last_digit(name):
    rows = golden_rows(name)
    assert len(rows) == ROWS[name]
    for row in rows:
        pp, microbatches, chunks = (int(row[key]) for key in ("p", "m", "v"))
        forward, full, inputs, weight = (float(row[key]) for key in ("tF", "tB_full", "tI", "tW"))
        assert full == inputs + weight
        orders = order_of(row["schedule"], pp, microbatches, chunks)
        program = program_of(orders, StageTimes.equal(pp * chunks, forward, inputs, weight))
        found = measure(program, run(program))
        assert {
            "makespan": str(found.makespan_s),
            "busy_rank0": str(found.busy_s[0]),
            "bubble_fraction": str(round(found.bubble_fraction, 6)),
            "max_rank_span": str(found.span_s.max()),
            "bubble_of_max_span": str(round(found.span_bubble_fraction, 6)),
            "peak_inflight_until_I_or_B": " ".join(map(str, found.peak_until_input)),
            "peak_inflight_until_W": " ".join(map(str, found.peak_until_weight)),
        } == {key: row[key] for key in list(row)[8:]}, row


def test_a_split_backward_by_hand():
    # Rank 0: F0 F1 I0 I1 W0 W1; rank 1: F0 I0 F1 I1 W0 W1. F=1, I=2, W=4.
    f, i, w = Kind.FORWARD, Kind.INPUT, Kind.WEIGHT
    orders = orders_of(
        "by hand",
        [
            rows_of([(f, 0, 0), (f, 0, 1), (i, 0, 0), (i, 0, 1), (w, 0, 0), (w, 0, 1)]),
            rows_of([(f, 1, 0), (i, 1, 0), (f, 1, 1), (i, 1, 1), (w, 1, 0), (w, 1, 1)]),
        ],
        loop_ranks(2),
    )
    program = program_of(orders, StageTimes.equal(2, 1.0, 2.0, 4.0))
    # Rank 1: F0 1-2, I0 2-4, F1 4-5, I1 5-7, W 7-15. Rank 0: I0 4-6, I1 7-9, W 9-17.
    found = measure(program, run(program))
    assert found.makespan_s == 17.0
    assert found.busy_s.tolist() == [14.0, 14.0]
    assert found.span_s.tolist() == [17.0, 14.0]
    assert found.bubble_fraction == 1 - 28 / 34
    assert found.span_bubble_by_rank.tolist() == [1 - 14 / 17, 0.0]
    assert found.span_bubble_fraction == 1 - 14 / 17
    assert found.peak_until_input.tolist() == [2, 1]
    assert found.peak_until_weight.tolist() == [2, 2]


def test_recompute_is_busy_time():
    times = StageTimes(*(np.full(2, value) for value in (1.0, 1.0, 1.0, 0.5)))
    program = program_of(one_forward_one_backward(2, 4), times)
    assert measure(program, run(program)).busy_s.tolist() == [14.0, 14.0]


def test_a_rank_without_operations():
    orders = orders_of("idle", [rows_of([(0, 0, 0), (1, 0, 0)]), rows_of([])], loop_ranks(1))
    program = program_of(orders, StageTimes.equal(1))
    found = measure(program, run(program))
    assert found.busy_s.tolist() == [3.0, 0.0]
    assert found.span_bubble_by_rank.tolist() == [0.0, 0.0]
    assert found.bubble_fraction == 0.5
    assert found.peak_until_input.tolist() == [1, 0]


def test_nothing_at_all():
    orders = orders_of("nothing", [rows_of([])], loop_ranks(1))
    program = program_of(orders, StageTimes.equal(1))
    found = measure(program, run(program))
    assert (found.makespan_s, found.bubble_fraction, found.span_bubble_fraction) == (0.0, 0.0, 0.0)


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 3))
def test_peaks_by_the_reference_table(pp, microbatches, chunks):
    ranks = np.arange(pp)
    until_input, until_weight = peaks(one_forward_one_backward(pp, microbatches))
    assert until_input.tolist() == np.minimum(microbatches, pp - ranks).tolist()
    assert until_weight.tolist() == until_input.tolist()
    assert peaks(gpipe(pp, microbatches))[0].tolist() == [microbatches] * pp
    loop = peaks(looped_bfs(pp, microbatches, chunks))[0]
    assert loop.tolist() == [chunks * microbatches] * pp
    group = min(pp, microbatches)
    found = peaks(interleaved(pp, microbatches, chunks, group))[0]
    expected = np.minimum(chunks * microbatches, (chunks - 1) * group + 2 * (pp - 1 - ranks) + 1)
    assert found.tolist() == expected.tolist()


@given(st.integers(1, 9), st.integers(1, 12), st.floats(0.1, 9.0), st.floats(0.1, 9.0))
def test_bubble_of_1f1b_by_its_formula(pp, microbatches, forward, backward):
    for orders in (one_forward_one_backward(pp, microbatches), gpipe(pp, microbatches)):
        program = program_of(orders, StageTimes.equal(pp, forward, backward / 2, backward / 2))
        found = measure(program, run(program))
        assert found.bubble_fraction == pytest.approx((pp - 1) / (microbatches + pp - 1), abs=1e-12)
        assert 0.0 <= found.span_bubble_fraction <= found.bubble_fraction + 1e-12
