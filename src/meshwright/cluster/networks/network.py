"""The network between hosts: leaves, the switches above them, cables, and how traffic spreads.

Three makes. ``TieredNetwork``: a regular leaf/spine(/core) fabric, where what leaves a domain is
divided evenly over its cables, so no path is ever listed. ``GraphNetwork``: any switch graph, as
fabric files give it, routed over all shortest paths. ``TableNetwork`` (``table_network.py``): a graph
routed by its switches' forwarding tables, one way a flow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.networks.graph_loads import Bundles, bundle_loads
from meshwright.origin import Origin

Ints = NDArray[np.int32]
Longs = NDArray[np.integer]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cables:
    """Cables between switches, each once: parallel arrays.

    ``lower`` and ``upper`` are switch indices (the lower tier first), ``tier`` an index into
    ``tier_names``, ``rate_bytes_per_s`` one direction.
    """

    lower: Ints
    upper: Ints
    tier: NDArray[np.uint8]
    tier_names: tuple[str, ...]
    rate_bytes_per_s: Floats
    origin: Origin

    def __len__(self) -> int:
        return len(self.lower)


@dataclass(frozen=True, slots=True)
class Network(ABC):
    """What all makes share. Leaves are numbered from 0 in the order of their switches."""

    by_nic: ClassVar[bool] = False
    """Whether the ends of flows, ``src`` and ``dst``, are NICs of the cluster; else their leaves."""
    routing: ClassVar[str] = "adaptive"
    """``adaptive``: flows divide evenly over all shortest paths; ``tables``: one way each."""
    switch_names: Sequence[str]
    switch_of_leaf: Ints
    unit_of_leaf: Ints
    """Hosts under one set of leaves are a unit."""
    pod_of_leaf: Ints
    component_of_leaf: Ints
    """Leaves of different components have no path between them."""
    cables: Cables

    @property
    def num_leaves(self) -> int:
        """Number of switches with host adapters."""
        return len(self.switch_of_leaf)

    @property
    def leaf_switches(self) -> int:
        """Number of real leaf switches; a leaf here can stand for one on every plane."""
        return self.num_leaves

    def joined(self, src: Longs, dst: Longs) -> NDArray[np.bool_]:
        """Tell of each flow whether a path joins its ends."""
        return np.equal(self.component_of_leaf[src], self.component_of_leaf[dst])

    @abstractmethod
    def cable_loads(self, src: Ints, dst: Ints, size_bytes: Floats) -> tuple[Floats, Floats]:
        """Return bytes on every cable, up and down, for flows between two ends (see ``by_nic``).

        ``size_bytes``: what each carries. Flows inside a leaf and those that are not ``joined``
        load no cable.
        """


@dataclass(frozen=True, slots=True)
class TieredNetwork(Network):
    """A regular fabric: each leaf's cables stand together, then each pod's cables to the core."""

    leaf_cable_start: NDArray[np.int64]
    """``[num_leaves + 1]``: cables of leaf l are ``start[l] … start[l + 1]``."""
    pod_cable_start: NDArray[np.int64]
    """``[num_pods + 1]``: cables of pod p to the core; all equal where there is no core."""

    @property
    def leaf_switches(self) -> int:
        """See ``Network.leaf_switches``."""
        lowest = self.cables.lower[self.cables.tier == 0]
        return len(np.union1d(self.switch_of_leaf, lowest))

    def cable_loads(self, src: Ints, dst: Ints, size_bytes: Floats) -> tuple[Floats, Floats]:
        """See ``Network.cable_loads``: totals over a domain's border, divided by its cables."""
        reach = (src != dst) & self.joined(src, dst)
        src, dst, size_bytes = src[reach], dst[reach], size_bytes[reach]
        up, down = np.zeros(len(self.cables)), np.zeros(len(self.cables))
        for loads, end in ((up, src), (down, dst)):
            total = np.bincount(end, weights=size_bytes, minlength=self.num_leaves)
            _spread(loads, total, self.leaf_cable_start)
        pods = len(self.pod_cable_start) - 1
        far = self.pod_of_leaf[src] != self.pod_of_leaf[dst]
        if pods > 0 and far.any():
            for loads, end in ((up, src), (down, dst)):
                total = np.bincount(
                    self.pod_of_leaf[end[far]], weights=size_bytes[far], minlength=pods
                )
                _spread(loads, total, self.pod_cable_start)
        return up, down


def _spread(loads: Floats, total: NDArray[Any], start: NDArray[np.int64]) -> None:
    """Divide each domain's total evenly over its cables."""
    counts = np.diff(start)
    # bincount of nothing is an array of integers.
    share = np.divide(total, counts, out=np.zeros(len(total)), where=counts > 0)
    loads[start[0] : start[-1]] = np.repeat(share, counts)


@dataclass(frozen=True, slots=True)
class GraphNetwork(Network):
    """Any switch graph; each flow spreads over all its shortest paths.

    At every switch what goes on to a destination is divided over the cables that lead nearer to
    it, parallel cables counted singly (even ECMP). Source: the two matrix products for two tiers
    and the per-destination walk are equal (tests).
    """

    num_switches: int

    def cable_loads(self, src: Ints, dst: Ints, size_bytes: Floats) -> tuple[Floats, Floats]:
        """See ``Network.cable_loads``."""
        reach = (src != dst) & self.joined(src, dst)
        key = src[reach].astype(np.int64) * self.num_leaves + dst[reach]
        pairs, where = np.unique(key, return_inverse=True)
        # bincount of nothing is an array of integers.
        demand = np.bincount(where, weights=size_bytes[reach], minlength=len(pairs)).astype(float)
        bundles = Bundles.of(self.cables.lower, self.cables.upper)
        leaves = self.switch_of_leaf.astype(np.int64)
        ends = (pairs // self.num_leaves, pairs % self.num_leaves, demand)
        one_cable = bundle_loads(bundles, leaves, ends, self.num_switches) / bundles.count
        return one_cable[bundles.up_of_cable], one_cable[bundles.down_of_cable]


def components(num_switches: int, lower: Ints, upper: Ints) -> Ints:
    """Return for each switch the number of its connected component (from 0, by first switch)."""
    label = np.arange(num_switches, dtype=np.int64)
    while True:
        least = label.copy()
        np.minimum.at(least, lower, label[upper])
        np.minimum.at(least, upper, label[lower])
        least = least[least]
        if np.array_equal(least, label):
            break
        label = least
    return np.unique(label, return_inverse=True)[1].astype(np.int32)
