"""Hang the NICs of all hosts on a network: a preset's, a scheduler's tree, or a fabric file's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import numpy as np

from meshwright.cluster.build import HostSet, Wiring
from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.network import Cables, GraphNetwork, components
from meshwright.cluster.node import NodeType
from meshwright.cluster.sections import FabricSection
from meshwright.cluster.switch_levels import SwitchLevels, derive_levels
from meshwright.cluster.tiers import (
    DEFAULT_RADIX,
    TierShape,
    core_idealised,
    fit_unit,
    leaf_ports,
    plan_tiers,
    tiered_network,
)
from meshwright.findings import Finding, Place, Severity
from meshwright.origin import Origin

PlaceOf = Callable[[str], Place]
_MANAGED = re.compile(r"MF0;(?P<name>[^:;]+):[^:;/]+/U\d+\Z")


def _nic_rate(node: NodeType) -> float:
    rates = [nic.rate_bytes_per_s for nic in node.nics if nic.rate_bytes_per_s]
    return max(rates, default=float("nan"))


def preset_wiring(
    kind: str, hosts: HostSet, fabric: FabricSection, hosts_per_unit: int, findings: list[Finding]
) -> Wiring:
    """Return the wiring of a regular fabric; NIC r of a host hangs on rail r."""
    node = hosts.types[0]
    nics = len(node.nics)
    shape = TierShape(
        hosts=len(hosts.names),
        rails=nics if kind.startswith("rail") else 1,
        nics_per_host=nics,
        hosts_per_unit=min(fabric.hosts_per_unit or hosts_per_unit, len(hosts.names)),
        oversubscription=fabric.oversubscription or 1.0,
        radix=fabric.radix or DEFAULT_RADIX,
        rails_meet=kind != "rail-only",
    )
    if fabric.hosts_per_unit is None:
        shape = fit_unit(shape)
    if leaf_ports(shape) > shape.radix:
        findings.append(_leaf_too_small(shape))
    plan = plan_tiers(shape)
    findings += core_idealised(plan, shape.radix)
    network = tiered_network(
        plan, _nic_rate(node), Origin.ASSUMED if fabric.preset is None else Origin.STATED
    )
    host = np.repeat(np.arange(shape.hosts, dtype=np.int32), nics)
    nic = np.tile(np.arange(nics, dtype=np.int32), shape.hosts)
    rail = nic if shape.rails > 1 else np.zeros_like(nic)
    leaf = host // shape.hosts_per_unit * shape.rails + rail
    return Wiring(network, leaf.astype(np.int32), nic)


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


def facts_wiring(
    facts: Facts, hosts: HostSet, fabric: FabricSection, findings: list[Finding], place: PlaceOf
) -> Wiring | None:
    """Return the wiring a fabric file gives; ``None`` where it names no switch."""
    if any(switch.hosts for switch in facts.tree or ()):
        return _tree_wiring(facts, hosts, fabric, findings, place)
    if facts.cables is not None:
        return _cable_wiring(facts, hosts, findings, place)
    findings.append(
        Finding(
            "topology/no-switches",
            Severity.NOTE,
            place("fabric.from"),
            "the file names hosts and no switch: paths between hosts are unknown.",
            {},
            "add a fabric source with switches, or a preset",
        )
    )
    return None


def _tree_wiring(
    facts: Facts, hosts: HostSet, fabric: FabricSection, findings: list[Finding], place: PlaceOf
) -> Wiring:
    """All NICs of a host hang on its leaf: a scheduler's tree knows no rails and no cables."""
    tree = facts.tree or ()
    node = hosts.types[0]
    number = {switch.name: index for index, switch in enumerate(tree)}
    leaves = [index for index, switch in enumerate(tree) if switch.hosts]
    leaf_of_host = {host: leaf for leaf, index in enumerate(leaves) for host in tree[index].hosts}
    pairs = [
        (number[child], parent)
        for parent, switch in enumerate(tree)
        for child in switch.switches
        if child in number
    ]
    lower = np.array([pair[0] for pair in pairs], dtype=np.int32)
    upper = np.array([pair[1] for pair in pairs], dtype=np.int32)
    width = _hosts_below(len(tree), pairs, {i: len(s.hosts) for i, s in enumerate(tree)})
    per_host = sum(nic.rate_bytes_per_s or float("nan") for nic in node.nics)
    over = fabric.oversubscription or 1.0
    # A switch without hosts below it has no NICs to be sized by: its uplink's rate is unknown.
    rates = np.array(
        [width[low] * per_host / over if width[low] else np.nan for low in lower], dtype=np.float64
    )
    depth = _depths(len(tree), pairs)
    tier = np.array([0 if depth[low] == 0 else 1 for low in lower], dtype=np.uint8)
    component = components(len(tree), lower, upper)
    parent_of = dict(pairs)
    switch_of_leaf = np.array(leaves, dtype=np.int32)
    parents = [parent_of.get(index, index) for index in leaves]
    network = GraphNetwork(
        switch_names=[switch.comment or switch.name for switch in tree],
        switch_of_leaf=switch_of_leaf,
        unit_of_leaf=np.arange(len(leaves), dtype=np.int32),
        pod_of_leaf=np.unique(parents, return_inverse=True)[1].astype(np.int32),
        component_of_leaf=component[switch_of_leaf],
        cables=Cables(lower, upper, tier, ("leaf-spine", "spine-core"), rates, Origin.ASSUMED),
        num_switches=len(tree),
    )
    findings.append(_tree_note(place, over))
    nics = len(node.nics)
    leaf = np.repeat([leaf_of_host.get(name, -1) for name in hosts.names], nics).astype(np.int32)
    rail = np.tile(np.arange(nics, dtype=np.int32), len(hosts.names))
    return Wiring(network, leaf, rail)


