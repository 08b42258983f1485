"""All groups of a job: which kinds exist, who is in them."""

from __future__ import annotations

from meshwright.groups.grid import Grid
from meshwright.groups.kinds import GroupKind
from meshwright.groups.megatron import decoder_grid, expert_grid, megatron_kinds
from meshwright.groups.mesh import dense_mesh, mesh_kinds, sparse_mesh
from meshwright.job.layout import Layout

MODELLED = ("megatron", "torch", "torchtitan")
"""Frameworks whose groups are listed."""


def group_kinds(layout: Layout) -> list[GroupKind]:
    """Return the group kinds of a layout that passed the grid rules.

    Raises ``ValueError`` for a framework that is not modelled (``rules/grid.py`` says so first).
    """
    if layout.framework == "megatron":
        return megatron_kinds(layout)
    if layout.framework in MODELLED:
        return mesh_kinds(layout)
    raise ValueError(f"groups of {layout.framework} are not modelled")


def grids(layout: Layout) -> list[Grid]:
    """Return the dense grid and, with experts, the expert grid."""
    if layout.framework == "megatron":
        return [decoder_grid(layout), expert_grid(layout)]
    return [dense_mesh(layout), *([sparse_mesh(layout)] if layout.ep > 1 else [])]


def coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """Return the coordinate of a rank on every axis of every grid (pp once)."""
    result: dict[str, int] = {}
    for grid in grids(layout):
        for axis, value in grid.coordinates(rank).items():
            result.setdefault(axis, value)
    return result
