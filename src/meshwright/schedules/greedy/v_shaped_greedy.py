"""ZB-V: two stages a rank in the shape of a V, zero bubble in the memory of 1F1B.

Rank r holds the stages r and 2p-1-r. A microbatch passes the ranks four times: its forward down and
up, its backward down and up; each passage is a leg, 0 down and 1 up. Source: arXiv 2401.10241
section 6 and sail-sg/zero-bubble-pipeline-parallelism
megatron/core/pipeline_parallel/zerobubble/scheduler/zbv.py (``try_v_schedule``, ``create_schedule``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from meshwright.schedules.greedy.zero_bubble_plan import Costs, Holding, Plan, least_idle
from meshwright.schedules.orders import Kind, Orders, v_ranks


def zb_v(pp: int, microbatches: int, costs: Costs | None = None) -> Orders:
    """Return ZB-V: at most 2p chunks held from forward to weight gradient.

    Of four ways to fill waits, the first in which the rank that waits longest waits least.
    """
    costs = costs or Costs()
    return least_idle(
        plan
        for backward, forward in product((True, False), repeat=2)
        for plan in _improved(pp, microbatches, costs, (forward, backward))
    ).orders("zb-v")


def _improved(pp: int, microbatches: int, costs: Costs, fills: tuple[bool, bool]) -> Iterator[Plan]:
    """Make plans as long as the waits of the last one, once known, help to make a better one."""
    holding = Holding(forward=1, input=0, weight=-1, most=2 * pp)
    limit, allowed = float("inf"), [0.0] * pp
    while True:
        plan = Plan(v_ranks(pp).tolist(), costs, holding)
        _Greedy(plan, microbatches, fills, allowed).run(limit)
        yield plan
        if plan.most_idle >= limit:
            return
        limit = plan.most_idle
        allowed = [limit - idle for idle in plan.idle]


class _Greedy:
    """The rule. In a round each rank takes an input gradient, then each a forward.

    Parameters
    ----------
    fills
        Whether a weight gradient may end after the message that a forward waits for, and after the
        one that a backward down the ranks waits for.
    allowed[ranks]
        Wait that a rank may have at no cost.
    """

    def __init__(
        self, plan: Plan, microbatches: int, fills: tuple[bool, bool], allowed: Sequence[float]
    ) -> None:
        self.plan = plan
        self.pp = len(plan.clock)
        self.microbatches = microbatches
        self.fill_forward, self.fill_backward = fills
        self.allowed = allowed

    def run(self, limit: float) -> None:
        """Put all operations, or those until a rank has waited ``limit``."""
        self._first_forwards()
        self._even_out()
        for _ in range(2 * self.microbatches):
            if self.plan.most_idle >= limit:
                return
            self._input_gradients()
            self._forwards()
        for rank in range(self.pp):
            self.plan.put_weights(rank)

    def _forward_stage(self, leg: int, rank: int) -> int:
        return rank if leg == 0 else 2 * self.pp - 1 - rank

    def _backward_stage(self, leg: int, rank: int) -> int:
        return self._forward_stage(1 - leg, rank)

    def _done(self, leg: int, rank: int) -> int:
        """Return the forwards put of a leg."""
        return self.plan.count(Kind.FORWARD, self._forward_stage(leg, rank))

    def _first_forwards(self) -> None:
        """Put the first microbatch's forwards down and up, others down while ranks wait for it."""
        plan, length = self.plan, self.plan.costs.forward
        for rank in range(self.pp):
            plan.put(Kind.FORWARD, rank)
        for rank in reversed(range(self.pp)):
            up = self._forward_stage(1, rank)
            until = plan.arrival(Kind.FORWARD, up)
            room = plan.holding.most - 2 * rank - 2  # the ranks before must have room for it too
            while (
                plan.held[rank] <= room
                and plan.clock[rank] + length <= until
                and self._done(0, rank) < self.microbatches
            ):
                for before in range(rank + 1):
                    plan.put(Kind.FORWARD, before)
            plan.put(Kind.FORWARD, up)

    def _even_out(self) -> None:
        """Put forwards of both legs in turns until no rank has fewer than the rank before."""
        leg = 0
        for rank in range(1, self.pp):
            while self._is_behind(rank):
                for after in range(self.pp - 1, rank - 1, -1):
                    if self._done(leg, after) < self.microbatches:
                        self.plan.put(Kind.FORWARD, self._forward_stage(leg, after))
                leg = 1 - leg

    def _is_behind(self, rank: int) -> bool:
        up, up_before = self._done(1, rank), self._done(1, rank - 1)
        if self._done(0, rank) + up < self._done(0, rank - 1) + up_before:
            return True
        return up <= up_before < self.microbatches

    def _input_gradients(self) -> None:
        """Put one input gradient on every rank: those going up from the last rank, then those down."""
        legs = [self._backward_leg(rank) for rank in range(self.pp)]
        up = [rank for rank in reversed(range(self.pp)) if legs[rank] == 1]
        down = [rank for rank in range(self.pp) if legs[rank] == 0]
        for rank in up + down:
            stage = self._backward_stage(legs[rank], rank)
            self._fill(rank, Kind.INPUT, stage, late=legs[rank] == 1 or self.fill_backward)
            self.plan.put(Kind.INPUT, stage)

    def _backward_leg(self, rank: int) -> int:
        """Return the leg of a rank's next input gradient: up where there is one to do."""
        plan = self.plan
        up = self._backward_stage(1, rank)
        down_done = plan.count(Kind.INPUT, self._backward_stage(0, rank))
        if plan.count(Kind.INPUT, up) >= down_done:
            return 0
        if rank == self.pp - 1 or down_done >= self.microbatches:
            return 1
        return int(plan.is_sent(Kind.INPUT, up))

    def _forwards(self) -> None:
        """Put a forward on every rank that has one to do."""
        for rank in range(self.pp):
            leg = self._forward_leg(rank)
            if leg is None:
                continue
            stage = self._forward_stage(leg, rank)
            self.plan.make_room(rank)
            self._fill(rank, Kind.FORWARD, stage, late=self.fill_forward)
            self.plan.put(Kind.FORWARD, stage)

    def _forward_leg(self, rank: int) -> int | None:
        """Return the leg of a rank's next forward: up where there is one to do; None for no forward."""
        plan = self.plan
        down_done, up_done = self._done(0, rank), self._done(1, rank)
        if up_done >= self.microbatches:
            return None
        if up_done >= down_done:
            return 0
        if rank == self.pp - 1 or plan.is_sent(Kind.FORWARD, self._forward_stage(1, rank)):
            return 1
        if down_done < self.microbatches and (rank == 0 or plan.is_sent(Kind.FORWARD, rank)):
            return 0
        return None

    def _fill(self, rank: int, kind: Kind, stage: int, *, late: bool) -> None:
        """Fill the wait for a message; ``late``: the last weight gradient may end after it."""
        plan = self.plan
        arrival = plan.arrival(kind, stage)
        plan.fill(rank, arrival)
        if late and plan.pending[rank]:
            tolerated = max(plan.most_idle, self.allowed[rank]) - plan.idle[rank]
            if arrival - plan.clock[rank] > tolerated:
                plan.put_weight(rank)
