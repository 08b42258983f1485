"""Rules of the sequence: what context and sequence parallelism cut, and Ulysses' heads."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.rules.arithmetic import divisors
from meshwright.rules.heads import kv_heads_break
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree as near_cp
from meshwright.rules.remedies import multiples
from meshwright.traffic.context import DEFAULT_KIND

_ARGUMENTS = "NVIDIA/Megatron-LM megatron/training/arguments.py; core/tensor_parallel/mappings.py"
_MIRRORED = ("megatron", "torch", "torchtitan")
"""Frameworks that give each rank two mirrored chunks of the sequence."""


def cp_kind(context: RuleContext) -> str | None:
    """Return how context parallelism exchanges; ``None`` where the framework is silent."""
    return context.section.cp_kind or DEFAULT_KIND.get(context.layout.framework)


def splits_sequence(context: RuleContext) -> bool:
    """Tell whether tp splits the sequence between blocks (torchtitan has no other way)."""
    layout = context.layout
    always = layout.framework == "torchtitan" and "sequence_parallel" in layout.assumed
    return layout.tp > 1 and (layout.sequence_parallel or always)


def tokens_of_rank(context: RuleContext) -> int | None:
    """Return the tokens of a microbatch on one context-parallel rank; ``None`` if not whole."""
    batch, cp = context.batch, context.layout.cp
    if batch is None or batch.micro_batch is None or batch.seq_len is None or cp < 1:
        return None
    return batch.micro_batch * batch.seq_len // cp if batch.seq_len % cp == 0 else None


def chunks_of_sequence(context: RuleContext) -> int:
    """Return what context parallelism alone divides the sequence by: 2·cp with mirrored chunks."""
    layout = context.layout
    if layout.cp <= 1:
        return 1
    whole = cp_kind(context) == "a2a" and layout.framework != "megatron"
    return 2 * layout.cp if layout.framework in _MIRRORED and not whole else layout.cp


def sequence_factor(context: RuleContext) -> int:
    """Return the smallest number that the sequence length must be a multiple of.

    ``s % (2·cp) == 0`` and ``(s / cp) % tp == 0`` together: ``cp · lcm(2, tp)``.
    """
    layout, chunks = context.layout, chunks_of_sequence(context)
    if min(layout.cp, layout.tp) < 1:
        return 1
    by_tp = layout.tp if splits_sequence(context) else 1
    return layout.cp * math.lcm(chunks // layout.cp if layout.cp > 1 else 1, by_tp)


@rule("sequence/factor", source=f"{_ARGUMENTS}; NVIDIA-NeMo/RL#3563")
def sequence_divides(context: RuleContext) -> Iterator[Violation]:
    """The sequence divides by cp (twice, mirrored), and what is left of it by tp."""
    batch, layout = context.batch, context.layout
    factor = sequence_factor(context)
    if batch is None or batch.seq_len is None or batch.seq_len % factor == 0:
        return
    length, chunks = batch.seq_len, chunks_of_sequence(context)
    reasons = []
    if layout.cp > 1 and length % chunks:
        why = ", two mirrored chunks a rank" if chunks == 2 * layout.cp else ""
        reasons.append(f"seq_len {length} % {chunks} = {length % chunks} (cp {layout.cp}{why})")
    if splits_sequence(context) and length % (layout.cp * layout.tp):
        reasons.append(
            f"({length} / cp {layout.cp}) does not divide by tp {layout.tp} (sequence parallelism)"
        )
    numbers = {"seq_len": length, "factor": factor, "cp": layout.cp, "tp": layout.tp}
    text = f"{' and '.join(reasons)}: seq_len must be a multiple of {factor}."
    if layout.cp > 1 and splits_sequence(context) and chunks == 2 * layout.cp:
        small, large = math.lcm(chunks, layout.tp), chunks * layout.tp
        text += (
            f" That is cp × lcm(2, tp); lcm(2·cp, tp) = {small} can be too small, and 2·cp·tp = {large} "
            "can pad too much."
        )
        numbers |= {"lcm_rule": small, "product_rule": large}
    yield Violation(
        "batch.seq_len", text, numbers, multiples(context, "batch.seq_len", length, factor)
    )


@rule(
    "sequence/longer-than-model",
    source="config.json max_position_embeddings",
    severity=Severity.WARNING,
)
def longer_than_model(context: RuleContext) -> Iterator[Violation]:
    """The sequence is no longer than the model was made for."""
    batch, model = context.batch, context.model
    if batch is None or model is None:
        return
    most = model.learned_positions or model.max_positions
    if most is not None and most < 0:
        yield Violation(
            "model.max_positions",
            f"max_positions {most}: a model has one position at least, so the length is not checked.",
            {"positions": most},
            "leave max_positions out",
        )
        return
    if batch.seq_len is None:
        return
    if most and batch.seq_len > most:
        learned = " learned" if model.learned_positions else ""
        yield Violation(
            "batch.seq_len",
            f"seq_len {batch.seq_len} exceeds the {most}{learned} positions of {model.name}.",
            {"seq_len": batch.seq_len, "positions": most},
            f"seq_len: {most}, or a model with longer positions",
        )


def ulysses_degree(context: RuleContext) -> int:
    """Return the ranks that exchange heads for sequence (1: none)."""
    layout, kind = context.layout, cp_kind(context)
    if kind == "a2a":
        return layout.cp
    if kind == "a2a+p2p" and layout.hierarchical_cp:
        return layout.hierarchical_cp[0]
    return 1


def _copies(context: RuleContext) -> int:
    """Return how often each KV head is there: beside DeepSpeed's Ulysses too a user's code may copy them."""
    given = context.section.kv_replication or 1
    return 1 if context.layout.framework == "megatron" else given


def _ulysses_breaks(context: RuleContext, degree: int) -> bool:
    model, tp = context.model, max(context.layout.tp, 1)
    assert model is not None
    queries, keys = model.heads // tp, max(model.kv_heads // tp, 1)
    if queries % degree:
        return True
    return kv_heads_break(keys, degree, _copies(context))


@rule(
    "cp/ulysses-heads",
    source="NVIDIA/TransformerEngine pytorch/attention/dot_product_attention/context_parallel.py; "
    "verl-project/verl#1226",
)
def ulysses_heads(context: RuleContext) -> Iterator[Violation]:
    """Ulysses' degree divides query heads, and KV heads unless they are replicated."""
    model, layout = context.model, context.layout
    degree = ulysses_degree(context)
    if model is None or degree < 2 or layout.tp < 1 or model.heads % layout.tp:
        return
    if not _ulysses_breaks(context, degree):
        return
    legal = [one for one in divisors(model.heads) if not _ulysses_breaks(context, one)]
    queries, keys = model.heads // layout.tp, max(model.kv_heads // layout.tp, 1)
    yield Violation(
        "layout.hierarchical_cp" if layout.hierarchical_cp else "layout.cp",
        f"Ulysses over {degree} ranks: {queries} query heads and {keys} KV heads a tp rank; the degree must "
        f"divide the query heads, and {_ulysses_keys(context)}.",
        {"degree": degree, "heads": queries, "kv_heads": keys, "legal": legal[:32]},
        f"{near_cp(context, 'cp', legal, degree)}, or cp_kind: p2p",
    )


