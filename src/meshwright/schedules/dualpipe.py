"""DualPipe and DualPipeV: two directions on every rank, forwards run together with backwards.

Source: deepseek-ai/DualPipe dualpipe/dualpipe.py (``DualPipe.step``); DualPipeV is the same order with
all ranks as one half, pytorch torch/distributed/pipelining/schedules.py (``ScheduleDualPipeV``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.schedules.orders import Ints, Kind, Orders, orders_of, v_ranks

_F, _B, _I, _W = Kind.FORWARD, Kind.BACKWARD, Kind.INPUT, Kind.WEIGHT


def dualpipe(pp: int, microbatches: int) -> Orders:
    """Return DualPipe: pp even, ``microbatches`` of both directions even and at least 2·pp.

    Entry pp + s is the second copy of stage s, on rank pp-1-s.
    """
    half, by_rank = pp // 2, []
    for rank in range(pp):
        place = min(rank, pp - 1 - rank)
        down, up = rank, pp + pp - 1 - rank
        # the ranks of the second half call their own near end phase 0
        entries = (down, up) if rank < half else (up, down)
        main = microbatches // 2 - pp + place + 1
        by_rank.append(_rank_rows(half, place, main, entries))
    ranks = np.arange(pp)
    return orders_of("dualpipe", by_rank, np.concatenate([ranks, ranks[::-1]]), chains=2)


def dualpipev(pp: int, microbatches: int) -> Orders:
    """Return DualPipeV: rank r holds the stages r and 2·pp-1-r; ``microbatches`` at least 2·pp."""
    by_rank = [
        _rank_rows(pp, rank, microbatches - 2 * pp + rank + 1, (rank, 2 * pp - 1 - rank))
        for rank in range(pp)
    ]
    return orders_of("dualpipev", by_rank, v_ranks(pp))


def _rank_rows(half: int, place: int, main: int, entries: tuple[int, int]) -> Ints:
    """Return a rank's operations, ``[ops, 4]``, from its eight steps.

    ``half``: ranks of its half; ``place``: its place from the end inwards; ``main``: turns of the main
    step; ``entries``: the chain entry of each phase.
    """
    apart = half - place - 1
    ends = np.array([(_B, 1, 0), (_B, 0, 0)] * (place + 1), dtype=np.int64)
    ends[place + 1 :, 0] = _I
    first = [(_F, 0, int(place != half - 1)), (_B, 1, 0), (_F, 1, 1), (_B, 0, 0)]
    steps = [
        _repeat([(_F, 0, 0)], 2 * apart),
        _repeat([(_F, 0, 0), (_F, 1, 0)], place + 1),
        _repeat([(_I, 1, 0), (_W, 1, 0), (_F, 1, 0)], apart),
        _repeat(first, min(main, 1)),  # the innermost rank runs its first pair one after the other
        _repeat([(_F, 0, 1), (_B, 1, 0), (_F, 1, 1), (_B, 0, 0)], main - 1),
        _repeat([(_B, 1, 0), (_F, 1, 1), (_B, 0, 0)], apart),
        ends,
        _repeat([(_W, 0, 0), (_I, 0, 0)], apart),
        _repeat([(_W, 0, 0)], place + 1),
    ]
    kind, phase, together = np.concatenate(steps).T
    microbatch = np.zeros(len(kind), dtype=np.int64)
    for number in (0, 1):
        for kinds in ((_F,), (_B, _I)):
            chosen = np.isin(kind, kinds) & (phase == number)
            microbatch[chosen] = np.arange(np.count_nonzero(chosen))
    # weight gradients are a queue over both phases
    waiting, weight = kind == _I, kind == _W
    phase[weight], microbatch[weight] = phase[waiting], microbatch[waiting]
    return np.stack([kind, np.array(entries)[phase], microbatch, together], axis=1)


def _repeat(rows: Sequence[tuple[int, int, int]], times: int) -> Ints:
    return np.tile(np.array(rows, dtype=np.int64), (max(times, 0), 1))