def _hosts_below(count: int, pairs: list[tuple[int, int]], own: dict[int, int]) -> list[int]:
    """Return the hosts under each switch of a tree (children may stand in any order)."""
    total = [own.get(index, 0) for index in range(count)]
    parent = dict(pairs)
    for index in range(count):
        up = parent.get(index)
        while up is not None:
            total[up] += own.get(index, 0)
            up = parent.get(up)
    return total


def _depths(count: int, pairs: list[tuple[int, int]]) -> list[int]:
    """Return each switch's height above the lowest switch under it (a switch without child is 0)."""
    height = [0] * count
    for _ in range(count):
        changed = False
        for low, high in pairs:
            if height[high] < height[low] + 1:
                height[high] = height[low] + 1
                changed = True
        if not changed:
            break
    return height


def _tree_note(place: PlaceOf, over: float) -> Finding:
    return Finding(
        "assumed/tree-without-rails",
        Severity.NOTE,
        place("fabric.from"),
        "a scheduler's tree says which hosts share a switch, not rails, cables or rates: all NICs of "
        f"a host are hung on its leaf, and each switch gets uplinks for 1/{over:g} of the NICs below it.",
        {"oversubscription": over},
        "give ibnetdiscover output for real cables, or oversubscription: in the fabric section",
    )


def _cable_wiring(facts: Facts, hosts: HostSet, findings: list[Finding], place: PlaceOf) -> Wiring:
    """Join the adapters of a fabric file with the NICs of the node type, host by host."""
    levels = derive_levels(facts)
    findings += levels.findings
    network, leaf_number = _graph(facts, levels)
    node = hosts.types[0]
    wanted = set(hosts.names)
    by_host: dict[str, list[Nic]] = {}
    for nic in facts.nics or ():
        if nic.host in wanted and nic.guid in levels.leaf_of_nic:
            by_host.setdefault(nic.host, []).append(nic)
    leaf = np.full((len(hosts.names), len(node.nics)), -1, dtype=np.int32)
    rail = np.full_like(leaf, -1)
    partial: list[str] = []
    for row, name in enumerate(hosts.names):
        adapters = sorted(by_host.get(name, []), key=_adapter_order)
        for position, nic in _join(adapters, node, levels):
            switch = levels.leaf_of_nic[str(nic.guid)]
            leaf[row, position] = leaf_number[switch]
            rail[row, position] = levels.rail_of_leaf[switch]
        if (leaf[row] < 0).any():
            partial.append(name)
    if partial:
        findings.append(_partial_hosts(partial, leaf, place))
    return Wiring(network, leaf.ravel(), rail.ravel())


