"""Small random fabrics, groups and placements for the tests of routes."""

from __future__ import annotations

import random

import msgspec
import numpy as np

from meshwright.cluster.build import HostSet, Wiring, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.facts import PcieChain
from meshwright.cluster.networks.network import Cables, GraphNetwork, Network, components
from meshwright.cluster.networks.tiers import TierShape, plan_tiers, tiered_network
from meshwright.cluster.nodes.node import NodeNic, NodeType
from meshwright.cluster.nodes.pcie import LocalLink, local_graph
from meshwright.origin import Origin

RATE = 50.0


def make_node(dice: random.Random, name: str = "box", nvlink: str | None = None) -> NodeType:
    """A host of 1-4 GPUs and 0-4 NICs, with some PCIe tree."""
    gpus = dice.randint(1, 4)
    nics = dice.choice([0, 1, 1, 2, gpus, gpus]) if dice.random() < 0.3 else dice.randint(1, gpus)
    nvlink = nvlink or dice.choice(["switch", "switch", "mesh", "none"])
    devices = [f"gpu{i}" for i in range(gpus)] + [f"nic{i}" for i in range(nics)]
    chains = []
    for device in devices:
        cpu = dice.randrange(2)
        bridges = [f"root{cpu}{dice.randrange(2)}"] * dice.randint(0, 1)
        if bridges and dice.random() < 0.5:
            bridges = [f"leaf{bridges[0][4:]}{dice.randrange(2)}", *bridges]
        nodes = (*bridges, f"cpu{cpu}")
        chains.append(PcieChain(device, nodes, (None,) * len(nodes)))
    mesh = []
    if nvlink == "mesh":
        for a in range(gpus):
            for b in range(a):
                if dice.random() < 0.6:
                    rate = dice.choice([25.0, 50.0])
                    ends = (f"gpu{a}", f"gpu{b}")
                    mesh += [LocalLink(*way, "nvlink", rate) for way in (ends, ends[::-1])]
    return NodeType(
        name=name,
        gpu=None,
        num_gpus=gpus,
        nics=tuple(NodeNic(f"nic{i}", RATE) for i in range(nics)),
        nic_of_gpu=tuple(
            -1
            if not nics or dice.random() < 0.04
            else dice.randrange(nics)
            if dice.random() < 0.3
            else gpu * nics // gpus
            for gpu in range(gpus)
        ),
        nvlink=nvlink,
        nvlink_bytes_per_s=450.0 if nvlink == "switch" else None,
        graph=local_graph(devices, chains, mesh, 20.0, 60.0),
        origins={},
    )


def degraded(dice: random.Random, node: NodeType) -> NodeType:
    """A switch box of which some GPUs have fallen off, or have other rates than their peers."""
    gpus = tuple(gpu for gpu in range(node.num_gpus) if dice.random() < 0.6)
    rates = tuple(dice.choice([450.0, 425.0]) for _ in range(node.num_gpus))
    return msgspec.structs.replace(node, nvlink_gpus=gpus, nvlink_rates=rates)


def make_hosts(dice: random.Random, count: int, *, mixed: bool = False) -> HostSet:
    types = tuple(make_node(dice, f"box{i}") for i in range(dice.choice([1, 1, 2, 3])))
    if mixed:
        types = tuple(
            degraded(dice, one) if one.nvlink == "switch" and dice.random() < 0.8 else one
            for one in types
        )
    kinds = np.array([dice.randrange(len(types)) for _ in range(count)], dtype=np.int32)
    return HostSet([f"h{i}" for i in range(count)], types, kinds)


