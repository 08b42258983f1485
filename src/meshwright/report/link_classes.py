"""Links that carry the same are one row: classes of equal links, and the busiest singly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.chain.plan import Plan
from meshwright.report.distinct import distinct_rows

Floats = NDArray[np.float64]
_STEPS = 1e9
"""Loads are equal when they differ by less than this part of the axis' largest."""
BUSIEST = 20


@dataclass(frozen=True, slots=True)
class LinkGroup:
    """Equal links: kind, tier, capacity and load on every axis. ``example`` is a link id."""

    kind: str
    tier: str | None
    count: int
    capacity_bytes_per_s: float | None
    load_bytes: float
    load_by_axis: dict[str, float]
    example: int

    @property
    def busy_s(self) -> float | None:
        """Load over capacity; ``None`` without a known rate."""
        if not self.capacity_bytes_per_s:
            return 0.0 if self.load_bytes == 0 else None
        return self.load_bytes / self.capacity_bytes_per_s


def link_groups(plan: Plan) -> list[LinkGroup]:
    """Return the classes of equal links, the busiest first."""
    links = plan.fabric.links
    if not len(links):
        return []
    names: dict[tuple[str, str | None, float | None], int] = {}
    merged = [
        names.setdefault((c.kind, c.tier, c.capacity_bytes_per_s), len(names))
        for c in links.classes
    ]
    columns: list[NDArray[np.generic]] = [np.array(merged, dtype=np.uint16)[links.class_of_link]]
    for load in plan.load_bytes:
        most = load.max(initial=0.0)
        if most > 0:
            columns.append(np.rint(load / most * _STEPS).astype(np.int64))
    # Equal links mostly stand together, so only the first of each run is compared with others.
    differs = np.zeros(len(links), dtype=bool)
    differs[0] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    heads = np.flatnonzero(differs)
    lengths = np.diff(np.append(heads, len(links)))
    first, where, _ = distinct_rows([column[heads] for column in columns])
    counts = np.bincount(where, weights=lengths)
    groups = [
        _group(plan, int(heads[index]), int(count))
        for index, count in zip(first, counts, strict=True)
    ]
    return sorted(groups, key=_busiest_first)


def _busiest_first(group: LinkGroup) -> tuple[float, float, int]:
    return (-(group.busy_s or 0.0), -group.load_bytes, group.example)


def _group(plan: Plan, example: int, count: int) -> LinkGroup:
    links = plan.fabric.links
    one = links.classes[int(links.class_of_link[example])]
    by_axis = load_by_axis(plan, example)
    return LinkGroup(
        kind=one.kind,
        tier=one.tier,
        count=count,
        capacity_bytes_per_s=one.capacity_bytes_per_s,
        load_bytes=sum(by_axis.values()),
        load_by_axis=by_axis,
        example=example,
    )


def load_by_axis(plan: Plan, link: int) -> dict[str, float]:
    """Return the bytes of each axis on one link, zeros left out."""
    column = plan.load_bytes[:, link].tolist() if len(plan.load_bytes) else []
    return {route.axis: load for route, load in zip(plan.routes, column, strict=False) if load > 0}


def busiest_links(plan: Plan) -> list[int]:
    """Return the ids of the busiest links that carry anything, at most ``BUSIEST``."""
    if not len(plan.load_bytes):
        return []
    total = plan.load_bytes.sum(axis=0)
    busy = np.nan_to_num(total / plan.fabric.links.capacity_bytes_per_s(), nan=0.0)
    count = min(BUSIEST, len(busy))
    top = np.argpartition(-busy, count - 1)[:count] if count else np.empty(0, dtype=np.int64)
    # Ties keep the order of ids, so that equal inputs print equal pages.
    least = busy[top].min(initial=np.inf)
    above = np.flatnonzero(busy > least)
    ties = np.flatnonzero(busy == least)[: count - len(above)]
    chosen = np.concatenate([above, ties])
    ordered = chosen[np.lexsort((chosen, -busy[chosen]))]
    return [int(link) for link in ordered if busy[link] > 0]


def path_kinds(plan: Plan, axis: int) -> dict[str, float] | None:
    """Return link kind to share of the axis' bytes × links (sums to 1); ``None`` without bytes."""
    links = plan.fabric.links
    load = plan.load_bytes[axis]
    total = float(load.sum())
    if total == 0:
        return None
    by_class = np.bincount(links.class_of_link, weights=load, minlength=len(links.classes))
    shares: dict[str, float] = {}
    for one, value in zip(links.classes, by_class.tolist(), strict=True):
        if value > 0:
            shares[one.kind] = shares.get(one.kind, 0.0) + value / total
    return shares
