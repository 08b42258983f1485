"""Tensor parallelism: collectives of the transformer layers.

Per layer and microbatch (Megatron-Core ``core/tensor_parallel/layers.py``), S = A each:
without sequence parallelism 2 all-reduces forward and 2 backward; with it 2 all-gathers and 2
reduce-scatters each way, plus 2 all-gathers backward that make the inputs whole again for the
weight gradients. torch's DTensor keeps the gathered input and has none of those two. Full recompute
repeats the forward ones.
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
    found = []
    for op, phase, what, per_layer in _per_layer(work):
        if size is None or microbatches is None:
            found.append(unknown("tp", op, phase, what))
            continue
        layers = np.array(work.stage_layers, dtype=np.float64)
        hides = "weight-gradient GEMM" if phase == "backward" and op != "all_gather" else None
        found.append(
            Collective(
                "tp",
                op,
                phase,
                what,
                np.full(layout.pp, float(size)),
                layers * microbatches * per_layer,
                hides_behind=hides,
            )
        )
    found.append(unknown("tp", "all_reduce", "forward", "embedding, output layer and loss"))
    return found


def _per_layer(work: Workload) -> list[tuple[str, str, str, int]]:
    """Return (op, phase, what, times a layer and microbatch)."""
    if not work.layout.sequence_parallel:
        rows = [
            ("all_reduce", "forward", "row-parallel outputs", 2),
            ("all_reduce", "backward", "gradients of column-parallel inputs", 2),
        ]
    else:
        rows = [
            ("all_gather", "forward", "column-parallel inputs", 2),
            ("reduce_scatter", "forward", "row-parallel outputs", 2),
            ("all_gather", "backward", "gradients of row-parallel outputs", 2),
            ("reduce_scatter", "backward", "gradients of column-parallel inputs", 2),
        ]
        if work.layout.framework == "megatron":
            rows.append(("all_gather", "backward", "inputs again, for weight gradients", 2))
    if work.training.recompute == "full":
        rows += [
            (op, "recompute", what, times) for op, phase, what, times in rows if phase == "forward"
        ]
    return rows