def _ulysses_keys(context: RuleContext) -> str:
    """Return what the degree must be to the KV heads, and why."""
    copies = _copies(context)
    if copies > 1:
        return (
            f"divide the KV heads, or be a multiple of them that their {copies} copies fill evenly"
        )
    who = (
        "Megatron with TransformerEngine" if context.layout.framework == "megatron" else "this job"
    )
    ignored = ""
    if (context.section.kv_replication or 1) > 1:
        ignored = f"; kv_replication is not read with framework {context.layout.framework}"
    return f"divide the KV heads, of which {who} makes no copies{ignored}"


@rule(
    "cp/sequence-parallel-without-tp",
    source="NVIDIA/Megatron-LM megatron/training/arguments.py",
    severity=Severity.NOTE,
    frameworks=("megatron",),
)
def sequence_parallel_without_tp(context: RuleContext) -> Iterator[Violation]:
    """Sequence parallelism needs tp above 1."""
    layout = context.layout
    if layout.sequence_parallel and layout.tp == 1 and "sequence_parallel" not in layout.assumed:
        yield Violation(
            "layout.sequence_parallel",
            "sequence_parallel with tp 1: Megatron turns it off.",
            {"tp": layout.tp},
            "sequence_parallel: false",
        )


SEQUENCE_RULES: tuple[Rule, ...] = (
    sequence_divides,
    longer_than_model,
    ulysses_heads,
    sequence_parallel_without_tp,
)
"""Rules of the sequence."""
