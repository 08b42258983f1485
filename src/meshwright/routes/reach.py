"""Reach: which pairs of a group no path joins.

Rule (NCCL maintainers, NVIDIA/nccl issue 836): a rank can send to a rank on another rail only if
its own island holds a member of the group whose NIC is on a fabric that meets the receiver's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.networks.network import components
from meshwright.routes.cells import Cells

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reach:
    """``unreachable_pairs[g]``: ordered pairs of group g's members that cannot send.

    A pair of which one end's place in the network is unknown is not counted.
    """

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
    known_in_cell = np.bincount(cell[known], minlength=len(cells.group))
    known_in_group = np.bincount(group[known], minlength=len(cells.cells_of_group))
    outside = known_in_group[cells.group] - known_in_cell
    # On an NVLink switch every member sends by the NIC of any member there (a relay); a GPU that
    # hangs on none by its own alone.
    on = fabric.nvlink_domain_of_slot[cells.slot] >= 0
    switched = np.bincount(cell[on], minlength=len(cells.group))
    with_relay = np.bincount(cell[on & known], minlength=len(cells.group)) > 0
    alone = np.bincount(cell[~on & known], minlength=len(cells.group))
    senders = np.where(with_relay, switched, 0) + alone
    relays_here = np.isin(in_cell, (cell * width + component)[on & known])
    alone_here = np.bincount(
        np.searchsorted(in_cell, (cell * width + component)[~on & known]), minlength=len(in_cell)
    )
    weight = np.where(relays_here, switched[owner], 0) + alone_here
    reached = np.bincount(owner, weights=there * weight, minlength=len(cells.group))
    pairs = senders * outside - reached
    count = len(cells.cells_of_group)
    return Reach(np.bincount(cells.group, weights=pairs, minlength=count).astype(np.int64))


def host_components(fabric: Fabric, hosts: NDArray[np.integer]) -> list[list[int]]:
    """Return the given hosts by what joins them: NVLink islands and network components.

    Hosts of one list can reach each other (by some NIC); hosts of different lists cannot.
    """
    picked = np.zeros(fabric.num_hosts, dtype=bool)
    picked[hosts] = True
    slots = np.flatnonzero(picked[fabric.host_of_slot])
    host = fabric.host_of_slot[slots]
    edges = []
    for values in (fabric.island_of_slot[slots], fabric.component_of_slot[slots]):
        known = values >= 0
        first = np.full(int(values.max(initial=-1)) + 1, fabric.num_hosts, dtype=np.int32)
        np.minimum.at(first, values[known], host[known])
        edges.append((host[known], first[values[known]]))
    low, high = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    label = components(fabric.num_hosts, low, high)
    order = np.flatnonzero(picked)
    parts: dict[int, list[int]] = {}
    for one, part in zip(order.tolist(), label[order].tolist(), strict=True):
        parts.setdefault(part, []).append(one)
    return list(parts.values())
