"""torch's interleaved zero bubble."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.interleaved_zb import interleaved_zb
from meshwright.schedules.loops import interleaved
from meshwright.schedules.orders import Kind
from meshwright.schedules.validity import flaws_of
from schedule_samples import (
    golden,
    simulated,
    sizes,
    torch_cells,
    torch_computes,
    torch_group,
)


@pytest.mark.golden
def test_torch_orders():
    compared = 0
    for row in golden("pipeline_torch_compute.csv"):
        if row["schedule"] == "InterleavedZeroBubble":
            p, m, v, rank = sizes(row)
            orders = interleaved_zb(p, m, v, torch_group(row))
            assert torch_cells(orders, rank) == torch_computes(row["ops"]), row
            compared += 1
    assert compared == 44


def test_by_hand():
    orders = interleaved_zb(2, 2, 2, 2)
    assert torch_cells(orders, 0)[:6] == ["0F0", "0F1", "2F0", "2F1", "2I0", "2W0"]
    assert " ".join(torch_cells(orders, 1)) == "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1"


@given(p=st.integers(1, 8), v=st.integers(1, 4), g=st.integers(1, 12), rounds=st.integers(1, 4))
def test_any_size_runs_with_weight_gradients_late_by_the_rank(p, v, g, rounds):
    rounds = rounds if g >= p else 1  # fewer microbatches than ranks make one round
    orders = interleaved_zb(p, g * rounds, v, g)
    assert flaws_of(orders) == []
    for rank in range(p):
        kind = orders.kind[orders.of_rank(rank)]
        inputs, weights = np.cumsum(kind == Kind.INPUT), np.cumsum(kind == Kind.WEIGHT)
        assert (inputs - weights).max() <= rank + 1


def test_groups_smaller_than_the_pipeline_would_deadlock():
    (flaw,) = flaws_of(interleaved_zb(4, 2, 3, 1))
    assert flaw.kind == "deadlock"


@given(p=st.integers(1, 8), v=st.integers(1, 4), rounds=st.integers(1, 4))
def test_never_slower_than_interleaved(p, v, rounds):
    m = p * rounds
    split = simulated(interleaved_zb(p, m, v, p))
    assert split.makespan_s <= simulated(interleaved(p, m, v)).makespan_s
