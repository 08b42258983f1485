"""Durations of a job's stages: FLOPs at a share of the GPU's peak, or equal ones where little is known."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.chain.outlined import Outline
from meshwright.chain.pipeline_work import GivenWork, JobWork, StageWork
from meshwright.chain.plan import workload_of
from meshwright.cluster.gpus import UnknownGpuError, find_gpu
from meshwright.costs.stage_flops import stage_flops
from meshwright.findings import Finding
from meshwright.memory.device import device_of
from meshwright.memory.peak import recompute_of
from meshwright.origin import Origin
from meshwright.rules.told_pipeline import equal_stages_note, no_rate_note, stage_times_note
from meshwright.schedules.orders import loop_ranks
from meshwright.traffic.workload import Workload

ASSUMED_EFFICIENCY = 0.5
"""Share of a GPU's dense peak that its stages are assumed to reach; no run says it, it is a guess."""
_GATHERED = ("fsdp", "hsdp", "zero3")
"""Shardings whose parameters are gathered inside a stage."""


@dataclass(frozen=True, slots=True)
class JobTimes:
    """What a job's stages do, whether in seconds, and what was taken for granted."""

    work: StageWork
    is_time: bool
    notes: tuple[Finding, ...]


def job_times(outline: Outline, chunks: int, efficiency: float | None) -> JobTimes:
    """Return durations from FLOPs at a share of the GPU's peak.

    Where no GPU is known they are multiples of a stage's mean forward; without a model or the size of a
    microbatch all stages take the same. ``chunks``: stages a rank holds.
    """
    place, work = outline.job.place, workload_of(outline)
    if work is None or work.tokens is None:
        missing = "model" if work is None else "micro_batch or seq_len"
        stages = outline.layout.pp * chunks
        equal = GivenWork(1.0, 1.0, 1.0, stages, (), by_rank=False, origin=Origin.ASSUMED)
        key = "model" if work is None else "batch"
        return JobTimes(equal, False, (equal_stages_note(missing, place(key)),))  # noqa: FBT003
    peak = _peak_flops_per_s(outline, work)
    if peak is None:
        flops = stage_flops(work, loop_ranks(work.layout.pp, chunks), recompute_of(work))
        one = JobWork(work, float(flops.forward.mean()))
        gpu, precision = device_of(outline.fabric).gpu, work.training.precision or "bf16"
        told = no_rate_note(gpu, precision, place("cluster"))
        return JobTimes(one, False, (told,))  # noqa: FBT003
    share = ASSUMED_EFFICIENCY if efficiency is None else efficiency
    name, narrow, wide = peak
    told = stage_times_note(share, (name, narrow, wide), _inside(outline), place("model"))
    one = JobWork(work, share * narrow, wide_cost=narrow / wide)
    return JobTimes(one, True, (told,))  # noqa: FBT003


def _inside(outline: Outline) -> dict[str, int]:
    """Return the axes that communicate inside a stage while it computes, with their degrees."""
    layout = outline.layout
    degrees = {"tp": layout.tp, "cp": layout.cp, "ep": layout.ep}
    if layout.sharding in _GATHERED:
        degrees[layout.sharding] = layout.shard_degree
    return {axis: degree for axis, degree in degrees.items() if degree > 1}


def job_model_work(outline: Outline) -> JobWork | None:
    """Return what a job's stages hold, for durations that are given by hand."""
    work = workload_of(outline)
    return None if work is None else JobWork(work, 1.0)


def _peak_flops_per_s(outline: Outline, work: Workload) -> tuple[str, float, float] | None:
    """Return the GPU's name, its dense peak in the job's precision, and that for what stays wide.

    Below 16 bits only products with weights are narrow; attention's core and the output layer are bf16
    (NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py ``fp8_dot_product_attention``;
    megatron/core/models/gpt/gpt_model.py ``output_layer``). ``None`` where a figure is not known.
    """
    name = device_of(outline.fabric).gpu
    if name is None:
        return None
    try:
        gpu = find_gpu(name)
    except UnknownGpuError:
        return None
    rates = {
        "fp16": gpu.fp16_flops_per_s,
        "fp8": gpu.fp8_flops_per_s,
        "mxfp8": gpu.fp8_flops_per_s,
        "nvfp4": gpu.fp4_flops_per_s,
    }
    rate = rates.get(work.training.precision or "bf16", gpu.bf16_flops_per_s)
    wide = rate if work.training.precision == "fp16" else gpu.bf16_flops_per_s
    return None if rate is None or wide is None else (gpu.name, rate, min(rate, wide))
