"""A schedule's order told: its operations, its warm-up, and where an interleaved warm-up comes from."""

from __future__ import annotations

import numpy as np

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_run import PipelineRun
from meshwright.report.text import paragraph
from meshwright.schedules.make_asked import asked
from meshwright.schedules.orders import LETTERS, Ints, Kind, Orders
from meshwright.schedules.torch_form.csv_write import TOGETHER

_RANKS_TOLD = 8
_BY_TURNS = ("1f1b", "interleaved", "interleaved-zb", "zb-h1")
"""Schedules of warm-up and then turns of forward and backward."""


def warmup_of(orders: Orders, group: int | None) -> Ints:
    """Return the forwards of each rank before its first pair of forward and backward, ``[ranks]``.

    What frameworks call the warm-up: the forwards in front of the first backward, less the one that
    belongs to its turn. Where all forwards stand there, the order does not tell whether the last belongs
    to a turn: the frameworks' formulas do, min(m, p-1-r) and min(v·m, 2(p-1-r) + (v-1)·g).

    ``group``: from ``group_of``.
    """
    ahead = np.arange(orders.ranks)[::-1]
    formula = ahead if group is None else 2 * ahead + (orders.chunks - 1) * group
    found = np.zeros(orders.ranks, dtype=np.int64)
    for rank in range(orders.ranks):
        forward = orders.kind[orders.of_rank(rank)] == Kind.FORWARD
        backwards, count = np.flatnonzero(~forward), int(forward.sum())
        first = int(backwards[0]) if len(backwards) else count
        all_ahead = first == count
        by_turns = orders.schedule in _BY_TURNS
        found[rank] = max(first - 1, 0)
        if all_ahead and (not by_turns or formula[rank] >= count):
            found[rank] = first
    return found


def orders_json(orders: Orders) -> list[list[str]]:
    """Return every rank's operations as torch writes them: ``3F0`` is stage, kind, microbatch.

    A forward and a backward that run together are one cell, ``(0F1;7B0)OVERLAP_F_B``.
    """
    letters = np.array(list(LETTERS))[orders.kind].tolist()
    names = [
        f"{stage}{letter}{microbatch}"
        for stage, letter, microbatch in zip(
            orders.stage.tolist(), letters, orders.microbatch.tolist(), strict=True
        )
    ]
    for index in np.flatnonzero(orders.overlapped).tolist():
        names[index + 1] = f"({names[index]};{names[index + 1]}){TOGETHER}"
        names[index] = ""
    return [[one for one in names[orders.of_rank(rank)] if one] for rank in range(orders.ranks)]


def orders_text(orders: Orders) -> str:
    """Return every rank's operations, a line a rank."""
    lines = [
        f"rank {rank}: {' '.join(operations)}"
        for rank, operations in enumerate(orders_json(orders))
    ]
    copies = ""
    if orders.chains > 1:
        copies = f"; stage {orders.chain_length} and on: the second copy of stage 0 and on"
    return f"Operations (stage, kind, microbatch{copies}):\n" + "\n".join(lines)


def group_of(ask: PipelineAsk) -> int | None:
    """Return the microbatches that pass a chunk before the next begins; ``None`` without groups."""
    if ask.orders is not None:
        return None
    return asked(ask.schedule, ask.pp, ask.microbatches, ask.options).group or None


def warmup_text(ask: PipelineAsk, run: PipelineRun) -> str | None:
    """Say where the warm-up of an interleaved schedule comes from; ``None`` for other schedules.

    Source: NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py,
    ``get_pp_rank_microbatches``; pytorch torch/distributed/pipelining/schedules.py, ``warmup_ops``.
    """
    group, orders = group_of(ask), run.orders
    if group is None or orders.schedule != "interleaved":
        return None
    found = warmup_of(orders, group).tolist()
    listed = ", ".join(map(str, found[:_RANKS_TOLD]))
    listed += f" … {found[-1]}" if len(found) > _RANKS_TOLD else ""
    most = orders.chunks * orders.microbatches
    return paragraph(
        f"Warm-up of rank r: (p-r-1)·2 + (v-1)·g forwards, at most v·m = {most}: {listed}, with p "
        f"{orders.ranks}, v {orders.chunks} and groups of g = {group} microbatches. The factor 2: a "
        "forward needs p-r-1 stages to the last rank and its gradient as many back, and the rank has work "
        "all that time only with two more forwards for every rank behind it; so all are busy in the steady "
        "state. Newer Megatron has the group size where older has p, and one forward more with MoE overlap "
        "(overlap_moe_expert_parallel_comm); older releases made all forwards warm-up when m was p. Chunks "
        f"in flight, and so activations, grow with it: {int(run.peak_in_flight[0])} on rank 0."
    )
