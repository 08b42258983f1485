"""Batch arithmetic of one step: how many microbatches each pipeline runs.

``global_batch = micro_batch · num_microbatches · dp`` (Megatron-Core
``num_microbatches_calculator.py``); ``local_batch`` is what one replica sees of it.
"""

from __future__ import annotations

import msgspec

from meshwright.job.sections import BatchSection


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved batch; ``None`` where it does not follow from what is given. Counts of sequences."""

    micro_batch: int | None
    num_microbatches: int | None
    global_batch: int | None
    seq_len: int | None
    contradiction: str | None = None
    """Why the given figures cannot all hold (a rule turns it into a finding)."""


def resolve_batch(section: BatchSection, dp: int) -> Batch:
    """Derive what follows from the given figures and the number of replicas."""
    micro = section.micro_batch
    microbatches = section.num_microbatches or section.grad_accum
    total = section.global_batch
    local = section.local_batch
    contradiction = None
    if local is None and total is not None and dp > 0:
        if total % dp:
            contradiction = f"global_batch {total} is not divisible by dp {dp}"
        local = total // dp
    if local is not None and micro is not None and microbatches is None:
        if local % micro and contradiction is None:
            contradiction = f"{local} sequences a replica are not divisible by micro_batch {micro}"
        microbatches = max(local // micro, 1)
    if local is not None and microbatches is not None and micro is None:
        if local % microbatches and contradiction is None:
            contradiction = (
                f"{local} sequences a replica are not divisible by {microbatches} microbatches"
            )
        micro = max(local // microbatches, 1)
    if micro is not None and microbatches is not None and dp > 0:
        product = micro * microbatches * dp
        if total is not None and product != total and contradiction is None:
            contradiction = (
                f"micro_batch {micro} × num_microbatches {microbatches} × dp {dp} = {product}, "
                f"global_batch is {total}"
            )
        total = total or product
    return Batch(
        micro_batch=micro,
        num_microbatches=microbatches,
        global_batch=total,
        seq_len=section.seq_len,
        contradiction=contradiction,
    )
