"""DeepSpeed's data parallelism: ZeRO-1, 2 and 3.

P is what a rank holds, q the bytes of a gradient (the parameters' type), m the microbatches.
Sources: DeepSpeed ``runtime/zero/config.py``, ``stage_1_and_2.py`` (``average_tensor``,
``reduce_ready_partitions``), ``stage3.py`` (``__avg_scatter_grads``):

- none and ZeRO-1: gradients by buckets of 5e8 elements at the accumulation boundary; ZeRO-2 after
  every microbatch. Both all-reduce a bucket and keep their part (``reduce_scatter`` together with
  ``use_multi_rank_bucket_allreduce``, both defaults); without the latter one ``reduce`` to each owner,
  which moves what a reduce-scatter moves. Then one all-gather of P·2 a step, by 5e8 elements;
- ZeRO-3: for each layer and microbatch an all-gather forward and one backward, and one coalesced
  reduce-scatter for each bucket. Parameters under 1e5 elements stay gathered (norms here).
  ``zero_hpz_partition_size`` keeps the backward gathers inside groups of so many ranks.

Ulysses ranks share the parameters, so ZeRO shards over them too. Expert parameters do the same over
their own data-parallel groups.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshwright.job.parameters import parameter_parts
from meshwright.traffic.axes import gradient_axis
from meshwright.traffic.collective import Collective, Floats, Per, Run, known_run, unknown_run
from meshwright.traffic.workload import BOTH_ENDS, NO_BATCH, WORDS, Workload

BUCKET = GATHER_BUCKET = 500_000_000
PERSISTENT = 100_000
_HIDES = "backward compute"
_PREFETCH = "compute of the layer before (prefetch)"


def zero_collectives(work: Workload) -> list[Collective]:
    """Return what DeepSpeed runs on gradients and parameters."""
    dense, expert = work.parameters_by_stage()
    axis = gradient_axis(work.layout.cp)
    kinds = [(axis, "", dense)]
    if expert.any():
        # Without ep DeepSpeed makes no groups for experts: they are dense parameters.
        kinds.append(("edp" if work.layout.ep > 1 else axis, "expert ", expert))
    found: list[Collective] = []
    for where, kind, parameters in kinds:
        if work.layout.sharding == "zero3":
            found += _gathered(work, where, kind)
        found += _reduced(work, (where, kind), parameters)
        if work.layout.sharding in ("zero1", "zero2"):
            gather = Run("all_gather", "optimizer", f"{kind}parameters")
            buckets = _buckets(parameters, GATHER_BUCKET)
            size = parameters * work.parameter_bytes / buckets
            times = buckets * (parameters > 0)
            found.append(known_run(where, gather, "bucket", size, times))
    return found


def _buckets(parameters: Floats, size: int) -> Floats:
    buckets: Floats = np.maximum(np.ceil(parameters / size), 1.0)
    return buckets


def _reduced(work: Workload, where: tuple[str, str], parameters: Floats) -> Iterator[Collective]:
    axis, kind = where
    sharding, training = work.layout.sharding, work.training
    whole = sharding == "none" or (
        sharding in ("zero1", "zero2") and training.use_multi_rank_bucket_allreduce is not False
    )
    every = sharding in ("zero2", "zero3")
    per: Per = "bucket and microbatch" if every else "bucket"
    run = Run(
        "all_reduce" if whole else "reduce_scatter",
        "backward",
        f"{kind}gradients",
        hides_behind=_HIDES if training.overlap_grad_reduce else None,
        remark=None if whole or sharding == "zero3" else "runs as one reduce to each owner",
    )
    times = work.rounds if every else 1.0
    if times is None:
        yield unknown_run(axis, run, NO_BATCH)
        return
    buckets = _buckets(parameters, training.bucket_size or BUCKET)
    size = parameters * work.gradient_bytes / buckets
    yield known_run(axis, run, per, size, buckets * times * (parameters > 0))


def _gathered(work: Workload, axis: str, kind: str) -> Iterator[Collective]:
    """Return the all-gathers of parameters, layer by layer."""
    spread = work.layout.zero_hpz_partition_size > 1
    for name, parameters, by_stage in _modules(work, experts=bool(kind)):
        for phase in ("forward", "backward"):
            where = "hpz" if spread and phase == "backward" else axis
            run = Run("all_gather", phase, f"parameters of {name}", hides_behind=_PREFETCH)
            if work.rounds is None:
                yield unknown_run(where, run, NO_BATCH)
            else:
                size = parameters * work.parameter_bytes
                yield known_run(where, run, "unit and microbatch", size, by_stage * work.rounds)


def _modules(work: Workload, *, experts: bool) -> list[tuple[str, float, Floats]]:
    """Return (name, parameters gathered, how many by stage) of layers and ends."""
    with_experts = work.expert_layers_by_stage()
    rows = []
    for is_moe, by_stage in ((False, work.layers_by_stage() - with_experts), (True, with_experts)):
        held = work.layer_parameters(is_moe=is_moe)
        if held is None:
            continue
        if experts:
            rows.append(("experts", float(held.expert), by_stage if is_moe else by_stage * 0))
        else:
            name = "layers with experts" if is_moe else "layers"
            rows.append((name, float(held.dense) - _kept(work, is_moe=is_moe), by_stage))
    if not experts:
        words = float(work.parameters_of(WORDS).dense)
        both = float(work.parameters_of(BOTH_ENDS).dense)
        kept = parameter_parts(work.model).final_norm
        output = 0.0 if work.model.tied_embeddings else both - words - kept
        rows.append(("embedding", words, work.embedding_stages()))
        rows.append(("output", output, work.output_stages()))
    return [row for row in rows if row[1] > 0 and row[2].any()]


def _kept(work: Workload, *, is_moe: bool) -> float:
    """Return the parameters of a layer's norms where they are small enough to stay gathered."""
    parts = parameter_parts(work.model)
    layer = parts.moe_layer if is_moe and parts.moe_layer is not None else parts.dense_layer
    return float(layer.norms) if work.model.hidden < PERSISTENT else 0.0
