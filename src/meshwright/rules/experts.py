"""Rules of experts: how they divide over ep, how the router chooses, how many tokens each gets."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.rules.arithmetic import divisors, nearest_divisors
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree
from meshwright.rules.sequence import splits_sequence, tokens_of_rank

_CONFIG = "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py"
FEW_TOKENS = 128
"""Fewer tokens an expert and microbatch than this leave a grouped GEMM far from its rate."""


@rule("experts/divide-ep", source=f"{_CONFIG}; pytorch/torchtitan#4258")
def experts_divide(context: RuleContext) -> Iterator[Violation]:
    """Experts are divided evenly over ep; a model without experts has nothing to divide."""
    model, ep = context.model, context.layout.ep
    if model is None or ep <= 1 or (model.experts and model.experts % ep == 0):
        return
    if not model.experts:
        of_axes = "ep" in context.layout.assumed  # MaxText: ici or dcn says it
        remedy = "expert: 1 in ici and dcn" if of_axes else "leave ep out"
        message = f"ep {ep}, and {model.name} has no experts."
        legal = [1]
    else:
        message = f"{model.experts} experts over ep {ep} leave {model.experts % ep} over."
        legal = _legal_ep(context, model.experts)
        remedy = degree(context, "ep", legal, ep)
    key = "ici" if "ep" in context.layout.assumed else "ep"
    yield Violation(
        f"layout.{key}",
        message,
        {"experts": model.experts, "ep": ep, "legal": legal},
        remedy,
    )


def _legal_ep(context: RuleContext, experts: int) -> list[int]:
    """Return the ep that divide the experts, and the ranks they are cut from where these are known."""
    layout = context.layout
    legal = divisors(experts)
    if layout.framework in ("torch", "torchtitan"):
        region = layout.dp_shard * layout.cp * layout.tp
    else:
        block = layout.etp * layout.pp
        region = layout.world_size // block if block > 0 and layout.world_size > 0 else 0
    return [ep for ep in legal if region % ep == 0] if region > 0 else legal


@rule("experts/router-groups", source=_CONFIG)
def router_groups(context: RuleContext) -> Iterator[Violation]:
    """Groups of a group-limited router divide the experts, and fewer are chosen than there are."""
    model = context.model
    if model is None or not model.router_groups:
        return
    groups, chosen = model.router_groups, model.router_topk_groups
    if model.experts % groups:
        yield Violation(
            "model",
            f"{model.experts} experts in {groups} router groups leave {model.experts % groups} over.",
            {"experts": model.experts, "router_groups": groups},
            f"router_groups: {nearest_divisors(max(model.experts, 1), groups)}",
        )
    if chosen > groups:
        yield Violation(
            "model",
            f"the router chooses {chosen} of {groups} groups.",
            {"router_topk_groups": chosen, "router_groups": groups},
            f"router_topk_groups: {groups} or less",
        )


def tokens_per_expert(context: RuleContext) -> float | None:
    """Return the tokens that reach one expert per microbatch when they spread evenly.

    Every rank of an ep group holds ``b·s/cp`` tokens (``/tp`` where tp splits the sequence, or where
    experts are not cut over tp), each goes to ``top_k`` experts.
    """
    model, layout, tokens = context.model, context.layout, tokens_of_rank(context)
    if model is None or not model.experts or tokens is None or min(layout.tp, layout.ep) < 1:
        return None
    distinct = tokens / layout.tp if splits_sequence(context) else float(tokens)
    gathered = layout.etp if splits_sequence(context) else 1
    return distinct * gathered * layout.ep * model.top_k / model.experts


@rule(
    "experts/few-tokens",
    source="tokens per expert set a grouped GEMM's rate; the threshold is assumed",
    severity=Severity.NOTE,
)
def few_tokens(context: RuleContext) -> Iterator[Violation]:
    """An expert gets enough tokens of a microbatch for a grouped GEMM to be quick."""
    model, tokens = context.model, tokens_per_expert(context)
    if model is None or tokens is None or tokens >= FEW_TOKENS:
        return
    yield Violation(
        "batch.micro_batch",
        f"an expert gets {tokens:g} tokens of a microbatch on average ({model.experts} experts, top-k "
        f"{model.top_k}, ep {context.layout.ep}); below {FEW_TOKENS} a grouped GEMM is far from its rate.",
        {"tokens_per_expert": tokens, "experts": model.experts, "top_k": model.top_k},
        "a larger micro_batch, or ep over ranks that hold other tokens",
    )


EXPERT_RULES: tuple[Rule, ...] = (experts_divide, router_groups, few_tokens)
"""Rules of experts."""
