"""What the memory model takes for granted of a job, in words: types of states, fp8, batch defaults."""

from __future__ import annotations

from meshwright.memory.states import FULLY_SHARDED, gathers_units
from meshwright.traffic.workload import MESH, Workload

FP8 = ("fp8", "mxfp8", "nvfp4")
_BUCKETS = (
    "DDP's buckets hold gradients a second time (gradient_as_bucket_view is false by default)."
)
_TYPES = {2: "16 bit", 4: "fp32"}


def assumptions_of(work: Workload) -> tuple[str, ...]:
    """Return sentences on what was taken: none where the job says it all."""
    found = [_states(work), *_fp8(work), *_batch(work)]
    return tuple(one for one in found if one)


def _states(work: Workload) -> str:
    """Say in which types weights, gradients and moments are kept and reduced."""
    framework, sharding = work.layout.framework, work.layout.sharding
    reduced = _TYPES[work.gradient_bytes]
    given, fp32 = work.training.gradient_dtype, work.training.precision == "fp32"
    source = f"gradient_dtype {given}" if given else f"{framework}'s default"
    if framework in MESH and gathers_units(work):
        return (
            f"FSDP keeps its shards of parameters, gradients and moments in fp32; gradients are reduced "
            f"in {reduced} ({source}) and cast back."
        )
    if framework in MESH and sharding == "none" and work.gradient_bytes == 2 and not fp32:
        return f"Parameters, gradients and moments are all in 16 bit ({source}): a model in bf16. {_BUCKETS}"
    if framework in MESH:
        return (
            "Parameters, gradients and moments are in fp32, under autocast; gradient_dtype: bf16 stands "
            f"for a model in bf16. {_BUCKETS}"
        )
    if framework == "maxtext":
        return "Parameters, gradients and moments are in fp32 (weight_dtype); computation is cast."
    if framework == "deepspeed":
        return (
            f"Gradients add up and are reduced in {reduced} ({source}: grad_accum_dtype and "
            "communication_data_type); the optimizer takes them as fp32"
            + (", 4 bytes either way in ZeRO-3." if sharding in FULLY_SHARDED else ".")
        )
    if framework == "nanotron":
        added = (
            "in fp32 beside those of the last backward" if work.gradient_bytes == 4 else "in 16 bit"
        )
        return f"Gradients add up {added} and are reduced in {reduced} ({source}: accumulate_grad_in_fp32)."
    return f"Gradients add up and are reduced in {reduced} ({source})."


def _fp8(work: Workload) -> list[str]:
    """Say how fp8 is counted: activations, and weights but for ``fp8_param_gather``, as bf16."""
    precision = work.training.precision
    if precision not in FP8:
        return []
    text = (
        f"Weights and activations of {precision} count as bf16: copies of weights that are kept for its "
        "matrix products would come on top, activations saved in it would take less."
    )
    if work.training.fp8_param_gather:
        text = (
            f"Activations of {precision} count as bf16; weights are kept in fp8 (fp8_param_gather)."
        )
    return [text]


def _batch(work: Workload) -> list[str]:
    """Say which batch figures follow from a default."""
    figures = [
        f"{name} {getattr(work.batch, name)}"
        for name in ("micro_batch", "num_microbatches")
        if name in work.batch.assumed
    ]
    if not figures:
        return []
    return [f"By {work.layout.framework}'s default: {', '.join(figures)}."]
