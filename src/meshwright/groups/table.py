"""All groups of a job: which kinds exist, who is in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meshwright.groups.deepspeed import deepspeed_kinds, expert_coordinates, topology
from meshwright.groups.grid import Grid
from meshwright.groups.kinds import GroupKind
from meshwright.groups.maxtext import (
    maxtext_kinds,
    mesh_coordinates,
    mesh_grid,
    mesh_of,
    stages_of_ranks,
)
from meshwright.groups.megatron import decoder_grid, expert_grid, megatron_kinds
from meshwright.groups.mesh import dense_mesh, mesh_kinds, sparse_mesh
from meshwright.groups.nanotron import nanotron_kinds, rank_array
from meshwright.groups.oracles import with_oracles
from meshwright.job.layout import Layout

_KINDS = {
    "megatron": megatron_kinds,
    "torch": mesh_kinds,
    "torchtitan": mesh_kinds,
    "deepspeed": deepspeed_kinds,
    "nanotron": nanotron_kinds,
    "maxtext": maxtext_kinds,
}
MODELLED = tuple(_KINDS)
"""Frameworks whose groups are listed."""


def group_kinds(layout: Layout) -> list[GroupKind]:
    """Return the group kinds of a layout that passed the grid rules."""
    kinds = with_oracles(layout, _KINDS[layout.framework](layout))
    # JAX makes no groups of torch: its order is the mesh's.
    by_torch = layout.framework != "maxtext"
    return [replace(kind, is_sorted_by_torch=by_torch) for kind in kinds]


def grids(layout: Layout) -> list[Grid]:
    """Return the dense grid and, with experts on a grid of their own, the expert grid."""
    if layout.framework == "megatron":
        return [decoder_grid(layout), expert_grid(layout)]
    if layout.framework == "deepspeed":
        return [topology(layout)]
    if layout.framework == "nanotron":
        return [rank_array(layout)]
    if layout.framework == "maxtext":
        return [mesh_grid(mesh_of(layout))]
    return [dense_mesh(layout), *([sparse_mesh(layout)] if layout.ep > 1 else [])]


def coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """Return the coordinate of a rank on every axis of every grid (pp once)."""
    if layout.framework == "maxtext":
        return mesh_coordinates(layout, rank)
    result: dict[str, int] = {}
    for grid in grids(layout):
        for axis, value in grid.coordinates(rank).items():
            result.setdefault(axis, value)
    if layout.framework == "deepspeed" and layout.ep > 1:
        result |= expert_coordinates(layout, rank)
    return result


def stage_of_rank(layout: Layout) -> NDArray[np.int64]:
    """Return the pipeline stage of every rank, ``[world_size]``."""
    if layout.framework == "maxtext":
        return stages_of_ranks(layout)
    ranks = np.arange(layout.world_size, dtype=np.int64)
    stages: NDArray[np.int64] = ranks // grids(layout)[0].stride("pp") % layout.pp
    return stages
