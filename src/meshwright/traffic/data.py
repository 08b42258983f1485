"""Data parallelism: which strategy a job uses, and what each runs on which axis.

=====================  ============================================  ==================
framework, sharding    gradients and parameters                      file
=====================  ============================================  ==================
torch, torchtitan none torch DDP                                     ``data_replicas``
megatron none, zero1   Megatron DDP, distributed optimizer           ``data_replicas``
deepspeed              ZeRO-1, 2, 3 and plain data parallelism       ``data_zero``
torch(titan) fsdp      FSDP2, HSDP                                   ``data_fsdp``
nanotron none, zero1   DDP with an fp32 hook; the fp32 sum in one    ``data_nanotron``
all others             known to run; null with the reason
=====================  ============================================  ==================
"""

from __future__ import annotations

from meshwright.job.layout import Layout
from meshwright.traffic.axes import gradient_axis, shard_axis
from meshwright.traffic.collective import Collective, Run, unknown_run
from meshwright.traffic.data_fsdp import fsdp_collectives
from meshwright.traffic.data_nanotron import is_nanotron_known, nanotron_collectives
from meshwright.traffic.data_replicas import replica_collectives
from meshwright.traffic.data_zero import zero_collectives
from meshwright.traffic.workload import MESH, Workload

_REDUCE = Run("all_reduce", "backward", "gradients")
_SCATTER = Run("reduce_scatter", "backward", "gradients")
_GATHER = Run("all_gather", "optimizer", "parameters")
_UNITS = (
    Run("all_gather", "forward", "parameters"),
    Run("all_gather", "backward", "parameters"),
    _SCATTER,
)
RUNS_BY_SHARDING: dict[str, tuple[Run, ...]] = {
    "none": (_REDUCE,),
    "zero1": (_SCATTER, _GATHER),
    "zero2": (_SCATTER, _GATHER),
    "zero3": _UNITS,
    "fsdp": _UNITS,
    "hsdp": _UNITS,
}
"""What runs over the ranks that share one copy, whatever its size."""


def data_runs(layout: Layout) -> list[tuple[str, Run]]:
    """Return (axis, row) of data parallelism: what runs, whatever its size."""
    sharding, framework = layout.sharding, layout.framework
    rows = RUNS_BY_SHARDING[sharding]
    if sharding == "hsdp":
        # The ranks that share one copy are cp's too: they hold equal parameters.
        axis = shard_axis(layout)
        copies = Run("all_reduce", "backward", "gradient shards")
        return [*((axis, run) for run in rows), ("dp_replicate", copies)]
    if framework == "deepspeed" and sharding in ("zero1", "zero2"):
        rows = (_REDUCE, _GATHER)
    sharded = sharding == "fsdp" and framework in (*MESH, "maxtext")
    axis = shard_axis(layout) if sharded else gradient_axis(layout.cp)
    return [(axis, run) for run in rows]


def data_collectives(work: Workload) -> list[Collective]:
    """Return the collectives of data parallelism, dense and expert parameters apart."""
    layout = work.layout
    framework, sharding = layout.framework, layout.sharding
    if framework == "megatron" and sharding in ("none", "zero1"):
        return replica_collectives(work)
    if framework == "nanotron" and is_nanotron_known(work):
        return nanotron_collectives(work)
    if framework in MESH and sharding == "none":
        return replica_collectives(work)
    if framework in MESH and (sharding in ("fsdp", "hsdp") or layout.fsdp1 is not None):
        return fsdp_collectives(work)
    if framework == "deepspeed" and sharding in ("none", "zero1", "zero2", "zero3"):
        return zero_collectives(work)
    reason = _reason(layout)
    found = [unknown_run(axis, run, reason) for axis, run in data_runs(layout)]
    if work.model.is_moe and framework == "megatron" and layout.edp > 1:
        expert = RUNS_BY_SHARDING[sharding]
        found += [unknown_run("edp", expert_run(run), reason) for run in expert]
    return found


def expert_run(run: Run) -> Run:
    """Return a row of dense parameters as it reads for expert ones."""
    return Run(run.op, run.phase, f"expert {run.what}", run.each, run.hides_behind)


def _reason(layout: Layout) -> str:
    if layout.framework == "megatron":
        return (
            f"how often Megatron-FSDP runs them with sharding {layout.sharding} was not established"
        )
    if layout.framework in MESH:
        return "sharding fsdp or hsdp is what a device mesh has"
    return f"what {layout.framework} runs with sharding {layout.sharding} was not established"
