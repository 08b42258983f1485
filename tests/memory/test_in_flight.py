"""Microbatches in flight against the orders of the original code."""

from __future__ import annotations

import csv
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.memory.in_flight import NAMES, in_flight, interleaved_group, schedule_name
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
    compared = {True: 0, False: 0}
    with shared_path("reference/golden/pipeline_makespan.csv").open() as file:
        for row in csv.DictReader(file):
            pp, count, chunks = int(row["p"]), int(row["m"]), int(row["v"])
            given = re.match(r"megatron-interleaved\(group=(\d+)\)", row["schedule"])
            name = "interleaved" if given else GOLDEN_NAMES[row["schedule"]]
            group = int(given[1]) if given else interleaved_group("torch", pp, count)
            if name in ("zb-h2", "v-half", "v-min") and (row["tF"], row["tI"], row["tW"]) != (
                "1",
                "1",
                "1",
            ):
                continue  # greedy orders: made for equal times
            found = in_flight(name, pp, count, chunks, group)
            peaks = [float(one) for one in row["peak_inflight_until_W"].split()]
            if found.exact:
                assert found.peak.tolist() == peaks, row
            else:
                assert all(mine >= one for mine, one in zip(found.peak, peaks, strict=True)), row
            compared[found.exact] += 1
    assert compared[True] > 150
    assert compared[False] > 20


@pytest.mark.golden
def test_chimera_is_bounded():
    with shared_path("reference/golden/pipeline_chimera.csv").open() as file:
        lines = list(csv.DictReader(file))
    checked = 0
    for row in lines:
        if not row["schedule"].startswith("Chimera (N=D)"):
            continue
        now = most = 0
        ops = next(text for key, text in row.items() if key.startswith("ops"))
        for op in ops.split():
            now += 1 if op[0] == "F" else -1
            most = max(most, now)
        bound = in_flight("chimera", int(row["D"]), int(row["N"])).peak[int(row["rank"])]
        assert most <= bound
        checked += 1
    assert checked > 10


def test_names():
    assert schedule_name(None, 1) == "1f1b"
    assert schedule_name(None, 2) == "interleaved"
    assert schedule_name(" 1F1B ", 1) == "1f1b"
    assert schedule_name("ZBVZeroBubble", 2) == "zb-v"
    assert schedule_name("my schedule", 1) is None


@given(
    st.sampled_from(sorted(set(NAMES.values()))),
    st.integers(1, 16),
    st.integers(1, 64),
    st.integers(1, 4),
)
def test_never_more_than_there_is_and_never_less_than_one(schedule, pp, count, vp):
    found = in_flight(schedule, pp, count, vp)
    assert found.peak.shape == (pp,)
    assert (found.peak >= 1).all()
    assert (found.microbatches <= max(count, 1)).all()
