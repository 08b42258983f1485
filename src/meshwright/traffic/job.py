"""All traffic of a job: modelled, given by hand, or known to run and not modelled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.job.layout import Layout
from meshwright.job.sections import MoeSection, TrafficItem
from meshwright.origin import Origin
from meshwright.traffic.collective import Collective, unknown
from meshwright.traffic.data import data_collectives, replica_ops
from meshwright.traffic.pipeline import pipeline_collectives
from meshwright.traffic.tensor import tensor_collectives
from meshwright.traffic.workload import Workload

_CONTEXT_OPS = {
    None: (("send", "forward", "keys and values round the ring"),),
    "p2p": (("send", "forward", "keys and values round the ring"),),
    "all_gather": (("all_gather", "forward", "keys and values"),),
    "a2a": (("all_to_all", "forward", "heads against sequence"),),
    "a2a+p2p": (("all_to_all", "forward", "heads against sequence, then a ring"),),
}


def modelled_collectives(work: Workload) -> list[Collective]:
    """Return the collectives of every strategy of the job."""
    found = [*tensor_collectives(work), *pipeline_collectives(work), *data_collectives(work)]
    if work.model.is_moe and work.layout.etp > 1:
        found.append(unknown("etp", "all_gather", "forward", "tokens to sharded experts"))
        found.append(unknown("etp", "reduce_scatter", "forward", "results back"))
    return found + unmodelled_collectives(work.layout, work.moe, work.section.cp_kind)


def unmodelled_collectives(
    layout: Layout, moe: MoeSection, cp_kind: str | None
) -> list[Collective]:
    """Return what runs on cp and ep; sizes come with a later version (null, not zero)."""
    found = []
    if layout.cp > 1:
        found += [unknown("cp", op, phase, what) for op, phase, what in _CONTEXT_OPS[cp_kind]]
    if layout.ep > 1:
        op = "all_gather" if moe.dispatcher == "allgather" else "all_to_all"
        found += [
            unknown("ep", op, "forward", "tokens to experts"),
            unknown(
                "ep", op if op == "all_to_all" else "reduce_scatter", "forward", "results back"
            ),
        ]
    return found


def collectives_without_model(
    layout: Layout, moe: MoeSection, cp_kind: str | None
) -> list[Collective]:
    """Return which collectives a layout runs when no model gives their size."""
    found = []
    if layout.dp * layout.cp > 1:
        rows = replica_ops(layout.sharding, layout.framework, layout.cp)
        found += [unknown(*row) for row in rows]
    if layout.tp > 1:
        op = "reduce_scatter" if layout.sequence_parallel else "all_reduce"
        found.append(unknown("tp", op, "forward", "row-parallel outputs"))
    if layout.pp > 1:
        found.append(unknown("pp", "send", "forward", "activations"))
    return found + unmodelled_collectives(layout, moe, cp_kind)


def given_collectives(items: Sequence[TrafficItem], stages: int) -> list[Collective]:
    """Return the collectives given by hand; each replaces what is modelled on its axis."""
    return [
        Collective(
            item.axis,
            item.op,
            "given",
            "given by hand",
            np.full(stages, float(item.bytes)),
            np.full(stages, float(item.count)),
            origin=Origin.PARSED,
        )
        for item in items
    ]
