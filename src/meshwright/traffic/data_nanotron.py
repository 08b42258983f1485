"""nanotron's data parallelism: gradients summed in fp32, the optimizer sharded or whole.

P is what a rank holds, q the bytes of a gradient: 4 with ``accumulate_grad_in_fp32``, which the
recipes set. Once a step, after the last microbatch (huggingface/nanotron ``trainer.py``,
``parallel/data_parallel/utils.py``, ``optim/gradient_accumulator.py``, ``optim/zero.py``):

- ZeRO-1 with the fp32 sum: no DDP; one all-reduce of P·q (``sync_gradients_across_dp`` with
  ``reduce_scatter=False``: a reduce-scatter takes too much memory there), then one coalesced
  all-gather of P·2 (``_all_gather_params``);
- else DDP: buckets of 25 MiB of 16-bit gradients (``ddp_bucket_cap_mb``), the first of 1 MiB, each
  all-reduced as P·q by the hook; with ZeRO-1 and 16-bit gradients the same all-gather follows.

With context parallelism ZeRO shards over dp while gradients are equal over dp-cp only: which of
the two each collective takes was not established.
"""

from __future__ import annotations

import numpy as np

from meshwright.traffic.axes import gradient_axis
from meshwright.traffic.collective import Collective, Run, known_run
from meshwright.traffic.data_replicas import LAST, TORCH_BUCKET, TORCH_FIRST_BUCKET
from meshwright.traffic.workload import Workload


def is_nanotron_known(work: Workload) -> bool:
    """Tell whether what the job runs is established: no experts' groups, ZeRO-1 without cp."""
    layout = work.layout
    sharded = layout.sharding == "zero1"
    return layout.ep == 1 and (layout.sharding == "none" or (sharded and layout.cp == 1))


def nanotron_collectives(work: Workload) -> list[Collective]:
    """Return what the replicas run on gradients and parameters."""
    dense, expert = work.parameters_by_stage()
    parameters, axis = dense + expert, gradient_axis(work.layout.cp)
    sharded = work.layout.sharding == "zero1"
    buckets = np.ones_like(parameters)
    hides = None
    if not (sharded and work.gradient_bytes == 4):
        rest = np.maximum(parameters * work.activation_bytes - TORCH_FIRST_BUCKET, 0)
        buckets, hides = 1 + np.ceil(rest / TORCH_BUCKET["torch"]), LAST
    reduce = Run("all_reduce", "backward", "gradients", hides_behind=hides)
    found = [known_run(axis, reduce, "bucket", parameters * work.gradient_bytes / buckets, buckets)]
    if sharded:
        gather = Run("all_gather", "optimizer", "parameters")
        size = parameters * work.parameter_bytes
        found.append(known_run(axis, gather, "step", size, np.ones_like(parameters)))
    return found
