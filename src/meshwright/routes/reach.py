"""Reach: which pairs of a group no path joins.

Rule (NCCL maintainers, NVIDIA/nccl issue 836): a rank can send to a rank on another rail only if
its own island holds a member of the group whose NIC is on a fabric that meets the receiver's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.routes.cells import Cells

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reach:
    """``unreachable_pairs[g]``: ordered pairs of group g's members that cannot send."""

    unreachable_pairs: Longs


def reach_of(cells: Cells, fabric: Fabric) -> Reach | None:
    """Return the reach of an axis' groups; ``None`` without any network knowledge."""
    if fabric.network is None:
        return None
    component = fabric.component_of_slot[cells.slot].astype(np.int64)
    width = int(component.max(initial=0)) + 1
    known = component >= 0
    cell, group = cells.cell_of_member, cells.group[cells.cell_of_member]
    in_cell, cell_count = np.unique(cell[known] * width + component[known], return_counts=True)
    in_group, group_count = np.unique(group[known] * width + component[known], return_counts=True)
    # For each component a cell is on: members of the group there, outside the cell.
    owner, one = in_cell // width, in_cell % width
    there = group_count[np.searchsorted(in_group, cells.group[owner] * width + one)] - cell_count
    reachable = np.bincount(owner, weights=there, minlength=len(cells.group)).astype(np.int64)
    members = np.bincount(group, minlength=len(cells.cells_of_group))
    outside = members[cells.group] - cells.size
    pairs = cells.size * (outside - reachable)
    return Reach(np.bincount(cells.group, weights=pairs, minlength=len(members)).astype(np.int64))


def host_components(fabric: Fabric, hosts: NDArray[np.integer]) -> list[list[int]]:
    """Return the given hosts by what joins them: NVLink islands and network components.

    Hosts of one list can reach each other (by some NIC); hosts of different lists cannot.
    """
    label = {int(host): int(host) for host in hosts}

    def find(host: int) -> int:
        while label[host] != host:
            label[host] = label[label[host]]
            host = label[host]
        return host

    first: dict[tuple[str, int], int] = {}
    picked = np.isin(fabric.host_of_slot, hosts)
    for name, values in (("nvlink", fabric.island_of_slot), ("net", fabric.component_of_slot)):
        pairs = np.unique(np.stack([fabric.host_of_slot[picked], values[picked]]), axis=1)
        for host, value in pairs.T.tolist():
            if value >= 0:
                other = first.setdefault((name, value), host)
                low, high = sorted((find(host), find(other)))
                label[high] = low
    groups: dict[int, list[int]] = {}
    for host in dict.fromkeys(int(one) for one in hosts):
        groups.setdefault(find(host), []).append(host)
    return list(groups.values())
