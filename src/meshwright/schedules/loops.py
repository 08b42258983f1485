"""Schedules whose ranks hold chunks c·p + r: GPipe, 1F1B, interleaved 1F1B, looped breadth-first.

Sources: GPipe arXiv 1811.06965; 1F1B and interleaved arXiv 2104.04473, NVIDIA/Megatron-LM
megatron/core/pipeline_parallel/schedules.py (``get_schedule_table``, ``get_pp_rank_microbatches``);
breadth-first arXiv 2211.05953, pytorch torch/distributed/pipelining/schedules.py.
"""

from __future__ import annotations

import numpy as np

from meshwright.schedules.orders import Ints, Kind, Orders, loop_ranks, orders_of


def gpipe(pp: int, microbatches: int) -> Orders:
    """Return GPipe: all forwards, then all backwards, both ascending."""
    count = np.arange(microbatches)
    by_rank = [
        np.concatenate(
            [
                _rows(Kind.FORWARD, np.full_like(count, rank), count),
                _rows(Kind.BACKWARD, np.full_like(count, rank), count),
            ]
        )
        for rank in range(pp)
    ]
    return orders_of("gpipe", by_rank, loop_ranks(pp))


def one_forward_one_backward(pp: int, microbatches: int) -> Orders:
    """Return 1F1B (PipeDream-flush): min(m, p-1-r) forwards ahead, then in turns."""
    count = np.arange(microbatches)
    by_rank = []
    for rank in range(pp):
        stage = np.full_like(count, rank)
        ahead = min(microbatches, pp - 1 - rank)
        by_rank.append(
            in_turns(_rows(Kind.FORWARD, stage, count), _rows(Kind.BACKWARD, stage, count), ahead)
        )
    return orders_of("1f1b", by_rank, loop_ranks(pp))


def interleaved(pp: int, microbatches: int, chunks: int, group: int = 0, extra: int = 0) -> Orders:
    """Return interleaved 1F1B.

    Parameters
    ----------
    group
        Microbatches that pass one chunk before the next chunk begins (0: pp).
    extra
        Forwards ahead beyond the usual (1 with ``overlap_moe_expert_parallel_comm``).
    """
    group = group or pp
    by_rank = []
    for rank in range(pp):
        ahead = warmup(pp, microbatches, chunks, group, rank) + extra
        forward = grouped_rows(Kind.FORWARD, (pp, rank), microbatches, chunks, group)
        backward = grouped_rows(Kind.BACKWARD, (pp, rank), microbatches, chunks, group)
        by_rank.append(in_turns(forward, backward, min(ahead, len(forward))))
    return orders_of("interleaved", by_rank, loop_ranks(pp, chunks))


def warmup(pp: int, microbatches: int, chunks: int, group: int, rank: int) -> int:
    """Return the forwards of a rank before its first backward's turn: min(v·m, 2(p-1-r) + (v-1)g)."""
    return min(chunks * microbatches, 2 * (pp - 1 - rank) + (chunks - 1) * group)


def looped_bfs(pp: int, microbatches: int, chunks: int) -> Orders:
    """Return looped breadth-first: chunk by chunk all forwards; backwards in descending order."""
    count = np.arange(microbatches)
    by_rank = []
    for rank in range(pp):
        stage = np.repeat(np.arange(chunks) * pp + rank, microbatches)
        forward = _rows(Kind.FORWARD, stage, np.tile(count, chunks))
        backward = _rows(Kind.BACKWARD, stage[::-1], np.tile(count[::-1], chunks))
        by_rank.append(np.concatenate([forward, backward]))
    return orders_of("looped-bfs", by_rank, loop_ranks(pp, chunks))


def grouped_rows(
    kind: Kind, at: tuple[int, int], microbatches: int, chunks: int, group: int
) -> Ints:
    """Return a rank's forwards (or backwards) in groups: ``[chunks · microbatches, 3]``.

    A group of microbatches passes chunk after chunk; backwards take the chunks from the last.
    ``at``: pp and the rank.
    """
    pp, rank = at
    full = microbatches // group * group
    parts = []
    for begin, end, size in ((0, full, group), (full, microbatches, microbatches - full)):
        if begin < end:
            number = np.arange(begin, end).reshape(-1, 1, size)
            parts.append(np.broadcast_arrays(np.arange(chunks)[:, np.newaxis], number))
    chunk = np.concatenate([part[0].ravel() for part in parts])
    microbatch = np.concatenate([part[1].ravel() for part in parts])
    if kind is not Kind.FORWARD:
        chunk = chunks - 1 - chunk
    return _rows(kind, chunk * pp + rank, microbatch)


def in_turns(forward: Ints, backward: Ints, ahead: int) -> Ints:
    """Return ``ahead`` forwards, then forward and backward in turns, then the backwards left."""
    rest = len(forward) - ahead
    turns = np.empty((2 * rest, 3), dtype=np.int64)
    turns[::2], turns[1::2] = forward[ahead:], backward[:rest]
    return np.concatenate([forward[:ahead], turns, backward[rest:]])


def _rows(kind: Kind, stage: Ints, microbatch: Ints) -> Ints:
    return np.stack([np.full_like(stage, kind), stage, microbatch], axis=1)
