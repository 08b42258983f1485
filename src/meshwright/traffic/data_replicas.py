"""Data parallelism with whole parameters: Megatron DDP, its distributed optimizer, torch DDP.

P is what a rank holds, q the bytes of a gradient. Once a step, after the last microbatch:

- Megatron-Core ``core/distributed/distributed_data_parallel.py``: all-reduce of P·q over dp-cp, or with
  the distributed optimizer reduce-scatter of P·q and all-gather of P·2 (P·1 with fp8 parameters).
  Experts do the same over edp. One bucket for each chunk of the model and kind of parameter; with
  ``overlap_grad_reduce`` the first chunk of the first stage has buckets of max(40e6, 1e6·dp)
  parameters (or ``--ddp-bucket-size``). A bucket closes behind a whole parameter, so buckets differ:
  S is their mean.
- N instances of the distributed optimizer (``param_and_grad_buffer.py``): reduce-scatter inside an
  instance, all-reduce of the shard over the instances, all-gather inside. The group between
  instances is one for dense and expert parameters
  (``parallel_state.py get_inter_distributed_optimizer_instance_group``).
- torch DDP (``torch/nn/parallel/distributed.py``): all-reduce by buckets of 25 MiB, the first of 1 MiB
  (torchtitan: 100 MiB), in the parameters' type, in the last accumulated microbatch (``no_sync``
  before it), or with ``gradient_sync: every`` in each. A parameter above a bucket's size is a bucket.
"""

from __future__ import annotations

import numpy as np

from meshwright.traffic.axes import gradient_axis
from meshwright.traffic.collective import Collective, Floats, Per, Run, known_run, unknown_run
from meshwright.traffic.workload import MESH, NO_BATCH, Workload
from meshwright.units import MIB

LAST = "backward compute of the last microbatch"
NEXT = "forward compute of the next step"
MEGATRON_BUCKET, MEGATRON_BUCKET_A_RANK = 40_000_000, 1_000_000
TORCH_FIRST_BUCKET = MIB
TORCH_BUCKET = {"torch": 25 * MIB, "torchtitan": 100 * MIB}


def replica_collectives(work: Workload) -> list[Collective]:
    """Return what the replicas of a model run on gradients and parameters."""
    if work.layout.framework in MESH:
        return _torch(work)
    dense, expert = work.parameters_by_stage()
    found = _megatron(work, "", dense)
    if expert.any():
        found += _megatron(work, "expert ", expert)
    return found


def _megatron(work: Workload, kind: str, parameters: Floats) -> list[Collective]:
    layout, training = work.layout, work.training
    instances = layout.instances
    whole = "edp" if kind else gradient_axis(layout.cp)
    hides = LAST if training.overlap_grad_reduce else None
    buckets = _buckets(work, parameters)
    gradients = parameters * work.gradient_bytes / buckets
    size = parameters * work.parameter_bytes / buckets
    buckets *= parameters > 0  # a stage without experts has nothing to reduce
    if layout.sharding == "none":
        reduce = Run("all_reduce", "backward", f"{kind}gradients", hides_behind=hides)
        return [known_run(whole, reduce, "bucket", gradients, buckets)]
    inside = whole if instances == 1 else ("intra_edp" if kind else "intra_dp-cp")
    scatter = Run("reduce_scatter", "backward", f"{kind}gradients", hides_behind=hides)
    found = [known_run(inside, scatter, "bucket", gradients, buckets)]
    if instances > 1:
        ranks = (layout.edp if kind else layout.dp * layout.cp) // instances
        between = Run("all_reduce", "backward", f"{kind}gradient shards", hides_behind=hides)
        found.append(known_run("inter_edp", between, "bucket", gradients / ranks, buckets))
    ahead = bool(training.overlap_param_gather)
    gather = Run(
        "all_gather",
        "forward" if ahead else "optimizer",
        f"{kind}parameters",
        hides_behind=NEXT if ahead else None,
    )
    return [*found, known_run(inside, gather, "bucket", size, buckets)]


def _buckets(work: Workload, parameters: Floats) -> Floats:
    """Return the buckets of each stage, at least 1."""
    layout = work.layout
    chunks = 2 if work.is_folded or work.is_opposed else layout.vp
    buckets = np.full(layout.pp, float(chunks))
    if work.training.overlap_grad_reduce:
        least = max(MEGATRON_BUCKET, MEGATRON_BUCKET_A_RANK * layout.dp)
        size = work.training.bucket_size or least
        buckets[0] += max(np.ceil(parameters[0] / chunks / size), 1) - 1
    return buckets


def _torch(work: Workload) -> list[Collective]:
    layout = work.layout
    axis = gradient_axis(layout.cp)
    dense, expert = work.parameters_by_stage()
    run = Run("all_reduce", "backward", "gradients", hides_behind=LAST)
    found = []
    times, per = sync_times(work, default="last")
    if times is None:
        found.append(unknown_run(axis, run, NO_BATCH))
    else:
        size = (dense if layout.ep > 1 else dense + expert) * work.gradient_bytes
        buckets = 1 + np.ceil(
            np.maximum(size - TORCH_FIRST_BUCKET, 0) / TORCH_BUCKET[layout.framework]
        )
        found.append(known_run(axis, run, per, size / buckets, buckets * times))
    if expert.any() and layout.ep > 1:
        reason = (
            "over which ranks a mesh without sharding adds expert gradients was not established"
        )
        row = Run("all_reduce", "backward", "expert gradients")
        found.append(unknown_run(axis, row, reason))
    return found


def sync_times(work: Workload, default: str) -> tuple[float | None, Per]:
    """Return how often gradients are reduced in a step, and for what."""
    if (work.training.gradient_sync or default) == "last":
        return 1.0, "bucket"
    return work.rounds, "bucket and microbatch"
