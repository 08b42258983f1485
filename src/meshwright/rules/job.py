"""Rules that need the model, the batch or the hardware beside the layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from meshwright.findings import Finding
from meshwright.job.batch import Batch, implied_dp
from meshwright.job.model import Model
from meshwright.job.sections import BatchSection
from meshwright.rules.arithmetic import divisors, nearest_values
from meshwright.rules.experts import EXPERT_RULES, experts_divide
from meshwright.rules.heads import HEAD_RULES
from meshwright.rules.kernels import KERNEL_RULES
from meshwright.rules.pipeline import PIPELINE_RULES, layers_divide
from meshwright.rules.precision import PRECISION_RULES
from meshwright.rules.registry import Rule, RuleContext, Violation, rule, run_rules
from meshwright.rules.sequence import SEQUENCE_RULES
from meshwright.rules.vocabulary import VOCABULARY_RULES

_CALCULATOR = "NVIDIA/Megatron-LM megatron/core/num_microbatches_calculator.py"


@rule(
    "batch/contradiction",
    source=f"{_CALCULATOR}; deepspeedai/DeepSpeed runtime/config.py; NVIDIA-NeMo/Automodel#2575",
)
def batch_contradiction(context: RuleContext) -> Iterator[Violation]:
    """The batch figures given can all hold: global_batch = micro_batch × num_microbatches × dp."""
    batch, layout = context.batch, context.layout
    if batch is None or layout.dp < 1:
        return
    for reason in batch.contradictions:
        yield Violation(
            "batch",
            f"{reason} (dp {layout.dp}).",
            {"dp": layout.dp},
            _remedy(batch.given, layout.dp),
        )


def _remedy(figures: BatchSection, dp: int) -> str:
    """Return the nearest figures that hold."""
    implied = implied_dp(figures)
    if implied is not None and implied != dp:
        return f"dp: {implied}, or leave one of the figures out"
    micro = figures.micro_batch or figures.local_batch or 1
    if figures.global_batch is not None:
        block = micro * dp
        below = figures.global_batch // block * block
        near = " or ".join(str(one) for one in (below, below + block) if one > 0)
        legal = [
            one
            for one in divisors(figures.global_batch // dp or 1)
            if figures.global_batch % dp == 0
        ]
        also = f", or micro_batch: {nearest_values(legal, micro)}" if legal else ""
        return f"global_batch: {near}{also}"
    return "global_batch = micro_batch × num_microbatches × dp: leave one of them out"


OUTLINE_RULES: tuple[Rule, ...] = (layers_divide, experts_divide, batch_contradiction)
"""Without these there is no stage, expert or microbatch to speak of: every command runs them."""

JOB_RULES: tuple[Rule, ...] = (
    *HEAD_RULES,
    *VOCABULARY_RULES,
    *PRECISION_RULES,
    *SEQUENCE_RULES,
    *EXPERT_RULES,
    *PIPELINE_RULES,
    *KERNEL_RULES,
    batch_contradiction,
)
"""All rules of a job besides those of the grid and of memory."""


def check_job_rules(context: RuleContext, model: Model | None, batch: Batch) -> list[Finding]:
    """Return the findings on layers by stage, experts and the batch (``OUTLINE_RULES``)."""
    return run_rules(OUTLINE_RULES, dataclasses.replace(context, model=model, batch=batch))


def check_rest(context: RuleContext) -> list[Finding]:
    """Return the findings of ``JOB_RULES`` that ``check_job_rules`` does not give."""
    outline = {one.id for one in OUTLINE_RULES}
    return run_rules((one for one in JOB_RULES if one.id not in outline), context)
