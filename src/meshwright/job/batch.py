"""Batch arithmetic of one step: how many microbatches each pipeline runs.

``global_batch = micro_batch · num_microbatches · dp`` (Megatron-Core
``num_microbatches_calculator.py``; DeepSpeed says ``grad_accum`` for ``num_microbatches``).
With ``local_batch`` a step is ``grad_accum`` passes of ``local_batch`` sequences on each replica:
``global_batch = local_batch · grad_accum · dp`` (torchtitan ``training.local_batch_size``).
Context-parallel ranks share their sequences, so cp is not in the product; ep is not either.

torchtitan without a pipeline runs its local batch as one forward, so it is the microbatch
(``train.py``); in a pipeline it cuts it by ``pipeline_parallel_microbatch_size``, 1 where nothing
else is said, and a global batch left out is one pass (``job_config.py``, b5bcd76c).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from meshwright.job.sections import BatchSection

FIGURES = ("global_batch", "micro_batch", "num_microbatches", "local_batch", "grad_accum")


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved batch; ``None`` where it does not follow from what is given. Counts of sequences."""

    micro_batch: int | None
    num_microbatches: int | None
    """Microbatches of one replica in a step, all passes together."""
    global_batch: int | None
    seq_len: int | None
    local_batch: int | None = None
    """Sequences of one replica in one pass, or in one of ``grad_accum`` where that counts microbatches."""
    grad_accum: int | None = None
    """Passes of a step; its microbatches where the job gives it in the place of their number."""
    contradictions: tuple[str, ...] = ()
    """Why the given figures cannot all hold (a rule turns each into a finding)."""
    given: BatchSection = BatchSection()
    """The figures as the job gives them."""
    assumed: tuple[str, ...] = ()
    """Figures that hold by a default of the framework, or follow from one."""

    @property
    def contradiction(self) -> str | None:
        """The first contradiction."""
        return self.contradictions[0] if self.contradictions else None

    @property
    def microbatches_per_pass(self) -> int | None:
        """Microbatches of one pass through the pipeline: what a schedule counts."""
        if self.given.local_batch is None:
            return self.num_microbatches  # nobody speaks of passes: all run in one
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


def resolve_batch(section: BatchSection, dp: int, framework: str = "", pp: int = 1) -> Batch:
    """Derive what follows from the given figures and the number of replicas.

    ``framework`` and ``pp`` say what a local batch is cut into where the job does not.
    """
    known = _by_framework(section, framework, pp)
    plain = _resolved(known, dp)
    full = _resolved(_with_defaults(known, plain, framework, pp), dp)
    if framework == "torchtitan" and pp == 1 and known.local_batch is None and full["micro_batch"]:
        passes = known.grad_accum or full["num_microbatches"]  # what is given stays
        full |= {"local_batch": full["micro_batch"], "grad_accum": passes}
    contradictions = [*_one_forward(section, framework, pp), *_contradictions(known, dp)]
    if not contradictions:
        contradictions += _uneven_pass(section, full["micro_batch"])
    return Batch(
        **full,
        seq_len=section.seq_len,
        contradictions=tuple(contradictions),
        given=section,
        assumed=tuple(name for name in FIGURES if plain[name] is None and full[name] is not None),
    )


def _by_framework(section: BatchSection, framework: str, pp: int) -> BatchSection:
    """Return the figures with torchtitan's rule: without a pipeline a local batch is one forward."""
    if framework != "torchtitan" or pp != 1:
        return section
    one = section.local_batch if section.micro_batch is None else section.micro_batch
    local = section.local_batch if section.local_batch is not None else one
    return msgspec.structs.replace(section, micro_batch=one, local_batch=local)


def _with_defaults(
    section: BatchSection, plain: dict[str, int | None], framework: str, pp: int
) -> BatchSection:
    """Return the figures with defaults for what does not follow, where a local batch is given."""
    if section.local_batch is None:
        return section
    one_pass = section.local_batch % (section.num_microbatches or 1) == 0
    if plain["grad_accum"] is None and section.global_batch is None and one_pass:
        section = msgspec.structs.replace(section, grad_accum=1)
    open_micro = section.micro_batch is None and section.num_microbatches is None
    if open_micro and framework == "torchtitan" and pp > 1:
        section = msgspec.structs.replace(section, micro_batch=1)
    elif open_micro and framework == "torch" and pp == 1:
        section = msgspec.structs.replace(section, micro_batch=section.local_batch)
    return section


def _resolved(section: BatchSection, dp: int) -> dict[str, int | None]:
    """Return the figures that follow, by name."""
    micro, microbatches = section.micro_batch, section.num_microbatches
    total, local = section.global_batch, section.local_batch
    if microbatches is None and local is None:
        microbatches = section.grad_accum
    replica = _sequences_of_replica(section, dp)
    if replica is None and micro is not None and microbatches is not None:
        replica = micro * microbatches
    if replica is not None and micro is not None and microbatches is None:
        microbatches = max(replica // micro, 1)
    elif replica is not None and microbatches is not None and micro is None:
        micro = max(replica // microbatches, 1)
    if total is None and dp > 0 and replica is not None:
        total = replica * dp
    passes = _passes(section, replica, microbatches)
    if local is None and section.grad_accum is not None:
        local = micro
    elif local is None and passes == 1 and micro is not None and microbatches is not None:
        local = micro * microbatches
    if local is None and section.grad_accum is None:
        passes = None  # alone it would read as a number of microbatches
    return dict(zip(FIGURES, (total, micro, microbatches, local, passes), strict=True))


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


def _passes(section: BatchSection, replica: int | None, microbatches: int | None) -> int | None:
    """Return the passes of a step: those given, those that follow, one without a local batch."""
    if section.grad_accum is not None:
        return section.grad_accum
    if section.local_batch is None:
        return None if microbatches is None else 1
    if replica is None or replica % section.local_batch:
        return None
    return replica // section.local_batch


def _sequences_of_replica(section: BatchSection, dp: int) -> int | None:
    """Return the sequences of one replica in a step, without the product of microbatches."""
    if section.global_batch is not None and dp > 0:
        return section.global_batch // dp
    if section.local_batch is not None and section.grad_accum is not None:
        return section.local_batch * section.grad_accum
    return None


def _one_forward(section: BatchSection, framework: str, pp: int) -> Iterator[str]:
    """Yield where torchtitan without a pipeline is asked to cut its local batch."""
    micro, local = section.micro_batch, section.local_batch
    if framework == "torchtitan" and pp == 1 and None not in (micro, local) and micro != local:
        yield (
            f"torchtitan without pp runs local_batch {local} as one forward, so micro_batch is {local}, "
            f"not {micro}"
        )


def _uneven_pass(section: BatchSection, micro: int | None) -> Iterator[str]:
    """Yield where the micro-batch that follows does not divide the local batch."""
    local = section.local_batch
    if section.micro_batch is None and local is not None and micro is not None and local % micro:
        yield (
            f"num_microbatches {section.num_microbatches} makes microbatches of {micro} sequences, which "
            f"do not divide local_batch {local}"
        )


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
