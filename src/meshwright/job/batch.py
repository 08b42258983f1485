"""Batch arithmetic of one step: how many microbatches each pipeline runs.

``global_batch = micro_batch · num_microbatches · dp`` (Megatron-Core
``num_microbatches_calculator.py``; DeepSpeed says ``grad_accum`` for ``num_microbatches``).
With ``local_batch`` a step is ``grad_accum`` passes of ``local_batch`` sequences on each replica:
``global_batch = local_batch · grad_accum · dp`` (torchtitan ``training.local_batch_size``).
Context-parallel ranks share their sequences, so cp is not in the product; ep is not either.
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
    local_batch: int | None = None
    """Sequences of one replica in one pass through the pipeline."""
    grad_accum: int | None = None
    """Passes of a step."""
    contradictions: tuple[str, ...] = ()
    """Why the given figures cannot all hold (a rule turns each into a finding)."""
    given: BatchSection = BatchSection()
    """The figures as the job gives them."""

    @property
    def contradiction(self) -> str | None:
        """The first contradiction."""
        return self.contradictions[0] if self.contradictions else None

    @property
    def microbatches_per_pass(self) -> int | None:
        """Microbatches of one pass through the pipeline: what a schedule counts."""
        local, micro = self.local_batch, self.micro_batch
        if local is None or micro is None or local % micro:
            return None
        return local // micro

    @property
    def tokens_per_step(self) -> int | None:
        """Tokens of one optimizer step, all replicas together."""
        if self.global_batch is None or self.seq_len is None:
            return None
        return self.global_batch * self.seq_len


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
    passes = _passes(section, micro, microbatches)
    if local is None and passes is not None and micro is not None and microbatches is not None:
        local = micro * microbatches // passes
    return Batch(
        micro_batch=micro,
        num_microbatches=microbatches,
        global_batch=total,
        seq_len=section.seq_len,
        local_batch=local,
        grad_accum=passes,
        contradictions=tuple(_contradictions(section, dp)),
        given=section,
    )


def implied_dp(section: BatchSection) -> int | None:
    """Return the replicas that the figures imply; ``None`` where they leave them open.

    What does not divide implies nothing.
    """
    micro, passes = section.micro_batch, section.grad_accum
    count = section.num_microbatches
    if count is None and section.local_batch is None:
        count = passes
    replica = None
    if section.local_batch is not None and passes is not None:
        replica = section.local_batch * passes
    elif micro is not None and count is not None:
        replica = micro * count
    if section.global_batch is None or not replica or section.global_batch % replica:
        return None
    return section.global_batch // replica


def _passes(section: BatchSection, micro: int | None, microbatches: int | None) -> int | None:
    """Return the passes of a step: one where nobody speaks of a local batch."""
    if section.local_batch is None:
        return None if microbatches is None else 1
    if section.grad_accum is not None:
        return section.grad_accum
    if micro is None or microbatches is None:
        return None
    sequences = micro * microbatches
    return sequences // section.local_batch if sequences % section.local_batch == 0 else None


def _sequences_of_replica(section: BatchSection, dp: int) -> int | None:
    """Return the sequences of one replica in a step, without the product of microbatches."""
    if section.global_batch is not None and dp > 0:
        return section.global_batch // dp
    if section.local_batch is not None and section.num_microbatches is None:
        return section.local_batch * (section.grad_accum or 1)
    if section.local_batch is not None and section.grad_accum is not None:
        return section.local_batch * section.grad_accum
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
