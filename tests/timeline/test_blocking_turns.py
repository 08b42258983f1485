"""Interleaved ranks that wait for their sends: Megatron's own sequence of calls, and a slot model."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from meshwright.schedules.loops import gpipe, interleaved, one_forward_one_backward, warmup
from meshwright.timeline.blocking import run_blocking
from meshwright.timeline.blocking_turns import turns
from meshwright.timeline.core import run
from meshwright.timeline.program import Messages, StageTimes, program_of

SIZES = ((2, 2, 2), (2, 4, 3), (3, 3, 2), (3, 6, 2), (4, 4, 2), (4, 4, 5), (4, 8, 2), (4, 12, 3))


def program(sizes, cost, send, group=0):
    orders = interleaved(*sizes, group)
    forward, backward = cost
    times = StageTimes.equal(orders.chain_length, forward, backward / 2, backward / 2)
    return program_of(orders, times, Messages.uniform(orders.ranks, send))


def table(m, v, g):
    """Iterations in the order of Megatron's ``get_schedule_table``: chunk and microbatch."""
    return [
        (chunk, number)
        for begin in range(0, m, g)
        for chunk in range(v)
        for number in range(begin, min(begin + g, m))
    ]


class Names:
    """What the iterations of a rank compute, send and receive: kind, model stage, microbatch."""

    def __init__(self, sizes, g, rank):
        self.p, self.m, self.v = sizes
        self.rank, self.rows = rank, table(self.m, self.v, g)
        self.count = self.m * self.v
        last = self.p * self.v - self.p + rank + 1
        self.gradient = [("B", last, 0)] if rank < self.p - 1 else []

    def of(self, kind, k):
        chunk, number = self.rows[k]
        chunk = chunk if kind == "F" else self.v - 1 - chunk
        return (kind, chunk * self.p + self.rank, number)

    def sent(self, kind, k):
        last = self.p * self.v - 1 if kind == "F" else 0
        one = self.of(kind, k)
        return [one] if one[1] != last else []

    def received(self, kind, k):
        """What the exchange behind iteration k brings (``recv_tensor_from_previous_stage``).

        For iteration k + 1, or, on a leading rank, what the ending rank, p - 1 iterations behind, has
        just done.
        """
        leading = self.rank == (0 if kind == "F" else self.p - 1)
        at = k - (self.p - 1) if leading else k + 1
        if not 0 <= at < self.count:
            return []
        chunk, number = self.rows[at]
        if leading:
            other = chunk * self.p + self.p - 1 if kind == "F" else (self.v - 1 - chunk) * self.p
            return [] if chunk == self.v - 1 else [(kind, other, number)]
        return [(kind, self.of(kind, at)[1] + (-1 if kind == "F" else 1), number)]


def calls(sizes, g, rank, *, together):
    """Return a rank's computations and its exchanges.

    ``together``: two exchanges that follow one another (where all forwards are warm-up) are one, which
    Megatron's are not.
    """
    one = Names(sizes, g, rank)
    ahead = warmup(*sizes, g, rank)
    rest = one.count - ahead
    found = [("exchange", [("F", rank - 1, 0)] if rank else [])]  # recv_forward
    for k in range(ahead):
        messages = one.sent("F", k) + (one.received("F", k) if k < one.count - 1 else [])
        if k == ahead - 1 and rest:
            messages += one.gradient  # send_forward_backward_recv_forward_backward
        found += [one.of("F", k), ("exchange", messages)]
    for k in range(rest):
        messages = one.sent("F", k + ahead) + one.sent("B", k) + one.received("B", k)
        messages += one.received("F", k + ahead) if k < rest - 1 else []
        found += [one.of("F", k + ahead), one.of("B", k), ("exchange", messages)]
    if not rest:  # recv_backward
        before = found.pop()[1] if together else []
        found.append(("exchange", before + one.gradient))
    for k in range(rest, one.count):
        messages = one.sent("B", k) + (one.received("B", k) if k < one.count - 1 else [])
        found += [one.of("B", k), ("exchange", messages)]
    return found


