"""A network routed by its forwarding tables: every flow takes the one way its tables give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.networks.network import Floats, GraphNetwork, Ints, Longs, Network
from meshwright.cluster.networks.table_graph import ARRIVES, TableGraph, Target


@dataclass(frozen=True, slots=True)
class TableNetwork(Network):
    """See the module docstring. Flows are known by the NICs at their ends, not by leaves alone."""

    graph: TableGraph
    leaf_of_nic: Ints
    """``[nics]`` of the cluster; -1 where a NIC is not in the fabric."""
    lid_of_nic: Ints
    """0 where it is unknown: nothing arrives there."""
    arrives: NDArray[np.bool_]
    """``[leaves, nics]``: whether the tables bring a packet from a leaf to a NIC."""

    by_nic: ClassVar[bool] = True
    routing: ClassVar[str] = "tables"

    def joined(self, src: Longs, dst: Longs) -> NDArray[np.bool_]:
        """See ``Network.joined``."""
        return self.arrives[self.leaf_of_nic[src], dst]

    def cable_loads(self, src: Ints, dst: Ints, size_bytes: Floats) -> tuple[Floats, Floats]:
        """See ``Network.cable_loads``: all flows step on together, one switch at a time."""
        nics = len(self.lid_of_nic)
        known = (self.leaf_of_nic[src] >= 0) & self.joined(src, dst)
        key = self.leaf_of_nic[src[known]].astype(np.int64) * nics + dst[known]
        pairs, where = np.unique(key, return_inverse=True)
        carried = np.bincount(where, weights=size_bytes[known], minlength=len(pairs))
        at = self.switch_of_leaf[pairs // max(nics, 1)]
        lid = self.lid_of_nic[pairs % max(nics, 1)]
        loads = np.zeros(2 * len(self.cables))
        # Only flows that arrive are here, so none meets a switch twice.
        while len(at):
            port = self.graph.port_to(at, lid)
            edge = self.graph.edge[at, port]
            on = edge >= 0
            edge, lid, carried = edge[on], lid[on], carried[on]
            if len(edge):
                loads += np.bincount(edge, weights=carried, minlength=len(loads))
            at = self.graph.peer[at[on], port[on]]
        return loads[: len(self.cables)], loads[len(self.cables) :]


def table_network(
    base: GraphNetwork, graph: TableGraph, targets: Sequence[Target | None], leaf_of_nic: Ints
) -> TableNetwork:
    """Return ``base`` routed by tables.

    ``targets`` and ``leaf_of_nic`` have an entry for each NIC of the cluster; ``graph`` numbers
    switches and cables as ``base`` does.
    """
    lids = np.array([one.lid if one else 0 for one in targets], dtype=np.int32)
    arrives = np.zeros((max(base.num_leaves, 1), len(targets)), dtype=np.bool_)
    some = [index for index, one in enumerate(targets) if one is not None]
    wanted = [one for one in targets if one is not None]
    column = np.array(some, dtype=np.int64)
    for part, trees in graph.chunks(wanted):
        arrives[: base.num_leaves, column[part]] = trees.end[base.switch_of_leaf] == ARRIVES
    return TableNetwork(
        switch_names=base.switch_names,
        switch_of_leaf=base.switch_of_leaf,
        unit_of_leaf=base.unit_of_leaf,
        pod_of_leaf=base.pod_of_leaf,
        component_of_leaf=base.component_of_leaf,
        cables=base.cables,
        graph=graph,
        leaf_of_nic=leaf_of_nic,
        lid_of_nic=lids,
        arrives=arrives,
    )
