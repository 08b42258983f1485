"""Rules of 8-bit and 4-bit formats: matrices keep their multiple after sharding."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.rules.arithmetic import nearest_multiples, padded
from meshwright.rules.heads import mlp_widths
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.sequence import tokens_of_rank
from meshwright.rules.vocabulary import padded_vocabulary, vocabulary_multiple

MULTIPLES = {"fp8": 16, "mxfp8": 32, "nvfp4": 32}
"""Every dimension of a GEMM, by format (megatron-core 0.16.1 ``get_fp8_align_size``, ``get_fp4_align_size``)."""
_ALIGN = "NVIDIA/Megatron-LM megatron/core/fp8_utils.py get_fp8_align_size, fp4_utils.py get_fp4_align_size"
_THREADS = "pytorch/torchtitan#461; NVIDIA-NeMo/Speech#8869"
_MESH = ("torch", "torchtitan")


def multiple_of(context: RuleContext) -> int | None:
    """Return the multiple that the job's precision asks for; ``None`` for 16 bits and more."""
    return MULTIPLES.get(context.training.precision or "")


def _sharded(context: RuleContext) -> list[tuple[str, str, int, int]]:
    """Return (name, how it comes about, whole size, degree) of every weight dimension."""
    model, layout = context.model, context.layout
    if model is None or layout.tp < 1:
        return []
    found = [("hidden", "hidden", model.hidden, 1)]
    query, keys = model.heads * model.head_dim, 2 * model.kv_heads * model.head_dim
    found.append(("query_width", f"{model.heads} heads × {model.head_dim}", query, layout.tp))
    if not model.is_mla:
        found.append(
            ("qkv_width", f"(heads + 2 × KV heads) × {model.head_dim}", query + keys, layout.tp)
        )
    found += [(name, name, width, degree) for name, _, width, degree in mlp_widths(context)]
    return found


@rule("precision/shape-multiple", source=f"{_ALIGN}; {_THREADS}")
def shape_multiple(context: RuleContext) -> Iterator[Violation]:
    """Weight dimensions are multiples of the format's block after sharding."""
    multiple = multiple_of(context)
    for name, how, size, degree in _sharded(context) if multiple else ():
        if multiple is None or size % degree:
            continue  # another rule says that it does not divide
        shard = size // degree
        if shard % multiple:
            by = f" / {degree}" if degree > 1 else ""
            yield Violation(
                "layout.tp" if degree > 1 else "model",
                f"{context.training.precision} needs multiples of {multiple}: {how} = {size}{by} = {shard} "
                f"leaves {shard % multiple} over.",
                {
                    "dimension": name,
                    "size": shard,
                    "multiple": multiple,
                    "remainder": shard % multiple,
                },
                _shape_remedy(name, size, multiple),
            )


def _shape_remedy(name: str, size: int, multiple: int) -> str:
    most = math.gcd(size, 1 << 20) // multiple
    change = f"tp: {most} or less, as a power of two" if most else f"pad {name}"
    return f"{change} ({name} of {nearest_multiples(size, multiple)} …), or precision: bf16"


@rule("precision/tokens-multiple", source=f"{_ALIGN}; {_THREADS}")
def tokens_multiple(context: RuleContext) -> Iterator[Violation]:
    """The tokens of a rank and microbatch are a multiple of the format's block."""
    multiple, tokens = multiple_of(context), tokens_of_rank(context)
    if multiple is None or tokens is None or tokens % multiple == 0:
        return
    batch, layout = context.batch, context.layout
    assert batch is not None
    yield Violation(
        "batch.seq_len",
        f"{context.training.precision} needs multiples of {multiple}: micro_batch {batch.micro_batch} × "
        f"seq_len {batch.seq_len} / cp {layout.cp} = {tokens} tokens a rank leave {tokens % multiple} over "
        "(padding that was right before context parallelism cut the sequence is lost).",
        {
            "dimension": "tokens",
            "size": tokens,
            "multiple": multiple,
            "remainder": tokens % multiple,
        },
        f"seq_len: {padded(batch.seq_len or 1, multiple * layout.cp)}, padded after cp is known",
    )


@rule("precision/output-layer-multiple", source=f"{_THREADS}", frameworks=_MESH)
def output_multiple(context: RuleContext) -> Iterator[Violation]:
    """The rows of the output layer stay a multiple after sharding, where it is converted too."""
    multiple, model, tp = multiple_of(context), context.model, context.layout.tp
    rows = padded_vocabulary(context)
    if multiple is None or model is None or rows is None or tp < 2:
        return
    # A layer whose whole shape is no multiple is left in bf16 by the converter's filter.
    if rows % multiple or (rows % tp == 0 and rows // tp % multiple == 0):
        return
    good = padded(model.vocab, multiple * tp)
    yield Violation(
        "layout.tp",
        f"{context.training.precision} needs multiples of {multiple}: vocabulary {rows} / tp {tp} = "
        f"{rows / tp:g} rows a rank. The output layer is normally kept out of {context.training.precision}; "
        "then this does not matter.",
        {
            "dimension": "vocab",
            "size": rows // tp,
            "multiple": multiple,
            "remainder": rows // tp % multiple,
            "nearest_vocab": good,
        },
        f"a vocabulary of {good}, or keep the output layer out (filter_fqns: [output])",
    )


@rule(
    "precision/output-layer-skipped",
    source="pytorch/torchtitan torchtitan/components/quantization (module filter)",
    severity=Severity.NOTE,
    frameworks=_MESH,
)
def output_skipped(context: RuleContext) -> Iterator[Violation]:
    """A vocabulary that is no multiple keeps the output layer in bf16."""
    multiple, model = multiple_of(context), context.model
    if multiple is None or model is None or vocabulary_multiple(context) is not None:
        return
    if model.vocab % multiple:
        yield Violation(
            "model",
            f"vocabulary {model.vocab} is no multiple of {multiple}: the output layer stays in bf16.",
            {"vocab": model.vocab, "multiple": multiple},
            f"a vocabulary of {padded(model.vocab, multiple)}, if it is to be converted",
        )


PRECISION_RULES: tuple[Rule, ...] = (
    shape_multiple,
    tokens_multiple,
    output_multiple,
    output_skipped,
)
"""Rules of number formats."""
