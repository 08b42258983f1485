"""Walks shared by leaves with the same neighbours give the loads of one walk a target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.networks import graph_loads
from meshwright.cluster.networks.graph_loads import Bundles, bundle_loads, twin_classes


def pods(shape: tuple[int, int, int, int], odd: list[tuple[int, int]]) -> tuple[np.ndarray, ...]:
    """Return cables of pods of leaves under spines, spines under cores; ``odd`` adds cables."""
    num_pods, leaves, spines, cores = shape
    first_spine, first_core = num_pods * leaves, num_pods * (leaves + spines)
    ends = [
        (pod * leaves + leaf, first_spine + pod * spines + spine)
        for pod in range(num_pods)
        for leaf in range(leaves)
        for spine in range(spines)
    ]
    ends += [
        (first_spine + spine, first_core + core)
        for spine in range(num_pods * spines)
        for core in range(cores)
    ]
    switches = first_core + cores
    ends += [(a % switches, b % switches) for a, b in odd if a % switches != b % switches]
    lower, upper = np.array(ends, dtype=np.int32).T
    return lower, upper, np.array(switches)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    shape = draw(st.tuples(*[st.integers(1, 4)] * 4))
    number = st.integers(0, 60)
    odd = draw(st.lists(st.tuples(number, number), max_size=4))
    lower, upper, switches = pods(shape, odd)
    leaves = shape[0] * shape[1]
    index = st.integers(0, leaves - 1)
    flows = draw(st.dictionaries(st.tuples(index, index), st.integers(1, 9), max_size=40))
    ends = [(a, b, size) for (a, b), size in flows.items() if a != b]
    return lower, upper, switches, np.array(leaves), np.array(ends, dtype=np.int64).reshape(-1, 3)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_twins_share_a_walk(case: tuple[np.ndarray, ...]) -> None:
    lower, upper, switches, leaves, ends = case
    bundles = Bundles.of(lower, upper)
    pairs = (ends[:, 0], ends[:, 1], ends[:, 2].astype(float))
    own = np.arange(int(leaves))
    shared = bundle_loads(bundles, own, pairs, int(switches))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_loads, "twin_classes", lambda *_: own)
        single = bundle_loads(bundles, own, pairs, int(switches))
    assert np.allclose(shared, single, rtol=1e-9, atol=1e-9)


def test_what_leaves_senders_arrives_at_targets() -> None:
    lower, upper, switches = pods((3, 4, 2, 2), [])
    bundles = Bundles.of(lower, upper)
    leaves = np.arange(12)
    origin, target = (grid.ravel() for grid in np.meshgrid(leaves, leaves, indexing="ij"))
    apart = origin != target
    pairs = (origin[apart], target[apart], np.ones(int(apart.sum())))
    loads = bundle_loads(bundles, leaves, pairs, int(switches))
    sent = np.bincount(bundles.tail, weights=loads, minlength=int(switches))
    came = np.bincount(bundles.head, weights=loads, minlength=int(switches))
    assert np.allclose(sent, came)
    assert np.allclose(sent[:12], 11)


def test_twins_are_leaves_with_the_same_neighbours_and_counts() -> None:
    lower, upper, switches = pods((2, 3, 2, 1), [(0, 6)])  # leaf 0 has a second cable to spine 6
    twin = twin_classes(Bundles.of(lower, upper), np.arange(6), int(switches))
    assert twin.tolist() == [0, 1, 1, 2, 2, 2]


def test_cables_listed_from_either_end_are_one_bundle() -> None:
    lower, upper = np.array([0, 2, 1], dtype=np.int32), np.array([2, 0, 2], dtype=np.int32)
    bundles = Bundles.of(lower, upper)
    pairs = (np.array([0]), np.array([1]), np.array([8.0]))
    one = bundle_loads(bundles, np.array([0, 1]), pairs, 3) / bundles.count
    assert one[bundles.up_of_cable].tolist() == [4.0, 0.0, 0.0]
    assert one[bundles.down_of_cable].tolist() == [0.0, 4.0, 8.0]
