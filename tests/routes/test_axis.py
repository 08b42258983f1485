"""Routes of whole axes: the worked example, equal hosts renamed, patterns added up."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.costs.bound import axis_bound, inside_bound_s, total_load
from meshwright.findings import Place
from meshwright.groups.grid import Grid
from meshwright.routes.axis import AxisRoute, Ground, route_axis
from meshwright.routes.patterns import RingForm
from meshwright.routes.tiers import tiers_of
from meshwright.traffic.collective import Collective, unknown

GB = 1e9


def _fabric(node: str, nodes: int, **fabric: object) -> Fabric:
    section = ClusterSection(
        node=node, nodes=nodes, fabric=FabricSection(preset="rail-optimized", **fabric)
    )
    return merge_cluster(section, Path(), lambda key: Place(subject=key))[0]


def _collective(axis: str, op: str, size: float, count: float = 1.0, **more: object) -> Collective:
    return Collective(axis, op, "forward", "test", np.array([size]), np.array([count]), **more)


def _ground(fabric: Fabric, slots: np.ndarray | None = None, form: RingForm = "pxn-exit") -> Ground:
    if slots is None:
        slots = np.arange(fabric.num_slots)
    return Ground(fabric, slots, tiers_of(fabric), np.zeros(len(slots), dtype=np.int64), form)


# The worked example: Llama-3-8B, TP 4 x DP 4 on two DGX H100 -------------------------------------

A_BYTES = 8192 * 4096 * 2
SHARE = 2_007_764_992
"""Parameters of a rank: a quarter of the matrices, all norms."""


def _worked(order: tuple[str, str], form: RingForm) -> tuple[Fabric, dict[str, AxisRoute]]:
    fabric = _fabric("dgx-h100", 2)
    grid, ground = Grid(order, (4, 4)), _ground(fabric, form=form)
    said = {
        "tp": [
            _collective("tp", op, A_BYTES, 5120 * part)
            for op, part in (("all_gather", 0.6), ("reduce_scatter", 0.4))
        ],
        "dp": [
            _collective("dp", "reduce_scatter", 4 * SHARE),
            _collective("dp", "all_gather", 2 * SHARE),
        ],
    }
    return fabric, {
        axis: route_axis(axis, axis, grid.members((axis,)), said[axis], ground) for axis in said
    }


@pytest.mark.parametrize(("form", "nvlink"), [("pxn-exit", 266.7), ("alternating", 262.2)])
def test_worked_example(form: RingForm, nvlink: float) -> None:
    fabric, routes = _worked(("tp", "dp"), form)
    load = total_load(list(routes.values()), fabric)
    total = load.sum(axis=0)
    for ids in (fabric.nvlink_out, fabric.nvlink_in):
        np.testing.assert_allclose(total[ids] / GB, nvlink, atol=0.05)
        np.testing.assert_allclose(load[0][ids] / GB, 257.7, atol=0.05)
    nics = np.concatenate([fabric.nic_out, fabric.nic_in])
    assert len(nics) == 32
    np.testing.assert_allclose(total[nics] / GB, 4.5175, rtol=1e-4)
    assert not load[0][nics].any()
    bounds = {axis: axis_bound(route, fabric) for axis, route in routes.items()}
    assert bounds["tp"].bound_s == pytest.approx(0.573, abs=5e-4)
    assert bounds["dp"].bound_s == pytest.approx(0.0903, abs=1e-4)
    assert bounds["tp"].bottleneck in fabric.nvlink_out.tolist()
    assert bounds["dp"].bottleneck in nics.tolist()
    assert fabric.links.classes[fabric.links.class_of_link[bounds["dp"].bottleneck]].kind == "nic"
    # Its two collectives share the 0.0903 s two to one, and each adds its hops.
    first, second = bounds["dp"].time_s
    assert first == pytest.approx(0.0602, abs=1e-4)
    assert second == pytest.approx(0.0301, abs=1e-4)
    host, dp = routes["tp"].span("host"), routes["dp"].span("host")
    assert (host.domains == 1).all()
    assert (host.crossings == 0).all()
    assert (dp.domains == 2).all()
    assert (dp.members_min == 2).all()
    assert (dp.crossings == 2).all()
    assert host.groups_per_domain == 2
    assert dp.groups_per_domain == 4
    assert routes["tp"].lost_bytes == routes["dp"].lost_bytes == 0.0


def test_worked_example_turned() -> None:
    fabric, routes = _worked(("dp", "tp"), "pxn-exit")
    load = routes["tp"].load_bytes
    nics = np.concatenate([fabric.nic_out, fabric.nic_in])
    np.testing.assert_allclose(load[nics] / GB, 128.8, atol=0.05)
    bound = axis_bound(routes["tp"], fabric).bound_s
    assert bound == pytest.approx(2.577, abs=5e-4)
    assert bound / inside_bound_s(routes["tp"], fabric) == pytest.approx(4.5)
    assert not routes["dp"].load_bytes[nics].any()


# Equal hosts renamed -----------------------------------------------------------------------------


def _axes(fabric: Fabric, slots: np.ndarray, grid: Grid) -> list[AxisRoute]:
    ground = _ground(fabric, slots)
    said = {
        "a": [_collective("a", "all_reduce", 3e9), _collective("a", "all_to_all", 1e9)],
        "b": [_collective("b", "all_to_all", 2e9), _collective("b", "send", 1e6)],
        "c": [_collective("c", "reduce_scatter", 5e9)],
    }
    return [route_axis(axis, axis, grid.members((axis,)), said[axis], ground) for axis in grid.axes]


def _permuted(dice: random.Random, fabric: Fabric, joined: int, unit: int) -> np.ndarray:
    """Slots after shuffling NVLink domains inside each unit, and hosts inside each domain."""
    order: list[int] = []
    for first in range(0, fabric.num_hosts, unit):
        domains = [
            dice.sample(range(begin, begin + joined), joined)
            for begin in range(first, first + unit, joined)
        ]
        order += [host for domain in dice.sample(domains, len(domains)) for host in domain]
    gpus = int(fabric.slot_start[1])
    return (np.array(order)[:, None] * gpus + np.arange(gpus)).ravel()


CASES = [
    ("dgx-h100", 16, 1, {"hosts_per_unit": 4, "oversubscription": 2.0}),
    ("dgx-a100", 8, 1, {"hosts_per_unit": 2, "radix": 8}),
    ("gb200-nvl72", 72, 18, {"hosts_per_unit": 36}),
]


@pytest.mark.parametrize(("node", "nodes", "joined", "given"), CASES)
@pytest.mark.parametrize("seed", range(4))
def test_permuting_the_hosts_of_a_unit_changes_nothing(
    node: str, nodes: int, joined: int, given: dict[str, object], seed: int
) -> None:
    dice = random.Random(seed)
    fabric = _fabric(node, nodes, **given)
    sizes = dice.choice([(4, 8), (2, 16), (8, 4), (16, 2)])
    grid = Grid(("a", "b", "c"), (*sizes, fabric.num_slots // 32))
    if fabric.num_slots % 32:
        pytest.fail("the grid must fill the cluster")
    before = _axes(fabric, np.arange(fabric.num_slots), grid)
    slots = _permuted(dice, fabric, joined, int(given["hosts_per_unit"]))
    assert not np.array_equal(slots, np.arange(fabric.num_slots))
    after = _axes(fabric, slots, grid)
    classes = fabric.links.class_of_link
    for one, other in zip(before, after, strict=True):
        for span, again in zip(one.spans, other.spans, strict=True):
            for field in ("domains", "members_min", "members_max", "crossings"):
                assert np.array_equal(getattr(span, field), getattr(again, field)), span.tier
            assert span.groups_per_domain == again.groups_per_domain
        assert np.array_equal(one.reach.unreachable_pairs, other.reach.unreachable_pairs)
        for number in range(len(fabric.links.classes)):
            mine = classes == number
            np.testing.assert_allclose(
                np.sort(one.load_bytes[mine]), np.sort(other.load_bytes[mine]), rtol=1e-9
            )
        ours, theirs = axis_bound(one, fabric), axis_bound(other, fabric)
        assert ours.bound_s == pytest.approx(theirs.bound_s, rel=1e-9)
        assert ours.latency_s == pytest.approx(theirs.latency_s)


def test_host_names_alone_change_nothing() -> None:
    def route(names: list[str]) -> tuple[Fabric, list[AxisRoute]]:
        section = ClusterSection(node="dgx-h100", hosts=tuple(names), fabric="rail-optimized")
        fabric, _ = merge_cluster(section, Path(), lambda key: Place(subject=key))
        return fabric, _axes(fabric, np.arange(32), Grid(("a", "b", "c"), (4, 2, 4)))

    first, before = route(["n1", "n2", "n3", "n4"])
    second, after = route(["zz", "alpha", "n1", "07"])
    for field in ("tail", "head", "class_of_link"):
        assert np.array_equal(getattr(first.links, field), getattr(second.links, field))
    for one, other in zip(before, after, strict=True):
        assert np.array_equal(one.load_bytes, other.load_bytes)
        assert msgspec.to_builtins([s.tier for s in one.spans]) == [s.tier for s in other.spans]
        for span, again in zip(one.spans, other.spans, strict=True):
            assert np.array_equal(span.crossings, again.crossings)
        assert axis_bound(one, first) == axis_bound(other, second)
    assert second.slot_name(8) == ("alpha", 0)
    assert second.nic_name(9) == "alpha nic1"


# One axis -----------------------------------------------------------------------------------------


def test_collectives_of_an_axis_add_up() -> None:
    fabric = _fabric("dgx-h100", 4)
    ranks = Grid(("a", "b"), (4, 8)).members(("b",))
    ops = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send"]
    each = [_collective("b", op, 1e9 * (i + 1), i + 1.0) for i, op in enumerate(ops)]
    alone = [route_axis("b", "b", ranks, [one], _ground(fabric)).load_bytes for one in each]
    together = route_axis("b", "b", ranks, each, _ground(fabric))
    assert [one.pattern for one in together.patterns] == ["ring", "all_to_all", "send"]
    np.testing.assert_allclose(together.load_bytes, np.sum(alone, axis=0), rtol=1e-9)
    for one in alone:
        out, into = one[fabric.nic_out].sum(), one[fabric.nic_in].sum()
        assert out == pytest.approx(into)
        assert out > 0


def test_what_is_not_known_is_not_zero() -> None:
    fabric = _fabric("dgx-h100", 2)
    ranks = Grid(("a",), (16,)).members(("a",))
    route = route_axis(
        "a", "a", ranks, [unknown("a", "all_to_all", "forward", "x")], _ground(fabric)
    )
    assert route.patterns == ()
    assert route.load_bytes is None
    assert route.span("host").domains.tolist() == [2]
    bound = axis_bound(route, fabric)
    assert (bound.bound_s, bound.bottleneck, bound.time_s) == (None, None, (None,))


def test_sends_of_a_pipeline_go_one_way_and_back() -> None:
    """Four stages, a host each: activations forward, gradients back, the last stage sends none."""
    fabric = _fabric("dgx-h100", 4)
    ranks = Grid(("a", "pp"), (8, 4)).members(("pp",))
    forward = Collective(
        "pp", "send", "forward", "x", np.full(4, 1e6), np.array([3.0, 3.0, 3.0, 0.0])
    )
    route = route_axis("pp", "pp", ranks, [forward], _ground(fabric))
    out = route.load_bytes[fabric.nic_out].reshape(4, 8)
    into = route.load_bytes[fabric.nic_in].reshape(4, 8)
    assert out[:, 0].tolist() == [3e6, 3e6, 3e6, 0.0]
    assert into[:, 0].tolist() == [0.0, 3e6, 3e6, 3e6]
    assert (out == out[:, :1]).all()
    back = Collective(
        "pp",
        "send",
        "backward",
        "x",
        np.full(4, 1e6),
        np.array([0.0, 3.0, 3.0, 3.0]),
        reverse=True,
    )
    returned = route_axis("pp", "pp", ranks, [back], _ground(fabric)).load_bytes
    assert np.array_equal(returned[fabric.nic_out], route.load_bytes[fabric.nic_in])
    assert np.array_equal(returned[fabric.nic_in], route.load_bytes[fabric.nic_out])


def test_two_racks_use_every_nic_for_an_all_to_all() -> None:
    """72 GPUs a rack on four rails: each host relays by its own NICs, not by one a rail."""
    fabric = _fabric("gb200-nvl72", 36)
    ranks = Grid(("ep",), (144,)).members(("ep",))
    load = route_axis("ep", "ep", ranks, [_collective("ep", "all_to_all", 144.0)], _ground(fabric))
    out = load.load_bytes[fabric.nic_out]
    # Each rank sends S / 144 to each of the 72 GPUs of the other rack.
    np.testing.assert_allclose(out, 72.0)
    np.testing.assert_allclose(load.load_bytes[fabric.nic_in], 72.0)
    # 71 inside the rack, and three of four flows of the other 72 hop to the relay first.
    np.testing.assert_allclose(load.load_bytes[fabric.nvlink_out], 71 + 72 * 3 / 4)
