"""Rules of 8-bit and 4-bit formats: matrices keep their multiple after sharding."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.job.model import Model
from meshwright.rules.arithmetic import nearest_multiples, padded
from meshwright.rules.experts import tokens_per_expert
from meshwright.rules.formats import gpu_cannot
from meshwright.rules.heads import mlp_widths
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree_of, holds
from meshwright.rules.sequence import tokens_of_rank
from meshwright.rules.vocabulary import padded_vocabulary, vocabulary_multiple

MULTIPLES = {"fp8": 16, "mxfp8": 32, "nvfp4": 32}
"""Every dimension of a GEMM, by format (megatron-core 0.16.1 ``get_fp8_align_size``; for FP4 what the
docstring of ``get_fp4_align_size`` gives as the hardware's need: 16 bytes are 32 values)."""
EXPERT_MULTIPLES = {
    "megatron": {"fp8": 16, "mxfp8": 32, "nvfp4": 128},
    "torchtitan": {"fp8": 16, "mxfp8": 32},
}
"""What the tokens of each expert are padded to (``get_align_size_for_quantization``;
``set_token_group_alignment_size_m``)."""
NOTABLE_PADDING = 0.05
"""Padding of experts is worth a note from this share of their tokens on (assumed)."""
_ALIGN = "NVIDIA/Megatron-LM megatron/core/fp8_utils.py get_fp8_align_size, fp4_utils.py get_fp4_align_size"
_TRIED = 64
"""Sequence lengths that are tried."""
_THREADS = "pytorch/torchtitan#461; NVIDIA-NeMo/Speech#8869"
_MESH = ("torch", "torchtitan")


def multiple_of(context: RuleContext) -> int | None:
    """Return the multiple that the job's precision asks for; ``None`` for 16 bits and more."""
    return MULTIPLES.get(context.training.precision or "")


_Dimension = tuple[str, str, int, int]


def _sharded(context: RuleContext) -> list[_Dimension]:
    """Return (name, how it comes about, whole size, degree) of every weight dimension."""
    model, layout = context.model, context.layout
    if model is None or layout.tp < 1:
        return []
    query = model.heads * model.head_dim
    found = [
        ("hidden", "hidden", model.hidden, 1),
        ("query_width", f"{model.heads} heads × {model.head_dim}", query, layout.tp),
    ]
    found += _latent(model, layout.tp) if model.is_mla else _keys_and_values(model, layout.tp)
    found += [(name, name, width, degree) for name, _, width, degree in mlp_widths(context)]
    return found


def _keys_and_values(model: Model, tp: int) -> list[_Dimension]:
    width = (model.heads + 2 * model.kv_heads) * model.head_dim
    return [("qkv_width", f"(heads + 2 × KV heads) × {model.head_dim}", width, tp)]


def _latent(model: Model, tp: int) -> list[_Dimension]:
    """Return the dimensions of latent attention: down-projections whole, up-projections by heads."""
    down = model.kv_lora_rank + model.qk_rope_dim
    up = model.qk_nope_dim + model.v_head_dim
    found = [
        ("kv_down_width", "kv_lora_rank + qk_rope_dim", down, 1),
        ("kv_lora_rank", "kv_lora_rank", model.kv_lora_rank, 1),
        ("kv_up_width", f"{model.heads} heads × {up}", model.heads * up, tp),
        (
            "value_width",
            f"{model.heads} heads × {model.v_head_dim}",
            model.heads * model.v_head_dim,
            tp,
        ),
    ]
    if model.q_lora_rank:
        found.append(("q_lora_rank", "q_lora_rank", model.q_lora_rank, 1))
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
                _key_of(context, name) if degree > 1 else "model",
                f"{context.training.precision} needs multiples of {multiple}: {how} = {size}{by} = {shard} "
                f"leaves {shard % multiple} over.",
                {
                    "dimension": name,
                    "size": shard,
                    "multiple": multiple,
                    "remainder": shard % multiple,
                },
                _shape_remedy(context, (name, how, size, degree), multiple),
            )


def _key_of(context: RuleContext, name: str) -> str:
    """Return the key of the degree that cuts a dimension."""
    cut_by_etp = name == "moe_ffn" and "etp" not in context.layout.assumed
    return "layout.etp" if cut_by_etp else "layout.tp"


def _shape_remedy(context: RuleContext, dimension: _Dimension, multiple: int) -> str:
    """Return degrees that leave whole blocks, and the nearest size that does with this degree."""
    name, _, size, degree = dimension
    near = f"{name} of {nearest_multiples(size, multiple * degree)}"
    if degree > 1 and size % multiple == 0:
        key = _key_of(context, name).removeprefix("layout.")
        legal = degree_of(context, key, size // multiple, degree)
        return f"{legal} ({near} for {degree}), or precision: bf16"
    return f"pad {name} ({near}), or precision: bf16"


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
        f"seq_len: {_padded(context, batch.seq_len or 1, multiple * layout.cp)}, padded after cp is known",
    )


def _padded(context: RuleContext, length: int, factor: int) -> int:
    """Return the next multiple of ``factor`` from ``length`` on that breaks no other rule."""
    first = padded(length, factor)
    steps = range(first, first + _TRIED * factor, factor)
    return next((one for one in steps if holds(context, {"batch.seq_len": one})), first)


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


@rule(
    "precision/expert-tokens-padded",
    source="NVIDIA/Megatron-LM megatron/core/transformer/moe/moe_utils.py get_align_size_for_quantization; "
    "pytorch/torchtitan torchtitan/models/moe/utils.py set_token_group_alignment_size_m",
    severity=Severity.NOTE,
    frameworks=tuple(EXPERT_MULTIPLES),
)
def expert_tokens_padded(context: RuleContext) -> Iterator[Violation]:
    """Tokens of each expert are padded to the format's block: no error, but work on zeros."""
    multiple = EXPERT_MULTIPLES[context.layout.framework].get(context.training.precision or "")
    tokens = tokens_per_expert(context)
    if multiple is None or not tokens:
        return
    rows = (multiple - 1) / 2  # tokens of an expert are any number, so any rest is as likely
    share = rows / tokens
    if share < NOTABLE_PADDING:
        return
    yield Violation(
        "batch.micro_batch",
        f"{context.training.precision} pads the tokens of each expert to a multiple of {multiple}: {rows:g} rows "
        f"on average beside {tokens:g} tokens a microbatch, {share:.0%} more work in experts.",
        {"tokens_per_expert": tokens, "multiple": multiple, "share": round(share, 4)},
        "a larger micro_batch, or ep over ranks that hold other tokens",
    )


PRECISION_RULES: tuple[Rule, ...] = (
    gpu_cannot,
    shape_multiple,
    tokens_multiple,
    expert_tokens_padded,
    output_multiple,
    output_skipped,
)
"""Rules of number formats."""
