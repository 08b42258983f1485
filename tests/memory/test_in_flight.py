"""Microbatches in flight against the orders of the original code."""

from __future__ import annotations

import csv
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.memory import in_flight as module
from meshwright.memory.in_flight import MOST_OPERATIONS, in_flight, interleaved_group
from meshwright.schedules.make import make_orders
from meshwright.schedules.names import SCHEDULES, schedule_name
from meshwright.schedules.peaks import peaks
from support import shared_path

GOLDEN_NAMES = {
    "GPipe": "gpipe",
    "1F1B": "1f1b",
    "megatron-1F1B": "1f1b",
    "torch:Interleaved1F1B": "interleaved",
    "torch:LoopedBFS": "looped-bfs",
    "torch:InterleavedZeroBubble": "interleaved-zb",
    "ZB1P/H1 (max_mem=p)": "zb-h1",
    "ZB2P/H2 (max_mem=2p)": "zb-h2",
    "ZBV": "zb-v",
    "torch:ZBVZeroBubble": "zb-v",
    "V-half": "v-half",
    "V-min": "v-min",
    "DualPipe": "dualpipe",
    "DualPipeV": "dualpipev",
    "torch:DualPipeV": "dualpipev",
}


@pytest.mark.golden
def test_closed_forms_against_every_order():
    compared = 0
    with shared_path("reference/golden/pipeline_makespan.csv").open() as file:
        for row in csv.DictReader(file):
            pp, count, chunks = int(row["p"]), int(row["m"]), int(row["v"])
            given = re.match(r"megatron-interleaved\(group=(\d+)\)", row["schedule"])
            name = "interleaved" if given else GOLDEN_NAMES[row["schedule"]]
            group = int(given[1]) if given else interleaved_group("torch", pp, count)
            whose = "torch" if row["schedule"].startswith("torch:") else "megatron"
            found = in_flight(name, pp, count, chunks, group, whose)
            kept = [float(one) for one in row["peak_inflight_until_W"].split()]
            assert found.exact
            assert found.peak.tolist() == kept, row
            compared += 1
    assert compared == 312


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "chimera"])
def test_a_schedule_too_long_to_make_is_held_to_its_cap(schedule, monkeypatch):
    for pp in (2, 4, 6, 8, 12):
        for count in (2, pp, 2 * pp, 5 * pp):
            kept = peaks(make_orders(schedule, pp, count))[1]
            monkeypatch.setattr(module, "MOST_OPERATIONS", 0)
            cap = in_flight(schedule, pp, count)
            monkeypatch.setattr(module, "MOST_OPERATIONS", MOST_OPERATIONS)
            assert (cap.peak >= kept).all(), (schedule, pp, count)
            exact = in_flight(schedule, pp, count)
            assert exact.exact
            assert exact.peak.tolist() == kept.tolist()


def test_names():
    assert schedule_name(None, 1) == "1f1b"
    assert schedule_name(None, 2) == "interleaved"
    assert schedule_name(" 1F1B ", 1) == "1f1b"
    assert schedule_name("ZBVZeroBubble", 2) == "zb-v"
    assert schedule_name("my schedule", 1) is None


@given(
    st.sampled_from(SCHEDULES),
    st.integers(1, 16),
    st.integers(1, 64),
    st.integers(1, 4),
)
def test_never_more_than_there_is_and_never_less_than_one(schedule, pp, count, vp):
    found = in_flight(schedule, pp, count, vp)
    assert found.peak.shape == (pp,)
    assert (found.peak >= 1).all()
    assert (found.microbatches <= max(count, 1)).all()
