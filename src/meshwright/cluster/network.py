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
        demand = np.bincount(where, weights=size_bytes[reach], minlength=len(pairs))
        bundles = _Bundles.of(self.cables)
        loads = np.zeros(2 * len(bundles.count))
        origin, target = pairs // self.num_leaves, pairs % self.num_leaves
        targets = np.unique(target)
        chunk = max(1, (1 << 22) // max(2 * len(bundles.count), self.num_switches, 1))
        for begin in range(0, len(targets), chunk):
            some = targets[begin : begin + chunk]
            picked = np.isin(target, some)
            flow = np.zeros((len(some), self.num_switches))
            row = np.searchsorted(some, target[picked])
            np.add.at(flow, (row, self.switch_of_leaf[origin[picked]]), demand[picked])
            loads += _walk_down(bundles, flow, self.switch_of_leaf[some])
        one_cable = loads / np.tile(bundles.count, 2)
        half = len(bundles.count)
        return one_cable[:half][bundles.of_cable], one_cable[half:][bundles.of_cable]


@dataclass(frozen=True, slots=True)
class _Bundles:
    """Parallel cables of one switch pair, as one edge in each direction."""

    tail: Ints
    head: Ints
    count: Floats
    of_cable: NDArray[np.int64]

    @staticmethod
    def of(cables: Cables) -> _Bundles:
        both = np.stack([cables.lower, cables.upper])
        pairs, of_cable = np.unique(both, axis=1, return_inverse=True)
        count = np.bincount(of_cable.ravel(), minlength=pairs.shape[1]).astype(np.float64)
        return _Bundles(pairs[0], pairs[1], count, of_cable.ravel())


def _walk_down(bundles: _Bundles, flow: Floats, targets: Ints) -> Floats:
    """Move ``flow[target, switch]`` to the targets; return the bytes on each directed bundle."""
    tail = np.concatenate([bundles.tail, bundles.head])
    head = np.concatenate([bundles.head, bundles.tail])
    count = np.tile(bundles.count, 2)
    distance = _distances(tail, head, flow.shape[1], targets)
    loads = np.zeros(len(tail))
    nearer = distance[:, tail] == distance[:, head] + 1
    for steps in range(int(distance[np.isfinite(distance)].max(initial=0)), 0, -1):
        row, edge = np.nonzero(nearer & (distance[:, tail] == steps))
        ways = np.zeros_like(flow)
        np.add.at(ways, (row, tail[edge]), count[edge])
        part = flow[row, tail[edge]] * count[edge] / ways[row, tail[edge]]
        np.add.at(flow, (row, head[edge]), part)
        loads += np.bincount(edge, weights=part, minlength=len(tail))
    return loads


def _distances(tail: Ints, head: Ints, num_switches: int, targets: Ints) -> Floats:
    """Return hops from every switch to each target: ``[target, switch]``, inf where unreachable."""
    distance = np.full((len(targets), num_switches), np.inf)
    rows = np.arange(len(targets))
    distance[rows, targets] = 0
    for steps in range(1, num_switches):
        row, edge = np.nonzero((distance[:, head] == steps - 1) & np.isinf(distance[:, tail]))
        if not len(row):
            break
        distance[row, tail[edge]] = steps
    return distance


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
