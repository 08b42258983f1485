"""The best split of a chain, against every split there is."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.schedules.best_split import best_split, stage_costs


def every_split(layers: int, stages: int, least: int):
    for cuts in combinations(range(layers + 1), stages - 1):
        sizes = np.diff([0, *cuts, layers])
        if sizes.min() >= least:
            yield tuple(int(size) for size in sizes)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(0.01, 10), min_size=1, max_size=9),
    st.integers(1, 5),
    st.floats(0, 8),
    st.floats(0, 8),
)
def test_no_other_split_has_a_faster_slowest_stage_or_is_more_even(costs, stages, first, last):
    layer_s = np.array(costs)
    if len(costs) < stages:
        with pytest.raises(ValueError, match="layers cannot give"):
            best_split(layer_s, stages, first, last)
        return
    split = best_split(layer_s, stages, first, last)
    assert sum(split.layers) == len(costs)
    assert min(split.layers) >= 1
    others = [stage_costs(s, layer_s, first, last) for s in every_split(len(costs), stages, 1)]
    fastest = min(one.max() for one in others)
    assert split.slowest_s == pytest.approx(fastest, rel=1e-9)
    even = min((one**2).sum() for one in others if one.max() <= fastest * (1 + 1e-9))
    assert (split.stage_s**2).sum() == pytest.approx(even, rel=1e-9)


def test_a_heavy_output_layer_takes_layers_off_the_last_stage():
    split = best_split(np.ones(16), 4, first_s=0.0, last_s=2.0)
    assert split.stage_s.sum() == pytest.approx(18.0)
    assert max(split.stage_s) == pytest.approx(5.0)
    assert sorted(split.stage_s) == pytest.approx([4.0, 4.0, 5.0, 5.0])


def test_stages_may_be_left_without_layers_where_asked():
    split = best_split(np.ones(3), 4, last_s=5.0, least=0)
    assert split.layers[-1] == 0
    assert split.slowest_s == 5.0
    with pytest.raises(ValueError, match="3 layers cannot give 4 stages 1 each"):
        best_split(np.ones(3), 4)


def test_costs_of_a_given_split():
    given = stage_costs((2, 1, 3), np.array([1.0, 2, 3, 4, 5, 6]), first_s=10, last_s=20)
    assert given.tolist() == [13.0, 3.0, 35.0]
