"""Layers by stage: even, explicit, fixed ends, and what does not divide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groups.building import layout_of
from meshwright.job.stages import layers_by_stage, layers_held


def _stages(num_layers, **keys):
    return layers_by_stage(layout_of(dp=1, **keys), num_layers)


@pytest.mark.parametrize(
    ("num_layers", "keys", "expected"),
    [
        (32, {}, [32]),
        (32, {"pp": 4}, [8, 8, 8, 8]),
        (32, {"pp": 4, "vp": 8}, [8, 8, 8, 8]),
        (28, {"pp": 5}, None),
        (32, {"pp": 4, "vp": 3}, None),
        (4, {"pp": 8}, None),
        (10, {"pp": 3, "stages": (3, 4, 3)}, [3, 4, 3]),
        (10, {"pp": 3, "stages": (0, 5, 5)}, [0, 5, 5]),
        (10, {"pp": 3, "stages": (3, 4, 4)}, None),
        (10, {"pp": 3, "stages": (5, 5)}, None),
        (10, {"pp": 2, "stages": (-1, 11)}, None),
        (30, {"pp": 4, "first_stage_layers": 6}, [6, 8, 8, 8]),
        (30, {"pp": 4, "last_stage_layers": 6}, [8, 8, 8, 6]),
        (30, {"pp": 4, "first_stage_layers": 6, "last_stage_layers": 8}, [6, 8, 8, 8]),
        (30, {"pp": 2, "first_stage_layers": 14, "last_stage_layers": 16}, [14, 16]),
        (30, {"pp": 2, "first_stage_layers": 14, "last_stage_layers": 15}, None),
        (30, {"pp": 4, "first_stage_layers": 7}, None),
        (30, {"pp": 4, "first_stage_layers": 30}, None),
        (30, {"pp": 4, "first_stage_layers": 99}, None),
        (30, {"pp": 1, "first_stage_layers": 30}, [30]),
        (30, {"pp": 1, "first_stage_layers": 7}, None),
        (30, {"pp": 1, "last_stage_layers": 30}, [30]),
        (30, {"pp": 1, "first_stage_layers": 7, "last_stage_layers": 30}, None),
        # each stage holds vp equal chunks, the fixed ends too
        (28, {"pp": 4, "vp": 2, "first_stage_layers": 4}, [4, 8, 8, 8]),
        (29, {"pp": 4, "vp": 2, "first_stage_layers": 5}, None),
    ],
)
def test_layers_by_stage(num_layers, keys, expected):
    assert _stages(num_layers, **keys) == expected


def test_layers_of_stages_in_order():
    assert layers_held([2, 3]) == [(0, 1), (2, 3, 4)]
    assert layers_held([]) == []


def test_interleaved_stages_hold_every_pp_th_chunk():
    assert layers_held([4, 4], 2) == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert layers_held([2, 4, 2], 2) == [(0, 4), (1, 2, 5, 6), (3, 7)]
    assert layers_held([3, 5], 2) == [(0, 1, 2), (3, 4, 5, 6, 7)]


@given(
    st.integers(1, 60),
    st.integers(1, 8),
    st.integers(1, 3),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20),
)
def test_stages_hold_every_layer_once(num_layers, pp, vp, first, last):
    counts = _stages(num_layers, pp=pp, vp=vp, first_stage_layers=first, last_stage_layers=last)
    if counts is None:
        return
    assert len(counts) == pp
    assert all(count > 0 and count % vp == 0 for count in counts)
    assert first in (None, counts[0])
    assert last in (None, counts[-1])
    assert len(set(counts[1:-1])) <= 1
    held = layers_held(counts, vp)
    assert [len(layers) for layers in held] == counts
    assert sorted(layer for layers in held for layer in layers) == list(range(num_layers))
