"""Durations of a job's stages: FLOPs at a share of the GPU's peak, or equal ones where little is known."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.chain.outline import Outline
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
        return JobTimes(one, False, (no_rate_note(place("cluster")),))  # noqa: FBT003
    share = ASSUMED_EFFICIENCY if efficiency is None else efficiency
    told = stage_times_note(share, *peak, place("model"))
    return JobTimes(JobWork(work, share * peak[1]), True, (told,))  # noqa: FBT003


def job_model_work(outline: Outline) -> JobWork | None:
    """Return what a job's stages hold, for durations that are given by hand."""
    work = workload_of(outline)
    return None if work is None else JobWork(work, 1.0)


def _peak_flops_per_s(outline: Outline, work: Workload) -> tuple[str, float] | None:
    """Return the GPU's name and its dense peak in the job's precision, where both are known."""
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
    return None if rate is None else (gpu.name, rate)
