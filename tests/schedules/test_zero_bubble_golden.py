"""Zero-bubble and V-shaped schedules against orders and figures made by the original code."""

from __future__ import annotations

import csv
import re
from collections import defaultdict

import pytest

from meshwright.schedules.greedy.v_shaped_closed import zb_v_closed
from meshwright.schedules.greedy.v_shaped_greedy import zb_v
from meshwright.schedules.greedy.v_shaped_pattern import v_half, v_min
from meshwright.schedules.greedy.zero_bubble import zb_h1, zb_h2
from meshwright.schedules.orders import LETTERS, Orders
from meshwright.timeline.core import run
from meshwright.timeline.measure import measure
from meshwright.timeline.program import StageTimes, program_of
from support import shared_path

ORDERS = "reference/golden/pipeline_reference_orders.csv"
TORCH_ORDERS = "reference/golden/pipeline_torch_compute.csv"
MAKESPANS = "reference/golden/pipeline_makespan.csv"

MADE_BY = {
    "ZB1P/H1 (max_mem=p)": zb_h1,
    "ZB2P/H2 (max_mem=2p)": zb_h2,
    "ZBV": zb_v,
    "V-half": v_half,
    "V-min": v_min,
    "torch:ZBVZeroBubble": zb_v_closed,
}


def golden_rows(path: str, schedule: str) -> list[dict[str, str]]:
    with shared_path(path).open(newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["schedule"] == schedule]


def golden_orders(path: str, schedule: str) -> dict[tuple[int, int], list[str]]:
    """Operations of each rank as they are written, by p and m."""
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for row in golden_rows(path, schedule):
        of_ranks = found[int(row["p"]), int(row["m"])]
        assert int(row["rank"]) == len(of_ranks)
        of_ranks.append(row["ops"])
    return found


def operations(orders: Orders, rank: int) -> list[tuple[str, int, int]]:
    part = orders.of_rank(rank)
    return [
        (LETTERS[kind], int(stage), int(microbatch))
        for kind, stage, microbatch in zip(
            orders.kind[part], orders.stage[part], orders.microbatch[part], strict=True
        )
    ]


@pytest.mark.golden
@pytest.mark.parametrize(
    ("schedule", "split"),
    [(name, re.compile(r"([FBW])(\d+)(\.c1)?$")) for name in list(MADE_BY)[:5]],
    ids=list(MADE_BY)[:5],
)
def test_orders_of_the_original_scheduler(schedule, split):
    golden = golden_orders(ORDERS, schedule)
    assert set(golden) == {(2, 4), (4, 8), (4, 12), (8, 16)}
    for (pp, microbatches), of_ranks in golden.items():
        ours = MADE_BY[schedule](pp, microbatches)
        assert ours.ranks == len(of_ranks) == pp
        for rank, text in enumerate(of_ranks):
            expected = []
            for word in text.split():
                kind, microbatch, second = split.match(word).groups()
                stage = 2 * pp - 1 - rank if second else rank
                expected.append(("I" if kind == "B" else kind, stage, int(microbatch)))
            assert operations(ours, rank) == expected, (pp, microbatches, rank)


@pytest.mark.golden
def test_orders_of_torch():
    golden = golden_orders(TORCH_ORDERS, "ZBVZeroBubble")
    assert set(golden) == {(2, 4), (4, 4), (4, 6), (4, 8), (4, 12), (8, 16)}
    for (pp, microbatches), of_ranks in golden.items():
        ours = zb_v_closed(pp, microbatches)
        for rank, text in enumerate(of_ranks):
            words = [re.match(r"(\d+)([FIW])(\d+)$", word) for word in text.split()]
            expected = [(word[2], int(word[1]), int(word[3])) for word in words if word]
            assert operations(ours, rank) == expected, (pp, microbatches, rank)


@pytest.mark.golden
@pytest.mark.parametrize("schedule", MADE_BY)
def test_figures_to_the_last_digit(schedule):
    rows = golden_rows(MAKESPANS, schedule)
    assert len(rows) == (18 if schedule.startswith("torch") else 12)
    for row in rows:
        pp, microbatches, chunks = (int(row[key]) for key in ("p", "m", "v"))
        times = StageTimes.equal(pp * chunks, *(float(row[key]) for key in ("tF", "tI", "tW")))
        program = program_of(MADE_BY[schedule](pp, microbatches), times)
        found = measure(program, run(program))
        assert {
            "makespan": str(found.makespan_s),
            "busy_rank0": str(float(found.busy_s[0])),
            "bubble_fraction": str(round(1 - found.busy_s[0] / found.makespan_s, 6)),
            "max_rank_span": str(float(found.span_s.max())),
            "bubble_of_max_span": str(round(1 - found.busy_s[0] / found.span_s.max(), 6)),
            "peak_inflight_until_I_or_B": " ".join(map(str, found.peak_until_input)),
            "peak_inflight_until_W": " ".join(map(str, found.peak_until_weight)),
        }.items() <= row.items(), row
