"""The fabric graph as arrays: slots, NICs, NVLink domains, switches and every link.

A *slot* is a place for a rank: one GPU. Slots are numbered host by host, GPUs in order; NICs
likewise. Node ids of the graph: slots, then NICs, NVLink switches, bridges and CPUs of every host,
network switches. Nothing here is an object per GPU or per link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.links import LinkTable
from meshwright.cluster.networks.network import Network
from meshwright.cluster.nodes.node import NodeType

Ints = NDArray[np.int32]
NONE = -1
"""No such thing (a GPU without NVLink domain or NIC, a NIC without leaf)."""


@dataclass(frozen=True)
class Fabric:
    """See the module docstring. ``S`` slots, ``N`` NICs, ``H`` hosts.

    Link ids: ``nvlink_out[s]``, ``nvlink_in[s]`` (``-1`` outside switched domains),
    ``local_base[h] + k`` for the k-th link inside host h, ``nic_out[n]``, ``nic_in[n]``,
    ``cable_up0 + c``, ``cable_down0 + c`` for cable c of the network.
    """

    host_names: Sequence[str]
    node_types: tuple[NodeType, ...]
    type_of_host: Ints
    slot_start: NDArray[np.int64]
    """``[H + 1]``: slots of host h are ``start[h] … start[h + 1]``."""
    nic_start: NDArray[np.int64]
    host_of_slot: Ints
    gpu_of_slot: Ints
    nic_of_slot: Ints
    nvlink_domain_of_slot: Ints
    island_of_slot: Ints
    """GPUs of one island reach each other without the network: a host, or a larger NVLink domain."""
    host_of_nic: Ints
    leaf_of_nic: Ints
    rail_of_nic: Ints
    network: Network | None
    links: LinkTable
    nvlink_out: NDArray[np.int64]
    nvlink_in: NDArray[np.int64]
    local_base: NDArray[np.int64]
    nic_out: NDArray[np.int64]
    nic_in: NDArray[np.int64]
    cable_up0: int
    cable_down0: int
    nvlink_domain_names: Sequence[str]

    @property
    def num_slots(self) -> int:
        """GPUs of the cluster."""
        return len(self.host_of_slot)

    @property
    def num_hosts(self) -> int:
        """Hosts of the cluster."""
        return len(self.host_names)

    @cached_property
    def component_of_slot(self) -> Ints:
        """Return the network component each slot's NIC hangs on; -1 without a known leaf."""
        component = np.full(self.num_slots, NONE, dtype=np.int32)
        if self.network is not None:
            leaf = self.leaf_of_slot
            known = leaf >= 0
            component[known] = self.network.component_of_leaf[leaf[known]]
        return component

    @cached_property
    def leaf_of_slot(self) -> Ints:
        """Return the leaf of each slot's NIC; -1 where it is unknown."""
        leaf = np.full(self.num_slots, NONE, dtype=np.int32)
        has = self.nic_of_slot >= 0
        leaf[has] = self.leaf_of_nic[self.nic_of_slot[has]]
        return leaf

    def slot_name(self, slot: int) -> tuple[str, int]:
        """Return host name and GPU index of a slot."""
        return self.host_names[int(self.host_of_slot[slot])], int(self.gpu_of_slot[slot])

    def nic_name(self, nic: int) -> str:
        """Return ``host nic`` of a NIC."""
        host = int(self.host_of_nic[nic])
        local = self.node_types[self.type_of_host[host]].nics[nic - int(self.nic_start[host])]
        return f"{self.host_names[host]} {local.name}"

    def node_name(self, node: int) -> str:
        """Return the printed name of a node of the graph (see the module docstring)."""
        if node < self.num_slots:
            host, gpu = self.slot_name(node)
            return f"{host} gpu{gpu}"
        node -= self.num_slots
        if node < len(self.host_of_nic):
            return self.nic_name(node)
        node -= len(self.host_of_nic)
        if node < len(self.nvlink_domain_names):
            return f"{self.nvlink_domain_names[node]} nvswitch"
        node -= len(self.nvlink_domain_names)
        inside = int(self._inner_start[-1])
        if node < inside:
            owner = int(np.searchsorted(self._inner_start, node, side="right")) - 1
            name = inner_nodes(self.node_types[self.type_of_host[owner]])[
                node - int(self._inner_start[owner])
            ]
            return f"{self.host_names[owner]} {name}"
        if self.network is None:  # pragma: no cover - ids come from the builder
            raise IndexError(node)
        return self.network.switch_names[node - inside]

    @cached_property
    def _inner_start(self) -> NDArray[np.int64]:
        counts = np.array([len(inner_nodes(one)) for one in self.node_types], dtype=np.int64)
        return np.concatenate([[0], np.cumsum(counts[self.type_of_host])])


def inner_nodes(node: NodeType) -> tuple[str, ...]:
    """Return the bridges and CPUs of a host type (ends of links that are no devices)."""
    devices = set(node.graph.devices)
    names = (name for link in node.graph.links for name in (link.tail, link.head))
    return tuple(dict.fromkeys(name for name in names if name not in devices))
