"""Rules of the world size: the degrees make it, and the cluster has room for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from meshwright.findings import Severity
from meshwright.job.layout import Layout
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree_of, first_that_hold, holds

_TRIED = 64
"""Data-parallel sizes that are tried for a cluster."""
_PARALLEL_STATE = "NVIDIA/Megatron-LM megatron/core/parallel_state.py"


@rule("grid/world-divides", source=f"{_PARALLEL_STATE} initialize_model_parallel")
def world_divides(context: RuleContext) -> Iterator[Violation]:
    """The world size is a multiple of tp · pp · cp (of the degrees given, with dp given)."""
    layout = context.layout
    block = layout.tp * layout.cp * layout.pp
    if layout.world_size < 1 or _has_axes(layout):
        return
    if "dp" not in layout.assumed:
        yield from _derived_degree(context)
        return
    if layout.dp > 0 or block < 1:
        return
    numbers = {"world_size": layout.world_size, "tp": layout.tp, "cp": layout.cp, "pp": layout.pp}
    if block == 1 or layout.world_size % block == 0:
        return
    rest = layout.world_size % block
    widest = _blamed(layout, block)
    others = block // getattr(layout, widest)
    nearest = max(block, layout.world_size // block * block)
    sizes = _worlds(context, [nearest, nearest + block])
    remedy = sizes or f"world_size: {nearest} or {nearest + block}"
    if layout.world_size % others == 0:
        room = layout.world_size // others
        remedy = degree_of(context, widest, room, getattr(layout, widest))
        remedy += f"; or {sizes}" if sizes else ""
    yield Violation(
        f"layout.{widest}",
        f"world size {layout.world_size} is not divisible by tp {layout.tp} × cp {layout.cp} × "
        f"pp {layout.pp} = {block} ({layout.world_size} = {layout.world_size // block} × {block} + {rest}).",
        numbers | {"remainder": rest},
        remedy,
    )


def _blamed(layout: Layout, block: int) -> str:
    """Return the widest degree without which the others divide the world; else the widest."""
    by_width = sorted(("tp", "cp", "pp"), key=lambda name: -int(getattr(layout, name)))
    fitting = [one for one in by_width if layout.world_size % (block // getattr(layout, one)) == 0]
    return (fitting or by_width)[0]


def _has_axes(layout: Layout) -> bool:
    """Tell whether the degrees follow from mesh axes, whose own rules speak then."""
    return layout.jax_mesh is not None and layout.jax_mesh.given


def _derived_degree(context: RuleContext) -> Iterator[Violation]:
    """Say why the degree left out beside a given dp (0 then) cannot be derived."""
    layout = context.layout
    degrees = {name: getattr(layout, name) for name in ("tp", "cp", "pp", "dp")}
    given = {name: value for name, value in degrees.items() if name not in layout.assumed}
    block = math.prod(given.values())
    missing = next((name for name, value in degrees.items() if not value), None)
    if missing is None or missing in given or min(given.values()) < 1:
        return
    listed = " × ".join(f"{name} {value}" for name, value in given.items())
    nearest = max(block, layout.world_size // block * block)
    yield Violation(
        "layout.world_size",
        f"world size {layout.world_size} is not divisible by {listed} = {block}, so {missing} does "
        "not follow.",
        {"world_size": layout.world_size, **given, "remainder": layout.world_size % block},
        _worlds(context, [nearest, nearest + block])
        or first_that_hold(
            context,
            [
                {"layout.world_size": None},
                {"layout.world_size": nearest},
                {f"layout.{missing}": None},
            ],
            most=1,
        ),
    )


@rule("grid/world-product", source="rank = mixed-radix number over tp, cp, dp, pp")
def world_product(context: RuleContext) -> Iterator[Violation]:
    """The degrees given multiply to the world size given."""
    layout = context.layout
    product = layout.tp * layout.cp * layout.pp * layout.dp
    if min(layout.dp, product, layout.world_size) < 1 or product == layout.world_size:
        return
    if _has_axes(layout):
        return
    block = layout.tp * layout.cp * layout.pp
    fits = layout.world_size % block == 0
    yield Violation(
        "layout.dp" if "dp" not in layout.assumed else "layout.world_size",
        f"tp {layout.tp} × cp {layout.cp} × pp {layout.pp} × dp {layout.dp} = {product} ranks, "
        f"but the world size is {layout.world_size}.",
        {"product": product, "world_size": layout.world_size},
        first_that_hold(
            context,
            [
                *([{"layout.dp": layout.world_size // block}] if fits else []),
                {"layout.world_size": product},
            ],
            most=1,
        ),
    )


@rule("grid/world-fits-cluster", source="one rank a GPU")
def world_fits_cluster(context: RuleContext) -> Iterator[Violation]:
    """The cluster has a GPU for every rank."""
    layout, slots = context.layout, context.slots
    if slots is not None and layout.world_size > slots:
        yield Violation(
            "layout.world_size" if "world_size" not in layout.assumed else "cluster",
            f"{layout.world_size} ranks need as many GPUs; the cluster has {slots}.",
            {"world_size": layout.world_size, "gpus": slots},
            _room_remedy(context, slots),
        )


def _worlds(context: RuleContext, sizes: Sequence[int]) -> str:
    """Return the world sizes that break nothing else; empty without any."""
    good = [one for one in sizes if holds(context, {"layout.world_size": one})]
    return f"world_size: {' or '.join(map(str, good))}" if good else ""


def _room_remedy(context: RuleContext, slots: int) -> str:
    """Return a layout that has room, and the hosts that this one asks for."""
    layout, hardware = context.layout, context.hardware
    block = layout.tp * layout.cp * layout.pp
    room = slots // block if block > 0 else 0
    given = [key for key in ("world_size", "dp") if key not in layout.assumed]
    options = [
        {f"layout.{key}": dp * block if key == "world_size" else dp for key in given}
        for dp in range(room, max(room - _TRIED, 0), -1)
    ]
    smaller = first_that_hold(context, options, most=1) if given and options else "a smaller layout"
    if hardware is None or hardware.preset is None or not hardware.gpus_per_host:
        return f"{smaller}, or more hosts"
    hosts = -(-layout.world_size // hardware.gpus_per_host)
    return f"{smaller}, or cluster: {hardware.preset} x {hosts}"


@rule("layout/gpus-unused", source="meshwright", severity=Severity.NOTE)
def gpus_unused(context: RuleContext) -> Iterator[Violation]:
    """The job leaves GPUs of its cluster idle."""
    layout, slots = context.layout, context.slots
    if slots is None or not 0 < layout.world_size < slots:
        return
    given = [key for key in ("dp", "world_size") if key not in layout.assumed]
    yield Violation(
        "layout.world_size" if "world_size" not in layout.assumed else "layout",
        f"{layout.world_size} ranks on a cluster of {slots} GPUs: {slots - layout.world_size} stay idle.",
        {"gpus": slots, "ranks": layout.world_size, "idle": slots - layout.world_size},
        f"leave {' and '.join(given)} out to have it follow from the cluster"
        if given
        else f"a layout of {slots} ranks",
    )


def fills_world(layout: Layout) -> bool:
    """Tell whether the dense degrees make the world: else a rule above has said why."""
    sizes = (layout.tp, layout.cp, layout.dp, layout.pp)
    return min(sizes) > 0 and math.prod(sizes) == layout.world_size


WORLD_RULES: tuple[Rule, ...] = (world_divides, world_product, world_fits_cluster)
"""Rules of the world size."""
