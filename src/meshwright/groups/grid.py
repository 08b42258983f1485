"""The one rule behind all frameworks: a layout is a mixed-radix number.

``rank = Σ coordinate_i · stride_i`` with axes fastest first and ``stride_i`` the product of the
sizes before i. A group along a set of axes holds all ranks with equal coordinates on the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.int32]
"""``ranks[num_groups, degree]``: the members of every group of an axis."""


class Grid(msgspec.Struct, frozen=True):
    """Axes, fastest first, with their sizes (all at least 1)."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return math.prod(self.sizes)

    def size(self, axis: str) -> int:
        """Return the size of an axis (1 when the grid lacks it)."""
        return self.sizes[self.axes.index(axis)] if axis in self.axes else 1

    def stride(self, axis: str) -> int:
        """Return the distance between neighbours along an axis."""
        return math.prod(self.sizes[: self.axes.index(axis)])

    def members(self, along: Collection[str]) -> Ranks:
        """Return ``ranks[num_groups, degree]`` of all groups along ``along``.

        Groups enumerate the other axes, members enumerate the axes of the group, both fastest
        first: the order in which Megatron-Core's ``generate_masked_orthogonal_rank_groups`` and
        torch's row-major ``DeviceMesh`` list them.
        """
        outside = [axis for axis in self.axes if axis not in along]
        return self.arranged([axis for axis in self.axes if axis in along], outside)

    def arranged(self, along: Sequence[str], outside: Sequence[str]) -> Ranks:
        """Return the groups along ``along``, members and groups enumerated in the orders given.

        Both name axes fastest first, and together every axis once.
        """
        depth = len(self.axes)
        # In the row-major array the slowest axis comes first.
        position = {axis: depth - 1 - index for index, axis in enumerate(self.axes)}
        axes = [position[axis] for axis in (*reversed(outside), *reversed(along))]
        degree = math.prod(self.size(axis) for axis in along)
        cube = np.arange(self.world_size, dtype=np.int32).reshape(self.sizes[::-1])
        return cube.transpose(axes).reshape(-1, degree)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the coordinate of a rank on every axis."""
        result = {}
        for axis, size in zip(self.axes, self.sizes, strict=True):
            rank, result[axis] = divmod(rank, size)
        return result


def split_digits(ranks: Ranks, sizes: tuple[int, ...], digit: int) -> Ranks:
    """Split every group into the groups that differ only in one digit of a member's position.

    The position in a group is read as a mixed-radix number with ``sizes[0]`` fastest
    (Megatron-Core ``create_hierarchical_groups``). Returns ``[num_groups · n / sizes[digit],
    sizes[digit]]``; new groups of one old group stand together.
    """
    groups = ranks.shape[0]
    cube = ranks.reshape(groups, *sizes[::-1])
    axis = cube.ndim - 1 - digit
    return np.moveaxis(cube, axis, -1).reshape(-1, sizes[digit])
