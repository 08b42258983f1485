"""Layers by stage: even, explicit, fixed ends, and what does not divide."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groups.building import layout_of
from meshwright.job.stages import (
    chunks_of,
    held_of_chain,
    layers_by_chunk,
    layers_by_stage,
    layers_held,
    ranks_of_chain,
    torchtitan_split,
)


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
        # with vp a map has an entry a rank that divides, or an entry a chunk
        (24, {"pp": 2, "vp": 2, "stages": (14, 10)}, [14, 10]),
        (24, {"pp": 2, "vp": 2, "stages": (13, 11)}, None),
        (24, {"pp": 2, "vp": 2, "stages": (6, 6, 6, 6)}, [12, 12]),
        (24, {"pp": 2, "vp": 2, "stages": (7, 6, 6, 5)}, [13, 11]),
        (24, {"pp": 2, "vp": 2, "stages": (8, 8, 8)}, None),
        (24, {"pp": 2, "vp": 2, "stages": (6, 6, 6, 7)}, None),
        # torchtitan: pipeline_parallel.py generate_llm_fqn_per_model_part, run by hand
        (126, {"pp": 8, "framework": "torchtitan"}, [15, 16, 16, 16, 16, 16, 16, 15]),
        (32, {"pp": 4, "framework": "torchtitan"}, [8, 9, 8, 7]),
        (3, {"pp": 2, "framework": "torchtitan"}, [2, 1]),
        (6, {"pp": 8, "framework": "torchtitan"}, [0, 1, 1, 1, 1, 1, 1, 0]),
        (5, {"pp": 8, "framework": "torchtitan"}, None),
        (32, {"pp": 4, "vp": 2, "framework": "torchtitan"}, [4 + 4, 5 + 4, 4 + 4, 4 + 3]),
        (32, {"pp": 4, "stages": (8, 8, 8, 8), "framework": "torchtitan"}, [8, 8, 8, 8]),
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


def test_a_chain_that_turns_back_ends_where_it_began():
    assert ranks_of_chain(3, 6) == [0, 1, 2, 0, 1, 2]
    assert ranks_of_chain(3, 6, folded=True) == [0, 1, 2, 2, 1, 0]
    layout = layout_of(dp=1, pp=2, vp=2, stages=(7, 6, 6, 5))
    assert layers_by_stage(layout, 24, folded=True) == [12, 12]
    assert held_of_chain([2, 1, 1, 2], 2, folded=True) == [(0, 1, 4, 5), (2, 3)]


def test_the_chain_of_a_map_by_chunk_is_the_map():
    layout = layout_of(dp=1, pp=2, vp=2, stages=(7, 6, 6, 5))
    assert layers_by_chunk(layout, 24) == [7, 6, 6, 5]
    assert chunks_of(layout, [13, 11], [0, 1, 0, 1]) == [7, 6, 6, 5]
    # another chain, or other layers by rank: divided evenly, the first chunks take what is over
    assert chunks_of(layout, [13, 11], [0, 1]) == [13, 11]
    assert chunks_of(layout, [12, 12], [0, 1, 0, 1]) == [6, 6, 6, 6]
    assert chunks_of(layout, [13, 11], [0, 1, 1, 0]) == [7, 6, 5, 6]


@given(st.integers(1, 200), st.integers(2, 64))
def test_torchtitan_keeps_every_layer(num_layers, stages):
    split = torchtitan_split(num_layers, stages)
    if split is None:
        assert stages > num_layers + 2
        return
    whole = [split[0] + 1, *split[1:-1], split[-1] + 1]
    assert sum(split) == num_layers
    assert all(one in (0, 1) for one in (a - b for a, b in pairwise(whole)))
