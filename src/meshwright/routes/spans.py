"""Spans: how many domains of each tier a group touches, and how often its ring leaves one.

Counting works for any placement; ``aligned_span`` gives the same numbers by arithmetic where the
digits of the rank grid and of the slots line up (search calls it for many layouts at once).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.groups.grid import Grid
from meshwright.routes.cells import find_cells
from meshwright.routes.tiers import NETWORK_TIERS, Tier

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """Per group of one axis at one tier: parallel arrays ``[num_groups]``.

    ``domains``: domains touched. ``members_min``, ``members_max``: members in one of them.
    ``crossings``: edges of the group's ring (hosts by first appearance in the rank list) that
    leave a domain; at the tiers of the network only edges that leave an NVLink island count.
    ``groups_per_domain``: the most groups present in one domain.
    """

    tier: str
    domains: Longs
    members_min: Longs
    members_max: Longs
    crossings: Longs
    groups_per_domain: int

    @property
    def groups_crossing(self) -> int:
        """Groups with members in more than one domain."""
        return int((self.domains > 1).sum())


def count_spans(
    slots: Longs, tiers: Sequence[Tier], island_of_slot: NDArray[np.integer]
) -> list[Span]:
    """Return the spans of ``slots[num_groups, degree]`` at every tier, by counting."""
    host = next(tier for tier in tiers if tier.name == "host").domain_of_slot
    hosts = find_cells(slots, host, np.zeros(len(host), dtype=np.int64))
    # Without a NIC order the first member of a cell is the first in rank order.
    here = hosts.slot[hosts.start[:-1]]
    there = here[hosts.next_cell]
    leaves_island = island_of_slot[here] != island_of_slot[there]
    spans = []
    for tier in tiers:
        domain = tier.domain_of_slot
        crosses = domain[here] != domain[there]
        if tier.name in NETWORK_TIERS:
            crosses &= leaves_island
        crossings = np.bincount(hosts.group[crosses], minlength=len(slots)).astype(np.int64)
        if tier.name == "gpu":
            crossings = np.full(len(slots), slots.shape[1] if slots.shape[1] > 1 else 0)
        spans.append(_count_one(tier.name, domain[slots], crossings))
    return spans


def _count_one(tier: str, domains: Longs, crossings: Longs) -> Span:
    groups, degree = domains.shape
    ordered = np.sort(domains, axis=1)
    begins = np.ones(ordered.shape, dtype=bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = np.flatnonzero(begins.ravel())
    run = np.diff(np.append(starts, groups * degree))
    touched = begins.sum(axis=1)
    first = np.cumsum(touched) - touched
    present = np.bincount(ordered.ravel()[starts]) if len(starts) else np.zeros(1, dtype=np.int64)
    return Span(
        tier=tier,
        domains=touched.astype(np.int64),
        members_min=np.minimum.reduceat(run, first) if groups else run,
        members_max=np.maximum.reduceat(run, first) if groups else run,
        crossings=crossings,
        groups_per_domain=int(present.max(initial=0)),
    )


@dataclass(frozen=True, slots=True)
class SlotDigits:
    """Slots as a mixed-radix number: ``sizes`` fastest first, and the digits that name a domain.

    A DGX rail fabric has sizes (8 GPUs, 32 hosts a unit, units): the host is named by digits
    {1, 2}, the leaf by {0, 2}, the unit by {2}.
    """

    sizes: tuple[int, ...]
    named_by: frozenset[int]


def aligned_span(
    grid: Grid, along: Sequence[str], slots: SlotDigits, ring_digits: frozenset[int] | None = None
) -> tuple[int, int, int] | None:
    """Return (domains, members in each, crossings) of every group, ranks on slots in order.

    ``ring_digits``: digits that name the place an inter-host edge leaves (the leaf's unit), where
    crossings are counted on another partition than the domains; default ``slots.named_by``.
    ``None`` when the digits of the grid and of the slots do not line up.
    """
    pieces = _common_digits(grid.sizes, slots.sizes)
    if pieces is None:
        return None
    domains = members = edges = 1
    counted = slots.named_by if ring_digits is None else ring_digits
    for size, axis, digit in pieces:
        if grid.axes[axis] in along:
            domains *= size if digit in slots.named_by else 1
            members *= 1 if digit in slots.named_by else size
            edges *= size if digit in counted else 1
    return domains, members, edges if edges > 1 else 0


def _common_digits(a: tuple[int, ...], b: tuple[int, ...]) -> list[tuple[int, int, int]] | None:
    """Refine two mixed-radix systems of equal range: (size, digit of a, digit of b) each."""
    ends_a, ends_b = np.cumprod((1, *a)).tolist(), np.cumprod((1, *b)).tolist()
    if ends_a[-1] != ends_b[-1]:
        return None
    marks = sorted({*ends_a, *ends_b})
    pieces = []
    for low, high in pairwise(marks):
        if high % low:
            return None
        digit_a = max(i for i in range(len(a)) if ends_a[i] <= low)
        digit_b = max(i for i in range(len(b)) if ends_b[i] <= low)
        pieces.append((high // low, digit_a, digit_b))
    return pieces
