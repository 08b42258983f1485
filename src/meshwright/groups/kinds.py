"""A group kind: one named family of communication groups and how to list its members."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from meshwright.groups.grid import Grid, Ranks

AXIS_ORDER = ("dp", "cp", "tp", "pp", "ep", "etp", "egtp", "edp")
"""Order in which the names of a combined axis are joined (the interface's rule)."""
WORLD_GROUP = "default_pg"
"""What torch calls the group of the world."""


@dataclass(frozen=True, slots=True)
class GroupKind:
    """One family of groups, all of one degree.

    ``name`` is the framework's own name (``TENSOR_MODEL_PARALLEL_GROUP``), ``axis`` ours.
    ``members()`` makes ``ranks[num_groups, degree]`` in the framework's order of groups and of
    ranks in a group; it is made on demand, since a job of a million ranks uses few kinds.
    """

    name: str
    axis: str
    degree: int
    num_groups: int
    members: Callable[[], Ranks]
    grid: Grid | None = None
    """The grid and axes when the kind is a plain set of axes (spans have a closed form then)."""
    along: tuple[str, ...] = ()
    oracle: str | None = None
    """What these members were compared with (original code, its version); ``None``: nothing."""
    also: tuple[str, ...] = ()
    """Other names of the same groups: what logs print, names in the code."""
    twins: tuple[str, ...] = ()
    """Other communicators with the same ranks, made beside these groups."""
    is_sorted_by_torch: bool = False
    """Whether ``new_group`` puts the ranks in order, whatever order the framework passes."""

    def by_group_rank(self, index: int) -> list[int]:
        """Return the global rank of every group rank of one group.

        Lists keep the order in which a framework passes them (position decides who sends to whom
        in its own arithmetic); torch's ``new_group`` sorts them first (``sort_ranks``, true by
        default; torch 2.13 ``distributed_c10d.py _new_group_with_tag``), so ranks inside the group,
        those of logs and of NCCL, follow the sorted order.
        """
        ranks = self.members()[index]
        ordered: list[int] = (np.sort(ranks) if self.is_sorted_by_torch else ranks).tolist()
        return ordered


def joined_axis(axes: Iterable[str]) -> str:
    """Return the name of a combined axis: ``dp-cp``, ``tp-pp``."""
    return "-".join(sorted(axes, key=AXIS_ORDER.index))


def grid_kind(name: str, grid: Grid, along: tuple[str, ...], axis: str | None = None) -> GroupKind:
    """Return the kind of the groups along some axes of a grid."""
    degree = 1
    for one in along:
        degree *= grid.size(one)
    return GroupKind(
        name=name,
        axis=axis or joined_axis(along),
        degree=degree,
        num_groups=grid.world_size // degree,
        members=lambda: grid.members(along),
        grid=grid,
        along=along,
    )


def arranged_kind(
    name: str, axis: str, grid: Grid, along: tuple[str, ...], outside: tuple[str, ...]
) -> GroupKind:
    """Return the kind of the groups along some axes, the groups enumerated in an order of their own."""
    degree = math.prod(grid.size(one) for one in along)
    return GroupKind(
        name=name,
        axis=axis,
        degree=degree,
        num_groups=grid.world_size // degree,
        members=lambda: grid.arranged(along, outside),
        grid=grid,
        along=along,
    )


def listed_kind(
    name: str, axis: str, ranks: Callable[[], Ranks], shape: tuple[int, int]
) -> GroupKind:
    """Return a kind whose members follow from another kind's (``shape``: groups, degree)."""
    return GroupKind(name=name, axis=axis, degree=shape[1], num_groups=shape[0], members=ranks)