def regular(dice: random.Random, *, mixed: bool = False) -> Fabric:
    """Rail-optimised, rail-only or leaf-spine; often oversubscribed; up to three tiers."""
    count = dice.randint(2, 9)
    hosts = make_hosts(dice, count, mixed=mixed)
    most = max(len(one.nics) for one in hosts.types)
    kind = dice.choice(["rail", "rail", "rail-only", "leaf-spine"])
    rails = 1 if kind == "leaf-spine" else max(most, 1)
    shape = TierShape(
        hosts=count,
        rails=rails,
        nics_per_host=max(most, 1),
        hosts_per_unit=dice.randint(1, 4),
        oversubscription=dice.choice([0.5, 1.0, 1.0, 2.0, 3.0]),
        radix=dice.choice([4, 6, 8, 16, 64]),
        rails_meet=kind != "rail-only",
    )
    network = tiered_network(plan_tiers(shape), RATE, Origin.STATED)
    leaf, rail = [], []
    for host, one in enumerate(hosts.type_of_host.tolist()):
        for nic in range(len(hosts.types[one].nics)):
            leaf.append(host // shape.hosts_per_unit * rails + (nic if rails > 1 else 0))
            rail.append(nic)
    return _finish(dice, hosts, network, leaf, rail)


def irregular(dice: random.Random, *, mixed: bool = False) -> Fabric:
    """Leaves and one or two levels of switches, joined by random bundles of cables."""
    hosts = make_hosts(dice, dice.randint(2, 7), mixed=mixed)
    network = random_graph(dice)
    leaf, rail = [], []
    for one in hosts.type_of_host.tolist():
        for nic in range(len(hosts.types[one].nics)):
            leaf.append(dice.randrange(network.num_leaves) if dice.random() < 0.95 else -1)
            rail.append(dice.choice([nic, nic, nic, dice.randrange(4), -1]))
    return _finish(dice, hosts, network, leaf, rail)


def random_graph(dice: random.Random) -> GraphNetwork:
    leaves, spines = dice.randint(1, 6), dice.randint(0, 4)
    cores = dice.choice([0, 0, 1, 2, 3])
    lower, upper, tier = [], [], []
    pairs = [(leaf, leaves + s, 0) for leaf in range(leaves) for s in range(spines)]
    pairs += [(leaves + s, leaves + spines + c, 1) for s in range(spines) for c in range(cores)]
    density = dice.choice([0.3, 0.7, 1.0])
    for low, high, level in pairs:
        for _ in range(dice.choice([1, 1, 2, 3]) if dice.random() < density else 0):
            lower.append(low)
            upper.append(high)
            tier.append(level)
    order = dice.sample(range(len(lower)), len(lower))
    total = leaves + spines + cores
    cables = Cables(
        np.array([lower[i] for i in order], dtype=np.int32),
        np.array([upper[i] for i in order], dtype=np.int32),
        np.array([tier[i] for i in order], dtype=np.uint8),
        ("leaf-spine", "spine-core"),
        np.full(len(order), RATE),
        Origin.PARSED,
    )
    return graph_network(leaves, total, cables)


def graph_network(leaves: int, switches: int, cables: Cables) -> GraphNetwork:
    """A graph network whose leaves are the first switches."""
    number = np.arange(leaves, dtype=np.int32)
    component = components(switches, cables.lower, cables.upper)[:leaves]
    return GraphNetwork(
        switch_names=[f"s{i}" for i in range(switches)],
        switch_of_leaf=number,
        unit_of_leaf=number,
        pod_of_leaf=component,
        component_of_leaf=component,
        cables=cables,
        num_switches=switches,
    )


def _finish(
    dice: random.Random, hosts: HostSet, network: Network, leaf: list[int], rail: list[int]
) -> Fabric:
    domain = names = None
    if dice.random() < 0.4:
        number = dice.randint(1, len(hosts.names))
        domain = np.array([dice.randrange(number) for _ in hosts.names], dtype=np.int32)
        names = [f"d{i}" for i in range(number)]
    wiring = Wiring(network, np.array(leaf, dtype=np.int32), np.array(rail, dtype=np.int32))
    return build_fabric(hosts, domain, names, wiring)


def make_groups(dice: random.Random, fabric: Fabric) -> np.ndarray:
    """Random disjoint groups of one size on random GPUs: ``[groups, degree]``."""
    slots = list(range(fabric.num_slots))
    if dice.random() < 0.7:
        dice.shuffle(slots)
    degree = dice.randint(1, len(slots))
    groups = dice.randint(1, len(slots) // degree)
    return np.array(slots[: groups * degree], dtype=np.int64).reshape(groups, degree)
