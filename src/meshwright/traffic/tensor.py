"""Tensor parallelism: collectives of the transformer layers.

Per block and microbatch (Megatron-Core ``core/tensor_parallel/layers.py``), S = A each:
without sequence parallelism 1 all-reduce forward and 1 backward; with it 1 all-gather and 1
reduce-scatter each way, plus 1 all-gather backward that makes the input whole again for the
weight gradients. torch's DTensor keeps the gathered input and has none of those. Full recompute
repeats the forward ones. A layer has two blocks, attention and MLP; routed experts use their own
groups (``core/transformer/moe/token_dispatcher.py``), so such a layer has attention alone.
"""

from __future__ import annotations

import numpy as np

from meshwright.traffic.collective import Collective, unknown
from meshwright.traffic.workload import Workload


def tensor_collectives(work: Workload) -> list[Collective]:
    """Return the tp collectives of the layers; embedding and output layer are not modelled yet."""
    layout = work.layout
    if layout.tp == 1:
        return []
    size, microbatches = work.hidden_tensor_bytes, work.batch.num_microbatches
    experts = work.expert_layers_by_stage()
    blocks = 2 * np.array(work.stage_layers, dtype=np.float64) - experts
    found = []
    for op, phase, what in _per_block(work):
        if size is None or microbatches is None:
            found.append(unknown("tp", op, phase, what))
            continue
        hides = "weight-gradient GEMM" if phase == "backward" and op != "all_gather" else None
        found.append(
            Collective(
                "tp",
                op,
                phase,
                what,
                np.full(layout.pp, float(size)),
                blocks * microbatches,
                hides_behind=hides,
            )
        )
    found.append(unknown("tp", "all_reduce", "forward", "embedding, output layer and loss"))
    if experts.any():
        found.append(unknown("tp", "all_reduce", "forward", "shared experts and router"))
    return found


def _per_block(work: Workload) -> list[tuple[str, str, str]]:
    """Return (op, phase, what) of what runs once a block and microbatch."""
    if not work.layout.sequence_parallel:
        rows = [
            ("all_reduce", "forward", "row-parallel outputs"),
            ("all_reduce", "backward", "gradients of column-parallel inputs"),
        ]
    else:
        rows = [
            ("all_gather", "forward", "column-parallel inputs"),
            ("reduce_scatter", "forward", "row-parallel outputs"),
            ("all_gather", "backward", "gradients of row-parallel outputs"),
            ("reduce_scatter", "backward", "gradients of column-parallel inputs"),
        ]
        if work.layout.framework == "megatron":
            rows.append(("all_gather", "backward", "inputs again, for weight gradients"))
    if work.training.recompute == "full":
        rows += [(op, "recompute", what) for op, phase, what in rows if phase == "forward"]
    return rows
