"""Rules of MaxText's mesh: which axes there are, and that their sizes fill slices and devices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.findings import Severity
from meshwright.job.jax_mesh import MESH_AXES, JaxMesh
from meshwright.rules.arithmetic import divisors, nearest_divisors, padded
from meshwright.rules.heads import JAX_EVEN
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import cures, degree_of

_FILL = "AI-Hypercomputer/maxtext fill_unspecified_mesh_axes"
_BASE = "AI-Hypercomputer/maxtext src/maxtext/configs/base.yml"
_ONLY = ("maxtext",)


def _named(sizes: Sequence[int]) -> str:
    return ", ".join(f"{a} {s}" for a, s in zip(MESH_AXES, sizes, strict=True) if s != 1) or "all 1"


def _mesh(context: RuleContext) -> JaxMesh | None:
    """Return the mesh where the user named axes and each is one."""
    mesh = context.layout.jax_mesh
    return mesh if mesh is not None and mesh.given and not mesh.unknown else None


@rule("maxtext/unknown-axis", source=_BASE, frameworks=_ONLY)
def unknown_axis(context: RuleContext) -> Iterator[Violation]:
    """Ici and dcn name axes of the mesh."""
    mesh = context.layout.jax_mesh
    if mesh is not None and mesh.unknown:
        listed = ", ".join(repr(name) for name in mesh.unknown[:8])
        yield Violation(
            "layout.ici",
            f"{listed}: no axis of MaxText's mesh.",
            {"unknown": list(mesh.unknown[:8])},
            f"one of {', '.join(MESH_AXES)} (pipeline stands for stage)",
        )


@rule("maxtext/axis-size", source=_FILL, frameworks=_ONLY)
def axis_size(context: RuleContext) -> Iterator[Violation]:
    """A size is at least 1, or -1 on one axis of each family."""
    mesh = _mesh(context)
    if mesh is None:
        return
    for family, sizes in (("ici", mesh.ici_given), ("dcn", mesh.dcn_given)):
        wrong = {a: s for a, s in zip(MESH_AXES, sizes, strict=True) if s < 1 and s != -1}
        if wrong:
            axis, size = next(iter(wrong.items()))
            yield Violation(
                f"layout.{family}",
                f"{family} {axis} is {size}: a size is at least 1, or -1 to have it inferred.",
                {axis: size},
                f"{axis} of 1 or more in {family}",
            )
        if sizes.count(-1) > 1:
            asked = [a for a, s in zip(MESH_AXES, sizes, strict=True) if s == -1]
            default = "fsdp" if family == "ici" else "data"
            yield Violation(
                f"layout.{family}",
                f"{family} has -1 on {' and '.join(asked)}; one axis at most is inferred ({default} is -1 "
                "where it is left out).",
                {"inferred": asked},
                f"a size for {default} in {family} (1 where it is not wanted)",
            )


@rule("maxtext/slices-divide", source=_FILL, frameworks=_ONLY)
def slices_divide(context: RuleContext) -> Iterator[Violation]:
    """The devices are divided over slices evenly."""
    layout = context.layout
    mesh = layout.jax_mesh
    if mesh is None or layout.world_size < 1:
        return
    if mesh.num_slices < 1 or layout.world_size % mesh.num_slices:
        yield Violation(
            "layout.num_slices" if "num_slices" not in layout.assumed else "layout.dcn",
            f"{layout.world_size} devices do not divide over {mesh.num_slices} slices.",
            {"world_size": layout.world_size, "num_slices": mesh.num_slices},
            degree_of(context, "num_slices", layout.world_size, max(mesh.num_slices, 1)),
        )


@rule("maxtext/mesh-product", source=_FILL, frameworks=_ONLY)
def mesh_product(context: RuleContext) -> Iterator[Violation]:
    """The ici sizes multiply to the devices of a slice, the dcn sizes to the slices."""
    layout, mesh = context.layout, _mesh(context)
    if mesh is None or any(axis_size.check(context)) or any(slices_divide.check(context)):
        return
    if layout.world_size < 1 or any(dcn_needs_slices.check(context)):
        return
    per_slice = layout.world_size // mesh.num_slices
    for family, given, sizes, target, what in (
        ("ici", mesh.ici_given, mesh.ici, per_slice, "devices of a slice"),
        ("dcn", mesh.dcn_given, mesh.dcn, mesh.num_slices, "slices"),
    ):
        if math.prod(sizes) == target:
            continue
        known = math.prod(size for size in given if size > 0)
        yield Violation(
            f"layout.{family}",
            f"{family} ({_named(given)}) multiplies to {known}, which does not "
            f"{'divide' if -1 in given else 'equal'} the {target} {what}.",
            {"product": known, "target": target},
            _sizes_remedy(context, family, math.prod(s for s in mesh.ici_given if s > 0), target),
        )


def _sizes_remedy(context: RuleContext, family: str, inside: int, target: int) -> str:
    """Return other sizes, or the slices that make the ici sizes right.

    On GPUs a slice is what NVLink joins: a host, or a rack of hosts (openxla/xla#24473; MaxText
    ``get_num_slices`` counts jax's ``slice_index``).
    """
    layout, hardware = context.layout, context.hardware
    remedy = f"sizes with a product of {target}"
    if family != "ici" or inside < 1 or layout.world_size % inside:
        return remedy
    slices = layout.world_size // inside
    if not cures(context, "maxtext/mesh-product", {"layout.num_slices": slices}):
        return remedy
    of = hardware.gpus_per_host if hardware is not None else None
    why = f" (on GPUs a slice is what NVLink joins: here a host of {of})" if of == inside else ""
    return f"num_slices: {slices}{why}, or {remedy}"


@rule(
    "maxtext/dcn-needs-slices",
    source="AI-Hypercomputer/maxtext create_device_mesh",
    frameworks=_ONLY,
)
def dcn_needs_slices(context: RuleContext) -> Iterator[Violation]:
    """Dcn sizes are read with several slices only."""
    mesh = _mesh(context)
    if mesh is None or mesh.num_slices != 1 or max(mesh.dcn_given) <= 1:
        return
    yield Violation(
        "layout.num_slices",
        f"dcn ({_named(mesh.dcn_given)}) with one slice: MaxText does not read dcn sizes then.",
        {"num_slices": mesh.num_slices},
        "num_slices: as many as the dcn sizes multiply to, or leave dcn out",
    )


@rule("maxtext/degrees-beside-axes", source="groups/maxtext.py", frameworks=_ONLY)
def degrees_beside_axes(context: RuleContext) -> Iterator[Violation]:
    """Degrees given beside ici and dcn agree with them."""
    mesh = _mesh(context)
    for name, given, of_axes in mesh.beside if mesh is not None else ():
        yield Violation(
            f"layout.{name}",
            f"{name} {given}, but ici and dcn make it {of_axes}.",
            {name: given, "of_axes": of_axes},
            f"leave {name} out",
        )


@rule("maxtext/degrees-fill-mesh", source=_BASE, frameworks=_ONLY)
def degrees_fill_mesh(context: RuleContext) -> Iterator[Violation]:
    """Without ici and dcn, dp is split over slices, shards and experts evenly."""
    layout, mesh = context.layout, context.layout.jax_mesh
    if mesh is None or mesh.given or layout.dp < 1 or layout.ep < 1 or mesh.num_slices < 1:
        return
    if any(slices_divide.check(context)):
        return
    if mesh.degree("dp") == layout.dp and mesh.degree("dp_shard") == layout.shard_degree:
        return
    yield Violation(
        "layout.dp" if "dp" not in layout.assumed else "layout.ep",
        f"dp {layout.dp} is not a product of {mesh.num_slices} slices, ep {layout.ep} (its ranks "
        f"split the batch too) and shards of {layout.shard_degree} ranks.",
        {"dp": layout.dp, "ep": layout.ep, "num_slices": mesh.num_slices},
        _slices_remedy(context),
    )


def _slices_remedy(context: RuleContext) -> str:
    """Return the slices that dp can be split over, else how to give sizes by axis."""
    layout = context.layout
    good = [
        one
        for one in divisors(layout.dp)
        if cures(context, "maxtext/degrees-fill-mesh", {"layout.num_slices": one})
    ]
    by_axis = "sizes by axis (ici and dcn with fsdp, expert, data …)"
    return f"num_slices: {', '.join(map(str, good[-4:]))}, or {by_axis}" if good else by_axis


@rule("maxtext/order-fixed", source=_BASE, frameworks=_ONLY)
def order_fixed(context: RuleContext) -> Iterator[Violation]:
    """The order of mesh axes is fixed."""
    layout = context.layout
    if "order" not in layout.assumed:
        yield Violation(
            "layout.order",
            f"order {'-'.join(layout.order)}: MaxText's mesh has its own order, {', '.join(MESH_AXES)}, the "
            "last fastest.",
            {"order": "-".join(layout.order)},
            "leave order out; framework: torch has a mesh in your order",
        )


@rule("maxtext/device-order", source="jax mesh_utils.create_device_mesh", frameworks=_ONLY)
def device_order(context: RuleContext) -> Iterator[Violation]:
    """A device order names every rank once."""
    layout = context.layout
    if layout.device_order is None:
        return
    order = np.array(layout.device_order)
    whole = len(order) == layout.world_size
    if whole and np.array_equal(np.sort(order), np.arange(layout.world_size)):
        return
    yield Violation(
        "layout.device_order",
        f"device_order names {len(set(layout.device_order))} different devices in {len(order)} places; it "
        f"takes each of the ranks 0 … {layout.world_size - 1} once.",
        {"places": len(order), "world_size": layout.world_size},
        "the ids of mesh.devices.flatten()",
    )


@rule(
    "maxtext/device-order-assumed",
    source="jax mesh_utils.create_device_mesh",
    severity=Severity.NOTE,
    frameworks=_ONLY,
)
def device_order_assumed(context: RuleContext) -> Iterator[Violation]:
    """Which device stands where in the mesh is assumed unless it is given."""
    layout = context.layout
    if layout.device_order is None:
        yield Violation(
            "layout.device_order",
            "the mesh is laid over the devices in order of their ids, as jax does on GPUs; on TPU it is laid "
            "over the torus and the members differ. Not verified.",
            {"device_order": "assumed"},
            "device_order: the ids of mesh.devices.flatten()",
        )


@rule(
    "maxtext/vocabulary-divides", source=f"{_BASE} logical_axis_rules; {JAX_EVEN}", frameworks=_ONLY
)
def vocabulary_divides(context: RuleContext) -> Iterator[Violation]:
    """Tp divides the vocabulary: nothing is padded, and jax refuses uneven shards."""
    model, tp = context.model, context.layout.tp
    if model is None or tp < 1 or model.vocab % tp == 0:
        return
    yield Violation(
        "layout.tp",
        f"vocabulary {model.vocab} over tp {tp} leaves {model.vocab % tp} over: MaxText pads nothing, and "
        "jax makes no array whose dimension its mesh axes do not divide.",
        {
            "vocab": model.vocab,
            "tp": tp,
            "remainder": model.vocab % tp,
            "minimal_padded": padded(model.vocab, tp),
            "paddable": True,
        },
        f"vocab_size: {padded(model.vocab, tp)}, or {degree_of(context, 'tp', model.vocab, tp)}",
    )


@rule("maxtext/hidden-divides", source=f"{_BASE} logical_axis_rules; {JAX_EVEN}", frameworks=_ONLY)
def hidden_divides(context: RuleContext) -> Iterator[Violation]:
    """The mesh axis fsdp divides the hidden width."""
    model, mesh = context.model, context.layout.jax_mesh
    fsdp = mesh.size("fsdp") if mesh is not None else 0
    if model is None or fsdp < 1 or model.hidden % fsdp == 0:
        return
    yield Violation(
        "layout.ici" if "ici" not in context.layout.assumed else "layout",
        f"hidden {model.hidden} over {fsdp} fsdp shards leaves {model.hidden % fsdp} over: jax makes no "
        "array whose dimension its mesh axes do not divide.",
        {"hidden": model.hidden, "fsdp": fsdp, "remainder": model.hidden % fsdp},
        f"fsdp: {nearest_divisors(model.hidden, fsdp)}, and data for the other ranks",
    )


MAXTEXT_MODEL_RULES: tuple[Rule, ...] = (vocabulary_divides, hidden_divides)
"""Rules of MaxText that need the model."""
MAXTEXT_RULES: tuple[Rule, ...] = (
    unknown_axis,
    axis_size,
    slices_divide,
    mesh_product,
    dcn_needs_slices,
    degrees_beside_axes,
    degrees_fill_mesh,
    order_fixed,
    device_order,
    device_order_assumed,
)
"""Rules of MaxText."""
