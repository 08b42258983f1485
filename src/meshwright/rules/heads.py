"""Rules of attention heads and MLP widths: what tensor parallelism cuts must come out whole."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.job.model import Model
from meshwright.rules.arithmetic import divisors
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree, degree_of
from meshwright.rules.versions import KV_DIVISOR, megatron_release, release_text

_CONFIG = "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py"
_DIVIDE = "NVIDIA/Megatron-LM megatron/core/utils.py divide"
_NANOTRON = (
    "huggingface/nanotron src/nanotron/models/llama.py CausalSelfAttention, "
    "src/nanotron/config/config.py Config.__post_init__"
)
JAX_EVEN = "jax-ml/jax jax/_src/pjit.py pjit_check_aval_sharding (jax-ml/jax#27808)"
"""Why MaxText takes no uneven shard: its state is made by a jit with these output shardings."""
WHOLE_HEADS = ("megatron", "torch", "torchtitan", "nanotron", "maxtext")
"""Frameworks that cut heads evenly or not at all; DeepSpeed's AutoTP has rules of its own."""
COPY_KV = ("torch", "torchtitan")
"""Frameworks beside which a user's own code may copy KV heads."""
_LISTED = 32


@rule(
    "heads/divide-tp",
    source=f"{_CONFIG}; {_NANOTRON}; {JAX_EVEN}; deepspeedai/DeepSpeed#3634",
    frameworks=WHOLE_HEADS,
)
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
        f"{degree(context, 'tp', usable, tp)}, and another axis for the other ranks",
    )


@rule(
    "heads/kv-divide-tp",
    source=f"{_CONFIG}; {_NANOTRON}; {JAX_EVEN}; huggingface/transformers#48307",
    frameworks=WHOLE_HEADS,
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
        f"{model.kv_heads} KV head{'s' if model.kv_heads > 1 else ''} × {model.head_dim} = {columns} columns over tp {layout.tp}: "
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
        f"{message} {_kv_rule(context, model)}",
        numbers,
        f"{degree(context, 'tp', legal, layout.tp)}{_kv_remedy(context, model)}",
    )


def _tokens(context: RuleContext) -> int | None:
    batch = context.batch
    if batch is None or batch.micro_batch is None or batch.seq_len is None:
        return None
    return batch.micro_batch * batch.seq_len


def copies_of_kv(context: RuleContext) -> int:
    """Return how often each KV head is there by the user's own code (``kv_replication``)."""
    read = context.layout.framework in COPY_KV
    return (context.section.kv_replication or 1) if read else 1


def kv_heads_break(keys: int, ranks: int, copies: int) -> bool:
    """Tell whether KV heads cannot be cut over ranks.

    Either whole heads lie on a rank, or a head on several, and then its copies fill them evenly.
    """
    if keys % ranks == 0:
        return False
    return ranks % keys != 0 or copies % (ranks // keys) != 0


def _kv_breaks(context: RuleContext, model: Model, tp: int) -> bool:
    if context.layout.framework == "megatron" and megatron_release(context) >= KV_DIVISOR:
        return model.kv_heads % tp != 0 and tp % model.kv_heads != 0
    return kv_heads_break(model.kv_heads, tp, copies_of_kv(context))


def _kv_rule(context: RuleContext, model: Model) -> str:
    elsewhere = (
        f"Megatron-Core {release_text(KV_DIVISOR).split()[-1]} on copies KV heads itself, so that tp may be a "
        "multiple of them."
    )
    if context.layout.framework == "megatron":
        release = megatron_release(context)
        if release >= KV_DIVISOR:
            return f"{release_text(release)} takes multiples and divisors of the KV heads."
        return f"{release_text(release)} takes divisors of the KV heads only. {elsewhere}"
    copies = copies_of_kv(context)
    if copies > 1:
        return (
            f"With kv_replication {copies} there are {model.kv_heads} × {copies} = {model.kv_heads * copies} KV "
            "heads: tp divides the KV heads, or is a multiple of them whose copies fill the ranks evenly."
        )
    return f"Loading may pass; attention then fails. This framework copies no KV heads. {elsewhere}"


def _kv_remedy(context: RuleContext, model: Model) -> str:
    tp = context.layout.tp
    if context.layout.framework not in COPY_KV or tp % model.kv_heads or model.heads % tp:
        return ""
    return f"; or kv_replication: {tp // model.kv_heads} where the framework copies KV heads"


@rule(
    "heads/kv-copied",
    source=_CONFIG,
    severity=Severity.NOTE,
    frameworks=("megatron",),
    versions="megatron-core 0.16 on",
)
def kv_copied(context: RuleContext) -> Iterator[Violation]:
    """Megatron copies KV heads where tp is a multiple of them."""
    model, tp = context.model, context.layout.tp
    if model is None or model.is_mla or tp <= model.kv_heads or _kv_breaks(context, model, tp):
        return
    ranks = tp // model.kv_heads
    yield Violation(
        "layout.tp",
        f"tp {tp} over {model.kv_heads} KV head{'s' if model.kv_heads > 1 else ''}: "
        f"{release_text(megatron_release(context))} puts a copy of each on {ranks} ranks. Releases before 0.16 take "
        "divisors only, and so do frameworks that copy none.",
        {"kv_heads": model.kv_heads, "tp": tp, "ranks_of_a_head": ranks},
        f"tp: {model.kv_heads}, if no copies are wanted",
    )


@rule(
    "heads/kv-copies-unread",
    source=f"{_CONFIG}; job/sections.py",
    severity=Severity.NOTE,
)
def kv_copies_unread(context: RuleContext) -> Iterator[Violation]:
    """A framework that copies KV heads itself, or never, does not read kv_replication."""
    copies, layout = context.section.kv_replication or 1, context.layout
    by_ulysses = layout.cp > 1 and layout.framework != "megatron"
    if copies < 2 or layout.framework in COPY_KV or by_ulysses:
        return
    assumed = " (assumed: the job names none)" if "framework" in layout.assumed else ""
    how = "copies no KV heads"
    if layout.framework == "megatron":
        how = (
            "copies KV heads by itself where tp is a multiple of them (from 0.16 on), and none for Ulysses "
            "(cp_kind a2a)"
        )
    yield Violation(
        "layout.kv_replication",
        f"kv_replication {copies} is not read: framework {layout.framework}{assumed} {how}.",
        {"kv_replication": copies, "framework": layout.framework},
        "framework: torch, where your own code copies KV heads; else leave kv_replication out",
    )


@rule("heads/query-width", source=f"{_DIVIDE}; {JAX_EVEN}", frameworks=WHOLE_HEADS)
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
            degree_of(context, "tp", model.heads, tp),
        )


