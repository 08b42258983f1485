"""torch's interleaved zero bubble: interleaved 1F1B with the weight gradients started later.

Source: pytorch torch/distributed/pipelining/schedules.py (``ScheduleInterleavedZeroBubble``,
``_get_1f1b_rank_ops``), after arXiv 2401.10241.
"""

from __future__ import annotations

import numpy as np

from meshwright.schedules.loops import grouped_rows
from meshwright.schedules.orders import Ints, Kind, Orders, loop_ranks, orders_of


def interleaved_zb(pp: int, microbatches: int, chunks: int, group: int) -> Orders:
    """Return the order: one forward ahead a hop, weight gradients r turns late on rank r.

    ``group``: microbatches that pass one chunk before the next begins (``torch_group``).
    """
    by_rank = []
    for rank in range(pp):
        ahead = min(chunks * microbatches, (chunks - 1) * group + pp - 1 - rank)
        rows = [
            grouped_rows(kind, (pp, rank), microbatches, chunks, group)
            for kind in (Kind.FORWARD, Kind.INPUT, Kind.WEIGHT)
        ]
        by_rank.append(_woven(rows, ahead, rank))
    return orders_of("interleaved-zb", by_rank, loop_ranks(pp, chunks))


def _woven(rows: list[Ints], ahead: int, late: int) -> Ints:
    """Return turns of forward, input and weight gradient; a turn may lack the first or the last.

    ``ahead`` forwards come before all turns; the weight gradient of turn k is number k - ``late``.
    """
    forward, backward, weight = rows
    count = len(forward)
    late = min(late, count)
    turns = np.empty((count, 3, 3), dtype=np.int64)
    there = np.ones((count, 3), dtype=bool)
    turns[: count - ahead, 0], there[count - ahead :, 0] = forward[ahead:], False
    turns[:, 1] = backward
    turns[late:, 2], there[:late, 2] = weight[: count - late], False
    return np.concatenate([forward[:ahead], turns[there], weight[count - late :]])
