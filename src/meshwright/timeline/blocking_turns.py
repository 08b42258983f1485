"""Turns of forward and backward between which a rank exchanges no message.

Megatron's interleaved schedule without overlap posts, in its steady phase, the messages of a forward and
of the backward behind it at once, when both are done (``send_forward_backward_recv_forward_backward``);
both are there before the next such turn begins. In warm-up and cool-down an exchange follows every
operation. Source: NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py,
``forward_backward_pipelining_with_interleaving``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshwright.schedules.loops import warmup
from meshwright.schedules.orders import Ints, Kind, Orders
from meshwright.timeline.core import Times
from meshwright.timeline.program import Program


def turns(orders: Orders) -> Ints:
    """Return the forwards whose messages wait for the backward behind them.

    Empty but for interleaved schedules, which exchange once a turn.
    """
    found: list[Ints] = [np.zeros(0, dtype=np.int64)]
    if orders.schedule != "interleaved" or orders.ranks < 2:
        return found[0]
    for rank in range(orders.ranks):
        of_rank = orders.of_rank(rank)
        forwards = int(np.count_nonzero(orders.kind[of_rank] == Kind.FORWARD))
        ahead = warmup(orders.ranks, orders.microbatches, orders.chunks, _group(orders), rank)
        found.append(of_rank.start + ahead + 2 * np.arange(forwards - ahead))
    chosen: Ints = np.concatenate(found)
    behind = np.minimum(chosen + 1, len(orders.kind) - 1)
    alternate = orders.kind[chosen] == Kind.FORWARD
    alternate &= orders.kind[behind] == Kind.BACKWARD
    turned: Ints = chosen[alternate]
    return turned


def _group(orders: Orders) -> int:
    """Return the microbatches that pass the first chunk before the next chunk begins."""
    stage = orders.stage[orders.of_rank(0)]
    return int(np.flatnonzero(np.append(stage[1:] != stage[0], True))[0]) + 1


def together(program: Program, first: Ints) -> Program:
    """Return a program where each operation of ``first`` and the one behind it are one, see ``Program``."""
    overlapped = program.orders.overlapped.copy()
    overlapped[first] = True
    duration_s, need = program.duration_s.copy(), program.need.copy()
    duration_s[first + 1] += duration_s[first]
    duration_s[first] = 0.0
    need += np.isin(need, first)  # what a turn gives leaves when it ends
    orders = replace(program.orders, overlapped=overlapped)
    return replace(program, orders=orders, duration_s=duration_s, need=need)


def apart(program: Program, first: Ints, times: Times) -> Times:
    """Return the times of a program that ran with ``together``: its forwards first, then its backwards."""
    start_s, end_s = times.start_s.copy(), times.end_s.copy()
    start_s[first] = times.start_s[first + 1]
    end_s[first] = np.minimum(start_s[first] + program.duration_s[first], end_s[first + 1])
    start_s[first + 1] = end_s[first]
    return Times(start_s, end_s, times.arrival_s)
