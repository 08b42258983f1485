"""Which links of a message's way lead away from its sender.

A message fills one link of its way at a time; were both ends taken, all stages of a pipeline would seem
to share one link, each with the next. On the way out are a GPU's link into its NVLink switch, all from a
GPU to its NIC, the NIC's link out and the fabric's links up; of a path inside a host the part up to its
turn: over the link between the sockets where it takes one, else its first half.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.nodes.pcie import LocalGraph
from meshwright.routes.loads import LoadCollector

Floats = NDArray[np.float64]
Longs = NDArray[np.integer]
Bools = NDArray[np.bool_]


class WayCollector(LoadCollector):
    """Collects loads, and which links of hosts lead away from senders."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self._outward = np.array(
            [one.direction in ("out", "up") for one in fabric.links.classes], dtype=np.bool_
        )[fabric.links.class_of_link]

    def outward(self) -> Bools:
        """Return whether each link leads away from a sender, ``[links]``."""
        return self._outward

    def gpu_to_gpu(self, a: Longs, b: Longs, size_bytes: Floats) -> None:
        """Add flows between GPUs of one host, the first part of each on the way out."""
        super().gpu_to_gpu(a, b, size_bytes)
        start = self.fabric.slot_start
        host = self.fabric.host_of_slot[a]
        self._mark(host, a - start[host], b - start[host], whole=False)

    def gpu_to_nic(
        self, slot: Longs, nic: Longs, size_bytes: Floats, *, reverse: bool = False
    ) -> None:
        """Add flows between a GPU and a NIC: to the NIC all of the path is on the way out."""
        super().gpu_to_nic(slot, nic, size_bytes, reverse=reverse)
        fabric = self.fabric
        host = fabric.host_of_slot[slot]
        mine = host == fabric.host_of_nic[nic]
        if reverse or not mine.any():
            return
        slot, nic, host = slot[mine], nic[mine], host[mine]
        gpus = fabric.slot_start[host + 1] - fabric.slot_start[host]
        device = gpus + nic - fabric.nic_start[host]
        self._mark(host, slot - fabric.slot_start[host], device, whole=True)

    def _mark(self, host: Longs, a: Longs, b: Longs, *, whole: bool) -> None:
        fabric = self.fabric
        for kind, node in enumerate(fabric.node_types):
            mine = fabric.type_of_host[host] == kind
            if not len(node.graph.links) or not mine.any():
                continue
            bases = fabric.local_base[host[mine]]
            ends, which = np.unique(
                np.stack([a[mine], b[mine]], axis=1), axis=0, return_inverse=True
            )
            for number, (tail, head) in enumerate(ends.tolist()):
                path = node.graph.path(tail, head)
                out = path if whole else path[: _turn(node.graph, path)]
                ids = bases[which.ravel() == number][:, np.newaxis] + np.array(out, dtype=np.int64)
                self._outward[ids.ravel()] = True


def _turn(graph: LocalGraph, path: tuple[int, ...]) -> int:
    """Return how many links of a path lie before it turns back to a GPU."""
    between = [at for at, link in enumerate(path) if graph.links[link].kind == "cpu"]
    return between[-1] + 1 if between else (len(path) + 1) // 2
