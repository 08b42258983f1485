"""The device mesh of a layout, as torch or JAX has it, and what FSDP1's words are in FSDP2."""

from __future__ import annotations

from typing import Any

from meshwright.groups.mesh import dense_mesh
from meshwright.job.jax_mesh import MESH_AXES
from meshwright.job.layout import Layout

_RESHARD = {"true": "zero3", "false": "zero2"}
"""What ``reshard_after_forward`` of FSDP2 is like inside the shard group, in ZeRO's words."""
_FSDP2_OF_WORD = {
    "NO_SHARD": None,
    "FULL_SHARD": True,
    "HYBRID_SHARD": True,
    "SHARD_GRAD_OP": False,
    "_HYBRID_SHARD_ZERO2": False,
}
"""``reshard_after_forward`` that says the same as a word of FSDP1; NO_SHARD is DDP."""


def mesh_json(layout: Layout) -> dict[str, Any] | None:
    """Return names and sizes of the mesh, slowest first; ``None`` without one."""
    if layout.jax_mesh is not None:
        mesh = layout.jax_mesh
        return {
            "dims": list(MESH_AXES),
            "shape": [mesh.size(axis) for axis in MESH_AXES],
            "ici": list(mesh.ici),
            "dcn": list(mesh.dcn),
            "num_slices": mesh.num_slices,
        }
    if layout.framework not in ("torch", "torchtitan"):
        return None
    dense = dense_mesh(layout)
    kept = _kept(layout)
    found: dict[str, Any] = {
        "dims": [axis for axis in reversed(dense.axes) if axis in kept],
        "shape": [dense.size(axis) for axis in reversed(dense.axes) if axis in kept],
    }
    if layout.shard_degree < 1 or min(found["shape"], default=1) < 0:
        found["shape"] = None  # a rule says that the shard degree does not follow
    if layout.sharding in ("fsdp", "hsdp", "zero2"):
        found["reshard_after_forward_is_like"] = dict(_RESHARD)
    if layout.fsdp1 is not None:
        found["fsdp1"] = layout.fsdp1
        found["reshard_after_forward"] = _FSDP2_OF_WORD[layout.fsdp1]
    return found


def _kept(layout: Layout) -> tuple[str, ...]:
    """Return the dimensions one would give ``init_device_mesh``: above 1, and those of sharding."""
    sizes = {
        "pp": layout.pp,
        "dp_replicate": layout.dp_replicate,
        "dp_shard": layout.dp_shard,
        "cp": layout.cp,
        "tp": layout.tp,
    }
    always = {"hsdp": ("dp_replicate", "dp_shard"), "none": ("dp_replicate",)}
    wanted = always.get(layout.sharding, ("dp_shard",))
    return tuple(name for name, size in sizes.items() if size > 1 or name in wanted)


def mesh_text(layout: Layout) -> str:
    """Return one or two sentences on the mesh; empty without one."""
    found = mesh_json(layout)
    if found is None or found["shape"] is None:
        return ""
    if layout.jax_mesh is not None:
        sizes = [
            f"{axis} {mesh_size} ({dcn} slices x {ici})" if dcn > 1 else f"{axis} {mesh_size}"
            for axis, mesh_size, ici, dcn in zip(
                MESH_AXES, found["shape"], found["ici"], found["dcn"], strict=True
            )
            if mesh_size > 1
        ]
        return f"Mesh, the last axis fastest: {', '.join(sizes) or 'one device'}; other axes are 1."
    named = ", ".join(f"{a} {n}" for a, n in zip(found["dims"], found["shape"], strict=True))
    text = f"Mesh, the last dimension fastest: {named}."
    if layout.fsdp1 is not None and found["reshard_after_forward"] is not None:
        reshard = str(found["reshard_after_forward"])
        text += f" {layout.fsdp1} is, in FSDP2, this mesh with reshard_after_forward={reshard}."
    return text
