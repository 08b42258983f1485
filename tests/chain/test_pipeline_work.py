"""Durations given by hand, for stages, for ranks, and for other stages than were given."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.chain.pipeline_work import given_work
from meshwright.errors import UsageError
from meshwright.schedules.make import make_orders


def totals(work, schedule, pp, chunks=None):
    return work.times(make_orders(schedule, pp, 4 * pp, chunks=chunks)).total_s


def test_equal_stages():
    work = given_work((1.0, 2.0, 3.0), 4, 4, ())
    assert totals(work, "1f1b", 4).tolist() == [6.0] * 4
    assert totals(work, "interleaved", 4, 2).tolist() == [3.0] * 8
    assert totals(work, "dualpipe", 4).tolist() == [6.0] * 4


def test_factors_of_stages_go_with_the_model():
    work = given_work((1.0, 1.0, 1.0), 4, 4, (1, 1, 1, 2))
    assert totals(work, "1f1b", 4).tolist() == [3, 3, 3, 6]
    assert totals(work, "interleaved", 4, 2).tolist() == pytest.approx([1.5] * 6 + [3, 3])
    assert totals(work, "zb-v", 4).tolist() == pytest.approx([1.5] * 6 + [3, 3])


def test_factors_of_ranks_stay_on_them():
    work = given_work((1.0, 1.0, 1.0), 4, 8, (1, 1, 1, 2))
    assert totals(work, "interleaved", 4, 2).tolist() == [3, 3, 3, 6] * 2
    assert totals(work, "zb-v", 4).tolist() == [3, 3, 3, 6, 6, 3, 3, 3]
    assert totals(work, "1f1b", 4).tolist() == [6, 6, 6, 12]


def test_any_cut_does_the_same_work():
    rng = np.random.default_rng(5)
    for _ in range(50):
        pp = int(rng.integers(2, 9))
        chunks = int(rng.integers(1, 4))
        factors = tuple(rng.uniform(0.1, 3.0, pp * chunks).tolist())
        work = given_work((1.0, 0.5, 0.25), pp, pp * chunks, factors)
        for schedule, other in (("1f1b", 1), ("interleaved", 2), ("interleaved", 5), ("v-half", 2)):
            found = totals(work, schedule, pp, other if schedule == "interleaved" else None)
            assert found.sum() == pytest.approx(1.75 * sum(factors))
            assert (found >= 0).all()


def test_factors_that_fit_nothing():
    with pytest.raises(UsageError, match="3 factors: write 4, one for each rank"):
        given_work((1.0, 1.0, 1.0), 4, 4, (1, 1, 1))
    with pytest.raises(UsageError, match="or 8, one for each stage"):
        given_work((1.0, 1.0, 1.0), 4, 8, (1,) * 7)


def test_without_a_model_nothing_is_known_of_layers():
    work = given_work((1.0, 1.0, 1.0), 4, 4, ())
    orders = make_orders("1f1b", 4, 8)
    assert work.kept_bytes(orders) is None
    assert work.stage_layers(orders) is None
    assert work.rank_layers() is None
