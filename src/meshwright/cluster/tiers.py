"""Regular leaf/spine(/core) networks of any size: rail-optimised, rail-only, plain leaf/spine.

Switch counts follow the reference architectures: a unit of hosts has one leaf a rail, a leaf has
as many cables up as down divided by the oversubscription, and the number of spines is the least
divisor of a leaf's uplinks that gives them ports enough. (DGX SuperPOD H100, table 4: 1, 2, 3, 4
units have 4, 8, 16, 16 spines; GB200, 8 racks: 9.) Where one tier of spines is too small, pods of
``radix / 2`` leaves are joined by a core.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.network import Cables, Ints, TieredNetwork
from meshwright.cluster.switch_names import TierNames
from meshwright.findings import Finding, Place, Severity
from meshwright.origin import Origin

Longs = NDArray[np.int64]
DEFAULT_RADIX = 64
"""Ports of a switch: Quantum-2 and Spectrum-4 at 400 Gbit/s."""


class TierShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a fabric must join. ``rails`` leaves a unit; ``oversubscription`` is down to up."""

    hosts: int
    rails: int
    nics_per_host: int
    hosts_per_unit: int
    oversubscription: float = 1.0
    radix: int = DEFAULT_RADIX
    rails_meet: bool = True


class TierPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a regular fabric. ``rails`` leaves a unit; a host's NIC r hangs on rail r."""

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


def plan_tiers(shape: TierShape) -> TierPlan:
    """Return the sizes of the fabric; see the module docstring."""
    _, uplinks = _leaf_cable_counts(shape)
    units, leaves = _joined_leaves(shape)
    if leaves == 1:
        return _plan(shape, (0, units, 0, 0))
    if not shape.rails_meet or math.ceil(leaves * uplinks / shape.radix) <= uplinks:
        return _plan(shape, (uplinks, units, _spines(uplinks, leaves * uplinks / shape.radix), 0))
    units_per_pod = max(1, shape.radix // 2 // shape.rails)
    spines = _spines(uplinks, units_per_pod * shape.rails * uplinks / (shape.radix / 2))
    return _plan(shape, (uplinks, units_per_pod, spines, math.ceil(leaves * uplinks / shape.radix)))


def _joined_leaves(shape: TierShape) -> tuple[int, int]:
    """Return units, and leaves that must reach each other (rail-only: those of one rail)."""
    units = math.ceil(shape.hosts / shape.hosts_per_unit)
    return units, units * (shape.rails if shape.rails_meet else 1)


def _leaf_cable_counts(shape: TierShape) -> tuple[int, int]:
    """Return cables of one leaf: down to NICs, up to spines."""
    per_unit = min(shape.hosts_per_unit, shape.hosts)
    downlinks = math.ceil(per_unit * shape.nics_per_host / shape.rails)
    if _joined_leaves(shape)[1] == 1:
        return downlinks, 0
    return downlinks, max(1, round(downlinks / shape.oversubscription))


def leaf_ports(shape: TierShape) -> int:
    """Return the ports that one leaf of a full unit needs; a lone leaf needs none upwards."""
    return sum(_leaf_cable_counts(shape))


def fit_unit(shape: TierShape) -> TierShape:
    """Return the shape with the largest unit, no larger than asked, whose leaves have the ports."""
    for per_unit in range(min(shape.hosts_per_unit, shape.hosts), 0, -1):
        if per_unit == shape.hosts:
            smaller = shape
        else:
            smaller = msgspec.structs.replace(shape, hosts_per_unit=per_unit)
        if leaf_ports(smaller) <= shape.radix:
            return smaller
    return msgspec.structs.replace(shape, hosts_per_unit=1)


def _plan(shape: TierShape, sizes: tuple[int, int, int, int]) -> TierPlan:
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
    )


def _spines(uplinks: int, needed: float) -> int:
    """Return the least divisor of ``uplinks`` that is enough (all of them at most)."""
    return next((n for n in range(1, uplinks + 1) if uplinks % n == 0 and n >= needed), uplinks)


