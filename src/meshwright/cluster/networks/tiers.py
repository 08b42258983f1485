"""Regular leaf/spine(/core) networks of any size: rail-optimised, rail-only, plain leaf/spine.

Switch counts follow the reference architectures: a unit of hosts has one leaf a rail, a leaf has
as many cables up as down divided by the oversubscription, and the number of spines is the least
divisor of a leaf's uplinks that gives them ports enough. (DGX SuperPOD H100, table 4: 1, 2, 3, 4
units have 4, 8, 16, 16 spines; GB200, 8 racks: 9; every row of ``data/clusters.json`` is met.)
Where one tier of spines is too small, pods of ``radix / 2`` leaves are joined by a core; pods may
also be given, with fewer cables to the core than their hosts could fill.

*Planes* are equal fabrics side by side, a NIC has a port on each. What a NIC sends is divided evenly
over them, so the leaves of one unit and rail on all planes are one leaf to the routes.
"""

from __future__ import annotations

import bisect
import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.networks.network import Cables, Ints, TieredNetwork
from meshwright.cluster.switch_names import PlaneNames, TierNames
from meshwright.origin import Origin

Longs = NDArray[np.int64]
AnyInts = NDArray[np.integer]
DEFAULT_RADIX = 64
"""Ports of a switch: Quantum-2 and Spectrum-4 at 400 Gbit/s."""
MAX_CABLES = 1 << 23
"""Cables between switches, all planes together: four times those of 131,072 GPUs on eight planes."""


class TooManyCablesError(ValueError):
    """A fabric of more than ``MAX_CABLES`` cables."""


class TierShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a fabric must join. ``rails`` leaves a unit; ``oversubscription`` is down to up.

    ``full_units``: leaves are cabled for a full unit though fewer hosts may be there.
    ``core_oversubscription``: bandwidth of a pod's NICs to its cables to the core (``None``: as
    many of those as leaf uplinks).
    """

    hosts: int
    rails: int
    nics_per_host: int
    hosts_per_unit: int
    oversubscription: float = 1.0
    radix: int = DEFAULT_RADIX
    rails_meet: bool = True
    planes: int = 1
    full_units: bool = False
    units_per_pod: int | None = None
    core_oversubscription: float | None = None


class TierPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one plane of a regular fabric. A host's NIC r hangs on rail r."""

    hosts: int
    rails: int
    hosts_per_unit: int
    uplinks: int
    """Cables up of one leaf."""
    units_per_pod: int
    spines_per_pod: int
    core_switches: int
    """0 without a core."""
    rails_meet: bool = True
    """False: every rail is a fabric of its own (rail-only)."""
    planes: int = 1
    core_cables_per_leaf: float | None = None
    """Cables of a pod to the core, over its leaves; ``None``: as many as uplinks."""

    @property
    def units(self) -> int:
        """Number of units, the last one perhaps partly filled."""
        return math.ceil(self.hosts / self.hosts_per_unit)

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return self.units * self.rails

    @property
    def pods(self) -> int:
        """Number of pods (rails, where they do not meet)."""
        return math.ceil(self.units / self.units_per_pod) if self.rails_meet else self.rails

    @property
    def switches(self) -> tuple[int, int, int]:
        """Leaf, spine and core switches of all planes."""
        spines = self.pods * self.spines_per_pod
        return self.leaves * self.planes, spines * self.planes, self.core_switches * self.planes

    @property
    def up_per_leaf(self) -> float:
        """Cables of a pod to the core, over its leaves; 0 without a core."""
        if not self.core_switches:
            return 0.0
        given = self.core_cables_per_leaf
        return float(self.uplinks) if given is None else given

    @property
    def cables(self) -> int:
        """Cables between switches, all planes together (those to the core within one a pod)."""
        core = max(round(self.leaves * self.up_per_leaf), self.pods if self.core_switches else 0)
        return (self.leaves * self.uplinks + core) * self.planes

    def core_cables(self, leaves_in_pod: Longs) -> Longs:
        """Return the cables of each pod to the core, on one plane."""
        counts: Longs = np.rint(leaves_in_pod * self.up_per_leaf).astype(np.int64)
        counts[:] = np.maximum(counts, 1 if self.core_switches else 0)
        return counts