def _adapter_order(nic: Nic) -> tuple[int, str]:
    digits = re.findall(r"\d+", nic.name)
    return (int(digits[-1]) if digits else 0, nic.name)


def _join(adapters: list[Nic], node: NodeType, levels: SwitchLevels) -> list[tuple[int, Nic]]:
    """Return (NIC of the node type, adapter): by device name, by order, else by rail."""
    names = {nic.name: index for index, nic in enumerate(node.nics)}
    if adapters and all(nic.name in names for nic in adapters):
        return [(names[nic.name], nic) for nic in adapters]
    if len(adapters) == len(node.nics):
        return list(enumerate(adapters))
    joined: dict[int, Nic] = {}
    for nic in adapters:
        position = levels.rail_of_leaf[levels.leaf_of_nic[str(nic.guid)]]
        if position < len(node.nics):
            joined.setdefault(position, nic)
    return list(joined.items())


def _partial_hosts(partial: list[str], leaf: np.ndarray, place: PlaceOf) -> Finding:
    missing = int((leaf < 0).sum())
    return Finding(
        "topology/nic-not-in-fabric",
        Severity.WARNING,
        place("fabric.from"),
        f"{missing} NICs of {len(partial)} hosts are not in the fabric file by name "
        f"({', '.join(partial[:4])}{' …' if len(partial) > 4 else ''}); their GPUs are routed by a "
        "neighbour's NIC.",
        {"nics": missing, "hosts": len(partial)},
        "set the node description of these adapters, and run ibnetdiscover again",
    )


def _short(name: str) -> str:
    """Return the part of a managed switch's description that people use: ``MF0;LEAF-1:MQM9700/U1``."""
    match = _MANAGED.match(name)
    return match["name"] if match else name


def _graph(facts: Facts, levels: SwitchLevels) -> tuple[GraphNetwork, dict[str, int]]:
    switches = facts.switches or ()
    number = {switch.id: index for index, switch in enumerate(switches)}
    between = [c for c in facts.cables or () if c.a in number and c.b in number]
    level = levels.level_by_switch
    ends = [(c.a, c.b) if level.get(c.a, 99) <= level.get(c.b, 99) else (c.b, c.a) for c in between]
    lower = np.array([number[low] for low, _ in ends], dtype=np.int32)
    upper = np.array([number[high] for _, high in ends], dtype=np.int32)
    tier = np.array([min(level.get(low, 0), 1) for low, _ in ends], dtype=np.uint8)
    rates = np.array(
        [c.rate_bytes_per_s if c.rate_bytes_per_s else np.nan for c in between], dtype=np.float64
    )
    leaves = sorted(levels.rail_of_leaf, key=number.__getitem__)
    switch_of_leaf = np.array([number[leaf] for leaf in leaves], dtype=np.int32)
    component = components(len(switches), lower, upper)[switch_of_leaf]
    names: tuple[Literal["leaf-spine"], Literal["spine-core"]] = ("leaf-spine", "spine-core")
    network = GraphNetwork(
        switch_names=[_short(switch.name) for switch in switches],
        switch_of_leaf=switch_of_leaf,
        unit_of_leaf=np.array([levels.unit_of_leaf[leaf] for leaf in leaves], dtype=np.int32),
        pod_of_leaf=component,
        component_of_leaf=component,
        cables=Cables(lower, upper, tier, names, rates, Origin.PARSED),
        num_switches=len(switches),
    )
    return network, {leaf: index for index, leaf in enumerate(leaves)}
