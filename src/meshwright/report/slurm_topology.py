"""A fabric as Slurm's ``topology.conf`` (tree plugin): which hosts share leaves, which share spines.

Slurm wants every host under exactly one lowest switch. A host with a leaf for each rail has
several, so its lowest switch is its *unit*: the hosts under one set of leaves. Grammar:
SchedMD/slurm ``doc/man/man5/topology.conf.5``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.hostlist import compress_hostlist
from meshwright.cluster.natural_order import in_name_order
from meshwright.cluster.networks.network import Network
from meshwright.errors import UsageError
from meshwright.findings import Finding, Place, Severity

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_LISTED = 8


def slurm_topology(fabric: Fabric) -> tuple[str, list[Finding]]:
    """Return the text of a ``topology.conf`` and what it cannot say.

    One switch a unit, one a pod where there are several units, one on top where several pods are
    joined. Raises ``UsageError`` for a fabric without switches.
    """
    network = fabric.network
    if network is None or network.num_leaves == 0:
        raise UsageError("the fabric names no switches: there is no topology to write for Slurm")
    unit_of_host, split = _unit_of_host(fabric, network)
    names = _Names()
    lines, unit_names = _unit_lines(fabric, network, unit_of_host, names)
    parents = _parents(network, unit_names)
    if parents is None:
        lines += _upper_lines(network, unit_names, names)
    else:
        lines += _tree_lines(network, unit_names, parents, names)
    head = ["# Slurm topology/tree, one lowest switch a unit: the hosts under one set of leaves."]
    return "\n".join(head + lines) + "\n", _not_said(fabric, unit_of_host, split)


def _unit_of_host(
    fabric: Fabric, network: Network
) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
    """Return the unit that holds most of each host's NICs (-1: none), and hosts in several."""
    wired = np.flatnonzero(fabric.leaf_of_nic >= 0)
    unit = network.unit_of_leaf[fabric.leaf_of_nic[wired]].astype(np.int64)
    width = int(network.unit_of_leaf.max(initial=0)) + 1
    pairs, count = np.unique(
        fabric.host_of_nic[wired].astype(np.int64) * width + unit, return_counts=True
    )
    host = pairs // width
    unit_of_host = np.full(fabric.num_hosts, -1, dtype=np.int64)
    order = np.argsort(count, kind="stable")  # the unit with most NICs is written last
    unit_of_host[host[order]] = pairs[order] % width
    split = np.flatnonzero(np.bincount(host, minlength=fabric.num_hosts) > 1)
    return unit_of_host, split


class _Names:
    """Names that Slurm takes, each once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def make(self, wanted: str) -> str:
        """Return the name with other characters replaced, numbered when it was given before."""
        plain = _NOT_IN_NAME.sub("_", wanted).strip("_") or "switch"
        name, number = plain, 2
        while name in self._given:
            name, number = f"{plain}-{number}", number + 1
        self._given.add(name)
        return name


def _unit_lines(
    fabric: Fabric, network: Network, unit_of_host: NDArray[np.int64], names: _Names
) -> tuple[list[str], dict[int, str]]:
    """Return a line a unit with its leaves in a comment, and the units' names."""
    order = np.argsort(unit_of_host, kind="stable")
    units, first = np.unique(unit_of_host[order], return_index=True)
    lines: list[str] = []
    unit_names: dict[int, str] = {}
    for unit, hosts in zip(units.tolist(), np.split(order, first[1:]), strict=True):
        if unit < 0:
            continue
        leaves = _leaf_names(network, unit)
        name = names.make(leaves[0] if len(leaves) == 1 else f"unit{unit}")
        unit_names[unit] = name
        if len(leaves) > 1:
            more = " …" if len(leaves) > _LISTED else ""
            lines.append(f"# {name}: leaves {', '.join(leaves[:_LISTED])}{more}")
        listed = compress_hostlist(
            in_name_order(fabric.host_names[host] for host in hosts.tolist())
        )
        lines.append(f"SwitchName={name} Nodes={listed}")
    return lines, unit_names


def _leaf_names(network: Network, unit: int) -> list[str]:
    leaves = np.flatnonzero(network.unit_of_leaf == unit)
    found = (network.switch_names[switch] for switch in network.switch_of_leaf[leaves].tolist())
    return [re.sub(r"\s+", " ", name) for name in found]


