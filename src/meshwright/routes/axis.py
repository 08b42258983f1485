"""Routes of one axis: its groups on the fabric, their spans, and the bytes on every link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.groups.grid import Ranks
from meshwright.routes.cells import Cells
from meshwright.routes.loads import LoadCollector
from meshwright.routes.patterns import (
    GroupSlots,
    RingForm,
    all_to_all,
    direct_all_to_all,
    ring,
    transfer,
)
from meshwright.routes.reach import Reach, reach_of
from meshwright.routes.spans import Span, count_spans
from meshwright.routes.tiers import Tier
from meshwright.traffic.collective import RING_OPS, Collective, ring_factor
from meshwright.traffic.copies import Copies

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PatternLoad:
    """Load of one pattern: bytes on every link, and the bytes an edge carries by stage."""

    pattern: str
    load_bytes: Floats
    edge_bytes_by_stage: Floats


@dataclass(frozen=True, slots=True)
class AxisRoute:
    """Groups of one axis on the fabric.

    ``ranks[num_groups, degree]``; ``stage_of_group``: pipeline stage of each group's first member;
    ``patterns`` is empty where no collective has known bytes; ``lost_bytes`` found no path.
    """

    axis: str
    name: str
    ranks: Ranks
    stage_of_group: NDArray[np.int64]
    cells: Cells
    spans: tuple[Span, ...]
    reach: Reach | None
    collectives: tuple[Collective, ...]
    patterns: tuple[PatternLoad, ...]
    lost_bytes: float

    @property
    def degree(self) -> int:
        """Ranks of a group."""
        return int(self.ranks.shape[1])

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return int(self.ranks.shape[0])

    @property
    def load_bytes(self) -> Floats | None:
        """Bytes on every link; ``None`` when nothing on the axis has known bytes."""
        if not self.patterns:
            return None
        total = self.patterns[0].load_bytes
        for pattern in self.patterns[1:]:
            total = total + pattern.load_bytes
        return total

    def span(self, tier: str) -> Span | None:
        """Return the span at a tier, where it is known."""
        return next((span for span in self.spans if span.tier == tier), None)

    def islands(self) -> NDArray[np.int64]:
        """Return the number of NVLink islands (or hosts) each group touches."""
        return self.cells.cells_of_group


@dataclass(frozen=True, slots=True)
class Ground:
    """What all axes are routed on."""

    fabric: Fabric
    slot_by_rank: NDArray[np.int64]
    tiers: Sequence[Tier]
    stage_of_rank: NDArray[np.int64]
    ring_form: RingForm = "pxn-exit"


def route_axis(
    axis: str, name: str, ranks: Ranks, collectives: Sequence[Collective], ground: Ground
) -> AxisRoute:
    """Return the route of an axis: spans always, loads where bytes are known."""
    groups = GroupSlots.of(ranks, ground.slot_by_rank, ground.fabric)
    stage = ground.stage_of_rank[ranks[:, 0]]
    known = [one for one in collectives if one.is_known]
    loads: list[PatternLoad] = []
    lost = 0.0
    for pattern in ("ring", "all_to_all", "send"):
        members = [one for one in known if pattern_of(one.op) == pattern]
        if not members:
            continue
        collector = LoadCollector(ground.fabric)
        edge = _add(pattern, members, groups, stage, (collector, ground.ring_form))
        loads.append(PatternLoad(pattern, collector.load_bytes(), edge))
        lost += collector.lost_bytes
    return AxisRoute(
        axis=axis,
        name=name,
        ranks=ranks,
        stage_of_group=stage,
        cells=groups.cells,
        spans=tuple(count_spans(groups.slots, ground.tiers, ground.fabric.island_of_slot)),
        reach=reach_of(groups.cells, ground.fabric),
        collectives=tuple(collectives),
        patterns=tuple(loads),
        lost_bytes=lost,
    )


def pattern_of(op: str) -> str:
    """Return the pattern by which a collective is routed."""
    return "ring" if op in RING_OPS else op


def _add(
    pattern: str,
    members: list[Collective],
    groups: GroupSlots,
    stage: NDArray[np.int64],
    into: tuple[LoadCollector, RingForm],
) -> Floats:
    """Add all collectives of one pattern at once: loads are linear in the bytes of an edge."""
    collector, form = into
    if pattern == "send":
        return _add_sends(members, groups, stage, collector)
    degree = groups.slots.shape[1]
    edge, whole = np.zeros(1), np.zeros(1)
    for one in members:
        total = _total(one) * (ring_factor(one.op, degree) if pattern == "ring" else 1.0)
        edge = edge + total
        if one.is_direct:
            direct_all_to_all(groups, _by_group(total, stage), collector)
        elif one.copies is not None:
            _add_copies(one.copies, groups, _by_group(total, stage), collector)
        else:
            whole = whole + total
    if pattern == "ring":
        ring(groups, _by_group(whole, stage), collector, form)
    elif whole.any():
        all_to_all(groups, _by_group(whole, stage), collector)
    return edge


def _by_group(by_stage: Floats, stage: NDArray[np.int64]) -> Floats:
    """Return the bytes of each group: those of the stage it stands on."""
    return by_stage[stage] if len(by_stage) > 1 else np.full(len(stage), by_stage[0])


def _total(one: Collective) -> Floats:
    if one.bytes_by_stage is None or one.count_by_stage is None:
        raise ValueError(f"{one.op} on {one.axis} has no known bytes")
    return one.bytes_by_stage * one.count_by_stage


def _add_sends(
    members: list[Collective],
    groups: GroupSlots,
    stage: NDArray[np.int64],
    collector: LoadCollector,
) -> Floats:
    """Send from every position of a group to the next (or previous) one, from the last to the first.

    Along pp a position is a stage and sends what that stage sends: one with nothing to send has
    count 0. On other axes all members of a group stand on one stage (or all send the same).
    """
    slots = groups.slots
    edge = np.zeros(1)
    for one in members:
        total = _total(one)
        edge = edge + total
        by_group = _by_group(total, stage)
        for position in range(slots.shape[1]):
            if one.axis == "pp":
                size = np.full(len(slots), float(total[position % len(total)]))
            else:
                size = by_group
            if size.any():
                other = (position + (-1 if one.reverse else 1)) % slots.shape[1]
                transfer(slots[:, position], slots[:, other], size, collector)
    return edge


def _add_copies(
    copies: Copies, groups: GroupSlots, send_bytes: Floats, collector: LoadCollector
) -> None:
    """Add a dispatch without double copies: a token goes once to each rank, and once to each island.

    ``send_bytes[g]``: what a rank sends to all ranks, itself included. It reaches another island at
    the member of the same position there (the same rail), which passes it on (DeepEP
    ``csrc/kernels/legacy/internode.cu``). The way back is the same turned round. Where all members
    share one island this is an all-to-all.
    """
    cells = groups.cells
    cell = cells.cell_of_member
    position = np.arange(len(cells.slot)) - cells.start[cell]
    once = (send_bytes / copies.per_token)[cells.group[cell]]  # every token to one place
    islands = cells.cells_of_group[cells.group]
    ordinal = np.arange(len(cells.group)) - cells.group_start[cells.group]
    sizes, of_size = np.unique(cells.size, return_inverse=True)
    chances = [copies.hit(max(size / copies.etp, 1)) for size in sizes.tolist()]
    hit = np.array(chances)[of_size.ravel()]
    passed_on = once.copy()
    for step in range(1, int(islands.max(initial=1))):
        other = cells.group_start[cells.group] + (ordinal + step) % islands
        sends = np.flatnonzero(step < islands[cell])
        there = other[cell[sends]]
        target = cells.start[there] + position[sends] % cells.size[there]
        transfer(cells.slot[sends], cells.slot[target], once[sends] * hit[there], collector)
        passed_on += np.bincount(target, weights=once[sends], minlength=len(passed_on))
    share = passed_on * copies.hit(1)
    for step in range(1, int(cells.size.max(initial=1))):
        sends = np.flatnonzero(step < cells.size[cell])
        target = cells.start[cell[sends]] + (position[sends] + step) % cells.size[cell[sends]]
        transfer(cells.slot[sends], cells.slot[target], share[sends], collector)
