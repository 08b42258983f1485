"""Closed forms equal the simulation wherever they call themselves exact, and are missing elsewhere."""

import random

import numpy as np
import pytest

from meshwright.schedules.closed_forms import (
    ChunkTimes,
    Sizes,
    bubble_fraction,
    idle_s,
    makespan_s,
    peak_until_input,
    peak_until_weight,
)
from meshwright.schedules.make import make_orders
from meshwright.schedules.make_asked import asked
from meshwright.schedules.make_refusals import refusals
from meshwright.schedules.names import MANY_CHUNKS, SCHEDULES
from schedule_samples import golden, simulated

WITH_FORM = (
    "gpipe",
    "1f1b",
    "interleaved",
    "looped-bfs",
    "zb-h1",
    "interleaved-zb",
    "dualpipe",
    "dualpipev",
    "chimera",
)
TRIPLES = ((1.0, 1.0, 1.0), (1.0, 2.0, 1.0), (1.0, 0.5, 0.5), (2.0, 1.0, 1.0))


def samples(schedule, seed, count):
    """Return random sizes that no rule forbids, with their options and times."""
    random_ = random.Random(seed)
    found = []
    while len(found) < count:
        p, m = random_.randint(1, 8), random_.randint(1, 20)
        options = {"convention": random_.choice(("megatron", "torch"))}
        if schedule in MANY_CHUNKS:
            options["chunks"] = random_.randint(2, 4)
        if schedule == "interleaved" and random_.random() < 0.3:
            options["group"] = random_.randint(p, 12)
        if refusals(schedule, p, m, **options):
            continue
        halves = tuple(random_.randint(1, 8) / 2 for _ in range(3))
        times = random_.choice((*TRIPLES, halves))
        found.append((asked(schedule, p, m, options), options, times))
    return found


@pytest.mark.parametrize("schedule", WITH_FORM)
def test_forms_equal_the_simulation(schedule):
    exact = 0
    for ask, options, times in samples(schedule, schedule, 120):
        p, m = ask.pp, ask.microbatches
        orders = make_orders(schedule, p, m, **options)
        run = simulated(orders, times)
        of, taken = Sizes(p, m, ask.chunks, ask.group), ChunkTimes(*times)
        idle = idle_s(schedule, of, taken)
        if not np.isnan(idle):
            exact += 1
            assert float(idle) == pytest.approx(run.makespan_s - run.busy_s.max()), (ask, times)
            assert float(makespan_s(schedule, of, taken)) == pytest.approx(run.makespan_s)
            bubble = float(bubble_fraction(schedule, of, taken))
            assert bubble == pytest.approx(run.bubble_fraction)
        for form, counted in (
            (peak_until_input, run.peak_until_input),
            (peak_until_weight, run.peak_until_weight),
        ):
            peak = form(schedule, of, np.arange(p))
            known = ~np.isnan(np.broadcast_to(peak, p))
            assert np.broadcast_to(peak, p)[known].tolist() == counted[known].tolist(), ask
    assert exact >= 10


@pytest.mark.golden
def test_reference_rows():
    """The idle times of the reference's rows, for the three cost triples there."""
    names = {
        "GPipe": "gpipe",
        "1F1B": "1f1b",
        "torch:LoopedBFS": "looped-bfs",
        "ZB1P/H1 (max_mem=p)": "zb-h1",
        "torch:InterleavedZeroBubble": "interleaved-zb",
        "DualPipe": "dualpipe",
        "DualPipeV": "dualpipev",
    }
    exact = dict.fromkeys(names.values(), 0)
    for row in golden("pipeline_makespan.csv"):
        if (name := names.get(row["schedule"])) is None:
            continue
        two = 1 if name == "dualpipe" else int(row["v"])  # there v counts the two copies
        of = Sizes(int(row["p"]), int(row["m"]), two)
        found = makespan_s(name, of, ChunkTimes(*(float(row[key]) for key in ("tF", "tI", "tW"))))
        if not np.isnan(found):
            exact[name] += 1
            assert float(found) == float(row["makespan"]), row
    assert exact == {
        "gpipe": 30,
        "1f1b": 30,
        "looped-bfs": 36,
        "zb-h1": 12,
        "interleaved-zb": 30,
        "dualpipe": 5,
        "dualpipev": 4,
    }


def test_four_stages_and_twelve_microbatches():
    assert float(bubble_fraction("1f1b", Sizes(4, 12), ChunkTimes())) == pytest.approx(0.2)
    many = bubble_fraction("1f1b", Sizes([4, 8], [[12], [56]]), ChunkTimes())
    assert many == pytest.approx(np.array([[3 / 15, 7 / 19], [3 / 59, 7 / 63]]))


def test_none_where_there_is_no_form_and_nan_where_it_does_not_hold():
    for schedule in set(SCHEDULES) - set(WITH_FORM):
        assert idle_s(schedule, Sizes(4, 8, 2), ChunkTimes()) is None
        assert makespan_s(schedule, Sizes(4, 8, 2), ChunkTimes()) is None
        assert peak_until_weight(schedule, Sizes(4, 8, 2), 0) is None
    unequal = idle_s("dualpipe", Sizes([4, 8], 16), ChunkTimes(1.0, [[1.0], [2.0]], 1.0))
    assert np.isnan(unequal).tolist() == [[False, False], [True, True]]
    few = idle_s("interleaved-zb", Sizes(4, [3, 4], 2, [3, 4]), ChunkTimes())
    assert np.isnan(few).tolist() == [True, False]
    assert np.isnan(idle_s("zb-h1", Sizes(4, 8), ChunkTimes(1.0, 1.0, 2.0)))
    assert np.isnan(idle_s("chimera", Sizes(4, [4, 6]), ChunkTimes(1.0, 0.5, 0.5))).tolist() == [
        False,
        True,
    ]
