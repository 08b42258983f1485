"""GPipe, 1F1B, interleaved 1F1B and looped breadth-first: the originals' orders, and any size."""

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
    warmup,
)
from meshwright.schedules.orders import Kind
from meshwright.schedules.peaks import peaks
from meshwright.schedules.validity import flaws_of
from schedule_samples import (
    cells,
    golden,
    simulated,
    sizes,
    torch_cells,
    torch_computes,
    torch_group,
)

TORCH = {
    "GPipe": lambda p, m, v, g: gpipe(p, m),
    "1F1B": lambda p, m, v, g: one_forward_one_backward(p, m),
    "Interleaved1F1B": interleaved,
    "LoopedBFS": lambda p, m, v, g: looped_bfs(p, m, v),
}


def simple(letter, stage, microbatch):
    return f"{letter}{microbatch}"


@pytest.mark.golden
def test_megatron_gpipe_and_1f1b_orders():
    compared = {"megatron": 0, "GPipe": 0, "1F1B": 0}
    for row in golden("pipeline_reference_orders.csv"):
        p, m, v, rank = sizes(row)
        group = re.fullmatch(r"megatron-interleaved\(group=(\d+)\)", row["schedule"])
        if group:
            orders = interleaved(p, m, v, int(group[1]))
        elif row["schedule"] in ("1F1B", "megatron-1F1B"):
            orders = one_forward_one_backward(p, m)
        elif row["schedule"] == "GPipe":
            orders = gpipe(p, m)
        else:
            continue
        megatron = row["schedule"].startswith("megatron")
        found = torch_cells(orders, rank) if megatron else cells(orders, rank, simple, "")
        assert found == row["ops"].split(), row
        compared["megatron" if megatron else row["schedule"]] += 1
    assert compared == {"megatron": 40, "GPipe": 40, "1F1B": 40}


@pytest.mark.golden
def test_torch_orders():
    compared = dict.fromkeys(TORCH, 0)
    for row in golden("pipeline_torch_compute.csv"):
        p, m, v, rank = sizes(row)
        if row["schedule"] not in TORCH or (row["schedule"] == "1F1B" and rank == p - 1):
            continue  # torch 2.13 numbers the last rank's forwards from 1 in its drawing of 1F1B
        orders = TORCH[row["schedule"]](p, m, v, torch_group(row))
        assert torch_cells(orders, rank) == torch_computes(row["ops"]), row
        compared[row["schedule"]] += 1
    assert compared == {"GPipe": 45, "1F1B": 31, "Interleaved1F1B": 44, "LoopedBFS": 48}


def test_1f1b_by_hand():
    orders = one_forward_one_backward(3, 4)
    assert " ".join(torch_cells(orders, 0)) == "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3"
    assert " ".join(torch_cells(orders, 1)) == "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3"
    assert " ".join(torch_cells(orders, 2)) == "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"


def test_one_more_forward_ahead_with_overlapped_expert_traffic():
    usual, more = interleaved(2, 4, 2), interleaved(2, 4, 2, extra=1)
    ahead = [int(np.argmax(one.kind == Kind.BACKWARD)) for one in (usual, more)]
    assert ahead == [warmup(2, 4, 2, 2, 0) + 1, warmup(2, 4, 2, 2, 0) + 2]
    assert flaws_of(more) == []


@given(p=st.integers(1, 9), v=st.integers(1, 4), g=st.integers(0, 4), m=st.integers(1, 30))
def test_any_size_runs_and_keeps_what_it_says(p, v, g, m):
    group = p + g
    for orders in (gpipe(p, m), one_forward_one_backward(p, m), looped_bfs(p, m, v)):
        assert flaws_of(orders) == []
    orders = interleaved(p, m, v, group)
    assert orders.microbatches == m
    if m >= p and not 0 < m % group < p:
        assert flaws_of(orders) == []
        most = (v - 1) * group + 2 * (p - 1 - np.arange(p)) + 1
        assert peaks(orders)[0].tolist() == np.minimum(most, v * m).tolist()


@given(p=st.integers(1, 8), v=st.integers(2, 5), rounds=st.integers(1, 4))
def test_interleaved_is_never_slower_than_1f1b(p, v, rounds):
    """At the same work: a chunk takes a v-th."""
    m = p * rounds
    whole = simulated(one_forward_one_backward(p, m), (v, v, v))
    assert simulated(interleaved(p, m, v)).makespan_s <= whole.makespan_s
