"""Data parallelism: gradients (and sharded parameters), once a step.

Megatron-Core ``core/distributed/``: without the distributed optimizer one all-reduce of P·q over
dp-cp; with it (``zero1``) a reduce-scatter of P·q and an all-gather of P·2. Experts do the same
over edp. torch DDP all-reduces in the parameters' type.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshwright.traffic.collective import Collective, unknown
from meshwright.traffic.workload import Workload

OPS_BY_SHARDING: dict[str, tuple[tuple[str, str, str], ...]] = {
    "none": (("all_reduce", "backward", "gradients"),),
    "zero1": (
        ("reduce_scatter", "backward", "gradients"),
        ("all_gather", "optimizer", "parameters"),
    ),
    "zero2": (
        ("reduce_scatter", "backward", "gradients"),
        ("all_gather", "optimizer", "parameters"),
    ),
    "zero3": (
        ("all_gather", "forward", "parameters"),
        ("all_gather", "backward", "parameters"),
        ("reduce_scatter", "backward", "gradients"),
    ),
    "fsdp": (
        ("all_gather", "forward", "parameters"),
        ("all_gather", "backward", "parameters"),
        ("reduce_scatter", "backward", "gradients"),
    ),
}
"""Collectives over the ranks that share one copy (op, phase, what)."""


def gradient_axis(cp: int) -> str:
    """Return the axis dense gradients are reduced over: cp replicates parameters too."""
    return "dp-cp" if cp > 1 else "dp"


def replica_ops(sharding: str, framework: str, cp: int) -> list[tuple[str, str, str, str]]:
    """Return (axis, op, phase, what) of data parallelism: what runs, whatever its size."""
    if sharding == "hsdp":
        shard = [("dp_shard", *row) for row in OPS_BY_SHARDING["fsdp"]]
        return [*shard, ("dp_replicate", "all_reduce", "backward", "gradient shards")]
    axis = gradient_axis(cp)
    if framework != "megatron" and sharding == "fsdp":
        axis = "dp_shard-cp" if cp > 1 else "dp_shard"  # parameters are sharded over cp too
    return [(axis, *row) for row in OPS_BY_SHARDING[sharding]]


def is_modelled(sharding: str, framework: str, instances: int) -> bool:
    """Tell whether bytes are modelled: plain replicas, and Megatron's distributed optimizer."""
    return instances == 1 and (
        sharding == "none" or (sharding == "zero1" and framework == "megatron")
    )


def data_collectives(work: Workload) -> list[Collective]:
    """Return the collectives of data parallelism, dense and expert parameters apart."""
    layout = work.layout
    rows = replica_ops(layout.sharding, layout.framework, layout.cp)
    if not is_modelled(layout.sharding, layout.framework, layout.instances):
        return _not_modelled(work, rows)
    dense, expert = work.parameters_by_stage()
    found = [
        _gradient_collective(work, (axis, op, phase, what), dense) for axis, op, phase, what in rows
    ]
    if expert.any() and layout.framework != "megatron":
        # A mesh replicates experts over other dimensions than edp when nothing is sharded.
        found += [unknown(axis, op, phase, f"expert {what}") for axis, op, phase, what in rows]
    elif expert.any():
        found += [
            _gradient_collective(work, ("edp", op, phase, f"expert {what}"), expert)
            for _, op, phase, what in rows
        ]
    return found


def _not_modelled(work: Workload, rows: list[tuple[str, str, str, str]]) -> list[Collective]:
    layout = work.layout
    found = [unknown(*row) for row in rows] if layout.dp * layout.cp > 1 else []
    if work.model.is_moe and layout.framework == "megatron" and layout.edp > 1:
        found += [unknown("edp", op, phase, f"expert {what}") for _, op, phase, what in rows]
    return found


def _gradient_collective(
    work: Workload, row: tuple[str, str, str, str], parameters: NDArray[np.float64]
) -> Collective:
    axis, op, phase, what = row
    width = work.activation_bytes if op == "all_gather" else work.gradient_bytes
    return Collective(
        axis,
        op,
        phase,
        what,
        parameters * width,
        np.ones(work.layout.pp),
        hides_behind="backward compute of the last microbatch" if phase == "backward" else None,
    )
