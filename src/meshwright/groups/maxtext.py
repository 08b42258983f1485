"""The groups of MaxText: the axes of its device mesh, each slices (dcn) x inside a slice (ici).

Source: AI-Hypercomputer/maxtext ``configs/base.yml`` (e591f30c); jax 0.10.2 ``_src/mesh_utils.py``
``create_hybrid_device_mesh``: slices are laid out row-major over the dcn shape, and the coordinate
along an axis is ``dcn · ici_size + ici``. Which rank stands at a position of a slice is row-major on
CPU and GPU; on TPU it is chosen from the torus, so ``device_order`` must give it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.groups.grid import Grid, Ranks
from meshwright.groups.kinds import GroupKind, arranged_kind, listed_kind
from meshwright.job.jax_mesh import AXES_OF, MESH_AXES, JaxMesh
from meshwright.job.layout import Layout

_ACROSS = "@dcn"
"""Marks the part of an axis that lies across slices."""
_MAIN = {
    "tp": "tensor",
    "cp": "context",
    "pp": "stage",
    "ep": "expert",
    "dp_shard": "fsdp",
    "dp_replicate": "data",
}
"""The mesh axis that is all of one of ours in most jobs."""


def mesh_grid(mesh: JaxMesh) -> Grid:
    """Return the grid of device numbers: the axes inside a slice, then those across, fastest first."""
    axes = (*MESH_AXES[::-1], *(axis + _ACROSS for axis in MESH_AXES[::-1]))
    return Grid(axes, (*mesh.ici[::-1], *mesh.dcn[::-1]))


def _digits(axes: Sequence[str]) -> tuple[str, ...]:
    """Return the digits of mesh axes, fastest first: of each its ici part, then its dcn part."""
    ordered = [axis for axis in MESH_AXES[::-1] if axis in axes]
    return tuple(digit for axis in ordered for digit in (axis, axis + _ACROSS))


def maxtext_kinds(layout: Layout) -> list[GroupKind]:
    """Return each mesh axis, and the products of axes that tp, cp, dp and its shards are here."""
    mesh = mesh_of(layout)
    single = {axis: ours for ours, axis in _MAIN.items() if _holds_all(mesh, ours)}
    kinds = [_kind(layout, axis, single.get(axis, axis), (axis,)) for axis in MESH_AXES]
    for ours, axes in AXES_OF.items():
        if ours not in single.values():
            kinds.append(_kind(layout, _product_name(mesh, ours), ours, axes))
    return kinds


def mesh_of(layout: Layout) -> JaxMesh:
    """Return the mesh of a MaxText layout. Raises ``ValueError`` for another framework."""
    if layout.jax_mesh is None:
        raise ValueError(f"{layout.framework} has no mesh of JAX")
    return layout.jax_mesh


def _holds_all(mesh: JaxMesh, ours: str) -> bool:
    """Tell whether the main axis of a product is all of it."""
    return mesh.size(_MAIN[ours]) == mesh.degree(ours)


def _product_name(mesh: JaxMesh, ours: str) -> str:
    """Return the logical axis of the batch, or the mesh axes that are multiplied."""
    if ours == "dp":
        return "activation_batch"
    return ",".join(a for a in AXES_OF[ours] if mesh.size(a) > 1 or a == _MAIN[ours])


def _kind(layout: Layout, name: str, axis: str, axes: Sequence[str]) -> GroupKind:
    grid = mesh_grid(mesh_of(layout))
    along = _digits(axes)
    outside = _digits([one for one in MESH_AXES if one not in axes])
    plain = arranged_kind(name, axis, grid, along, outside)
    if layout.device_order is None:
        return plain
    order = np.array(layout.device_order, dtype=np.int32)
    place = _places(grid)
    return listed_kind(
        name,
        axis,
        lambda: _at(order, place, plain.members()),
        (plain.num_groups, plain.degree),
    )


def _places(grid: Grid) -> NDArray[np.int32]:
    """Return the row-major position in the mesh of every device number."""
    in_mesh = grid.arranged(_digits(MESH_AXES), ()).ravel()
    place = np.empty_like(in_mesh)
    place[in_mesh] = np.arange(len(in_mesh), dtype=np.int32)
    return place


def _at(order: NDArray[np.int32], place: NDArray[np.int32], devices: Ranks) -> Ranks:
    return order[place[devices]]


def device_numbers(layout: Layout) -> NDArray[np.int32]:
    """Return the number in ``mesh_grid`` of every rank (the rank itself without a device order)."""
    ranks = np.arange(layout.world_size, dtype=np.int32)
    if layout.device_order is None:
        return ranks
    in_mesh = mesh_grid(mesh_of(layout)).arranged(_digits(MESH_AXES), ()).ravel()
    numbers = np.empty_like(ranks)
    numbers[np.array(layout.device_order, dtype=np.int32)] = in_mesh
    return numbers


def mesh_coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """Return a rank's coordinate on every mesh axis of more than one rank."""
    mesh = mesh_of(layout)
    digits = mesh_grid(mesh).coordinates(int(device_numbers(layout)[rank]))
    return {
        axis: digits[axis + _ACROSS] * mesh.ici[index] + digits[axis]
        for index, axis in enumerate(MESH_AXES)
        if mesh.size(axis) > 1
    }


def stages_of_ranks(layout: Layout) -> NDArray[np.int64]:
    """Return the pipeline stage of every rank."""
    mesh, numbers = mesh_of(layout), device_numbers(layout).astype(np.int64)
    grid, index = mesh_grid(mesh), MESH_AXES.index("stage")
    inside = numbers // grid.stride("stage") % mesh.ici[index]
    across = numbers // grid.stride("stage" + _ACROSS) % mesh.dcn[index]
    stages: NDArray[np.int64] = across * mesh.ici[index] + inside
    return stages
