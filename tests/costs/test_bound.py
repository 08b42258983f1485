"""Bounds: bytes over the slowest loaded link; hops apart; unknown stays unknown."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.build import HostSet, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.nodes.node import NodeType
from meshwright.cluster.nodes.presets import bare_node, find_preset, node_from_preset
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.costs.bound import axis_bound, busy_s, inside_bound_s, total_load
from meshwright.findings import Place
from meshwright.groups.grid import Grid
from meshwright.routes.axis import AxisRoute, Ground, route_axis
from meshwright.routes.tiers import tiers_of
from meshwright.traffic.collective import Collective
from routes.fabrics import irregular, make_groups, regular


def _fabric(nodes: int = 2, node: str = "dgx-h100", preset: str = "rail-optimized") -> Fabric:
    section = ClusterSection(node=node, nodes=nodes, fabric=FabricSection(preset=preset))
    return merge_cluster(section, Path(), lambda key: Place(subject=key))[0]


def _route(fabric: Fabric, ranks: np.ndarray, *said: tuple[str, float, float]) -> AxisRoute:
    stage = np.zeros(fabric.num_slots, dtype=np.int64)
    ground = Ground(fabric, np.arange(fabric.num_slots), tiers_of(fabric), stage)
    collectives = [
        Collective("x", op, "forward", "x", np.array([size]), np.array([count]))
        for op, size, count in said
    ]
    return route_axis("x", "x", ranks, collectives, ground)


def _whole(fabric: Fabric) -> np.ndarray:
    return np.arange(fabric.num_slots, dtype=np.int32)[None, :]


def test_bound_is_the_busiest_link_on_random_fabrics() -> None:
    known = 0
    for seed in range(200):
        dice = random.Random(seed)
        fabric = dice.choice([regular, irregular])(dice)
        groups = make_groups(dice, fabric)
        op = dice.choice(["all_reduce", "all_to_all", "send"])
        route = _route(fabric, groups.astype(np.int32), (op, 64.0, 2.0))
        bound, load = axis_bound(route, fabric), route.load_bytes
        assert load is not None
        rates = [
            fabric.links.classes[one].capacity_bytes_per_s for one in fabric.links.class_of_link
        ]
        times = [size / rate for size, rate in zip(load.tolist(), rates, strict=True) if size > 0]
        if route.lost_bytes or not times:
            assert bound.bound_s is None
            continue
        known += 1
        assert bound.bound_s == pytest.approx(max(times))
        assert load[bound.bottleneck] / rates[bound.bottleneck] == pytest.approx(max(times))
        assert bound.time_s[0] == pytest.approx(max(times) + bound.latency_s)
    assert known > 50


def test_latency_counts_the_steps_of_a_ring() -> None:
    fabric = _fabric(2)
    # Four members on two hosts: three steps, one of them over the network.
    ranks = Grid(("a", "b"), (2, 8)).members(("a",))
    across = np.array([[0, 1, 8, 9]], dtype=np.int32)
    nvlink, net = 2 * 0.3e-6, 2 * 1.35e-6
    cases = [
        (across, "all_gather", 2 * nvlink + net),
        (across, "all_reduce", 4 * nvlink + 2 * net),
        (across, "all_to_all", net),
        (ranks, "all_reduce", 2 * nvlink),
        (ranks, "all_to_all", nvlink),
    ]
    for groups, op, once in cases:
        bound = axis_bound(_route(fabric, groups, (op, 1e6, 5.0)), fabric)
        assert bound.latency_s == pytest.approx(5 * once)


def test_collectives_share_the_bound_by_their_bytes() -> None:
    fabric = _fabric(2)
    route = _route(fabric, _whole(fabric), ("reduce_scatter", 2e9, 1.0), ("all_gather", 1e9, 1.0))
    bound = axis_bound(route, fabric)
    assert sum(bound.time_s) == pytest.approx(bound.bound_s + bound.latency_s)
    assert bound.time_s[0] > bound.time_s[1]


def test_links_without_rate_bound_nothing() -> None:
    """An NVLink switch of unknown speed: the other links are idle, which is no bound of 0 s."""
    node = msgspec.structs.replace(
        node_from_preset(find_preset("dgx-h100")), nvlink_bytes_per_s=None
    )
    fabric = _one_host(node)
    route = _route(fabric, _whole(fabric), ("all_reduce", 1e9, 1.0))
    bound = axis_bound(route, fabric)
    assert (bound.bound_s, bound.bottleneck, bound.time_s) == (None, None, (None,))
    assert np.isnan(busy_s(route.load_bytes, fabric)[fabric.nvlink_out]).all()
    assert inside_bound_s(route, fabric) is None


def test_nothing_known_of_the_inside_of_hosts() -> None:
    fabric = _one_host(bare_node(8))
    route = _route(fabric, _whole(fabric), ("all_reduce", 1e9, 1.0))
    assert axis_bound(route, fabric).bound_s is None
    assert len(fabric.links) == 0


def _one_host(node: NodeType) -> Fabric:
    return build_fabric(HostSet(["h"], (node,), np.zeros(1, dtype=np.int32)))


def test_lost_bytes_have_no_bound() -> None:
    fabric = _fabric(2, preset="rail-only")
    ranks = np.array([[0, 9]], dtype=np.int32)
    route = _route(fabric, ranks, ("all_reduce", 1e9, 1.0))
    assert route.lost_bytes > 0
    assert axis_bound(route, fabric).bound_s is None


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "broadcast"])
def test_inside_bound_is_the_bound_of_a_group_inside_a_host(op: str) -> None:
    fabric = _fabric(2)
    route = _route(fabric, np.arange(16, dtype=np.int32).reshape(4, 4), (op, 1e9, 3.0))
    assert inside_bound_s(route, fabric) == pytest.approx(axis_bound(route, fabric).bound_s)


def test_inside_bound_and_total_load() -> None:
    fabric = _fabric(2)
    route = _route(fabric, _whole(fabric), ("all_reduce", 1.6e9, 1.0), ("all_to_all", 1.6e9, 1.0))
    # 2 x 15/16 of S round the ring and 15/16 of S out of a rank, over 450 GB/s.
    assert inside_bound_s(route, fabric) == pytest.approx((3.0e9 + 1.5e9) / 450e9)
    silent = _route(fabric, _whole(fabric))
    load = total_load([silent, route], fabric)
    assert load.shape == (2, len(fabric.links))
    assert not load[0].any()
    assert np.array_equal(load[1], route.load_bytes)
