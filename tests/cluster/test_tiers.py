"""Switch counts of regular fabrics against the reference architectures, and plans of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.cluster.tiers import (
    TierPlan,
    TierShape,
    core_idealised,
    fit_unit,
    leaf_ports,
    plan_tiers,
    tiered_network,
)
from meshwright.origin import Origin


def _shape(units: int, per_unit: int = 32, rails: int = 8, **more: object) -> TierShape:
    return TierShape(
        hosts=units * per_unit, rails=rails, nics_per_host=rails, hosts_per_unit=per_unit, **more
    )


def _switches(plan: TierPlan) -> tuple[int, int, int]:
    """Leaves, spines, core switches."""
    return plan.leaves, plan.pods * plan.spines_per_pod, plan.core_switches


@pytest.mark.parametrize(
    ("units", "leaves", "spines"), [(1, 8, 4), (2, 16, 8), (3, 24, 16), (4, 32, 16)]
)
def test_superpod_h100(units: int, leaves: int, spines: int) -> None:
    plan = plan_tiers(_shape(units))
    assert _switches(plan) == (leaves, spines, 0)
    # Leaf-spine cables of the same table: 256, 512, 768, 1024.
    assert len(tiered_network(plan, 1.0, Origin.STATED).cables) == 256 * units


@pytest.mark.parametrize(
    ("units", "wanted"),
    [
        (2, (16, 8, 0)),
        (4, (32, 16, 0)),
        (8, (64, 32, 0)),
        (16, (128, 128, 64)),
        (32, (256, 256, 128)),
        (64, (512, 512, 256)),
    ],
)
def test_superpod_b200(units: int, wanted: tuple[int, int, int]) -> None:
    assert _switches(plan_tiers(_shape(units))) == wanted


def test_superpod_gb200() -> None:
    # A rack of 18 trays is a unit of four leaves; eight racks have nine spines, two cables each.
    plan = plan_tiers(_shape(8, per_unit=18, rails=4))
    assert _switches(plan) == (32, 9, 0)
    network = tiered_network(plan, 1.0, Origin.STATED)
    ends = np.stack([network.cables.lower, network.cables.upper], axis=1)
    _, count = np.unique(ends, axis=0, return_counts=True)
    assert set(count.tolist()) == {2}


shapes = st.builds(
    TierShape,
    hosts=st.integers(1, 400),
    rails=st.sampled_from([1, 2, 4, 8]),
    nics_per_host=st.sampled_from([1, 2, 4, 8]),
    hosts_per_unit=st.integers(1, 64),
    oversubscription=st.sampled_from([0.5, 1.0, 1.0, 1.5, 2.0, 3.0, 7.0]),
    radix=st.sampled_from([4, 8, 16, 32, 64, 128]),
    rails_meet=st.booleans(),
)


@given(shapes)
def test_any_plan_is_wired_right(shape: TierShape) -> None:
    plan = plan_tiers(shape)
    network = tiered_network(plan, 1.0, Origin.STATED)
    cables, leaves = network.cables, plan.leaves
    spines = plan.pods * plan.spines_per_pod
    assert len(network.switch_names) == leaves + spines + plan.core_switches
    assert len(set(network.switch_names)) == len(network.switch_names)
    first, second = cables.tier == 0, cables.tier == 1
    # Every leaf has its uplinks, to spines of its own pod, as many to each.
    assert (np.bincount(cables.lower[first], minlength=leaves) == plan.uplinks).all()
    assert ((cables.upper[first] >= leaves) & (cables.upper[first] < leaves + spines)).all()
    spine = cables.upper[first] - leaves
    assert (spine // max(plan.spines_per_pod, 1) == network.pod_of_leaf[cables.lower[first]]).all()
    # A spine sends as many cables to the core as it has from leaves.
    assert (cables.upper[second] >= leaves + spines).all()
    assert (cables.upper < len(network.switch_names)).all()
    if plan.core_switches:
        down = np.bincount(spine, minlength=spines)
        up = np.bincount(cables.lower[second] - leaves, minlength=spines)
        assert (down == up).all()
    assert network.leaf_cable_start[-1] == first.sum()
    assert network.pod_cable_start[-1] == len(cables)
    # One component where rails meet, one a rail where they do not.
    assert len(np.unique(network.component_of_leaf)) == (1 if shape.rails_meet else shape.rails)


@given(shapes)
def test_two_tier_plans_fit_their_switches(shape: TierShape) -> None:
    shape = fit_unit(shape)
    assume(leaf_ports(shape) <= shape.radix)
    plan = plan_tiers(shape)
    assume(plan.core_switches == 0 and not core_idealised(plan, shape.radix))
    network = tiered_network(plan, 1.0, Origin.STATED)
    ports = np.bincount(network.cables.upper, minlength=1)
    assert ports.max(initial=0) <= shape.radix
    hosts = np.bincount(np.arange(shape.hosts) // shape.hosts_per_unit)
    down = -(-hosts.max() * shape.nics_per_host // shape.rails)
    assert down + plan.uplinks <= shape.radix


@given(shapes, st.integers(1, 200))
def test_more_hosts_never_need_fewer_switches(shape: TierShape, more: int) -> None:
    # From whole units on; the first unit's leaf grows with its hosts.
    whole = TierShape(**{**_fields(shape), "hosts": max(shape.hosts, shape.hosts_per_unit)})
    larger = TierShape(**{**_fields(shape), "hosts": whole.hosts + more})
    few, many = plan_tiers(whole), plan_tiers(larger)
    assert many.leaves >= few.leaves
    assert many.core_switches >= few.core_switches
    assert sum(_switches(many)) >= sum(_switches(few))


def _fields(shape: TierShape) -> dict[str, object]:
    return {name: getattr(shape, name) for name in shape.__struct_fields__}


def test_a_unit_that_fits_is_kept_and_one_too_large_shrinks() -> None:
    assert fit_unit(_shape(2)).hosts_per_unit == 32
    # All eight NICs of a host on one leaf of 64 ports: four hosts, half the ports go up.
    plain = TierShape(hosts=64, rails=1, nics_per_host=8, hosts_per_unit=32)
    assert fit_unit(plain).hosts_per_unit == 4
    # Eight hosts fill one switch, which needs no cable up.
    assert fit_unit(TierShape(hosts=8, rails=1, nics_per_host=8, hosts_per_unit=32)) == (
        TierShape(hosts=8, rails=1, nics_per_host=8, hosts_per_unit=32)
    )
    # Three to one: 48 ports down, 16 up.
    over = TierShape(hosts=64, rails=1, nics_per_host=8, hosts_per_unit=32, oversubscription=3.0)
    assert fit_unit(over).hosts_per_unit == 6


def test_a_core_of_one_tier_too_small_is_said() -> None:
    shape = TierShape(hosts=80, rails=2, nics_per_host=2, hosts_per_unit=2, radix=4)
    assert [one.rule for one in core_idealised(plan_tiers(shape), 4)] == ["fabric/core-idealised"]
    assert core_idealised(plan_tiers(_shape(64)), 64) == []
    # Rails that do not meet: 65 units on spines of 64 ports.
    alone = _shape(65, per_unit=4, rails_meet=False)
    assert [one.rule for one in core_idealised(plan_tiers(alone), 64)] == ["fabric/core-idealised"]
    assert core_idealised(plan_tiers(_shape(64, per_unit=4, rails_meet=False)), 64) == []


def test_names_follow_units_pods_and_core() -> None:
    names = tiered_network(plan_tiers(_shape(16)), 1.0, Origin.STATED).switch_names
    assert names[0] == "leaf-u0-r0"
    assert names[127] == "leaf-u15-r7"
    assert names[128:130] == ["spine-p0-0", "spine-p0-1"]
    assert names[128 + 127] == "spine-p3-31"
    assert names[-1:] == ["core-63"]
    with pytest.raises(IndexError):
        names[len(names)]
