"""Zero-bubble schedules with one stage a rank, ZB-H1 and ZB-H2, by a greedy rule under a memory cap.

The backward is split: the input gradient goes on to the rank before, the weight gradient waits and
fills what would be idle. Source: arXiv 2401.10241 section 3 and sail-sg/zero-bubble-pipeline-parallelism
megatron/core/pipeline_parallel/zerobubble/scheduler/zb.py (``manual_order``, ``initial_solution``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from meshwright.schedules.greedy.zero_bubble_plan import Costs, Holding, Plan, least_idle
from meshwright.schedules.orders import Kind, Orders


class _Choices(NamedTuple):
    """What the rule leaves open; all eight are tried."""

    wait_for_first: bool
    """Before its first backward a rank takes no forward that would delay it."""
    backward_first: bool
    """A rank well ahead of the next takes no forward that would delay a backward."""
    fill_always: bool
    """Fill a wait though another rank waits longer anyway."""


def zb_h1(pp: int, microbatches: int, costs: Costs | None = None) -> Orders:
    """Return ZB-H1 (ZB1P): the memory of 1F1B, p microbatches held from forward to weight gradient."""
    return zero_bubble(pp, microbatches, pp, costs, schedule="zb-h1")


def zb_h2(pp: int, microbatches: int, costs: Costs | None = None) -> Orders:
    """Return ZB-H2 (ZB2P): twice the memory of 1F1B, 2p microbatches; no wait for F = I = W.

    Until its input gradient a rank holds 2(p-r) - 1 microbatches. Until their weight gradients it holds
    up to 4p - 1, of which the cap counts those past their input gradient half.
    """
    return zero_bubble(pp, microbatches, 2 * pp, costs, schedule="zb-h2")


def zero_bubble(
    pp: int,
    microbatches: int,
    cap: int,
    costs: Costs | None = None,
    *,
    schedule: str = "zero-bubble",
) -> Orders:
    """Return the greedy zero-bubble schedule under a memory cap.

    Of eight ways to go on, the first in which the rank that waits longest waits least.

    Parameters
    ----------
    cap
        Microbatches a rank may hold, at least 1. A microbatch counts whole until its input gradient
        and half until its weight gradient.
    """
    if cap < 1:
        raise ValueError(f"a rank must hold at least 1 microbatch, not {cap}")
    return least_idle(_plans(pp, microbatches, cap, costs or Costs())).orders(schedule)


def _plans(pp: int, microbatches: int, cap: int, costs: Costs) -> Iterator[Plan]:
    """Make a plan of each way to go on; one that is no better than an earlier ends early."""
    # In halves of a microbatch: the input gradient lets one half go, the weight gradient the other.
    holding = Holding(forward=2, input=-1, weight=-1, most=2 * cap)
    limit = float("inf")
    for chosen in product((True, False), repeat=3):
        plan = Plan(range(pp), costs, holding)
        _Greedy(plan, microbatches, _Choices(*chosen)).run(limit)
        limit = min(limit, plan.most_idle)
        yield plan


class _Greedy:
    """The rule. In a round each rank takes a forward, then each the next input gradient."""

    def __init__(self, plan: Plan, microbatches: int, choices: _Choices) -> None:
        self.plan = plan
        self.pp = len(plan.clock)
        self.microbatches = microbatches
        self.costs = plan.costs
        self.choices = choices

    def run(self, limit: float) -> None:
        """Put all operations, or those until a rank has waited ``limit``."""
        self._start()
        for _ in range(1, self.microbatches):
            if self.plan.most_idle >= limit:
                return
            self._forwards()
            self._input_gradients()
        for rank in range(self.pp):
            self.plan.put_weights(rank)

    def _start(self) -> None:
        """Put all operations up to the first input gradient of every rank."""
        for rank in range(self.pp):
            self.plan.put(Kind.FORWARD, rank)
        for rank, ahead in enumerate(self._ahead()):
            for _ in range(ahead):
                self.plan.put(Kind.FORWARD, rank)
        for rank in reversed(range(self.pp)):
            self.plan.put(Kind.INPUT, rank)

    def _ahead(self) -> list[int]:
        """Return how many more forwards each rank takes while it waits for its first gradient."""
        plan, costs = self.plan, self.costs
        ahead = [0] * self.pp
        gradient = plan.clock[-1] + costs.input + costs.send
        for rank in range(self.pp - 2, -1, -1):
            now = plan.clock[rank]
            room = (plan.holding.most - plan.held[rank]) // plan.holding.forward
            for _ in range(min(room, self.microbatches - 1)):
                if self.choices.wait_for_first:
                    late = now + costs.forward > gradient
                else:
                    late = now >= gradient
                if late:
                    break
                now += costs.forward
                ahead[rank] += 1
            gradient = max(now, gradient) + costs.input + costs.send
        for rank in range(1, self.pp):  # fewer than the rank before, unless it takes all there are
            if ahead[rank] >= ahead[rank - 1] and ahead[rank] + 1 < self.microbatches:
                ahead[rank] = max(ahead[rank - 1] - 1, 0)
        return ahead

    def _forwards(self) -> None:
        """Put a forward on every rank behind the last that wants none."""
        begin = self.pp
        while begin > 0 and self._wants_forward(begin - 1):
            begin -= 1
        for rank in range(begin, self.pp):
            self.plan.make_room(rank)
            if rank > 0:
                self._fill(rank, self.plan.arrival(Kind.FORWARD, rank))
            self.plan.put(Kind.FORWARD, rank)

    def _wants_forward(self, rank: int) -> bool:
        """Tell whether a rank takes a forward before its next input gradient."""
        plan, costs = self.plan, self.costs
        done = plan.count(Kind.FORWARD, rank)
        if done >= self.microbatches:
            return False
        if not self.choices.backward_first or rank == self.pp - 1:
            return True
        if done < plan.count(Kind.FORWARD, rank + 1) + 2:
            return True
        now = plan.clock[rank]
        gradient = plan.clock[rank + 1] + costs.forward + costs.input + costs.send
        if now >= gradient:
            return False
        short = max(plan.held[rank] + plan.holding.forward - plan.holding.most, 0)
        weights = min(short, len(plan.pending[rank]))
        if now + costs.forward + weights * costs.weight <= gradient:
            return True
        return gradient - now > plan.most_idle - plan.idle[rank]

    def _input_gradients(self) -> None:
        """Put the next input gradient on every rank, from the last."""
        plan = self.plan
        for rank in reversed(range(self.pp)):
            if rank < self.pp - 1:
                self._fill(rank, plan.arrival(Kind.INPUT, rank))
            if rank == 0 and plan.count(Kind.FORWARD, 0) == self.microbatches:
                plan.put_weights(rank)  # no rank waits for rank 0's input gradients
            plan.put(Kind.INPUT, rank)

    def _fill(self, rank: int, arrival: float) -> None:
        """Fill the wait for a message; the last weight gradient may end after it."""
        plan = self.plan
        plan.fill(rank, arrival)
        wait = arrival - plan.clock[rank]
        if not plan.pending[rank] or wait <= 0.0:
            return
        if self.choices.fill_always or wait > plan.most_idle - plan.idle[rank]:
            plan.put_weight(rank)
