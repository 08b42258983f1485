"""Networks: even spreading on regular and on any graphs, components, cables of the fabric."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from meshwright.cluster.networks.network import Cables, GraphNetwork, TieredNetwork, components
from meshwright.cluster.networks.tiers import (
    TierPlan,
    TierShape,
    fit_unit,
    plan_tiers,
    tiered_network,
)
from meshwright.origin import Origin
from routes.fabrics import graph_network, random_graph


def _as_graph(network: TieredNetwork) -> GraphNetwork:
    graph = graph_network(network.num_leaves, len(network.switch_names), network.cables)
    assert np.array_equal(
        np.unique(graph.component_of_leaf, return_inverse=True)[1],
        np.unique(network.component_of_leaf, return_inverse=True)[1],
    )
    return graph


def _flows(dice: random.Random, leaves: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = dice.randint(0, 60)
    ends = [[dice.randrange(leaves) for _ in range(count)] for _ in range(2)]
    size = [dice.uniform(0.1, 9.0) for _ in range(count)]
    return np.array(ends[0], np.int32), np.array(ends[1], np.int32), np.array(size)


def _regular_plan(dice: random.Random) -> TierPlan:
    """A plan whose switches all have the same: each spine as many cables to each core switch."""
    rails = dice.choice([1, 2, 4])
    meet = dice.random() < 0.8
    per_pod, uplinks = dice.choice([1, 2, 3]), dice.choice([1, 2, 4, 6])
    spines = dice.choice([n for n in range(1, uplinks + 1) if uplinks % n == 0])
    cores = 0
    pods = dice.choice([1, 1, 2, 3]) if meet else 1
    if pods > 1:
        cables = per_pod * rails * uplinks
        fitting = [c for c in range(1, cables + 1) if cables % math.lcm(spines, c) == 0]
        cores = dice.choice(fitting)
    units = per_pod * pods if meet else dice.randint(2, 5)
    return TierPlan(
        hosts=units,
        rails=rails,
        hosts_per_unit=1,
        uplinks=uplinks,
        units_per_pod=per_pod,
        spines_per_pod=spines,
        core_switches=cores,
        rails_meet=meet,
    )


def test_tiered_loads_equal_graph_loads() -> None:
    tiers = dict.fromkeys((False, True), 0)
    for seed in range(300):
        dice = random.Random(seed)
        plan = _regular_plan(dice)
        network = tiered_network(plan, 50.0, Origin.STATED)
        flows = _flows(dice, network.num_leaves)
        for ours, graph in zip(
            network.cable_loads(*flows), _as_graph(network).cable_loads(*flows), strict=True
        ):
            np.testing.assert_allclose(ours, graph, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
        tiers[plan.core_switches > 0] += 1
    assert min(tiers.values()) > 50


def test_planned_two_tier_fabrics_equal_their_graph() -> None:
    """The plans of real sizes, too: SuperPOD units, racks, rails that do not meet, few ports."""
    checked = 0
    for seed in range(60):
        dice = random.Random(seed)
        shape = TierShape(
            hosts=dice.randint(2, 90),
            rails=dice.choice([1, 4, 8]),
            nics_per_host=8,
            hosts_per_unit=dice.choice([4, 18, 32]),
            oversubscription=dice.choice([1.0, 2.0, 3.0]),
            radix=dice.choice([16, 64]),
            rails_meet=dice.random() < 0.7,
        )
        plan = plan_tiers(fit_unit(shape))
        if plan.core_switches:
            continue
        network = tiered_network(plan, 50.0, Origin.STATED)
        flows = _flows(dice, network.num_leaves)
        for ours, graph in zip(
            network.cable_loads(*flows), _as_graph(network).cable_loads(*flows), strict=True
        ):
            np.testing.assert_allclose(ours, graph, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
        checked += 1
    assert checked >= 30


def test_no_load_between_components_and_what_goes_up_comes_down() -> None:
    apart = 0
    for seed in range(200):
        dice = random.Random(seed)
        network = random_graph(dice)
        src, dst, size = _flows(dice, network.num_leaves)
        up, down = network.cable_loads(src, dst, size)
        cables, inside = network.cables, network.component_of_leaf[src]
        joined = (inside == network.component_of_leaf[dst]) & (src != dst)
        # A switch hands on what it does not send or receive itself.
        came = np.bincount(cables.upper, up, network.num_switches)
        came += np.bincount(cables.lower, down, network.num_switches)
        went = np.bincount(cables.lower, up, network.num_switches)
        went += np.bincount(cables.upper, down, network.num_switches)
        born = np.bincount(src[joined], size[joined], network.num_switches)
        died = np.bincount(dst[joined], size[joined], network.num_switches)
        np.testing.assert_allclose(came + born, went + died, rtol=1e-9, atol=1e-9)
        apart += bool((~joined & (src != dst)).any())
        # Flows that only join different components load nothing at all.
        none = network.cable_loads(src[~joined], dst[~joined], size[~joined])
        assert not any(side.any() for side in none)
    assert apart > 50


def test_parallel_cables_of_one_pair_carry_the_same() -> None:
    cables = Cables(
        np.array([0, 0, 0, 1, 1], np.int32),
        np.array([2, 2, 3, 2, 3], np.int32),
        np.zeros(5, np.uint8),
        ("leaf-spine", "spine-core"),
        np.ones(5),
        Origin.PARSED,
    )
    network = graph_network(2, 4, cables)
    up, down = network.cable_loads(np.array([0]), np.array([1]), np.array([6.0]))
    # Three cables up share evenly; each spine has one down and passes on what it got.
    assert up.tolist() == pytest.approx([2.0, 2.0, 2.0, 0.0, 0.0])
    assert down.tolist() == pytest.approx([0.0, 0.0, 0.0, 4.0, 2.0])


def test_components_of_random_graphs() -> None:
    for seed in range(100):
        dice = random.Random(seed)
        count = dice.randint(1, 12)
        edges = [(dice.randrange(count), dice.randrange(count)) for _ in range(dice.randint(0, 10))]
        label = list(range(count))
        for _ in range(count):
            for a, b in edges:
                label[a] = label[b] = min(label[a], label[b])
        found = components(
            count, np.array([a for a, _ in edges], int), np.array([b for _, b in edges], int)
        )
        numbers = {one: index for index, one in enumerate(dict.fromkeys(label))}
        assert found.tolist() == [numbers[one] for one in label]


def test_a_long_chain_of_switches_is_one_component() -> None:
    count = 3000
    lower = np.arange(count - 1)
    assert not components(count, lower, lower + 1).any()