def tiered_network(plan: TierPlan, rate_bytes_per_s: float, origin: Origin) -> TieredNetwork:
    """Return the network of a plan; ``rate_bytes_per_s`` is one cable's, one direction."""
    leaf = np.arange(plan.leaves, dtype=np.int32)
    unit, rail = leaf // plan.rails, leaf % plan.rails
    pod = unit // plan.units_per_pod if plan.rails_meet else rail
    start = np.arange(plan.leaves + 1, dtype=np.int64) * plan.uplinks
    lower, upper = _leaf_cables(plan, leaf, pod)
    pod_start = np.full(plan.pods + 1, start[-1], dtype=np.int64)
    if plan.core_switches:
        leaves_in_pod = np.bincount(pod, minlength=plan.pods).astype(np.int64)
        pod_start = start[-1] + np.concatenate([[0], np.cumsum(leaves_in_pod * plan.uplinks)])
        low, high = _core_cables(plan, leaves_in_pod)
        lower, upper = np.concatenate([lower, low]), np.concatenate([upper, high])
    tier = np.zeros(len(lower), dtype=np.uint8)
    tier[start[-1] :] = 1
    cables = Cables(
        lower=lower.astype(np.int32),
        upper=upper.astype(np.int32),
        tier=tier,
        tier_names=("leaf-spine", "spine-core"),
        rate_bytes_per_s=np.full(len(lower), rate_bytes_per_s),
        origin=origin,
    )
    spines = plan.pods * plan.spines_per_pod
    joined = plan.rails_meet and (plan.leaves == 1 or spines > 0)
    return TieredNetwork(
        switch_names=TierNames(
            plan.leaves, plan.rails, spines, plan.spines_per_pod, plan.core_switches
        ),
        switch_of_leaf=leaf,
        unit_of_leaf=unit,
        pod_of_leaf=pod.astype(np.int32),
        component_of_leaf=np.zeros_like(leaf) if joined else rail,
        cables=cables,
        leaf_cable_start=start,
        pod_cable_start=pod_start,
    )


def _leaf_cables(plan: TierPlan, leaf: Ints, pod: Ints) -> tuple[Ints, Ints]:
    lower = np.repeat(leaf, plan.uplinks)
    cable = np.tile(np.arange(plan.uplinks, dtype=np.int32), plan.leaves)
    spine = cable % max(plan.spines_per_pod, 1)
    upper = plan.leaves + np.repeat(pod, plan.uplinks) * plan.spines_per_pod + spine
    return lower, upper.astype(np.int32)


def _core_cables(plan: TierPlan, leaves_in_pod: Longs) -> tuple[Longs, Longs]:
    counts = leaves_in_pod * plan.uplinks
    pod = np.repeat(np.arange(plan.pods), counts)
    number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    first_spine = plan.leaves
    lower = first_spine + pod * plan.spines_per_pod + number % plan.spines_per_pod
    core = number % plan.core_switches
    return lower, first_spine + plan.pods * plan.spines_per_pod + core


def core_idealised(plan: TierPlan, radix: int) -> list[Finding]:
    """Say where one tier of core switches (rail-only: of spines) could not reach every pod."""
    if plan.core_switches:
        count, what, above = plan.pods, "pods on core switches", "one tier of core"
    elif not plan.rails_meet:
        count, what, above = plan.units, "units on spines", "one tier of spines"
    else:
        return []
    if count <= radix:
        return []
    return [
        Finding(
            "fabric/core-idealised",
            Severity.NOTE,
            Place(subject="cluster.fabric"),
            f"{count} {what} of {radix} ports need more than {above}; "
            "it is drawn as one that blocks nothing.",
            {"pods" if plan.core_switches else "units": count, "radix": radix},
            "fabric: {preset: rail-optimized, radix: …} with the ports of your switches",
        )
    ]
