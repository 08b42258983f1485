"""Chimera: the golden orders, the paper's makespan and memory for any number of units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.chimera import chimera
from meshwright.schedules.peaks import peaks
from meshwright.schedules.validity import flaws_of
from schedule_samples import cells, golden, simulated

EQUAL = (1.0, 0.5, 0.5)
"""Forward and full backward of the same time, as the paper draws them."""


@pytest.mark.golden
def test_golden_orders():
    compared = 0
    for row in golden("pipeline_chimera.csv"):
        depth, count, rank = (int(row[key]) for key in ("D", "N", "rank"))

        def show(letter, stage, microbatch, depth=depth):
            return f"{letter}{stage // depth}.{microbatch}"

        orders = chimera(depth, count)
        text = next(value for key, value in row.items() if key.startswith("ops"))
        assert cells(orders, rank, show, "") == text.split(), row
        assert simulated(orders, EQUAL).makespan_s == float(row["makespan tF=tB=1"])
        compared += 1
    assert compared == 36


@given(half=st.integers(1, 7), units=st.integers(1, 4))
def test_whole_units_have_the_papers_makespan_and_memory(half, units):
    p, m = 2 * half, 2 * half * units
    orders = chimera(p, m)
    assert simulated(orders, EQUAL).makespan_s == 2 * m + p - 2
    place = np.minimum(np.arange(p), p - 1 - np.arange(p))
    assert peaks(orders)[0].tolist() == np.minimum(half + 1 + place, p).tolist()


@given(half=st.integers(1, 6), each=st.integers(1, 20))
def test_any_even_number_of_microbatches_runs(half, each):
    orders = chimera(2 * half, 2 * each)
    assert flaws_of(orders) == []
    assert orders.microbatches == 2 * each
    assert peaks(orders)[0].max() <= 2 * half
