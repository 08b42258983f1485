"""What is idealised or without effect in a regular fabric, said to its user."""

from __future__ import annotations

import math

from meshwright.cluster.networks.tiers import TierPlan, TierShape, fit_unit, leaf_ports
from meshwright.findings import Finding, Place, Severity


def preset_findings(shape: TierShape, plan: TierPlan) -> list[Finding]:
    """Return all findings on a planned fabric."""
    found = []
    if leaf_ports(shape) > shape.radix:
        found.append(_leaf_too_small(shape))
    if plan.planes > 1:
        found.append(_planes(plan))
    if not plan.core_switches and shape.core_oversubscription is not None:
        found.append(_no_core(plan))
    return found + core_idealised(plan, shape.radix)


def core_idealised(plan: TierPlan, radix: int) -> list[Finding]:
    """Say where one tier of core switches (rail-only: of spines) could not reach every pod."""
    if plan.core_switches:
        count, what, above = plan.pods, "pods on core switches", "one tier of core"
    elif not plan.rails_meet:
        count, what, above = plan.units, "units on spines", "one tier of spines"
    else:
        count, what, above = 0, "", ""
    found = _spine_ports(plan, radix)
    if count > radix:
        numbers = {"pods" if plan.core_switches else "units": count, "radix": radix}
        text = (
            f"{count} {what} of {radix} ports need more than {above}; "
            "it is drawn as one that blocks nothing."
        )
        found.append(_idealised("fabric/core-idealised", text, numbers))
    return found


def _spine_ports(plan: TierPlan, radix: int) -> list[Finding]:
    """Say where pods were given that are too large for their spines."""
    if not plan.rails_meet or not plan.spines_per_pod:
        return []
    leaves = min(plan.units_per_pod, plan.units) * plan.rails
    ports = math.ceil(leaves * (plan.uplinks + plan.up_per_leaf) / plan.spines_per_pod)
    if ports <= radix:
        return []
    text = (
        f"{leaves} leaves a pod need {ports} ports on each of {plan.spines_per_pod} spines of "
        f"{radix}; they are drawn as ones that have them."
    )
    numbers = {"leaves": leaves, "spines": plan.spines_per_pod, "ports": ports, "radix": radix}
    return [_idealised("fabric/spine-ports", text, numbers)]


def _idealised(rule: str, message: str, numbers: dict[str, int]) -> Finding:
    remedy = "fabric: {preset: …, radix: …} with the ports of your switches"
    place = Place(subject="cluster.fabric")
    return Finding(rule, Severity.NOTE, place, message, dict(numbers), remedy)


def _leaf_too_small(shape: TierShape) -> Finding:
    fits = fit_unit(shape).hosts_per_unit
    return Finding(
        "fabric/leaf-ports",
        Severity.WARNING,
        Place(subject="cluster.fabric"),
        f"{shape.hosts_per_unit} hosts a unit need {leaf_ports(shape)} ports on a leaf of "
        f"{shape.radix}; the leaf is drawn as one that has them.",
        {"hosts_per_unit": shape.hosts_per_unit, "ports": leaf_ports(shape), "radix": shape.radix},
        f"fabric: {{hosts_per_unit: {fits}}}, or radix: with the ports of your switches",
    )


def _planes(plan: TierPlan) -> Finding:
    return Finding(
        "fabric/planes-even",
        Severity.NOTE,
        Place(subject="cluster.fabric"),
        f"each NIC has a port on each of {plan.planes} planes; they are drawn as one link, and what a "
        "NIC sends is divided evenly over the planes. A plane that is down is not shown.",
        {"planes": plan.planes, "leaves": plan.switches[0], "spines": plan.switches[1]},
    )


def _no_core(plan: TierPlan) -> Finding:
    return Finding(
        "fabric/no-core",
        Severity.NOTE,
        Place(subject="cluster.fabric"),
        f"one set of spines joins all {plan.hosts:,} hosts, so there is no core and "
        "core_oversubscription changes nothing.",
        {"hosts": plan.hosts},
        "hosts_per_pod: with the hosts of one pod",
    )
