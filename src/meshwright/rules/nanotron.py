"""Rules of nanotron's groups."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.rules.registry import Rule, RuleContext, Violation, rule

_CONTEXT = "huggingface/nanotron src/nanotron/parallel/context.py (2411b022)"
_ONLY = ("nanotron",)


@rule("nanotron/expert-parallel", source=f"{_CONTEXT} assertion on WORLD_SIZE", frameworks=_ONLY)
def expert_parallel(context: RuleContext) -> Iterator[Violation]:
    """The array of ranks has no room for ep above 1."""
    layout = context.layout
    if layout.ep > 1:
        yield Violation(
            "layout.ep",
            f"ep {layout.ep}: nanotron asserts tp × pp × cp × dp = world size and then reshapes to (ep, "
            "pp, dp, cp, tp), which fails unless ep is 1. Later commits have another grid for experts, not "
            "modelled here.",
            {"ep": layout.ep},
            "ep: 1",
        )


@rule("nanotron/expert-tensor", source=_CONTEXT, frameworks=_ONLY)
def expert_tensor(context: RuleContext) -> Iterator[Violation]:
    """There is no tensor parallelism of experts beside tp."""
    layout = context.layout
    if layout.tp > 0 and layout.etp != layout.tp:
        yield Violation(
            "layout.etp",
            f"etp {layout.etp} with tp {layout.tp}: nanotron has no such axis.",
            {"etp": layout.etp, "tp": layout.tp},
            f"etp: {layout.tp}",
        )


@rule("nanotron/order-fixed", source=_CONTEXT, frameworks=_ONLY)
def order_fixed(context: RuleContext) -> Iterator[Violation]:
    """The order is fixed: pp, dp, cp, tp, the last fastest."""
    order = [axis for axis in context.layout.order if axis != "ep"]
    fixed = [axis for axis in ("tp", "cp", "dp", "pp") if axis in order]
    if sorted(order) == sorted(fixed) and order != fixed:
        yield Violation(
            "layout.order",
            f"order {'-'.join(order)} cannot be had in nanotron: its array is (ep, pp, dp, cp, tp), tp fastest.",
            {"order": "-".join(order)},
            "order: tp-cp-dp-pp",
        )


NANOTRON_RULES: tuple[Rule, ...] = (expert_parallel, expert_tensor, order_fixed)
"""Rules of nanotron."""
