"""Hang the NICs of all hosts on a network: a preset's, a scheduler's tree, or a fabric file's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec
import numpy as np

from meshwright.cluster.assembly.cluster_presets import fabric_of_preset
from meshwright.cluster.build import HostSet, Wiring
from meshwright.cluster.degraded import degradations
from meshwright.cluster.degraded.peers import some
from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.join.tree_heights import edges_of, heights, hosts_below
from meshwright.cluster.networks.network import Cables, GraphNetwork, Network, components
from meshwright.cluster.networks.table_faults import table_findings
from meshwright.cluster.networks.table_graph import TableGraph
from meshwright.cluster.networks.table_network import table_network
from meshwright.cluster.networks.tier_findings import preset_findings
from meshwright.cluster.networks.tiers import (
    DEFAULT_RADIX,
    TierShape,
    TooManyCablesError,
    fit_unit,
    plan_tiers,
    tiered_network,
)
from meshwright.cluster.networks.trunks import trunk_cables
from meshwright.cluster.nodes.node import NodeType
from meshwright.cluster.sections import FabricSection
from meshwright.cluster.switch_names import short_name
from meshwright.cluster.switches.switch_levels import SwitchLevels, derive_levels
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity
from meshwright.origin import Origin
from meshwright.units import plural

PlaceOf = Callable[[str], Place]


def _serving_rates(node: NodeType) -> list[float | None]:
    """Return the rates of the NICs that serve GPUs."""
    return [node.nics[nic].rate_bytes_per_s for nic in node.serving_nics()]


def _host_nics(
    hosts: HostSet, leaf_of_rail: np.ndarray, findings: list[Finding]
) -> tuple[np.ndarray, np.ndarray]:
    """Return leaf and rail of every NIC; rail r is the r-th NIC of a host that serves a GPU.

    ``leaf_of_rail`` is ``[host, rail]`` (or ``[host, 1]``). NICs that serve no GPU hang nowhere.
    """
    node = hosts.types[0]
    serving = np.array(node.serving_nics(), dtype=np.int64)
    leaf = np.full((len(hosts.names), len(node.nics)), -1, dtype=np.int32)
    rail = np.full_like(leaf, -1)
    leaf[:, serving] = leaf_of_rail
    rail[:, serving] = np.arange(len(serving), dtype=np.int32)
    if len(serving) < len(node.nics) and len(hosts.names) > 1:
        findings.append(_serve_no_gpu(node))
    return leaf.ravel(), rail.ravel()


def _serve_no_gpu(node: NodeType) -> Finding:
    serving = node.serving_nics()
    others = [nic.name for at, nic in enumerate(node.nics) if at not in serving]
    verb = "serves" if len(others) == 1 else "serve"
    message = (
        f"{plural(len(others), 'NIC')} of {len(node.nics)} in each host {verb} no GPU (management, storage or "
        f"virtual functions: {some(others, 4)}) and {'is' if len(others) == 1 else 'are'} left out of the fabric"
    )
    return Finding(
        "topology/nics-without-gpu",
        Severity.NOTE,
        Place(subject="cluster.fabric"),
        message,
        {"nics": len(node.nics), "left_out": len(others), "names": [*others[:100]]},
        "fabric: {from: ibnetdiscover.txt}, where they are joined by name",
    )


def preset_wiring(
    kind: str,
    hosts: HostSet,
    fabric: FabricSection,
    hosts_per_unit: int,
    findings: list[Finding],
    place: PlaceOf,
) -> Wiring:
    """Return the wiring of a regular fabric; the r-th NIC of a host that serves GPUs is on rail r.

    Raises ``InputError`` for a fabric of too many cables.
    """
    named = fabric_of_preset(fabric)
    kind = named.preset or kind
    rates = [rate for rate in _serving_rates(hosts.types[0]) if rate]
    shape = _shape(kind, hosts, named, hosts_per_unit)
    try:
        plan = plan_tiers(shape)
    except TooManyCablesError as error:
        key = "fabric.hosts_per_unit" if shape.full_units else "fabric"
        remedy = "smaller units, fewer planes or more oversubscription"
        raise InputError(Problem(place(key), str(error), remedy=remedy)) from None
    findings += preset_findings(shape, plan)
    network = tiered_network(
        plan,
        max(rates, default=float("nan")) / plan.planes,
        Origin.ASSUMED if fabric.preset is None else Origin.STATED,
    )
    unit = np.arange(shape.hosts, dtype=np.int32)[:, None] // shape.hosts_per_unit
    leaf = unit * shape.rails + np.arange(shape.rails, dtype=np.int32)
    return Wiring(network, *_host_nics(hosts, leaf, findings))


def _shape(kind: str, hosts: HostSet, fabric: FabricSection, hosts_per_unit: int) -> TierShape:
    """Return what a preset's fabric must join; a unit that nobody gave shrinks to the switches."""
    nics, count = len(hosts.types[0].serving_nics()), len(hosts.names)
    per_unit = fabric.hosts_per_unit or hosts_per_unit
    per_unit = per_unit if fabric.full_units else min(per_unit, count)
    pod = fabric.hosts_per_pod
    shape = TierShape(
        hosts=count,
        rails=nics if kind.startswith("rail") else 1,
        nics_per_host=nics,
        hosts_per_unit=per_unit,
        oversubscription=fabric.oversubscription or 1.0,
        radix=fabric.radix or DEFAULT_RADIX,
        rails_meet=kind != "rail-only",
        planes=fabric.planes or 1,
        full_units=fabric.full_units,
        core_oversubscription=fabric.core_oversubscription,
    )
    if fabric.hosts_per_unit is None:
        shape = fit_unit(shape)
    units_per_pod = None if pod is None else max(1, pod // shape.hosts_per_unit)
    return msgspec.structs.replace(shape, units_per_pod=units_per_pod)


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
    """NICs that serve GPUs hang on the host's leaf: a scheduler's tree knows no rails and no cables."""
    tree = facts.tree or ()
    leaves = [index for index, switch in enumerate(tree) if switch.hosts]
    leaf_of_host = {host: leaf for leaf, index in enumerate(leaves) for host in tree[index].hosts}
    pairs = edges_of(tree)
    lower = np.array([pair[0] for pair in pairs], dtype=np.int32)
    upper = np.array([pair[1] for pair in pairs], dtype=np.int32)
    width = hosts_below(len(tree), pairs, {i: len(s.hosts) for i, s in enumerate(tree)})
    per_host = sum(rate or float("nan") for rate in _serving_rates(hosts.types[0]))
    over = fabric.oversubscription or 1.0
    # A switch without hosts below it has no NICs to be sized by: its uplink's rate is unknown.
    rates = np.array(
        [width[low] * per_host / over if width[low] else np.nan for low in lower], dtype=np.float64
    )
    depth = heights(len(tree), pairs)
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
    leaf = np.array([leaf_of_host.get(name, -1) for name in hosts.names], dtype=np.int32)
    return Wiring(network, *_host_nics(hosts, leaf[:, None], findings))


def _tree_note(place: PlaceOf, over: float) -> Finding:
    share = "all" if over == 1 else f"1/{over:g} of"
    return Finding(
        "assumed/tree-without-rails",
        Severity.NOTE,
        place("fabric.from"),
        "a scheduler's tree says which hosts share a switch, not rails, cables or rates: all NICs of "
        f"a host are hung on its leaf, and each switch gets uplinks for {share} the NICs below it.",
        {"oversubscription": over},
        "give ibnetdiscover output for real cables, or oversubscription: in the fabric section",
    )


def _cable_wiring(facts: Facts, hosts: HostSet, findings: list[Finding], place: PlaceOf) -> Wiring:
    """Join the adapters of a fabric file with the NICs of the node type, host by host."""
    levels = derive_levels(facts)
    findings += degradations(facts, levels)
    network, leaf_number = _graph(facts, levels)
    node = hosts.types[0]
    wanted = set(hosts.names)
    by_host: dict[str, list[Nic]] = {}
    for nic in facts.nics or ():
        if nic.host in wanted and nic.guid in levels.leaf_of_nic:
            by_host.setdefault(nic.host, []).append(nic)
    leaf = np.full((len(hosts.names), len(node.nics)), -1, dtype=np.int32)
    rail = np.full_like(leaf, -1)
    adapters_by_nic: list[Nic | None] = [None] * leaf.size
    partial: list[str] = []
    for row, name in enumerate(hosts.names):
        adapters = sorted(by_host.get(name, []), key=_adapter_order)
        for position, nic in _join(adapters, node, levels):
            switch = levels.leaf_of_nic[str(nic.guid)]
            leaf[row, position] = leaf_number[switch]
            rail[row, position] = levels.rail_of_leaf[switch]
            adapters_by_nic[row * len(node.nics) + position] = nic
        if (leaf[row] < 0).any():
            partial.append(name)
    if partial:
        findings.append(_partial_hosts(partial, leaf, place))
    if facts.tables is None:
        return Wiring(network, leaf.ravel(), rail.ravel())
    graph = TableGraph.of(facts, levels.level_by_switch)
    findings += table_findings(facts, graph)
    routed = _by_tables(network, graph, adapters_by_nic, leaf.ravel())
    return Wiring(routed, leaf.ravel(), rail.ravel())


def _by_tables(
    network: GraphNetwork, graph: TableGraph, adapters: list[Nic | None], leaf: np.ndarray
) -> Network:
    """Return the network routed by its tables; as it is where they fit none of its adapters."""
    by_guid = {target.nic.guid: target for target in graph.targets}
    targets = [by_guid.get(nic.guid) if nic is not None else None for nic in adapters]
    if not graph.is_routed or not any(targets):
        return network
    return table_network(network, graph, targets, leaf)


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


def _graph(facts: Facts, levels: SwitchLevels) -> tuple[GraphNetwork, dict[str, int]]:
    switches = facts.switches or ()
    number = {switch.id: index for index, switch in enumerate(switches)}
    level = levels.level_by_switch
    between = trunk_cables(facts, level)
    lower = np.array([number[cable.a] for cable in between], dtype=np.int32)
    upper = np.array([number[cable.b] for cable in between], dtype=np.int32)
    tier = np.array([min(level.get(cable.a, 0), 1) for cable in between], dtype=np.uint8)
    rates = np.array(
        [c.rate_bytes_per_s if c.rate_bytes_per_s else np.nan for c in between], dtype=np.float64
    )
    leaves = sorted(levels.rail_of_leaf, key=number.__getitem__)
    switch_of_leaf = np.array([number[leaf] for leaf in leaves], dtype=np.int32)
    component = components(len(switches), lower, upper)[switch_of_leaf]
    names: tuple[Literal["leaf-spine"], Literal["spine-core"]] = ("leaf-spine", "spine-core")
    network = GraphNetwork(
        switch_names=[short_name(switch.name) for switch in switches],
        switch_of_leaf=switch_of_leaf,
        unit_of_leaf=np.array([levels.unit_of_leaf[leaf] for leaf in leaves], dtype=np.int32),
        pod_of_leaf=component,
        component_of_leaf=component,
        cables=Cables(lower, upper, tier, names, rates, Origin.PARSED),
        num_switches=len(switches),
    )
    return network, {leaf: index for index, leaf in enumerate(leaves)}