def ends_of(sizes, g, cost, send, *, together=True):
    """Run the calls: a message goes when both sides are at it; an exchange waits for all of its own."""
    by_rank = [calls(sizes, g, rank, together=together) for rank in range(sizes[0])]
    position, clock = [0] * sizes[0], [Fraction(0)] * sizes[0]
    posted, done, ends = {}, {}, {}
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(by_rank):
            while position[rank] < len(mine):
                one = mine[position[rank]]
                if one[0] != "exchange":
                    clock[rank] += cost["FB".index(one[0])]
                    ends[one] = clock[rank]
                else:
                    for name in one[1]:
                        sides = posted.setdefault(name, {})
                        sides[rank] = clock[rank]
                        if len(sides) == 2:
                            done[name] = max(sides.values()) + send
                    if not all(name in done for name in one[1]):
                        break
                    clock[rank] = max([clock[rank], *(done[name] for name in one[1])])
                position[rank] += 1
                moved = True
    assert all(position[rank] == len(mine) for rank, mine in enumerate(by_rank))
    return ends


@pytest.mark.parametrize("sizes", SIZES)
def test_interleaved_runs_as_megatrons_calls_do(sizes):
    for cost in ((1, 2), (2, 2), (3, 1)):
        for send in (0, Fraction(1, 4), 3):
            found = run_blocking(program(sizes, cost, float(send)))
            ends = ends_of(sizes, sizes[0], cost, send)
            orders = interleaved(*sizes)
            rows = zip(orders.kind, orders.stage, orders.microbatch, strict=True)
            expected = [float(ends["FB"[kind], stage, number]) for kind, stage, number in rows]
            assert found.end_s.tolist() == expected
            one_by_one = ends_of(sizes, sizes[0], cost, send, together=False)
            assert 0 <= max(one_by_one.values()) - found.makespan_s <= sizes[0] * send


def slots(sizes, cost, send):
    """Iteration k of rank r is slot r + k; between two slots all exchange at once."""
    p, m, v = sizes
    forward, backward = cost
    longest = {}
    for rank in range(p):
        ahead = warmup(p, m, v, p, rank)
        steps = [forward] * ahead + [forward + backward] * (m * v - ahead) + [backward] * ahead
        for at, step in enumerate(steps, rank):
            longest[at] = max(longest.get(at, 0), step)
    return sum(longest.values()) + send * (len(longest) - 1)


@pytest.mark.parametrize("sizes", [(4, 32, 5), (4, 8, 2), (8, 64, 2), (8, 32, 4)])
def test_interleaved_takes_a_message_a_slot(sizes):
    for send in (0.0, 0.25):
        assert run_blocking(program(sizes, (1, 2), send)).makespan_s == slots(sizes, (1, 2), send)


@pytest.mark.parametrize("sizes", [*SIZES, (5, 15, 2), (8, 32, 4)])
def test_free_messages_hold_nobody_up(sizes):
    for cost in ((1, 2), (2, 2), (3, 1), (1, 6)):
        one = program(sizes, cost, 0.0)
        assert run_blocking(one).makespan_s == run(one).makespan_s


def test_a_group_larger_than_the_pipeline():
    for sizes, group in (((2, 4, 2), 4), ((3, 6, 2), 6), ((4, 10, 2), 5), ((4, 12, 3), 6)):
        one = program(sizes, (1, 2), 0.0, group)
        assert run_blocking(one).makespan_s == run(one).makespan_s


def test_which_operations_are_turns():
    orders = interleaved(2, 4, 2)
    chosen = turns(orders)
    # rank 0 runs 2 + 2 forwards ahead of 8, rank 1 has 2 ahead
    assert chosen.tolist() == [4, 6, 8, 10, 16 + 2, 16 + 4, 16 + 6, 16 + 8, 16 + 10, 16 + 12]
    assert np.all(orders.kind[chosen] == 0)
    # all forwards are warm-up: no turn, though a backward follows the last one
    assert turns(interleaved(4, 4, 2)).tolist().count(7) == 0
    assert not len(turns(one_forward_one_backward(4, 8)))
    assert not len(turns(gpipe(4, 8)))
