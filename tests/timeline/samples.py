"""Random programs for property tests. All times are whole numbers, so sums are exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from meshwright.schedules.dualpipe import dualpipe, dualpipev
from meshwright.schedules.loops import (
    gpipe,
    interleaved,
    looped_bfs,
    one_forward_one_backward,
)
from meshwright.schedules.orders import Kind, Orders, loop_ranks, orders_of, v_ranks
from meshwright.timeline.program import Messages, StageTimes


def split_backwards(orders: Orders, delay: int) -> Orders:
    """Return the schedule with every B as I, and its W up to ``delay`` operations later."""
    rows_by_rank = []
    for rank in range(orders.ranks):
        rows, late = [], []
        of_rank = orders.of_rank(rank)
        for kind, stage, microbatch in zip(
            orders.kind[of_rank], orders.stage[of_rank], orders.microbatch[of_rank], strict=True
        ):
            late = [(left - 1, row) for left, row in late]
            rows += [row for left, row in late if left < 0]
            late = [(left, row) for left, row in late if left >= 0]
            full = kind == Kind.BACKWARD
            rows.append((Kind.INPUT if full else kind, stage, microbatch))
            if full:
                late.append((delay, (Kind.WEIGHT, stage, microbatch)))
        rows_by_rank.append(np.array(rows + [row for _, row in late]))
    return orders_of("split", rows_by_rank, orders.rank_of_stage)


def v_shaped(pp: int, microbatches: int) -> Orders:
    """Return a plain V: a rank's two chunks forwards, then backwards; the turn is on one rank."""
    by_rank = []
    for rank in range(pp):
        near, far = rank, 2 * pp - 1 - rank
        rows = [(Kind.FORWARD, near, at) for at in range(microbatches)]
        for at in range(microbatches):
            rows += [(Kind.FORWARD, far, at), (Kind.BACKWARD, far, at)]
        rows += [(Kind.BACKWARD, near, at) for at in range(microbatches)]
        by_rank.append(np.array(rows))
    return orders_of("v", by_rank, v_ranks(pp))


def two_ways(pp: int, microbatches: int) -> Orders:
    """Return two GPipes against each other, as two chains."""
    by_rank = []
    for rank in range(pp):
        down, up = rank, 2 * pp - 1 - rank
        rows = [
            (kind, stage, at)
            for kind in (Kind.FORWARD, Kind.BACKWARD)
            for at in range(microbatches)
            for stage in (down, up)
        ]
        by_rank.append(np.array(rows))
    return orders_of("two ways", by_rank, np.concatenate([loop_ranks(pp), loop_ranks(pp)[::-1]]), 2)


def paired(pp: int, microbatches: int) -> Orders:
    """Return 1F1B whose ranks, but for the last, run F and B of the steady phase together.

    What they give leaves in both directions at once.
    """
    orders = one_forward_one_backward(pp, microbatches)
    together = (orders.kind[:-1] == Kind.FORWARD) & (orders.kind[1:] == Kind.BACKWARD)
    ahead = pp - 1 - orders.rank[:-1]
    together &= (orders.microbatch[:-1] >= ahead) & (ahead > 0)
    return replace(orders, overlapped=np.append(together, False))


@st.composite
def some_orders(draw: st.DrawFn) -> Orders:
    pp, microbatches = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    chunks = draw(st.integers(1, 3))
    group = min(pp, microbatches)
    groups = group * (microbatches // group)  # a last group that is smaller would deadlock
    made = draw(
        st.sampled_from(
            [
                lambda: gpipe(pp, microbatches),
                lambda: one_forward_one_backward(pp, microbatches),
                lambda: interleaved(pp, groups, chunks, group),
                lambda: looped_bfs(pp, microbatches, chunks),
                lambda: v_shaped(pp, microbatches),
                lambda: two_ways(pp, microbatches),
                lambda: paired(pp, microbatches),
                lambda: dualpipe(2 * (pp // 3 + 1), 4 * (pp // 3 + 1) + 2 * (microbatches % 3)),
                lambda: dualpipev(pp // 2 + 1, 2 * (pp // 2 + 1) + microbatches % 3),
            ]
        )
    )()
    delay = draw(st.sampled_from([None, None, 0, 1, 3]))
    as_made = delay is None or made.chains == 2 or bool(made.overlapped.any())
    return made if as_made else split_backwards(made, delay)


def whole(draw: st.DrawFn, shape: tuple[int, ...], least: int, most: int) -> np.ndarray:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return random.integers(least, most + 1, shape).astype(float)


@st.composite
def some_times(draw: st.DrawFn, stages: int, least: int = 0) -> StageTimes:
    return StageTimes(*(whole(draw, (stages,), least, 6) for _ in range(4)))


@st.composite
def some_messages(draw: st.DrawFn, ranks: int, most: int = 6) -> Messages:
    send_s = whole(draw, (ranks, ranks), 0, most) * (1 - np.eye(ranks))
    link = whole(draw, (ranks, ranks), -1, 3).astype(np.int64)
    return Messages(send_s, link)
