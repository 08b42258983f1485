"""DualPipe and DualPipeV: the original's orders, what runs together, any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.dualpipe import dualpipe, dualpipev
from meshwright.schedules.orders import Kind
from meshwright.schedules.peaks import peaks
from meshwright.schedules.validity import flaws_of
from schedule_samples import cells, golden, sizes, torch_cells, torch_computes


@pytest.mark.golden
def test_orders_of_the_original():
    compared = {"DualPipe": 0, "DualPipeV": 0}
    for row in golden("pipeline_reference_orders.csv"):
        if row["schedule"] not in compared:
            continue
        p, m, _, rank = sizes(row)
        both = row["schedule"] == "DualPipe"

        def show(letter, stage, microbatch, p=p, far=both and rank >= p // 2):
            # the original calls the near end of a rank's own half phase 0
            return f"{letter}{(stage // p) ^ far}.{microbatch}"

        orders = dualpipe(p, m) if both else dualpipev(p, m)
        assert cells(orders, rank, show, "({}&{})") == row["ops"].split(), row
        compared[row["schedule"]] += 1
    assert compared == {"DualPipe": 26, "DualPipeV": 18}


@pytest.mark.golden
def test_torch_orders():
    compared = 0
    for row in golden("pipeline_torch_compute.csv"):
        if row["schedule"] == "DualPipeV":
            p, m, _, rank = sizes(row)
            assert torch_cells(dualpipev(p, m), rank) == torch_computes(row["ops"]), row
            compared += 1
    assert compared == 18


@given(half=st.integers(1, 6), more=st.integers(0, 9))
def test_any_size_runs_in_the_memory_it_says(half, more):
    p, m = 2 * half, 4 * half + 2 * more
    for orders, most in ((dualpipe(p, m), p + 1), (dualpipev(half, m), 2 * half + 1)):
        assert flaws_of(orders) == []
        assert orders.microbatches == m
        assert peaks(orders)[1].tolist() == [most] * orders.ranks


@given(half=st.integers(1, 5), more=st.integers(0, 6))
def test_both_ends_are_alike(half, more):
    """The first rank does for one direction what the last does for the other."""
    p = 2 * half
    orders = dualpipe(p, 2 * p + 2 * more)
    for rank in range(half):
        near, far = orders.of_rank(rank), orders.of_rank(p - 1 - rank)
        assert np.array_equal(orders.kind[near], orders.kind[far])
        assert np.array_equal(orders.microbatch[near], orders.microbatch[far])
        assert np.array_equal((orders.stage[near] + p) % (2 * p), orders.stage[far])


@given(p=st.integers(1, 6), more=st.integers(0, 6))
def test_pairs_are_a_forward_with_a_backward_of_the_other_end(p, more):
    orders = dualpipev(p, 2 * p + more)
    first = np.flatnonzero(orders.overlapped)
    assert set(orders.kind[first].tolist()) <= {Kind.FORWARD}
    assert set(orders.kind[first + 1].tolist()) <= {Kind.BACKWARD}
    assert np.all(orders.stage[first] + orders.stage[first + 1] == 2 * p - 1)