def plan_tiers(shape: TierShape) -> TierPlan:
    """Return the sizes of the fabric; see the module docstring.

    Raises ``TooManyCablesError``, before anything is built.
    """
    plan = _planned(shape)
    _refuse_above(plan.cables)
    return plan


def _refuse_above(cables: int) -> None:
    if cables > MAX_CABLES:
        raise TooManyCablesError(
            f"the fabric has {cables:,} cables between switches; at most {MAX_CABLES:,} are drawn"
        )


def _planned(shape: TierShape) -> TierPlan:
    downlinks, uplinks = _leaf_cable_counts(shape)
    units, leaves = _joined_leaves(shape)
    # Spines are sought among the divisors of the uplinks: a bound on those comes first.
    _refuse_above(units * shape.rails * uplinks * shape.planes)
    if leaves == 1:
        return _plan(shape, (0, units, 0, 0))
    in_one_pod = units <= (shape.units_per_pod or 0)
    fits = shape.units_per_pod is None and math.ceil(leaves * uplinks / shape.radix) <= uplinks
    if in_one_pod or fits or not shape.rails_meet:
        return _plan(shape, (uplinks, units, _spines(uplinks, leaves * uplinks / shape.radix), 0))
    units_per_pod = shape.units_per_pod or max(1, shape.radix // 2 // shape.rails)
    over = shape.core_oversubscription
    up_per_leaf = uplinks if over is None else downlinks / over
    ports = units_per_pod * shape.rails * (uplinks + up_per_leaf)
    core = max(1, math.ceil(leaves * up_per_leaf / shape.radix))
    sizes = (uplinks, units_per_pod, _spines(uplinks, ports / shape.radix), core)
    return _plan(shape, sizes, None if over is None else up_per_leaf)


def _joined_leaves(shape: TierShape) -> tuple[int, int]:
    """Return units, and leaves that must reach each other (rail-only: those of one rail)."""
    units = math.ceil(shape.hosts / shape.hosts_per_unit)
    return units, units * (shape.rails if shape.rails_meet else 1)


def _leaf_cable_counts(shape: TierShape) -> tuple[int, int]:
    """Return cables of one leaf: down to NICs, up to spines."""
    per_unit = shape.hosts_per_unit
    if not shape.full_units:
        per_unit = min(per_unit, shape.hosts)
    downlinks = math.ceil(per_unit * shape.nics_per_host / shape.rails)
    if _joined_leaves(shape)[1] == 1:
        return downlinks, 0
    return downlinks, max(1, round(downlinks / shape.oversubscription))


def leaf_ports(shape: TierShape) -> int:
    """Return the ports that one leaf of a full unit needs; a lone leaf needs none upwards."""
    return sum(_leaf_cable_counts(shape))


def fit_unit(shape: TierShape) -> TierShape:
    """Return the shape with the largest unit, no larger than asked, whose leaves have the ports."""
    largest = min(shape.hosts_per_unit, shape.hosts)
    if largest == shape.hosts:  # a lone unit may need no ports upwards
        if leaf_ports(shape) <= shape.radix:
            return shape
        largest -= 1

    def ports(per_unit: int) -> int:
        return leaf_ports(msgspec.structs.replace(shape, hosts_per_unit=per_unit))

    # The more hosts, the more ports: those that fit come first.
    fitting = bisect.bisect_right(range(1, largest + 1), shape.radix, key=ports)
    return msgspec.structs.replace(shape, hosts_per_unit=max(fitting, 1))


def _plan(
    shape: TierShape, sizes: tuple[int, int, int, int], core_cables_per_leaf: float | None = None
) -> TierPlan:
    uplinks, units_per_pod, spines, core = sizes
    return TierPlan(
        hosts=shape.hosts,
        rails=shape.rails,
        hosts_per_unit=shape.hosts_per_unit,
        uplinks=uplinks,
        units_per_pod=units_per_pod,
        spines_per_pod=spines,
        core_switches=core,
        rails_meet=shape.rails_meet,
        planes=shape.planes,
        core_cables_per_leaf=core_cables_per_leaf,
    )


def _spines(uplinks: int, needed: float) -> int:
    """Return the least divisor of ``uplinks`` that is enough (all of them at most)."""
    return next((n for n in range(1, uplinks + 1) if uplinks % n == 0 and n >= needed), uplinks)


def tiered_network(plan: TierPlan, rate_bytes_per_s: float, origin: Origin) -> TieredNetwork:
    """Return the network of a plan; ``rate_bytes_per_s`` is one cable's, one direction."""
    leaf = np.arange(plan.leaves, dtype=np.int32)
    unit, rail = leaf // plan.rails, leaf % plan.rails
    pod = unit // plan.units_per_pod if plan.rails_meet else rail
    leaves_in_pod = np.bincount(pod, minlength=plan.pods).astype(np.int64)
    start = np.arange(plan.leaves + 1, dtype=np.int64) * plan.uplinks * plan.planes
    counts = plan.core_cables(leaves_in_pod) * plan.planes
    pod_start = start[-1] + np.concatenate([[0], np.cumsum(counts)])
    first, second = _leaf_cables(plan, leaf, pod), _core_cables(plan, counts)
    lower, upper = (np.concatenate(ends) for ends in zip(first, second, strict=True))
    tier = np.zeros(len(lower), dtype=np.uint8)
    tier[start[-1] :] = 1
    cables = Cables(
        lower=lower,
        upper=upper,
        tier=tier,
        tier_names=("leaf-spine", "spine-core"),
        rate_bytes_per_s=np.full(len(lower), rate_bytes_per_s),
        origin=origin,
    )
    joined = plan.rails_meet and (plan.leaves == 1 or plan.spines_per_pod > 0)
    return TieredNetwork(
        switch_names=_names(plan),
        # A NIC's ports on all planes are one link, drawn to the leaf of the first.
        switch_of_leaf=leaf * plan.planes,
        unit_of_leaf=unit,
        pod_of_leaf=pod.astype(np.int32),
        component_of_leaf=np.zeros_like(leaf) if joined else rail,
        cables=cables,
        leaf_cable_start=start,
        pod_cable_start=pod_start,
    )


def _names(plan: TierPlan) -> TierNames | PlaneNames:
    names = TierNames(
        plan.leaves,
        plan.rails,
        plan.pods * plan.spines_per_pod,
        plan.spines_per_pod,
        plan.core_switches,
    )
    return PlaneNames(names, plan.planes) if plan.planes > 1 else names


def _leaf_cables(plan: TierPlan, leaf: Ints, pod: Ints) -> tuple[Ints, Ints]:
    """Return the ends of the leaves' cables: leaf by leaf, plane by plane."""
    per_leaf = plan.uplinks * plan.planes
    cable = np.tile(np.arange(per_leaf, dtype=np.int32), plan.leaves)
    plane, number = cable // max(plan.uplinks, 1), cable % max(plan.uplinks, 1)
    lower = np.repeat(leaf, per_leaf) * plan.planes + plane
    spine = _spine(plan, np.repeat(pod, per_leaf), number % max(plan.spines_per_pod, 1), plane)
    return lower, spine


def _spine(plan: TierPlan, pod: AnyInts, number: AnyInts, plane: AnyInts) -> Ints:
    """Return the switch of a spine: of all planes together, plane fastest."""
    spine = (plan.leaves + pod * plan.spines_per_pod + number) * plan.planes + plane
    return spine.astype(np.int32)


def _core_cables(plan: TierPlan, counts: Longs) -> tuple[Ints, Ints]:
    """Return the ends of the pods' cables to the core: pod by pod, plane by plane."""
    pod = np.repeat(np.arange(len(counts)), counts)
    index = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    number, plane = index // plan.planes, index % plan.planes
    lower = _spine(plan, pod, number % max(plan.spines_per_pod, 1), plane)
    first_core = plan.leaves + plan.pods * plan.spines_per_pod
    core = (first_core + number % max(plan.core_switches, 1)) * plan.planes + plane
    return lower, core.astype(np.int32)
