"""Rules that need the model, the batch or the hardware beside the layout."""

from __future__ import annotations

import dataclasses

from meshwright.findings import Finding
from meshwright.job.batch import Batch
from meshwright.job.model import Model
from meshwright.rules.batch import batch_contradiction
from meshwright.rules.deepspeed import DEEPSPEED_MODEL_RULES
from meshwright.rules.experts import EXPERT_RULES, experts_divide
from meshwright.rules.heads import HEAD_RULES
from meshwright.rules.kernels import KERNEL_RULES
from meshwright.rules.layers import layers_divide
from meshwright.rules.maxtext import MAXTEXT_MODEL_RULES
from meshwright.rules.pipeline import PIPELINE_RULES
from meshwright.rules.precision import PRECISION_RULES
from meshwright.rules.registry import Rule, RuleContext, run_rules
from meshwright.rules.sequence import SEQUENCE_RULES
from meshwright.rules.vocabulary import VOCABULARY_RULES
from meshwright.rules.world import gpus_unused

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
    *DEEPSPEED_MODEL_RULES,
    *MAXTEXT_MODEL_RULES,
    batch_contradiction,
    gpus_unused,
)
"""All rules of a job besides those of the grid and of memory."""


def check_job_rules(context: RuleContext, model: Model | None, batch: Batch) -> list[Finding]:
    """Return the findings on layers by stage, experts and the batch (``OUTLINE_RULES``)."""
    return run_rules(OUTLINE_RULES, dataclasses.replace(context, model=model, batch=batch))


def check_rest(context: RuleContext) -> list[Finding]:
    """Return the findings of ``JOB_RULES`` that ``check_job_rules`` does not give."""
    outline = {one.id for one in OUTLINE_RULES}
    return run_rules((one for one in JOB_RULES if one.id not in outline), context)
