"""The device mesh of MaxText: twelve axes, each a part inside a slice (ici) and one across (dcn).

Source: AI-Hypercomputer/maxtext ``configs/base.yml`` (``mesh_axes``, ``ici_*`` and ``dcn_*``) and
``fill_unspecified_mesh_axes`` (e591f30c). Nothing is judged here: a size that does not follow is 0
and ``rules/maxtext.py`` says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from meshwright.job.sections import LayoutSection

MESH_AXES = (
    "diloco",
    "data",
    "stage",
    "fsdp",
    "fsdp_transpose",
    "context",
    "context_usp_ulysses",
    "context_autoregressive",
    "tensor",
    "tensor_sequence",
    "expert",
    "autoregressive",
)
"""Axes of the mesh, the slowest first."""
SPELLED = {"pipeline": "stage"}
"""The keys of MaxText call the axis ``stage`` pipeline."""
AXES_OF = {
    "tp": ("tensor", "tensor_sequence", "autoregressive"),
    "cp": ("context", "context_usp_ulysses", "context_autoregressive"),
    "pp": ("stage",),
    "ep": ("expert",),
    "dp": ("diloco", "data", "fsdp", "fsdp_transpose", "expert"),
    "dp_shard": ("fsdp", "fsdp_transpose", "expert"),
    "dp_replicate": ("diloco", "data"),
}
"""Mesh axes of each of our degrees: the batch is split over ``expert`` too, so dp holds it."""


class JaxMesh(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in the order of ``MESH_AXES``; ``given`` when the user named axes, not degrees.

    ``ici_given`` and ``dcn_given`` are the sizes before -1 was replaced; ``unknown`` are keys
    that are no axis; ``beside`` lists degrees that were given too: name, given, what axes make it.
    """

    num_slices: int
    ici: tuple[int, ...]
    dcn: tuple[int, ...]
    given: bool
    ici_given: tuple[int, ...]
    dcn_given: tuple[int, ...]
    unknown: tuple[str, ...] = ()
    beside: tuple[tuple[str, int, int], ...] = ()

    def size(self, axis: str) -> int:
        """Return the ranks along a mesh axis, across slices and inside one."""
        index = MESH_AXES.index(axis)
        return self.ici[index] * self.dcn[index]

    def degree(self, name: str) -> int:
        """Return one of our degrees (``tp``, ``dp_shard`` …)."""
        return math.prod(self.size(axis) for axis in AXES_OF[name])


def mesh_of_axes(section: LayoutSection, world_size: int) -> JaxMesh:
    """Return the mesh of ``layout.ici`` and ``layout.dcn``, with MaxText's defaults and -1 filled in."""
    ici, unknown_ici = _sizes(section.ici or {}, "fsdp")
    dcn, unknown_dcn = _sizes(section.dcn or {}, "data")
    slices = section.num_slices
    if slices is None:
        slices = math.prod(size for size in dcn if size > 0)
    if slices == 1 and section.dcn is None:
        dcn = (1,) * len(dcn)
    per_slice = world_size // slices if slices > 0 and world_size % slices == 0 else 0
    mesh = JaxMesh(
        num_slices=slices,
        ici=_filled(ici, per_slice),
        dcn=_filled(dcn, slices),
        given=True,
        ici_given=ici,
        dcn_given=dcn,
        unknown=tuple(dict.fromkeys((*unknown_ici, *unknown_dcn))),
    )
    stated = {name: getattr(section, name) for name in ("tp", "cp", "pp", "dp", "ep")}
    stated["dp_shard"] = section.shard_degree
    beside = tuple(
        ("shard_degree" if name == "dp_shard" else name, value, mesh.degree(name))
        for name, value in stated.items()
        if value is not None and value != mesh.degree(name)
    )
    return msgspec.structs.replace(mesh, beside=beside)


def mesh_of_degrees(degrees: Mapping[str, int], shard_degree: int, slices: int) -> JaxMesh:
    """Return the mesh that holds tp, cp, pp, ep and dp; dp is split over slices, then sharded."""
    across = degrees["dp"] // degrees["ep"] if degrees["ep"] > 0 else 0
    shard = shard_degree // degrees["ep"] if degrees["ep"] > 0 else 0
    copies = across // (shard * slices) if shard > 0 and slices > 0 else 0
    sizes = {
        "data": copies,
        "fsdp": shard,
        "expert": degrees["ep"],
        "tensor": degrees["tp"],
        "context": degrees["cp"],
        "stage": degrees["pp"],
    }
    ici = tuple(sizes.get(axis, 1) for axis in MESH_AXES)
    dcn = tuple(slices if axis == "data" else 1 for axis in MESH_AXES)
    return JaxMesh(
        num_slices=slices,
        ici=ici,
        dcn=dcn,
        given=False,
        ici_given=ici,
        dcn_given=dcn,
    )


def least_world(section: LayoutSection) -> int:
    """Return the ranks that the named sizes ask for: the world where nothing else says it."""
    ici, _ = _sizes(section.ici or {}, "fsdp")
    dcn, _ = _sizes(section.dcn or {}, "data")
    inside = math.prod(size for size in ici if size > 0)
    across = section.num_slices or math.prod(size for size in dcn if size > 0)
    return inside * across


def _sizes(given: Mapping[str, int], inferred: str) -> tuple[tuple[int, ...], list[str]]:
    named = {SPELLED.get(name, name): size for name, size in given.items()}
    unknown = [name for name in given if SPELLED.get(name, name) not in MESH_AXES]
    sizes = tuple(named.get(axis, -1 if axis == inferred else 1) for axis in MESH_AXES)
    return sizes, unknown


def _filled(sizes: tuple[int, ...], product: int) -> tuple[int, ...]:
    """Replace one -1 by what the others leave; 0 where that does not follow."""
    if sizes.count(-1) != 1:
        return tuple(max(size, 0) for size in sizes)
    others = math.prod(size for size in sizes if size != -1)
    left = product // others if others > 0 and product % others == 0 else 0
    return tuple(left if size == -1 else max(size, 0) for size in sizes)
