"""Rules of the vocabulary: who pads it, to what, and the rows a rank holds."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.job.vocabulary import padded_rows, row_multiple
from meshwright.rules.arithmetic import padded
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree_of


def vocabulary_multiple(context: RuleContext) -> int | None:
    """Return the multiple (before tp) rows are padded to; ``None`` where nothing is padded."""
    return row_multiple(context.layout.framework, context.section.vocab_divisible_by)


def padded_vocabulary(context: RuleContext) -> int | None:
    """Return the rows of the embedding as the framework makes them; ``None`` without a model."""
    model, tp = context.model, context.layout.tp
    if model is None or tp < 1:
        return None
    given = context.section.vocab_divisible_by
    return padded_rows(model.vocab, tp, context.layout.framework, given)


@rule(
    "vocabulary/padded",
    source="NVIDIA/Megatron-LM megatron/training/vocab_utils.py; huggingface/nanotron "
    "src/nanotron/config/config.py ModelArgs; NVIDIA-NeMo/Megatron-Bridge#1331",
    severity=Severity.NOTE,
)
def vocabulary_padded(context: RuleContext) -> Iterator[Violation]:
    """The vocabulary is padded, so the embedding has more rows than the checkpoint."""
    model, tp = context.model, context.layout.tp
    multiple, rows = vocabulary_multiple(context), padded_vocabulary(context)
    if model is None or multiple is None or rows is None or rows == model.vocab:
        return
    minimal = padded(model.vocab, tp)
    rest = model.vocab % tp
    yield Violation(
        "layout.tp",
        f"vocabulary {model.vocab} "
        + (f"over tp {tp} leaves {rest} over and" if rest else f"(tp {tp} divides it)")
        + f" is padded to a multiple of {multiple} × tp = {multiple * tp}: {rows} rows, {rows // tp} a rank "
        f"(minimal padding would be {minimal}). A checkpoint converter that pads otherwise fails on the shape.",
        {
            "vocab": model.vocab,
            "remainder": rest,
            "multiple": multiple * tp,
            "padded": rows,
            "per_rank": rows // tp,
            "minimal_padded": minimal,
            "paddable": True,
        },
        f"make checkpoints of other tp sizes agree: a vocabulary of {rows}",
    )


@rule(
    "vocabulary/divide-tp",
    source="torch.distributed.tensor Shard; deepspeedai/DeepSpeed deepspeed/module_inject/tp_shard.py "
    "get_shard_size; sgl-project/sglang#31799",
    severity=Severity.WARNING,
    frameworks=("torch", "torchtitan", "deepspeed"),
)
def vocabulary_divides(context: RuleContext) -> Iterator[Violation]:
    """Tp divides the vocabulary where the framework pads nothing."""
    model, tp = context.model, context.layout.tp
    if model is None or tp < 1 or vocabulary_multiple(context) is not None:
        return
    if model.vocab % tp:
        minimal = padded(model.vocab, tp)
        yield Violation(
            "layout.tp",
            f"vocabulary {model.vocab} over tp {tp} leaves {model.vocab % tp} over, and "
            f"{context.layout.framework} pads nothing by itself: shards of unequal size, or an error in "
            "what cuts the embedding.",
            {
                "vocab": model.vocab,
                "tp": tp,
                "remainder": model.vocab % tp,
                "minimal_padded": minimal,
                "padded": padded(model.vocab, 64 * tp),
                "per_rank": padded(model.vocab, 64 * tp) // tp,
                "paddable": True,
            },
            f"pad the vocabulary to {minimal}, or to {padded(model.vocab, 64 * tp)} (64 × tp), or "
            f"{degree_of(context, 'tp', math.gcd(model.vocab, model.heads), tp)}",
        )


VOCABULARY_RULES: tuple[Rule, ...] = (vocabulary_padded, vocabulary_divides)
"""Rules of the vocabulary."""
