"""The groups of torch's DeviceMesh (FSDP2, HSDP, TP, PP) and of torchtitan.

Source: torch ``init_device_mesh`` (row-major, last dim fastest) and pytorch/torchtitan
``torchtitan/distributed/parallel_dims.py`` (b5bcd76c). Names are those of the mesh dimensions; logs
have ``mesh_`` before them. FSDP1's HYBRID_SHARD (``torch/distributed/fsdp/_init_utils.py``) makes the
same groups without a mesh: shards in blocks of a host's GPUs, copies of equal local rank.
"""

from __future__ import annotations

import dataclasses

from meshwright.groups.grid import Grid
from meshwright.groups.kinds import WORLD_GROUP, GroupKind, grid_kind
from meshwright.job.layout import Layout


def dense_mesh(layout: Layout) -> Grid:
    """Return the dense mesh; dp is split into dp_shard (fast) and dp_replicate (slow)."""
    sizes = {
        "tp": layout.tp,
        "cp": layout.cp,
        "dp_shard": layout.dp_shard,
        "dp_replicate": layout.dp_replicate,
        "pp": layout.pp,
    }
    tokens = [
        *layout.order,
        *(axis for axis in ("tp", "cp", "dp", "pp") if axis not in layout.order),
    ]
    axes: list[str] = []
    for token in tokens:
        axes += ["dp_shard", "dp_replicate"] if token == "dp" else [token]
    axes = [axis for axis in axes if axis in sizes]
    return Grid(tuple(axes), tuple(sizes[axis] for axis in axes))


def sparse_mesh(layout: Layout) -> Grid:
    """Return the expert mesh: ep holds the fastest ranks (tp, then cp, then dp_shard)."""
    efsdp = layout.dp_shard * layout.cp * layout.tp // layout.ep
    return Grid(
        ("ep", "efsdp", "dp_replicate", "pp"), (layout.ep, efsdp, layout.dp_replicate, layout.pp)
    )


def mesh_kinds(layout: Layout) -> list[GroupKind]:
    """Return the group kinds of a valid layout: mesh dimensions, flattened ones, experts."""
    dense = dense_mesh(layout)
    kinds = [grid_kind(axis, dense, (axis,), axis) for axis in reversed(dense.axes)]
    data = ("dp_shard", "dp_replicate")
    kinds.append(grid_kind("batch", dense, data, "dp"))
    if layout.framework == "torchtitan" or layout.cp > 1:
        kinds.append(grid_kind("fsdp", dense, ("dp_shard", "cp"), "dp_shard-cp"))
        kinds.append(grid_kind("loss", dense, (*data, "cp"), "dp-cp"))
    if layout.ep > 1:
        sparse = sparse_mesh(layout)
        kinds.append(grid_kind("efsdp", sparse, ("efsdp",), "edp"))
        kinds.append(grid_kind("ep", sparse, ("ep",), "ep"))
    return [dataclasses.replace(kind, also=_printed(layout, kind)) for kind in kinds]


_FSDP1 = {"dp_shard": "intra_node_group", "dp_replicate": "inter_node_group"}


def _printed(layout: Layout, kind: GroupKind) -> tuple[str, ...]:
    """Return what logs call the groups; FSDP1 gives its groups no description.

    A dimension that is the whole world takes the group that torch made first (torch 2.13
    ``device_mesh.py`` ``_init_one_process_group``). The dimension's own name stays a name for it too:
    other releases were not looked at.
    """
    if layout.fsdp1 is not None and layout.sharding == "hsdp":
        return (_FSDP1[kind.name],) if kind.name in _FSDP1 else ()
    names = (f"mesh_{kind.name}",)
    return (WORLD_GROUP, *names) if kind.num_groups == 1 and kind.degree > 1 else names
