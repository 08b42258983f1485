"""Batch arithmetic of one step: how many microbatches each pipeline runs.

``global_batch = micro_batch · num_microbatches · dp`` (Megatron-Core
``num_microbatches_calculator.py``; DeepSpeed says ``grad_accum`` for ``num_microbatches``).
With ``local_batch`` a step is ``grad_accum`` passes of ``local_batch`` sequences on each replica:
``global_batch = local_batch · grad_accum · dp`` (torchtitan ``training.local_batch_size``).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from meshwright.job.sections import BatchSection


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved batch; ``None`` where it does not follow from what is given. Counts of sequences."""

    micro_batch: int | None
    num_microbatches: int | None
    """Microbatches of one replica in a step, all passes together."""
    global_batch: int | None
    seq_len: int | None
    contradiction: str | None = None
    """Why the given figures cannot all hold (a rule turns it into a finding)."""


def resolve_batch(section: BatchSection, dp: int) -> Batch:
    """Derive what follows from the given figures and the number of replicas."""
    micro, microbatches = section.micro_batch, section.num_microbatches
    total, local = section.global_batch, section.local_batch
    if microbatches is None and local is None:
        microbatches = section.grad_accum
    replica = _sequences_of_replica(section, dp)
    if replica is not None and micro is not None and microbatches is None:
        microbatches = max(replica // micro, 1)
    elif replica is not None and microbatches is not None and micro is None:
        micro = max(replica // microbatches, 1)
    if total is None and dp > 0:
        if micro is not None and microbatches is not None:
            total = micro * microbatches * dp
        elif replica is not None:
            total = replica * dp
    return Batch(
        micro_batch=micro,
        num_microbatches=microbatches,
        global_batch=total,
        seq_len=section.seq_len,
        contradiction=next(_contradictions(section, dp), None),
    )


def _sequences_of_replica(section: BatchSection, dp: int) -> int | None:
    """Return the sequences of one replica in a step, without the product of microbatches."""
    if section.global_batch is not None and dp > 0:
        return section.global_batch // dp
    if section.local_batch is not None and section.num_microbatches is None:
        return section.local_batch * (section.grad_accum or 1)
    return None


def _contradictions(section: BatchSection, dp: int) -> Iterator[str]:
    """Yield every reason why the figures given cannot all hold."""
    micro, microbatches = section.micro_batch, section.num_microbatches
    total, local, passes = section.global_batch, section.local_batch, section.grad_accum
    if local is None and microbatches is None:
        microbatches = passes
    elif local is None and passes is not None and passes != microbatches:
        yield f"num_microbatches {microbatches} and grad_accum {passes} both count microbatches"
    if total is not None and dp > 0 and total % dp:
        yield f"global_batch {total} is not divisible by dp {dp}"
    yield from _local_contradictions(section, dp)
    replica = _sequences_of_replica(section, dp)
    if micro is not None and microbatches is not None:
        product = micro * microbatches
        if local is not None and product % local:
            yield (
                f"micro_batch {micro} × num_microbatches {microbatches} = {product} is no multiple "
                f"of local_batch {local}"
            )
        elif local is not None and passes is not None and product != local * passes:
            yield (
                f"micro_batch {micro} × num_microbatches {microbatches} = {product}, but "
                f"local_batch {local} × grad_accum {passes} = {local * passes}"
            )
        if total is not None and dp > 0 and product * dp != total:
            yield (
                f"micro_batch {micro} × num_microbatches {microbatches} × dp {dp} = "
                f"{product * dp}, global_batch is {total}"
            )
    elif replica is not None and micro is not None and replica % micro:
        yield f"{replica} sequences a replica are not divisible by micro_batch {micro}"
    elif replica is not None and microbatches is not None and replica % microbatches:
        yield f"{replica} sequences a replica are not divisible by {microbatches} microbatches"


def _local_contradictions(section: BatchSection, dp: int) -> Iterator[str]:
    total, local, passes = section.global_batch, section.local_batch, section.grad_accum
    if local is None:
        return
    if section.micro_batch is not None and local % section.micro_batch:
        yield f"local_batch {local} is not divisible by micro_batch {section.micro_batch}"
    if total is None or dp < 1:
        return
    if passes is not None and local * passes * dp != total:
        yield (
            f"local_batch {local} × grad_accum {passes} × dp {dp} = {local * passes * dp}, "
            f"global_batch is {total}"
        )
    elif total % (local * dp):
        yield f"global_batch {total} is no multiple of local_batch {local} × dp {dp} = {local * dp}"