def _parents(network: Network, unit_names: dict[int, str]) -> dict[int, int] | None:
    """Return the one switch above each switch, where the fabric is a tree; else ``None``."""
    edges = np.unique(np.stack([network.cables.lower, network.cables.upper]), axis=1)
    if len(np.unique(edges[0])) < edges.shape[1] or len(unit_names) < network.num_leaves:
        return None
    return dict(zip(edges[0].tolist(), edges[1].tolist(), strict=True))


def _tree_lines(
    network: Network, unit_names: dict[int, str], parents: dict[int, int], names: _Names
) -> list[str]:
    """Return the upper switches of a tree as they are, each above those it names."""
    known = {
        int(network.switch_of_leaf[leaf]): unit_names[int(network.unit_of_leaf[leaf])]
        for leaf in range(network.num_leaves)
    }
    children: dict[int, list[str]] = {}
    waiting = list(known)
    for switch in waiting:  # grows upwards: a parent waits once, behind its first child
        parent = parents.get(switch)
        if parent is None:
            continue
        if parent not in known:
            known[parent] = names.make(network.switch_names[parent])
            waiting.append(parent)
        children.setdefault(parent, []).append(known[switch])
    return [
        f"SwitchName={known[parent]} Switches={_switch_list(below)}"
        for parent, below in children.items()
    ]


def _upper_lines(network: Network, unit_names: dict[int, str], names: _Names) -> list[str]:
    """Return the lines of the switches above the units."""
    first_leaf = {unit: int(np.argmax(network.unit_of_leaf == unit)) for unit in unit_names}
    lines: list[str] = []
    above: dict[int, list[str]] = {}
    pods: dict[int, list[int]] = {}
    for unit, leaf in first_leaf.items():
        pods.setdefault(int(network.pod_of_leaf[leaf]), []).append(unit)
    for pod, units in pods.items():
        component = int(network.component_of_leaf[first_leaf[units[0]]])
        children = [unit_names[unit] for unit in units]
        if len(children) == 1:
            above.setdefault(component, []).extend(children)
            continue
        name = names.make(_spine_name(network, pod) or f"pod{pod}")
        lines.append(f"SwitchName={name} Switches={_switch_list(children)}")
        above.setdefault(component, []).append(name)
    for component, children in above.items():
        if len(children) > 1:
            name = names.make(f"root{component}")
            lines.append(f"SwitchName={name} Switches={_switch_list(children)}")
    return lines


def _spine_name(network: Network, pod: int) -> str | None:
    """Return the name of the one switch above all leaves of a pod; ``None`` where there are more."""
    leaves = network.switch_of_leaf[network.pod_of_leaf == pod]
    above = np.unique(network.cables.upper[np.isin(network.cables.lower, leaves)])
    return network.switch_names[int(above[0])] if len(above) == 1 else None


def _switch_list(children: Sequence[str]) -> str:
    return compress_hostlist(children)


def _not_said(
    fabric: Fabric, unit_of_host: NDArray[np.int64], split: NDArray[np.integer]
) -> list[Finding]:
    """Return findings on hosts that the tree leaves out, or places under one of several units."""
    apart = np.flatnonzero(unit_of_host < 0)
    found = []
    for rule, hosts, what, remedy in (
        (
            "slurm/host-without-leaf",
            apart,
            "are under no switch of the fabric and are left out",
            "name their adapters in the fabric (node description), or add them by hand",
        ),
        (
            "slurm/host-in-two-units",
            split,
            "have NICs under the leaves of several units; each stands under the one with most",
            "look at the cabling findings of these hosts",
        ),
    ):
        if len(hosts):
            first = [fabric.host_names[host] for host in hosts[:_LISTED].tolist()]
            more = " …" if len(hosts) > _LISTED else ""
            message = f"{len(hosts)} hosts {what}: {', '.join(first)}{more}"
            numbers = {"hosts": len(hosts)}
            place = Place(subject="cluster.fabric")
            found.append(Finding(rule, Severity.WARNING, place, message, {**numbers}, remedy))
    return found
