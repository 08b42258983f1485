"""All traffic of a job: modelled, given by hand, or known to run and not modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshwright.job.layout import Layout
from meshwright.job.sections import MoeSection, TrafficItem
from meshwright.origin import Origin
from meshwright.traffic.axes import degree_of_axis
from meshwright.traffic.collective import Collective, unknown, unknown_run
from meshwright.traffic.context import DEFAULT_KIND, context_collectives
from meshwright.traffic.data import data_collectives, data_runs
from meshwright.traffic.expert import DEFAULT_DISPATCHER, expert_collectives, router_collectives
from meshwright.traffic.pipeline import pipeline_collectives
from meshwright.traffic.small import small_collectives
from meshwright.traffic.tensor import tensor_collectives
from meshwright.traffic.workload import Workload, padded_workload

NO_MODEL = "the job names no model"
_OF_LAYERS = ("tp", "cp", "cp_l0", "cp_l1")
"""Axes on which every layer's activations travel."""
_CONTEXT_OPS = {
    "p2p": ("send", "keys and values round the ring"),
    "all_gather": ("all_gather", "keys and values"),
    "a2a": ("all_to_all", "heads against sequence"),
    "a2a+p2p": ("all_to_all", "heads against sequence, then a ring"),
}


def modelled_collectives(work: Workload) -> list[Collective]:
    """Return the collectives of every strategy of the job, where a group has two ranks or more.

    The vocabulary counts as the framework pads it.
    """
    work = padded_workload(work)
    found = [
        *tensor_collectives(work),
        *context_collectives(work),
        *expert_collectives(work),
        *pipeline_collectives(work),
        *data_collectives(work),
        *router_collectives(work),
        *small_collectives(work),
    ]
    degrees = {one.axis: degree_of_axis(work.layout, one.axis) for one in found}
    return [_as_known(one, work) for one in found if degrees[one.axis] != 1]


def _as_known(one: Collective, work: Workload) -> Collective:
    """Return a collective without its bytes where layers that are not modelled have part in it."""
    kinds = work.model.unmodelled_layers
    if not kinds or one.axis not in _OF_LAYERS or one.is_minor:
        return one
    reason = f"traffic of {', '.join(kinds)} is not modelled"
    return replace(one, bytes_by_stage=None, count_by_stage=None, reason=reason)


def collectives_without_model(
    layout: Layout, moe: MoeSection, cp_kind: str | None
) -> list[Collective]:
    """Return which collectives a layout runs when no model gives their size."""
    found = []
    if layout.dp * layout.cp > 1:
        found += [unknown_run(axis, run, NO_MODEL) for axis, run in data_runs(layout)]
    if layout.tp > 1:
        op = "reduce_scatter" if layout.sequence_parallel else "all_reduce"
        found.append(unknown("tp", op, "forward", "row-parallel outputs", NO_MODEL))
    if layout.pp > 1:
        found.append(unknown("pp", "send", "forward", "activations", NO_MODEL))
    return found + _context_and_experts(layout, moe, cp_kind)


def _context_and_experts(layout: Layout, moe: MoeSection, cp_kind: str | None) -> list[Collective]:
    found = []
    if layout.cp > 1:
        kind = cp_kind or DEFAULT_KIND.get(layout.framework, "p2p")
        op, what = _CONTEXT_OPS[kind]
        found.append(unknown("cp", op, "forward", what, NO_MODEL))
    if layout.ep > 1:
        dispatcher = moe.dispatcher or DEFAULT_DISPATCHER.get(layout.framework, "alltoall")
        gathers = dispatcher == "allgather"
        out, back = ("all_gather", "reduce_scatter") if gathers else ("all_to_all", "all_to_all")
        found.append(unknown("ep", out, "forward", "tokens to experts", NO_MODEL))
        found.append(unknown("ep", back, "forward", "results back", NO_MODEL))
    return found


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
            each=float(item.count),
        )
        for item in items
    ]
