"""A first, honest bound: bytes over the slowest loaded link's capacity, and hop latency apart.

No collective can be faster than this on its stated links; real ones are slower. The cost model
that is checked against measured runs replaces it behind the same records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.links import LATENCY_S
from meshwright.routes.axis import AxisRoute, pattern_of
from meshwright.traffic.collective import Collective, ring_factor

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AxisBound:
    """Bound of one axis alone. ``bottleneck`` is a link id.

    ``bound_s``: bytes over capacity; ``latency_s``: hops; ``time_s`` by collective holds both.
    ``None``: not known (no bytes, or links without rate).
    """

    bottleneck: int | None
    bound_s: float | None
    latency_s: float | None
    time_s: tuple[float | None, ...]


def busy_s(load_bytes: Floats, fabric: Fabric) -> Floats:
    """Return load over capacity of every link; NaN where the rate is unknown and there is load."""
    capacity = fabric.links.capacity_bytes_per_s()
    return np.where(load_bytes > 0, load_bytes / capacity, 0.0)


def axis_bound(route: AxisRoute, fabric: Fabric) -> AxisBound:
    """Return the bound of an axis from its exact loads."""
    load = route.load_bytes
    if load is None or route.lost_bytes > 0:
        return AxisBound(None, None, None, (None,) * len(route.collectives))
    busy = busy_s(load, fabric)
    # A link without load is busy for 0 s, which bounds nothing where the loaded ones have no rate.
    rated = (load > 0) & np.isfinite(busy)
    if not rated.any():
        return AxisBound(None, None, None, (None,) * len(route.collectives))
    link = int(np.argmax(np.where(rated, busy, -1.0)))
    latencies = [_latency_s(one, route, fabric) for one in route.collectives]
    times = [
        None if latency is None else _share_s(one, route, link, fabric) + latency
        for one, latency in zip(route.collectives, latencies, strict=True)
    ]
    total_latency = sum(latency for latency in latencies if latency is not None)
    return AxisBound(link, float(busy[link]), total_latency, tuple(times))


def _share_s(one: Collective, route: AxisRoute, link: int, fabric: Fabric) -> float:
    """Return a collective's part of the bottleneck link's time."""
    if one.bytes_by_stage is None or one.count_by_stage is None:
        return 0.0
    pattern = next(p for p in route.patterns if p.pattern == pattern_of(one.op))
    factor = ring_factor(one.op, route.degree) if pattern.pattern == "ring" else 1.0
    # The bottleneck is on the stage with most; what its other collectives carry is of that stage.
    stage = int(np.argmax(pattern.edge_bytes_by_stage))
    mine = float(one.bytes_by_stage[stage] * one.count_by_stage[stage]) * factor
    most = float(pattern.edge_bytes_by_stage[stage])
    capacity = fabric.links.classes[int(fabric.links.class_of_link[link])].capacity_bytes_per_s
    if most == 0 or not capacity:
        return 0.0
    return float(pattern.load_bytes[link]) / capacity * mine / most


def _latency_s(one: Collective, route: AxisRoute, fabric: Fabric) -> float | None:
    """Return the hop latency of all its runs in a step, of the group with the most.

    Ring: NCCL's step counts (``src/graph/tuning.cc``): n - 1 steps for all-gather and
    reduce-scatter, twice that for all-reduce, of which (cells - 1) cross the network.
    """
    if one.count_by_stage is None:
        return None
    intra, inter = _hop_s(route, fabric)
    cells = int(route.islands().max(initial=1))
    rounds = 2 if one.op == "all_reduce" else 1
    if pattern_of(one.op) == "ring":
        crossing = rounds * (cells - 1)
        steps = rounds * (route.degree - 1)
        once = (steps - crossing) * intra + crossing * inter
    else:
        once = inter if cells > 1 else intra
    return float(one.count_by_stage.max()) * once


def _hop_s(route: AxisRoute, fabric: Fabric) -> tuple[float, float]:
    """Return the latency of a step inside an island and of one over the network."""
    switched = (fabric.nvlink_domain_of_slot[route.cells.slot] >= 0).all()
    intra = 2 * LATENCY_S["nvlink"] if switched else 2 * LATENCY_S["pcie"]
    return intra, 2 * LATENCY_S["nic"]


def inside_bound_s(route: AxisRoute, fabric: Fabric) -> float | None:
    """Return the bound the axis would have with every group on NVLink alone.

    What one rank sends, over one GPU's NVLink rate: the counterfactual of a group that leaves its
    domain. ``None`` without bytes or without an NVLink switch.
    """
    rates = [one.nvlink_bytes_per_s for one in fabric.node_types if one.nvlink_bytes_per_s]
    # A rank of an all-to-all keeps its own part of the send buffer.
    kept = {"all_to_all": ring_factor("all_to_all", route.degree)}
    edges = [one.edge_bytes_by_stage.max() * kept.get(one.pattern, 1.0) for one in route.patterns]
    if not rates or not edges:
        return None
    return float(sum(edges)) / min(rates)


def total_load(routes: Sequence[AxisRoute], fabric: Fabric) -> Floats:
    """Return ``load_bytes[axis, link]`` (zeros for an axis without known bytes)."""
    loads = np.zeros((len(routes), len(fabric.links)))
    for row, route in enumerate(routes):
        load = route.load_bytes
        if load is not None:
            loads[row] = load
    return loads
