"""Rules of attention heads and MLP widths: what tensor parallelism cuts must come out whole."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.job.model import Model
from meshwright.rules.arithmetic import divisors, nearest_divisors, nearest_values
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.versions import KV_DIVISOR, megatron_release, release_text

_CONFIG = "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py"
_DIVIDE = "NVIDIA/Megatron-LM megatron/core/utils.py divide"
_LISTED = 32


def output_groups(model: Model) -> int:
    """Return the groups of the output projection (0: one projection)."""
    return int(getattr(model, "output_groups", 0))


@rule("heads/divide-tp", source=f"{_CONFIG}; deepspeedai/DeepSpeed#3634")
def heads_divide(context: RuleContext) -> Iterator[Violation]:
    """Tp divides the attention heads."""
    model, tp = context.model, context.layout.tp
    if model is None or tp < 1 or model.heads % tp == 0:
        return
    legal = divisors(model.heads)
    host = context.hardware.gpus_per_host if context.hardware is not None else None
    usable = [value for value in legal if host is None or value <= host]
    inside = f" (inside a host of {host} GPUs: {', '.join(map(str, usable))})" if host else ""
    yield Violation(
        "layout.tp",
        f"{model.heads} heads over tp {tp} leave {model.heads % tp} over; tp may be "
        f"{', '.join(map(str, legal[:_LISTED]))}{inside}.",
        {
            "heads": model.heads,
            "tp": tp,
            "remainder": model.heads % tp,
            "divisors": legal[:_LISTED],
            "usable": usable[:_LISTED],
            "paddable": False,
        },
        f"tp: {nearest_values(usable, tp)}, and another axis for the other ranks",
    )


@rule(
    "heads/kv-divide-tp",
    source=f"{_CONFIG}; huggingface/transformers#48307",
    versions="megatron-core 0.16 on: tp may also be a multiple of the KV heads; before: a divisor only",
)
def kv_heads_divide(context: RuleContext) -> Iterator[Violation]:
    """Tp divides the key/value heads, or is a multiple of them where they are replicated."""
    model, layout = context.model, context.layout
    if model is None or layout.tp < 1 or model.is_mla or not _kv_breaks(context, model, layout.tp):
        return
    columns = model.kv_heads * model.head_dim
    per_rank, rest = divmod(columns, layout.tp)
    legal = [tp for tp in divisors(model.heads) if not _kv_breaks(context, model, tp)]
    message = (
        f"{model.kv_heads} KV heads × {model.head_dim} = {columns} columns over tp {layout.tp}: "
        + (f"{per_rank} a rank" if not rest else f"{per_rank} a rank and {rest} over")
        + f", which is no whole number of heads of {model.head_dim}."
    )
    numbers: dict[str, int | list[int]] = {
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "tp": layout.tp,
        "columns_per_rank": per_rank,
        "legal_tp": legal[:_LISTED],
    }
    tokens = _tokens(context)
    if tokens and not rest:
        elements = tokens * per_rank
        message += f" {tokens} tokens give {elements} elements, which have no last axis of {model.head_dim}."
        numbers |= {"tokens": tokens, "elements": elements}
    yield Violation(
        "layout.tp",
        f"{message} {_kv_rule(context)}",
        numbers,
        f"tp: {nearest_values(legal, layout.tp)}{_kv_remedy(context, model)}",
    )


def _tokens(context: RuleContext) -> int | None:
    batch = context.batch
    if batch is None or batch.micro_batch is None or batch.seq_len is None:
        return None
    return batch.micro_batch * batch.seq_len


def _replicates(context: RuleContext) -> bool:
    """Tell whether tp may exceed the KV heads."""
    if context.layout.framework == "megatron":
        return megatron_release(context) >= KV_DIVISOR
    return (context.section.kv_replication or 1) > 1


def _kv_breaks(context: RuleContext, model: Model, tp: int) -> bool:
    if model.kv_heads % tp == 0:
        return False
    return not (_replicates(context) and tp % model.kv_heads == 0)


def _kv_rule(context: RuleContext) -> str:
    if context.layout.framework == "megatron":
        release = release_text(megatron_release(context))
        return (
            f"{release} takes multiples and divisors of the KV heads."
            if _replicates(context)
            else f"{release} takes divisors of the KV heads only; 0.16 on takes multiples too."
        )
    if _replicates(context):
        return "With KV replication tp may be a multiple of the KV heads."
    return "Loading may pass; attention then fails. This framework copies no KV heads."


def _kv_remedy(context: RuleContext, model: Model) -> str:
    if context.layout.framework == "megatron" or context.layout.tp % model.kv_heads:
        return ""
    return f"; or kv_replication: {context.layout.tp // model.kv_heads} where the framework copies KV heads"


@rule("heads/query-width", source=_DIVIDE)
def query_width(context: RuleContext) -> Iterator[Violation]:
    """Tp divides the width of all query heads together."""
    model, tp = context.model, context.layout.tp
    if model is None or tp < 1:
        return
    width = model.heads * model.head_dim
    if width % tp:
        yield Violation(
            "layout.tp",
            f"query width {model.heads} × {model.head_dim} = {width} over tp {tp} leaves {width % tp} "
            "over; it follows from the heads.",
            {"width": width, "tp": tp, "remainder": width % tp, "paddable": False},
            f"tp: {nearest_divisors(model.heads, tp)}",
        )


@rule("heads/output-groups", source="sgl-project/sglang#31799")
def output_groups_divide(context: RuleContext) -> Iterator[Violation]:
    """Tp divides the groups of the output projection."""
    model, tp = context.model, context.layout.tp
    groups = 0 if model is None else output_groups(model)
    if groups and tp > 0 and groups % tp:
        yield Violation(
            "layout.tp",
            f"{groups} output groups over tp {tp} leave {groups % tp} over.",
            {"output_groups": groups, "tp": tp, "remainder": groups % tp, "paddable": False},
            f"tp: {nearest_divisors(groups, tp)}",
        )


def mlp_widths(context: RuleContext) -> list[tuple[str, str, int, int]]:
    """Return (name, degree's name, width, degree) of every MLP width that is cut."""
    model, layout = context.model, context.layout
    if model is None:
        return []
    widths = []
    if model.num_moe_layers < model.num_layers:
        widths.append(("ffn", "tp", model.ffn, layout.tp))
    if model.is_moe:
        experts = layout.etp
        if layout.framework in ("torch", "torchtitan") and layout.ep == 1:
            experts = layout.tp
        widths.append(("moe_ffn", "etp" if layout.etp > 1 else "tp", model.moe_ffn, experts))
        if model.shared_ffn_total:
            widths.append(("shared_ffn_total", "tp", model.shared_ffn_total, layout.tp))
    return [(name, by, width, degree) for name, by, width, degree in widths if degree > 0]


def _widths_over(context: RuleContext, why: str) -> Iterator[Violation]:
    for name, by, width, degree in mlp_widths(context):
        if width % degree:
            yield Violation(
                f"layout.{by}" if by not in context.layout.assumed else "layout.tp",
                f"{name} {width} over {by} {degree} leaves {width % degree} over{why}.",
                {name: width, by: degree, "remainder": width % degree},
                f"{by}: {nearest_divisors(_common(context, width, by), degree)}",
            )


def _common(context: RuleContext, width: int, by: str) -> int:
    """Return what the degree may divide: the heads too where it is tp."""
    assert context.model is not None
    return math.gcd(width, context.model.heads) if by == "tp" else width


@rule("width/ffn-divide-tp", source=_DIVIDE, frameworks=("megatron", "nanotron"))
def ffn_divides(context: RuleContext) -> Iterator[Violation]:
    """Tp divides MLP widths, etp those of experts."""
    yield from _widths_over(context, "")


@rule(
    "width/ffn-uneven",
    source="torch.distributed.tensor Shard (torch.chunk)",
    severity=Severity.WARNING,
    frameworks=("torch", "torchtitan"),
)
def ffn_uneven(context: RuleContext) -> Iterator[Violation]:
    """MLP widths are cut into shards of unequal size."""
    yield from _widths_over(context, ": shards of unequal size, and the largest sets the pace")


HEAD_RULES: tuple[Rule, ...] = (
    heads_divide,
    kv_heads_divide,
    query_width,
    output_groups_divide,
    ffn_divides,
    ffn_uneven,
)
"""Rules of heads and widths."""
