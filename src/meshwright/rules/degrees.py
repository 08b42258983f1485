"""Rules of single keys of the layout: degrees, keys of other frameworks, the order string.

Each stands for one error of the original code, so that the user reads the very reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from meshwright.findings import Severity
from meshwright.job.layout import MEGATRON_ORDER, TORCHTITAN_ORDER
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import first_that_hold, holds, written

_PARALLEL_STATE = "NVIDIA/Megatron-LM megatron/core/parallel_state.py"
_DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp", "vp")
_AXES = {"tp", "cp", "ep", "dp", "pp"}
MOST_RANKS = 1 << 24
"""Largest world whose groups are listed: far above any cluster, and still a small array."""


_OF_FRAMEWORK = {
    "hybrid_context_parallel": ("megatron",),
    "hierarchical_cp": ("megatron",),
    "distributed_optimizer_instances": ("megatron",),
    "zero_hpz_partition_size": ("deepspeed",),
    "use_data_before_expert_parallel": ("deepspeed",),
    "mp_mode": ("deepspeed",),
    "ici": ("maxtext",),
    "dcn": ("maxtext",),
    "num_slices": ("maxtext",),
    "device_order": ("maxtext",),
}
"""Keys of the layout that one framework alone reads."""


@rule("framework/key-without-effect", source="job/layout.py", severity=Severity.NOTE)
def key_without_effect(context: RuleContext) -> Iterator[Violation]:
    """A key of another framework changes nothing."""
    layout = context.layout
    for key, frameworks in _OF_FRAMEWORK.items():
        if key not in layout.assumed and layout.framework not in frameworks:
            yield Violation(
                f"layout.{key}",
                f"{key} is a key of {frameworks[0]}; with framework {layout.framework} it changes nothing.",
                {"key": key, "framework": layout.framework},
                f"leave {key} out",
            )


@rule("layout/degree-positive", source="every framework")
def degree_positive(context: RuleContext) -> Iterator[Violation]:
    """Every degree is at least 1."""
    layout = context.layout
    given = [name for name in _DEGREES if name not in layout.assumed]
    values = {name: getattr(layout, name) for name in given}
    values["distributed_optimizer_instances"] = layout.instances
    wrong = {name: value for name, value in values.items() if value < 1}
    # A world size nobody gave is wrong because of a degree, or because the cluster is empty.
    if layout.world_size < 1 and ("world_size" not in layout.assumed or not wrong):
        wrong["world_size"] = layout.world_size
    for name, value in wrong.items():
        yield Violation(
            f"layout.{name}",
            f"{name} is {value}; a degree counts ranks and is at least 1.",
            {name: value},
            f"{name}: 1, or leave the key out",
        )


@rule("grid/world-too-large", source="a rank is one GPU")
def world_too_large(context: RuleContext) -> Iterator[Violation]:
    """Groups are listed up to 16,777,216 ranks."""
    world_size = context.layout.world_size
    if world_size > MOST_RANKS:
        yield Violation(
            "layout.world_size" if "world_size" not in context.layout.assumed else "layout",
            f"{world_size} ranks: groups are listed up to {MOST_RANKS} ranks.",
            {"world_size": world_size, "most": MOST_RANKS},
            f"world_size: {MOST_RANKS} or less",
        )


@rule("grid/order-axes", source=f"{_PARALLEL_STATE} RankGenerator.__init__")
def order_axes(context: RuleContext) -> Iterator[Violation]:
    """The order string names known axes, each once."""
    order = context.layout.order
    if not any(order):
        own = TORCHTITAN_ORDER if context.layout.framework != "megatron" else MEGATRON_ORDER
        yield Violation(
            "layout.order",
            "the order is empty: it names the axes, the fastest first.",
            {"order": ""},
            f"leave order out, or order: {'-'.join(own)}",
        )
        return
    unknown = [token for token in order if token not in _AXES]
    twice = sorted({token for token in order if order.count(token) > 1})
    if unknown or twice:
        what = [f"unknown axis {token!r}" for token in unknown]
        what += [f"axis {token!r} named twice" for token in twice]
        yield Violation(
            "layout.order",
            f"order {'-'.join(order)}: {', '.join(what)}.",
            {"order": "-".join(order)},
            "order: tp-cp-ep-dp-pp (each axis once, the fastest first)",
        )


@rule("grid/order-missing-axis", source=f"{_PARALLEL_STATE} RankGenerator.__init__")
def order_missing_axis(context: RuleContext) -> Iterator[Violation]:
    """An axis of more than one rank must stand in the order string."""
    layout = context.layout
    if layout.framework == "maxtext" or not any(layout.order):
        return  # its mesh has an order of its own, and no string
    needed = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    if layout.framework == "megatron":  # elsewhere experts live on a mesh of their own
        needed["ep"] = layout.ep
        if "framework" not in layout.assumed or layout.has_experts:
            # One order string serves both grids: dp is also the place of edp, tp that of etp.
            # Where nobody named Megatron and there are no experts, only the dense grid counts.
            needed |= {"tp": max(layout.tp, layout.etp), "dp": max(layout.dp, layout.edp)}
    for axis, degree in needed.items():
        if axis not in layout.order and degree > 1:
            of = " of experts" if degree != getattr(layout, axis) else ""
            yield Violation(
                "layout.order",
                f"{axis}{of} has {degree} ranks a group but order {'-'.join(layout.order)} "
                "does not name it.",
                {"axis": axis, "degree": degree, "order": "-".join(layout.order)},
                _order_remedy(context, needed, axis),
            )


def _order_remedy(context: RuleContext, needed: Mapping[str, int], axis: str) -> str:
    """Return the order with what is missing, else the one that the framework has by itself."""
    whole = {"layout.order": _whole_order(context.layout.order, needed)}
    if holds(context, whole):
        return f"{written(whole)}, or the place where {axis} belongs"
    return first_that_hold(context, [whole, {"layout.order": None}], most=1)


def _whole_order(order: tuple[str, ...], needed: Mapping[str, int]) -> str:
    """Return the order with every axis that must stand in it, and without what is no axis.

    Missing axes come last, but before a closing pp.
    """
    known = [axis for axis in dict.fromkeys(order) if axis in _AXES]
    missing = [axis for axis, degree in needed.items() if degree > 1 and axis not in known]
    tail = [axis for axis in known[-1:] if axis == "pp"]
    return "-".join([*known[: len(known) - len(tail)], *missing, *tail])


DEGREE_RULES: tuple[Rule, ...] = (
    key_without_effect,
    degree_positive,
    world_too_large,
    order_axes,
    order_missing_axis,
)
"""Rules of single keys."""
WITHOUT_DEGREES = (key_without_effect, degree_positive, world_too_large, order_axes)
"""Rules that can speak where a degree is no degree: products and divisions would only echo it."""
