"""Switch counts of regular fabrics against the reference architectures, and plans of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.cluster.networks.tier_findings import core_idealised
from meshwright.cluster.networks.tiers import (
    MAX_CABLES,
    TierPlan,
    TierShape,
    TooManyCablesError,
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
    """Leaves, spines, core switches of one plane."""
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
    planes=st.sampled_from([1, 1, 2, 3]),
    full_units=st.booleans(),
    units_per_pod=st.sampled_from([None, None, 1, 3]),
    core_oversubscription=st.sampled_from([None, None, 1.0, 2.0, 7.0]),
)


@given(shapes)
def test_any_plan_is_wired_right(shape: TierShape) -> None:
    plan = plan_tiers(shape)
    network = tiered_network(plan, 1.0, Origin.STATED)
    cables, planes = network.cables, plan.planes
    leaves, spines, cores = plan.switches
    assert len(network.switch_names) == leaves + spines + cores
    assert len(set(network.switch_names)) == len(network.switch_names)
    first, second = cables.tier == 0, cables.tier == 1
    # A cable joins two switches of one plane; plane is the fastest digit of a switch's number.
    assert (cables.lower % planes == cables.upper % planes).all()
    # Every leaf has its uplinks, to spines of its own pod.
    assert (np.bincount(cables.lower[first], minlength=leaves) == plan.uplinks).all()
    assert ((cables.upper[first] >= leaves) & (cables.upper[first] < leaves + spines)).all()
    pod_of_spine = (cables.upper[first] - leaves) // planes // max(plan.spines_per_pod, 1)
    assert (pod_of_spine == network.pod_of_leaf[cables.lower[first] // planes]).all()
    assert (cables.upper[second] >= leaves + spines).all()
    assert (cables.upper < len(network.switch_names)).all()
    if plan.core_switches and shape.core_oversubscription is None:
        # A spine sends as many cables to the core as it has from leaves.
        down = np.bincount(cables.upper[first] - leaves, minlength=spines)
        up = np.bincount(cables.lower[second] - leaves, minlength=spines)
        assert (down == up).all()
    assert network.leaf_cable_start[-1] == first.sum()
    assert network.pod_cable_start[-1] == len(cables)
    # The cables of a leaf and of a pod are where the network says.
    of_leaf = np.repeat(np.arange(plan.leaves), np.diff(network.leaf_cable_start))
    assert (cables.lower[first] // planes == of_leaf).all()
    of_pod = np.repeat(np.arange(plan.pods), np.diff(network.pod_cable_start))
    assert (
        (cables.lower[second] - leaves) // planes // max(plan.spines_per_pod, 1) == of_pod
    ).all()
    # One component where rails meet, one a rail where they do not.
    assert len(np.unique(network.component_of_leaf)) == (1 if shape.rails_meet else shape.rails)


@given(shapes)
def test_pods_have_the_cables_their_oversubscription_says(shape: TierShape) -> None:
    plan = plan_tiers(shape)
    assume(plan.core_switches)
    start = tiered_network(plan, 1.0, Origin.STATED).pod_cable_start
    unit = np.arange(plan.units)
    leaves = np.bincount(unit // plan.units_per_pod) * shape.rails
    hosts = shape.hosts_per_unit if shape.full_units else min(shape.hosts_per_unit, shape.hosts)
    down = -(-hosts * shape.nics_per_host // shape.rails)
    per_leaf = down / (shape.core_oversubscription or down / plan.uplinks)
    wanted = np.maximum(np.rint(leaves * per_leaf), 1) * plan.planes
    assert (np.abs(np.diff(start) - wanted) <= plan.planes).all()


@given(shapes)
def test_planes_are_equal_fabrics_side_by_side(shape: TierShape) -> None:
    alone = TierShape(**{**_fields(shape), "planes": 1})
    one = tiered_network(plan_tiers(alone), 1.0, Origin.STATED)
    many = tiered_network(plan_tiers(shape), 1.0, Origin.STATED)
    for plane in range(shape.planes):
        mine = many.cables.lower % shape.planes == plane
        assert sorted(many.cables.lower[mine] // shape.planes) == sorted(one.cables.lower)
        assert sorted(many.cables.upper[mine] // shape.planes) == sorted(one.cables.upper)
    names = list(many.switch_names)
    if shape.planes > 1:
        assert names[:: shape.planes] == [f"{name}-plane0" for name in one.switch_names]
        assert many.switch_names[1:2] == names[1:2]
    else:
        assert names == list(one.switch_names)


@given(shapes)
def test_two_tier_plans_fit_their_switches(shape: TierShape) -> None:
    shape = fit_unit(shape)
    assume(leaf_ports(shape) <= shape.radix)
    plan = plan_tiers(shape)
    assume(plan.core_switches == 0 and not core_idealised(plan, shape.radix))
    network = tiered_network(plan, 1.0, Origin.STATED)
    ports = np.bincount(network.cables.upper, minlength=1)
    assert ports.max(initial=0) <= shape.radix
    hosts = np.bincount(np.arange(shape.hosts) // shape.hosts_per_unit).max()
    hosts = shape.hosts_per_unit if shape.full_units else hosts
    down = -(-hosts * shape.nics_per_host // shape.rails)
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


@given(shapes)
def test_the_largest_unit_that_fits_is_taken(shape: TierShape) -> None:
    fitting = [
        per_unit
        for per_unit in range(1, min(shape.hosts_per_unit, shape.hosts) + 1)
        if leaf_ports(
            shape
            if per_unit == shape.hosts
            else TierShape(**{**_fields(shape), "hosts_per_unit": per_unit})
        )
        <= shape.radix
    ]
    found = fit_unit(shape)
    assert min(found.hosts_per_unit, found.hosts) == max(fitting, default=1)


@given(shapes)
def test_cables_are_counted_before_they_are_made(shape: TierShape) -> None:
    plan = plan_tiers(shape)
    made = len(tiered_network(plan, 1.0, Origin.STATED).cables)
    # Cables to the core are rounded pod by pod.
    assert abs(made - plan.cables) <= plan.pods * plan.planes
    if not plan.core_switches:
        assert made == plan.cables


@pytest.mark.parametrize(
    "more",
    [
        {"hosts_per_unit": 10**18, "full_units": True},
        {"hosts_per_unit": 1_000_000, "full_units": True, "planes": 8},
        {"hosts": 1 << 20, "hosts_per_unit": 32, "oversubscription": 0.1, "planes": 8},
        {"hosts": 1 << 20, "hosts_per_unit": 32, "core_oversubscription": 0.1},
    ],
)
def test_too_many_cables_are_refused_by_their_number(more: dict[str, object]) -> None:
    shape = TierShape(**{"hosts": 2, "rails": 2, "nics_per_host": 2, **more})
    with pytest.raises(TooManyCablesError, match=r"has [0-9,]+ cables") as caught:
        plan_tiers(shape)
    assert f"at most {MAX_CABLES:,}" in str(caught.value)


def test_all_that_is_planned_is_far_below_the_limit() -> None:
    largest = TierShape(hosts=16_384, rails=8, nics_per_host=8, hosts_per_unit=32, planes=8)
    assert plan_tiers(largest).cables * 4 <= MAX_CABLES