@rule(
    "heads/output-groups",
    source="sgl-project/sglang#31799; huggingface/transformers models/deepseek_v4 DeepseekV4GroupedLinear",
)
def output_groups_divide(context: RuleContext) -> Iterator[Violation]:
    """Tp divides the groups of the output projection."""
    model, tp = context.model, context.layout.tp
    groups = 0 if model is None else model.output_groups
    if groups and tp > 0 and groups % tp:
        assert model is not None
        most = math.gcd(model.heads, groups)
        world = context.layout.world_size
        filling = [one for one in divisors(most) if world > 0 and world % one == 0]
        yield Violation(
            "layout.tp",
            f"{groups} output groups over tp {tp} leave {groups % tp} over. With {model.heads} heads, tp of the "
            f"attention divides gcd({model.heads}, {groups}) = {most}; on {world} ranks it is "
            f"{', '.join(map(str, filling))}.",
            {
                "output_groups": groups,
                "tp": tp,
                "remainder": groups % tp,
                "paddable": False,
                "max_attention_tp": most,
                "attention_tp": filling,
            },
            degree_of(context, "tp", groups, tp),
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
    return [one for one in widths if one[3] > 0]


def _widths_over(context: RuleContext, why: str) -> Iterator[Violation]:
    for name, by, width, ranks in mlp_widths(context):
        if width % ranks:
            yield Violation(
                f"layout.{by}" if by not in context.layout.assumed else "layout.tp",
                f"{name} {width} over {by} {ranks} leaves {width % ranks} over{why}.",
                {name: width, by: ranks, "remainder": width % ranks},
                degree_of(context, by, _common(context, width, by), ranks),
            )


def _common(context: RuleContext, width: int, by: str) -> int:
    """Return what the degree may divide: the heads too where it is tp."""
    assert context.model is not None
    return math.gcd(width, context.model.heads) if by == "tp" else width


@rule(
    "width/ffn-divide-tp",
    source=f"{_DIVIDE}; huggingface/nanotron src/nanotron/parallel/tensor_parallel/nn.py; {JAX_EVEN}",
    frameworks=("megatron", "nanotron", "maxtext"),
)
def ffn_divides(context: RuleContext) -> Iterator[Violation]:
    """Tp divides MLP widths, etp those of experts."""
    yield from _widths_over(context, "")


@rule(
    "width/ffn-uneven",
    source="torch.distributed.tensor Shard (torch.chunk); "
    "deepspeedai/DeepSpeed deepspeed/module_inject/tp_shard.py get_shard_size",
    severity=Severity.WARNING,
    frameworks=("torch", "torchtitan", "deepspeed"),
)
def ffn_uneven(context: RuleContext) -> Iterator[Violation]:
    """MLP widths are cut into shards of unequal size."""
    yield from _widths_over(context, ": shards of unequal size, and the largest sets the pace")


HEAD_RULES: tuple[Rule, ...] = (
    heads_divide,
    kv_heads_divide,
    kv_copied,
    kv_copies_unread,
    query_width,
    output_groups_divide,
    ffn_divides,
    ffn_uneven,
)
"""Rules of heads and widths."""
