"""Pipeline parallelism: activations to the next stage, gradients to the previous one.

Per microbatch and stage boundary one message each way of A, or A/t with sequence parallelism
(Megatron-Core ``get_tensor_shapes``: s/c/t · b · h). With v virtual chunks there are v·p - 1
boundaries; the last stage's chunks but one wrap round to the first stage. Tied embeddings on two
stages are summed once a step over the embedding group.
"""

from __future__ import annotations

import numpy as np

from meshwright.traffic.collective import Collective, unknown
from meshwright.traffic.workload import Workload

_FOLDED = frozenset(("zb-v", "zbv", "v-half", "v-min", "dualpipe", "dualpipev", "chimera"))
"""Schedules whose chunks turn back at the last stage or run in both directions: not modelled."""


def pipeline_collectives(work: Workload) -> list[Collective]:
    """Return sends of activations and gradients; ``bytes_by_stage[i]`` is what stage i sends."""
    layout = work.layout
    if layout.pp == 1:
        return []
    schedule = (work.training.schedule or "").lower()
    size, microbatches = work.hidden_tensor_bytes, work.batch.num_microbatches
    rows = (("forward", "activations", False), ("backward", "gradients of activations", True))
    if size is None or microbatches is None or schedule in _FOLDED:
        found = [unknown("pp", "send", phase, what) for phase, what, _ in rows]
        return found + _tied_embedding(work)
    message = size / layout.tp if layout.sequence_parallel else size
    found = []
    for phase, what, reverse in rows:
        counts = np.full(layout.pp, float(layout.vp * microbatches))
        # The end of the pipeline sends one chunk less: its last chunk has nobody after it.
        counts[0 if reverse else -1] -= microbatches
        found.append(
            Collective(
                "pp",
                "send",
                phase,
                what,
                np.full(layout.pp, message),
                counts,
                reverse=reverse,
                hides_behind="other microbatches' compute",
            )
        )
    return found + _tied_embedding(work)


def _tied_embedding(work: Workload) -> list[Collective]:
    if not work.model.tied_embeddings:
        return []
    layout = work.layout
    size = work.model.vocab / layout.tp * work.model.hidden * work.gradient_bytes
    return [
        Collective(
            "embedding",
            "all_reduce",
            "backward",
            "gradients of tied embeddings",
            np.full(layout.pp, size),
            np.ones(layout.pp),
        )
    ]
