"""Collect what crosses each kind of link, then make it one array over all links.

Patterns (ring, all-to-all, point to point) add to a ``LoadCollector``; nothing in it grows with
the number of flows between two hosts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.nodes.node import NodeType

Floats = NDArray[np.float64]
Longs = NDArray[np.integer]


class LoadCollector:
    """Bytes on every link of one fabric, for one axis."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._nvlink_out = np.zeros(fabric.num_slots)
        self._nvlink_in = np.zeros(fabric.num_slots)
        self._nic_out = np.zeros(len(fabric.host_of_nic))
        self._nic_in = np.zeros(len(fabric.host_of_nic))
        self._inside: list[tuple[Longs, Longs, Floats]] = []
        self._flows: list[tuple[Longs, Longs, Floats]] = []
        """Ends as the network knows them (``Network.by_nic``), and bytes."""
        self.lost_bytes = 0.0
        """Bytes between GPUs that no path joins."""

    def nvlink(self, out_slot: Longs, in_slot: Longs, size_bytes: Floats) -> None:
        """Add hops through an NVLink switch; either end may be an empty array."""
        if len(out_slot):
            self._nvlink_out += sum_at(out_slot, size_bytes, len(self._nvlink_out))
        if len(in_slot):
            self._nvlink_in += sum_at(in_slot, size_bytes, len(self._nvlink_in))

    def gpu_to_gpu(self, a: Longs, b: Longs, size_bytes: Floats) -> None:
        """Add flows between GPUs of one host that no NVLink switch joins."""
        start = self.fabric.slot_start
        host = self.fabric.host_of_slot[a]
        self._add_inside(host, a - start[host], b - start[host], size_bytes)

    def gpu_to_nic(
        self, slot: Longs, nic: Longs, size_bytes: Floats, *, reverse: bool = False
    ) -> None:
        """Add flows between a GPU and a NIC (of its host; another host's NIC is reached over NVLink)."""
        fabric = self.fabric
        host = fabric.host_of_slot[slot]
        mine = host == fabric.host_of_nic[nic]
        slot, nic, host, size_bytes = slot[mine], nic[mine], host[mine], size_bytes[mine]
        gpu = slot - fabric.slot_start[host]
        gpus = (fabric.slot_start[host + 1] - fabric.slot_start[host]).astype(np.int64)
        device = gpus + nic - fabric.nic_start[host]
        a, b = (device, gpu) if reverse else (gpu, device)
        self._add_inside(host, a, b, size_bytes)

    def _add_inside(self, host: Longs, a: Longs, b: Longs, size_bytes: Floats) -> None:
        types = self.fabric.node_types
        devices = np.array([len(one.graph.devices) for one in types])[
            self.fabric.type_of_host[host]
        ]
        self._inside.append((host, a * devices + b, size_bytes))

    def nic_to_nic(self, src: Longs, dst: Longs, size_bytes: Floats) -> Floats:
        """Add flows over the network; return the bytes of each that arrive.

        Flows that no path joins are counted as lost and arrive with 0: they load nothing.
        """
        fabric = self.fabric
        leaf_src, leaf_dst = fabric.leaf_of_nic[src], fabric.leaf_of_nic[dst]
        network = fabric.network
        joined = (leaf_src >= 0) & (leaf_dst >= 0)
        ends: tuple[Longs, Longs] = (leaf_src, leaf_dst)
        if network is not None:
            ends = (src, dst) if network.by_nic else ends
            joined &= network.joined(*ends)
        self.lost_bytes += float(size_bytes[~joined].sum())
        arriving = np.where(joined, size_bytes, 0.0)
        src, dst, size_bytes = src[joined], dst[joined], size_bytes[joined]
        self._nic_out += sum_at(src, size_bytes, len(self._nic_out))
        self._nic_in += sum_at(dst, size_bytes, len(self._nic_in))
        self._flows.append((ends[0][joined], ends[1][joined], size_bytes))
        return arriving

    def load_bytes(self) -> Floats:
        """Return bytes on every link."""
        fabric = self.fabric
        loads = np.zeros(len(fabric.links))
        for ids, values in (
            (fabric.nvlink_out, self._nvlink_out),
            (fabric.nvlink_in, self._nvlink_in),
            (fabric.nic_out, self._nic_out),
            (fabric.nic_in, self._nic_in),
        ):
            known = ids >= 0
            loads[ids[known]] = values[known]
        self._inside_loads(loads)
        if fabric.network is not None and self._flows:
            src, dst, size = (np.concatenate(column) for column in zip(*self._flows, strict=True))
            up, down = fabric.network.cable_loads(src, dst, size)
            loads[fabric.cable_up0 : fabric.cable_up0 + len(up)] = up
            loads[fabric.cable_down0 : fabric.cable_down0 + len(down)] = down
        return loads

    def _inside_loads(self, loads: Floats) -> None:
        if not self._inside:
            return
        host, pair, size = (np.concatenate(column) for column in zip(*self._inside, strict=True))
        for kind, node in enumerate(self.fabric.node_types):
            mine = self.fabric.type_of_host[host] == kind
            if len(node.graph.links) and mine.any():
                self._inside_type(loads, node, host[mine], pair[mine], size[mine])

    def _inside_type(
        self, loads: Floats, node: NodeType, host: Longs, pair: Longs, size: Floats
    ) -> None:
        """Multiply what each host sends between its devices with the links of those paths."""
        pairs, column = np.unique(pair, return_inverse=True)
        crosses = np.zeros((len(pairs), len(node.graph.links)))
        for index, one in enumerate(pairs.tolist()):
            crosses[index, list(node.graph.paths[one])] = 1.0
        hosts, row = np.unique(host, return_inverse=True)
        demand = np.bincount(
            row.ravel() * len(pairs) + column.ravel(),
            weights=size,
            minlength=len(hosts) * len(pairs),
        ).reshape(len(hosts), len(pairs))
        inside = demand @ crosses
        ids = self.fabric.local_base[hosts][:, None] + np.arange(inside.shape[1])
        loads[ids.ravel()] += inside.ravel()


def sum_at(index: Longs, size_bytes: Floats, length: int) -> Floats:
    """Return ``[length]``: the bytes of all entries of each index."""
    if not len(index):
        return np.zeros(length)  # bincount of nothing is an array of integers
    return np.bincount(index, weights=size_bytes, minlength=length).astype(np.float64, copy=False)
