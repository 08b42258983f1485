"""ZB-V in closed form, as torch has it: an order by counting alone, made for F = I = W.

Source: pytorch torch/distributed/pipelining/schedules.py, ``ScheduleZBVZeroBubble``, 2.13.0.
"""

from __future__ import annotations

import numpy as np

from meshwright.schedules.orders import Ints, Kind, Orders, orders_of, v_ranks


def zb_v_closed(pp: int, microbatches: int) -> Orders:
    """Return torch's ZB-V (``--convention torch``): at most 2p chunks held.

    With fewer than 2p - 1 microbatches it is the order of 2p - 1 without those there are not.
    """
    by_rank = []
    for rank in range(pp):
        rows = _of_rank(pp, rank, max(microbatches, 2 * pp - 1))
        by_rank.append(rows[rows[:, 2] < microbatches])
    return orders_of("zb-v", by_rank, v_ranks(pp))


def _of_rank(pp: int, rank: int, count: int) -> Ints:
    """Return the operations of a rank for ``count`` (at least 2p - 1) microbatches."""
    down, up = rank, 2 * pp - 1 - rank
    turn, ahead, steady = pp - rank, 2 * (pp - rank) - 1, count - pp
    # Forwards down that the warm-up leaves: the steady part's first rounds take one each.
    left = count - ahead - rank

    def forward(stage: int, first: int, number: int) -> Ints:
        return _rows(Kind.FORWARD, stage, first, number)

    def inputs(stage: int, first: int, number: int) -> Ints:
        return _rows(Kind.INPUT, stage, first, number)

    def weights(stage: int, first: int, number: int) -> Ints:
        return _rows(Kind.WEIGHT, stage, first, number)

    def rounds(first: int, number: int) -> list[Ints]:
        return [
            inputs(down, first, number),
            weights(down, first, number),
            forward(up, pp + first, number),
            inputs(up, turn + first, number),
            weights(up, turn + first, number),
        ]

    return np.concatenate(
        [
            forward(down, 0, ahead),
            _in_turns(forward(up, 0, rank), forward(down, ahead, rank)),
            _in_turns(forward(up, rank, turn), inputs(up, 0, turn), weights(up, 0, turn)),
            _in_turns(forward(down, ahead + rank, left), *rounds(0, left)),
            _in_turns(*rounds(left, steady - left)),
            _in_turns(inputs(down, steady, rank), inputs(up, count - rank, rank)),
            _in_turns(inputs(down, steady + rank, turn), weights(down, steady, turn)),
            weights(up, count - rank, rank),
            weights(down, count - rank, rank),
        ]
    )


def _rows(kind: Kind, stage: int, first: int, number: int) -> Ints:
    """Return operations of ``number`` microbatches from ``first`` on, ``[number, 3]``."""
    rows = np.empty((number, 3), dtype=np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2] = kind, stage, np.arange(first, first + number)
    return rows


def _in_turns(*columns: Ints) -> Ints:
    """Return the first rows of all columns, then the second rows, and so on."""
    return np.stack(columns, axis=1).reshape(-1, 3)
