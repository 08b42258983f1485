"""Chimera: two pipelines against each other, each rank holding one stage of both.

Source: arXiv 2107.06925, figures 3 and 7. A list scheduler of equal forward and backward times makes
the order: backwards first, then the lowest microbatch, then the deeper stage. pp microbatches make a
unit; a rank begins the forwards of a unit when it has done those of the unit before, so that they
fill what that one left idle (direct concatenation). For whole units the makespan is 2·m + pp - 2 and
a rank keeps pp/2+1 to pp microbatches, both as in table 2 there.
"""

from __future__ import annotations

import numpy as np

from meshwright.schedules.orders import Ints, Orders, orders_of


def chimera(pp: int, microbatches: int) -> Orders:
    """Return Chimera: pp even, ``microbatches`` of both directions even, also fewer than pp.

    Entry pp + s is the second copy of stage s, on rank pp-1-s.
    """
    ranks = np.arange(pp)
    by_rank = _by_rank(pp, microbatches // 2)
    return orders_of("chimera", by_rank, np.concatenate([ranks, ranks[::-1]]), chains=2)


def _by_rank(pp: int, each: int) -> list[Ints]:
    """Return the orders of all ranks with ``each`` microbatches a direction.

    All ranks step together: an operation takes one step, so what others have done is known.
    """
    stage, last = np.arange(pp), 2 * each * pp
    done = np.zeros((2, 2, pp), dtype=np.int64)  # by kind, direction and stage
    given, returned = np.full((2, pp), each), np.zeros((2, pp), dtype=np.int64)
    figure_of = np.array([[[each]], [[0]]]) * pp + pp - 1 - stage
    steps = []
    while True:
        forward, backward = done
        given[:, 1:], returned[:, :-1], returned[:, -1] = forward[:, :-1], backward[:, 1:], each
        units = forward // (pp // 2) * (pp // 2)
        ready = np.stack(
            [
                (forward < given) & (forward[::-1, ::-1] >= units),
                (backward < forward) & (backward < returned),
            ]
        )
        # what has the lowest figure comes first; the second direction has its stages the other way
        figure = np.where(ready, done * pp + figure_of, last)
        figure[:, 1] = figure[:, 1, ::-1].copy()
        figure = figure.reshape(4, pp)
        choice = figure.argmin(axis=0)
        rank = np.flatnonzero(figure[choice, stage] < last)
        if not len(rank):
            break
        kind, direction = np.divmod(choice[rank], 2)
        at = np.where(direction == 0, rank, pp - 1 - rank)
        steps.append(np.stack([rank, kind, direction * pp + at, done[kind, direction, at]]))
        done[kind, direction, at] += 1
    table = np.concatenate(steps, axis=1).T
    table = table[np.argsort(table[:, 0], kind="stable")]
    return np.split(table[:, 1:], np.flatnonzero(np.diff(table[:, 0])) + 1)
