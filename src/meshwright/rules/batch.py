"""The rule of batch figures, and what to write where they, or a schedule, cannot hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from meshwright.job.batch import Batch, implied_dp, resolve_batch
from meshwright.job.sections import BatchSection
from meshwright.rules.arithmetic import divisors
from meshwright.rules.registry import RuleContext, Violation, rule
from meshwright.rules.remedies import cures, holds, written

_CALCULATOR = "NVIDIA/Megatron-LM megatron/core/num_microbatches_calculator.py"
_RULE = "batch/contradiction"
_KEYS = ("global_batch", "num_microbatches", "micro_batch", "local_batch", "grad_accum")
_MOST = 4
_PAIRED = 16
"""Values of each of two figures that are tried together."""
_EITHER = 2
"""Ways to a number of microbatches that are named."""


@rule(
    _RULE,
    source=f"{_CALCULATOR}; deepspeedai/DeepSpeed runtime/config.py; NVIDIA-NeMo/Automodel#2575",
)
def batch_contradiction(context: RuleContext) -> Iterator[Violation]:
    """The batch figures given can all hold: global_batch = micro_batch × num_microbatches × dp."""
    batch, layout = context.batch, context.layout
    if batch is None or layout.dp < 1 or not batch.contradictions:
        return
    remedy = _remedy(context, batch.given)
    for reason in batch.contradictions:
        of = "" if "dp" in reason else f" (dp {layout.dp})"
        yield Violation("batch", f"{reason}{of}.", {"dp": layout.dp}, remedy)


def _again(context: RuleContext, changes: Mapping[str, int | None]) -> Batch:
    """Return the batch with other figures."""
    layout = context.layout
    assert context.batch is not None
    figures = msgspec.structs.replace(context.batch.given, **changes)
    return resolve_batch(figures, layout.dp, layout.framework, layout.pp)


def _remedy(context: RuleContext, figures: BatchSection) -> str:
    """Return the nearest figures that hold: one key changed, or left out, or two changed."""
    given = [key for key in _KEYS if getattr(figures, key) is not None]
    fitting = {
        key: [one for one in _candidates(context, key) if _whole(context, {key: one})]
        for key in given
    }
    held = {
        key: [one for one in values if holds(context, {f"batch.{key}": one})]
        for key, values in fitting.items()
    }
    implied = implied_dp(figures)
    with_dp = [f"dp: {implied}"] if implied is not None and _dp_holds(context, implied) else []
    for by_key in (held, fitting):
        options = with_dp + [
            _listed(key, values, getattr(figures, key)) for key, values in by_key.items() if values
        ]
        if options:
            return ", or ".join(options[:3])
    left_out = [key for key in given if _whole(context, {key: None})]
    pairs = [] if left_out else _pairs(context, given)
    options = [f"leave {key} out" for key in left_out] + [written(one) for one in pairs]
    return ", or ".join(options[:3]) or "figures whose product is the global batch"


def _listed(key: str, values: Sequence[int], given: int) -> str:
    """Return ``micro_batch: 1, 2``: the nearest; of a global batch the next below and above."""
    if key != "global_batch":
        near = sorted(sorted(values, key=lambda value: abs(value - given))[:_MOST])
        return f"{key}: {', '.join(map(str, near))}"
    below = [one for one in values if one <= given]
    above = [one for one in values if one > given]
    near = ([max(below)] if below else []) + ([min(above)] if above else [])
    return f"{key}: {' or '.join(map(str, near))}"


def _pairs(context: RuleContext, given: Sequence[str]) -> list[Mapping[str, int]]:
    """Return two figures changed together, the nearest of each pair of keys."""
    assert context.batch is not None
    figures = context.batch.given
    found: list[Mapping[str, int]] = []
    for names in itertools.combinations(given, 2):
        near = [
            sorted(_candidates(context, key), key=_distance_to(getattr(figures, key)))[:_PAIRED]
            for key in names
        ]
        for values in itertools.product(*near):
            changes = dict(zip(names, values, strict=True))
            if _whole(context, changes):
                found.append(changes)
                break
    return found


def _distance_to(given: int) -> Callable[[int], int]:
    return lambda value: abs(value - given)


def _whole(context: RuleContext, changes: Mapping[str, int | None]) -> bool:
    return not _again(context, changes).contradictions


def _dp_holds(context: RuleContext, dp: int) -> bool:
    if context.trial is None:
        return dp != context.layout.dp
    return cures(context, _RULE, {"layout.dp": dp})


def _candidates(context: RuleContext, key: str) -> list[int]:
    """Return values of one figure worth a try: what the other figures multiply or divide to."""
    assert context.batch is not None
    figures, dp = context.batch.given, context.layout.dp
    micro, count = figures.micro_batch or 1, figures.num_microbatches or 1
    local, passes = figures.local_batch or 1, figures.grad_accum or 1
    total = figures.global_batch
    if key == "global_batch":
        block = dp * math.lcm(micro, count, local)
        exact = {dp * micro * count, dp * local * passes, dp * micro * passes}
        steps = (total or 1) // block
        return sorted(exact | {block * (steps + step) for step in range(-4, 8) if steps + step > 0})
    found = {local // micro, local * passes // micro, micro * count // local}
    if key == "local_batch":
        found |= {micro * count, micro * count // passes}
    replica = total // dp if total is not None and total % dp == 0 else None
    for whole in (replica, figures.local_batch):
        found |= set(divisors(whole)) if whole else set()
    if key == "micro_batch" and figures.num_microbatches and figures.local_batch:
        found.add(figures.local_batch * passes // figures.num_microbatches)
    return sorted(one for one in found if one > 0)


def count_remedy(context: RuleContext, counts: Sequence[int]) -> str:
    """Return what to write for one of these numbers of microbatches a pass, in the job's own figures.

    ``num_microbatches: 8`` where the job speaks of it or of nothing; else what makes it with the
    figures that stand: ``global_batch: 16``, ``local_batch: 8``, ``micro_batch: 1``.
    """
    return _ways(context, counts) or f"{' or '.join(map(str, counts))} microbatches a pass"


def least_count_remedy(context: RuleContext, least: int) -> str:
    """Return the same for ``least`` microbatches, or the next above that the global batch allows."""
    for count in counts_from(context, least):
        if text := _ways(context, [count]):
            return text
    return f"{least} microbatches a pass or more"


def _ways(context: RuleContext, counts: Sequence[int]) -> str:
    """Return the changes that give one of some counts, one key each, else two; empty without any."""
    fitting: dict[tuple[str, ...], list[dict[str, int]]] = {}
    for count in counts:
        for changes in _for_count(context, count):
            again = _again(context, changes)
            named = {f"batch.{key}": value for key, value in changes.items()}
            if again.contradictions or again.microbatches_per_pass != count:
                continue
            if holds(context, named):
                fitting.setdefault(tuple(changes), []).append(named)
    texts = []
    for keys, options in fitting.items():
        if len(keys) == 1:
            values = sorted({one for changes in options for one in changes.values()})
            texts.append(f"{keys[0]}: {' or '.join(map(str, values))}{_passes(context, options)}")
    if not texts:
        texts = [written(changes) for options in fitting.values() for changes in options]
    return ", or ".join(texts[:_EITHER])


def counts_from(context: RuleContext, least: int) -> list[int]:
    """Return numbers of microbatches from ``least`` on: itself, and those the global batch allows."""
    assert context.batch is not None
    figures, dp = context.batch.given, context.layout.dp
    micro = context.batch.micro_batch or 1
    if figures.global_batch is None or dp < 1 or figures.global_batch % (dp * micro):
        return [least]
    allowed = [one for one in divisors(figures.global_batch // (dp * micro)) if one > least]
    return [least, *allowed[:2]]


def _for_count(context: RuleContext, count: int) -> Iterator[dict[str, int]]:
    """Yield changed figures that could give a number of microbatches, the plainest first."""
    assert context.batch is not None
    figures, dp = context.batch.given, context.layout.dp
    micro = context.batch.micro_batch or 1
    if figures.local_batch is not None:
        yield {"local_batch": count * micro}
        if figures.num_microbatches is not None:
            yield {"local_batch": count * micro, "num_microbatches": count}
    if figures.num_microbatches is not None or figures.global_batch is None:
        yield {"num_microbatches": count}
    if figures.grad_accum is not None and figures.local_batch is None:
        yield {"grad_accum": count}
    if figures.global_batch is not None:
        yield {"global_batch": count * micro * dp}
        if dp > 0 and figures.global_batch % (dp * count) == 0:
            yield {"micro_batch": figures.global_batch // (dp * count)}
        if figures.num_microbatches is not None:
            yield {"num_microbatches": count, "global_batch": count * micro * dp}
        if figures.local_batch is not None:
            yield {"local_batch": count * micro, "global_batch": count * micro * dp}


def _passes(context: RuleContext, options: Sequence[Mapping[str, int]]) -> str:
    """Return the passes of a step that a new local batch leaves, where it is one value."""
    assert context.batch is not None
    figures = context.batch.given
    if len(options) != 1 or "batch.local_batch" not in options[0] or not figures.global_batch:
        return ""
    block = options[0]["batch.local_batch"] * context.layout.dp
    steps, rest = divmod(figures.global_batch, block) if block > 0 else (0, 1)
    return f" (grad_accum {steps})" if steps and not rest else ""
