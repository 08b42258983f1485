"""Loads by the fast way equal loads by walking every flow, on random small fabrics."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from meshwright.cluster.build import HostSet, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.nodes.presets import find_preset, node_from_preset
from meshwright.routes.loads import LoadCollector
from meshwright.routes.patterns import GroupSlots, all_to_all, ring, transfer
from routes.fabrics import irregular, make_groups, regular
from routes.walk import Walk

PATTERNS = ("ring pxn-exit", "ring alternating", "all-to-all", "send")
BLOCK = 20
BLOCKS = 20


def loads_both_ways(
    fabric: Fabric, groups: np.ndarray, size: np.ndarray, pattern: str
) -> tuple[LoadCollector, Walk]:
    fast, slow = LoadCollector(fabric), Walk(fabric)
    placed = GroupSlots.of(groups, np.arange(fabric.num_slots), fabric)
    if pattern == "all-to-all":
        all_to_all(placed, size, fast)
    elif pattern == "send":
        for position in range(groups.shape[1]):
            other = (position + 1) % groups.shape[1]
            transfer(groups[:, position], groups[:, other], size, fast)
    else:
        ring(placed, size, fast, pattern.split()[1])
    for row, one in enumerate(groups.tolist()):
        if pattern == "all-to-all":
            slow.all_to_all(one, float(size[row]))
        elif pattern == "send":
            for a, b in zip(one, one[1:] + one[:1], strict=True):
                slow.transfer(a, b, float(size[row]))
        else:
            slow.ring(one, float(size[row]), pattern.split()[1])
    return fast, slow


def assert_equal(fast: LoadCollector, slow: Walk, message: str) -> np.ndarray:
    load, wanted = fast.load_bytes(), np.array(slow.load)
    np.testing.assert_allclose(load, wanted, rtol=1e-9, atol=1e-9, err_msg=message)
    assert fast.lost_bytes == pytest.approx(slow.lost, rel=1e-9), message
    return load


@pytest.mark.parametrize("make", [regular, irregular])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_fast_loads_equal_the_walk(pattern: str, make: Callable[[random.Random], Fabric]) -> None:
    seen = dict.fromkeys(("loaded", "lost", "fabric"), 0)
    for seed in range(BLOCK * BLOCKS):
        dice = random.Random(f"{pattern} {make.__name__} {seed}")
        fabric = make(dice)
        groups = make_groups(dice, fabric)
        size = np.array([dice.uniform(1.0, 9.0) for _ in groups])
        fast, slow = loads_both_ways(fabric, groups, size, pattern)
        load = assert_equal(fast, slow, f"seed {seed}")
        check_conservation(fabric, fast, load)
        seen["loaded"] += bool(load.any())
        seen["lost"] += fast.lost_bytes > 0
        seen["fabric"] += bool(load[fabric.cable_up0 :].any()) and len(fabric.network.cables) > 0
    assert all(count >= 50 for count in seen.values()), seen


@pytest.mark.parametrize("make", [regular, irregular])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_hosts_with_gpus_off_the_switch(pattern: str, make: Callable[..., Fabric]) -> None:
    """The same of hosts whose cells hang on a switch in part."""
    seen = dict.fromkeys(("mixed", "nvlink", "board"), 0)
    for seed in range(BLOCK * BLOCKS // 2):
        dice = random.Random(f"off {pattern} {make.__name__} {seed}")
        fabric = make(dice, mixed=True)
        groups = make_groups(dice, fabric)
        size = np.array([dice.uniform(1.0, 9.0) for _ in groups])
        fast, slow = loads_both_ways(fabric, groups, size, pattern)
        load = assert_equal(fast, slow, f"seed {seed}")
        check_conservation(fabric, fast, load)
        on = fabric.nvlink_domain_of_slot[groups] >= 0
        mixed = bool((on.any(axis=1) & ~on.all(axis=1)).any())
        kinds = np.array([one.kind for one in fabric.links.classes])[fabric.links.class_of_link]
        seen["mixed"] += mixed
        seen["nvlink"] += mixed and bool(load[kinds == "nvlink"].any())
        seen["board"] += mixed and bool(load[kinds == "pcie"].any())
    assert all(count >= 20 for count in seen.values()), seen


def _host_with_a_gpu_off() -> Fabric:
    box = msgspec.structs.replace(
        node_from_preset(find_preset("dgx-h100")), nvlink_gpus=(0, 1, 2, 3, 4, 6, 7)
    )
    return build_fabric(HostSet(["a"], (box,), np.zeros(1, np.int32)))


def test_a_ring_of_eight_passes_pcie_on_the_two_edges_at_the_gpu_off_the_switch() -> None:
    fabric = _host_with_a_gpu_off()
    groups = np.arange(8)[None, :]
    fast, slow = loads_both_ways(fabric, groups, np.array([10.0]), "ring pxn-exit")
    load = assert_equal(fast, slow, "ring")
    # Edges 4-5 and 5-6 go by PCIe; the other six by the switch.
    assert load[fabric.nvlink_out[[0, 1, 2, 3, 4, 6, 7]]].tolist() == [10, 10, 10, 10, 0, 10, 10]
    assert load[fabric.nvlink_in[[0, 1, 2, 3, 4, 6, 7]]].tolist() == [10, 10, 10, 10, 10, 0, 10]
    graph = fabric.node_types[0].graph
    inside = load[int(fabric.local_base[0]) :][: len(graph.links)]
    wanted = np.zeros(len(graph.links))
    for a, b in ((4, 5), (5, 6)):
        wanted[list(graph.path(a, b))] += 10.0
    assert inside.tolist() == wanted.tolist()
    assert wanted.any()


def test_an_all_to_all_in_a_host_takes_pcie_to_the_gpu_off_the_switch_only() -> None:
    fabric = _host_with_a_gpu_off()
    collector = LoadCollector(fabric)
    all_to_all(
        GroupSlots.of(np.arange(8)[None, :], np.arange(8), fabric), np.array([8.0]), collector
    )
    load = collector.load_bytes()
    assert load[fabric.nvlink_out[[0, 1, 2, 3, 4, 6, 7]]].tolist() == [6.0] * 7
    pcie = [
        row
        for row, link in enumerate(fabric.node_types[0].graph.links)
        if link.tail == "gpu5" and link.kind == "pcie"
    ]
    assert load[int(fabric.local_base[0]) + np.array(pcie)].tolist() == [7.0]


def check_conservation(fabric: Fabric, fast: LoadCollector, load: np.ndarray) -> None:
    """What goes into the network comes out of it, and every switch passes on what it gets."""
    links = fabric.links
    kind = np.array([one.kind for one in links.classes])[links.class_of_link]
    nodes = int(max(links.tail.max(initial=0), links.head.max(initial=0))) + 1
    on_net = np.isin(kind, ["nic", "fabric"])
    came = np.bincount(links.head[on_net], weights=load[on_net], minlength=nodes)
    went = np.bincount(links.tail[on_net], weights=load[on_net], minlength=nodes)
    inner_end = fabric.num_slots + len(fabric.host_of_nic)
    out, into = fabric.nic_out[fabric.nic_out >= 0], fabric.nic_in[fabric.nic_in >= 0]
    assert load[out].sum() == pytest.approx(load[into].sum())
    switches = np.arange(nodes) >= inner_end
    if _splits_evenly(fabric):
        np.testing.assert_allclose(came[switches], went[switches], rtol=1e-9, atol=1e-9)
    board = kind == "pcie"
    to_nic = board & (links.head >= fabric.num_slots) & (links.head < inner_end)
    from_nic = board & (links.tail >= fabric.num_slots) & (links.tail < inner_end)
    assert load[to_nic].sum() == pytest.approx(load[out].sum())
    assert load[from_nic].sum() == pytest.approx(load[into].sum())


def _splits_evenly(fabric: Fabric) -> bool:
    """A ragged three-tier fabric is idealised: single core switches need not balance."""
    cables = fabric.network.cables
    return not hasattr(fabric.network, "pod_cable_start") or not (cables.tier == 1).any()
