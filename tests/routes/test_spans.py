"""Spans: arithmetic equals counting on aligned placements; counting equals a plain loop on any."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import numpy as np

from meshwright.cluster.build import HostSet, Wiring, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.networks.tiers import TierPlan, tiered_network
from meshwright.cluster.nodes.node import NodeNic, NodeType
from meshwright.cluster.nodes.pcie import local_graph
from meshwright.groups.grid import Grid
from meshwright.origin import Origin
from meshwright.routes.spans import SlotDigits, aligned_span, count_spans
from meshwright.routes.tiers import NETWORK_TIERS, TIERS, tiers_of
from routes.fabrics import irregular, make_groups, regular

SHARE, RAIL, HOST, DOMAIN, UNIT, POD = range(6)
NAMED = {
    "gpu": {SHARE, RAIL, HOST, DOMAIN, UNIT, POD},
    "host": {HOST, DOMAIN, UNIT, POD},
    "nvlink_domain": {DOMAIN, UNIT, POD},
    "leaf": {RAIL, UNIT, POD},
    "unit": {UNIT, POD},
    "pod": {POD},
    "fabric": set(),
}
"""Digits (GPUs of a NIC, NICs, hosts of an NVLink domain, domains, units, pods) of each domain."""


def _fabric(sizes: tuple[int, ...]) -> Fabric:
    """A rail-optimised fabric whose slots are the mixed-radix number ``sizes``."""
    share, rails, hosts, domains, units, pods = sizes
    gpus, count = share * rails, hosts * domains * units * pods
    devices = [f"gpu{i}" for i in range(gpus)] + [f"nic{i}" for i in range(rails)]
    node = NodeType(
        name="box",
        gpu=None,
        num_gpus=gpus,
        nics=tuple(NodeNic(f"nic{i}", 50.0) for i in range(rails)),
        nic_of_gpu=tuple(gpu // share for gpu in range(gpus)),
        nvlink="switch",
        nvlink_bytes_per_s=450.0,
        graph=local_graph(devices, [], [], 1.0, 1.0),
    )
    plan = TierPlan(
        hosts=count,
        rails=rails,
        hosts_per_unit=hosts * domains,
        uplinks=2,
        units_per_pod=units,
        spines_per_pod=2,
        core_switches=2 if pods > 1 else 0,
    )
    host, rail = np.arange(count).repeat(rails), np.tile(np.arange(rails), count)
    leaf = host // (hosts * domains) * rails + rail
    network = tiered_network(plan, 50.0, Origin.STATED)
    names = [f"h{i}" for i in range(count)]
    return build_fabric(
        HostSet(names, (node,), np.zeros(count, np.int32)),
        (np.arange(count) // hosts).astype(np.int32),
        [f"d{i}" for i in range(domains * units * pods)],
        Wiring(network, leaf.astype(np.int32), rail.astype(np.int32)),
    )


def _aligned_case(dice: random.Random) -> tuple[tuple[int, ...], Grid, tuple[str, ...]]:
    """Digits of slots, and a grid made by cutting the same prime factors elsewhere."""
    sizes = tuple(dice.choice(choices) for choices in _CHOICES)
    primes = [p for size in sizes for p in dice.sample(_primes(size), len(_primes(size)))]
    cuts = sorted(dice.sample(range(1, len(primes)), min(dice.randint(0, 4), len(primes) - 1)))
    ends = [0, *cuts, len(primes)]
    axes = [math.prod(primes[a:b]) for a, b in pairwise(ends)]
    for _ in range(dice.randint(0, 2)):
        axes.insert(dice.randint(0, len(axes)), 1)
    names = tuple(f"axis{i}" for i in range(len(axes)))
    along = tuple(dice.sample(names, dice.randint(1, len(names))))
    return sizes, Grid(names, tuple(axes)), along


_CHOICES = ((1, 1, 2), (2, 4, 3), (1, 1, 2, 3), (1, 2, 4), (2, 3, 4, 1), (1, 2, 3))


def _primes(size: int) -> list[int]:
    return {1: [], 2: [2], 3: [3], 4: [2, 2]}[size]


def test_arithmetic_equals_counting_on_500_aligned_placements() -> None:
    crossing = Counter[str]()
    for seed in range(500):
        dice = random.Random(seed)
        sizes, grid, along = _aligned_case(dice)
        fabric = _fabric(sizes)
        tiers = tiers_of(fabric)
        assert [tier.name for tier in tiers] == list(TIERS)
        slots = grid.members(along).astype(np.int64)
        for span in count_spans(slots, tiers, fabric.island_of_slot):
            # A ring edge between hosts leaves a leaf when it leaves the leaf's unit.
            ring = frozenset(NAMED["unit"]) if span.tier == "leaf" else None
            digits = SlotDigits(sizes, frozenset(NAMED[span.tier]))
            found = aligned_span(grid, along, digits, ring)
            assert found is not None
            domains, members, crossings = found
            message = f"seed {seed} {span.tier} {sizes} {grid.sizes} {along}"
            assert (span.domains == domains).all(), message
            assert (span.members_min == members).all(), message
            assert (span.members_max == members).all(), message
            assert (span.crossings == crossings).all(), message
            crossing[span.tier] += crossings > 0
    assert min(count for tier, count in crossing.items() if tier != "fabric") >= 50, crossing
    assert crossing["fabric"] == 0


def test_digits_that_do_not_line_up_have_no_closed_form() -> None:
    digits = SlotDigits((2, 3, 4), frozenset({1, 2}))
    assert aligned_span(Grid(("a", "b"), (3, 8)), ("a",), digits) is None
    assert aligned_span(Grid(("a", "b"), (4, 6)), ("a",), digits) is None
    # Another number of ranks than slots.
    assert aligned_span(Grid(("a",), (12,)), ("a",), digits) is None
    assert aligned_span(Grid(("a", "b"), (6, 4)), ("a",), digits) == (3, 2, 3)


def test_counting_equals_a_plain_loop_on_any_placement() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        fabric = dice.choice([regular, irregular])(dice)
        groups, tiers = make_groups(dice, fabric), tiers_of(fabric)
        for tier, span in zip(
            tiers, count_spans(groups, tiers, fabric.island_of_slot), strict=True
        ):
            assert span.tier == tier.name
            of = tier.domain_of_slot.tolist()
            present = Counter(one for group in groups.tolist() for one in {of[s] for s in group})
            assert span.groups_per_domain == max(present.values())
            for row, group in enumerate(groups.tolist()):
                counts = Counter(of[slot] for slot in group)
                assert span.domains[row] == len(counts)
                assert span.members_min[row] == min(counts.values())
                assert span.members_max[row] == max(counts.values())
                assert span.crossings[row] == _crossings(fabric, group, tier.name, of)
            assert span.groups_crossing == int((span.domains > 1).sum())


def _crossings(fabric: Fabric, group: list[int], tier: str, of: list[int]) -> int:
    """Ring edges from host to host, hosts by first appearance, that leave a domain."""
    if tier == "gpu":
        return len(group) if len(group) > 1 else 0
    first = {}
    for slot in group:
        first.setdefault(int(fabric.host_of_slot[slot]), slot)
    ring = list(first.values())
    count = 0
    for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
        far = fabric.island_of_slot[a] != fabric.island_of_slot[b]
        count += of[a] != of[b] and (bool(far) or tier not in NETWORK_TIERS)
    return count


def test_order_of_the_ring_decides_the_crossings() -> None:
    """64 hosts in two units: block by block two edges leave a unit, interleaved all 64 do."""
    fabric = _fabric((1, 2, 1, 32, 2, 1))
    block = np.arange(64) * 2
    mixed = block.reshape(2, 32).T.ravel()
    for order, wanted in ((block, 2), (mixed, 64)):
        spans = count_spans(order[None, :], tiers_of(fabric), fabric.island_of_slot)
        unit = next(span for span in spans if span.tier == "unit")
        assert (unit.domains[0], unit.members_min[0], unit.crossings[0]) == (2, 32, wanted)
