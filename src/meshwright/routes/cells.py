"""Cells: the members of one group in one island (or host), the unit of all load arithmetic.

A ring passes through the cells of a group in the order in which they first appear in the rank
list (NCCL numbers nodes so, ``src/init.cc``); inside a cell members stand by NIC.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cells:
    """``C`` cells in ring order, group by group; ``M`` members, cell by cell.

    ``group[C]``, ``domain[C]``; members of cell c are ``slot[start[c] : start[c + 1]]``;
    cells of group g are ``group_start[g] … group_start[g + 1]``.
    """

    group: Longs
    domain: Longs
    start: Longs
    slot: Longs
    group_start: Longs

    @property
    def size(self) -> Longs:
        """Members of each cell."""
        return np.diff(self.start)

    @property
    def cell_of_member(self) -> Longs:
        """Return the cell of each member."""
        return np.repeat(np.arange(len(self.group)), self.size)

    @property
    def cells_of_group(self) -> Longs:
        """Return the number of cells of each group."""
        return np.diff(self.group_start)

    def all_members(self, holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Tell for each cell whether a property of members, ``holds[M]``, holds for all of them."""
        missing = np.bincount(self.cell_of_member[~holds], minlength=len(self.group))
        result: NDArray[np.bool_] = missing == 0
        return result

    @property
    def next_cell(self) -> Longs:
        """Return the next cell of the same group, the first after the last."""
        following = np.arange(1, len(self.group) + 1)
        last = self.group_start[1:] - 1
        following[last] = self.group_start[:-1]
        return following


def find_cells(
    slots: NDArray[np.integer],
    domain_of_slot: NDArray[np.integer],
    key_of_slot: NDArray[np.integer],
) -> Cells:
    """Return the cells of ``slots[num_groups, degree]``.

    ``domain_of_slot`` says where a slot is; members of a cell are ordered by ``key_of_slot`` (NIC
    number) and then by rank.
    """
    groups, degree = slots.shape
    flat = slots.ravel().astype(np.int64)
    group = np.repeat(np.arange(groups, dtype=np.int64), degree)
    domain = domain_of_slot[flat].astype(np.int64)
    width = int(domain.max(initial=0)) + 1
    order = np.argsort(group * width + domain, kind="stable")
    sorted_domain = domain[order]
    begins = np.ones(len(flat), dtype=bool)
    begins[1:] = (sorted_domain[1:] != sorted_domain[:-1]) | (group[order[1:]] != group[order[:-1]])
    first = order[begins]  # stable: the first member of each cell in rank order
    rank_of_cell = np.empty(len(first), dtype=np.int64)
    ring = np.argsort(first, kind="stable")
    rank_of_cell[ring] = np.arange(len(first))
    cell = np.empty(len(flat), dtype=np.int64)
    cell[order] = rank_of_cell[np.cumsum(begins) - 1]
    members = np.lexsort((key_of_slot[flat], cell))
    counts = np.bincount(cell, minlength=len(first))
    return Cells(
        group=group[first[ring]],
        domain=domain[first[ring]],
        start=np.concatenate([[0], np.cumsum(counts)]),
        slot=flat[members],
        group_start=np.searchsorted(group[first[ring]], np.arange(groups + 1)),
    )
