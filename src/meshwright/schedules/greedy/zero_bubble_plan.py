"""Operations put one by one, with the time each would run: what the greedy schedules are made of.

A plan holds no rule of its own. ``zero_bubble.py`` (one stage a rank) and ``v_shaped_greedy.py`` (two)
decide what is put next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import Kind, Orders, orders_of, rows_of


@dataclass(frozen=True, slots=True)
class Costs:
    """Durations that a greedy order is made for, equal on all stages, in one unit of any size.

    ``send``: of a message between two ranks. The defaults are those of the published orders.
    """

    forward: float = 1.0
    input: float = 1.0
    weight: float = 1.0
    send: float = 0.0


@dataclass(frozen=True, slots=True)
class Holding:
    """What a rank holds in memory: the change at each kind of operation, and the most allowed."""

    forward: int
    input: int
    weight: int
    most: int


class Plan:
    """The operations put so far.

    Parameters
    ----------
    rank_of_stage
        A rank holds one stage or several.

    Attributes
    ----------
    clock[ranks], held[ranks]
        When the rank's last operation ends; what it holds then.
    idle[ranks], most_idle
        Time the rank waited after its first operation; the most of any rank.
    pending[ranks]
        Weight gradients not yet put, as (stage, microbatch), oldest first.
    ends[kind][stages]
        Ends of the forwards and of the input gradients, by microbatch.
    operations[ranks]
        (kind, stage, microbatch) in the order they were put.
    """

    def __init__(self, rank_of_stage: Sequence[int], costs: Costs, holding: Holding) -> None:
        ranks, stages = max(rank_of_stage) + 1, len(rank_of_stage)
        self.rank_of_stage = list(rank_of_stage)
        self.costs = costs
        self.holding = holding
        self.clock = [0.0] * ranks
        self.held = [0] * ranks
        self.idle = [0.0] * ranks
        self.most_idle = 0.0
        self.pending: list[deque[tuple[int, int]]] = [deque() for _ in range(ranks)]
        self.operations: list[list[tuple[int, int, int]]] = [[] for _ in range(ranks)]
        self.ends: dict[Kind, list[list[float]]] = {
            kind: [[] for _ in range(stages)] for kind in (Kind.FORWARD, Kind.INPUT)
        }
        self._source = {
            Kind.FORWARD: [self._sender(stage, stage - 1) for stage in range(stages)],
            Kind.INPUT: [self._sender(stage, stage + 1) for stage in range(stages)],
        }
        self._duration = {Kind.FORWARD: costs.forward, Kind.INPUT: costs.input}
        self._change = {Kind.FORWARD: holding.forward, Kind.INPUT: holding.input}

    def _sender(self, stage: int, other: int) -> int:
        """Return the stage whose message is waited for: none at an end or on the same rank."""
        if not 0 <= other < len(self.rank_of_stage):
            return NOTHING
        return NOTHING if self.rank_of_stage[other] == self.rank_of_stage[stage] else other

    def count(self, kind: Kind, stage: int) -> int:
        """Return the forwards or input gradients put."""
        return len(self.ends[kind][stage])

    def is_sent(self, kind: Kind, stage: int) -> bool:
        """Tell whether the stage's next operation has a message sent to it."""
        source = self._source[kind][stage]
        ends = self.ends[kind]
        return source != NOTHING and len(ends[source]) > len(ends[stage])

    def arrival(self, kind: Kind, stage: int) -> float:
        """Return when the message of the stage's next operation is there; 0 where it needs none."""
        source = self._source[kind][stage]
        if source == NOTHING:
            return 0.0
        ends = self.ends[kind]
        return ends[source][len(ends[stage])] + self.costs.send

    def put(self, kind: Kind, stage: int) -> None:
        """Put the stage's next forward or input gradient."""
        rank = self.rank_of_stage[stage]
        operations, ends = self.operations[rank], self.ends[kind][stage]
        now, arrival = self.clock[rank], self.arrival(kind, stage)
        if arrival > now:
            if operations:
                self.idle[rank] += arrival - now
                self.most_idle = max(self.most_idle, self.idle[rank])
            now = arrival
        microbatch = len(ends)
        operations.append((kind, stage, microbatch))
        if kind is Kind.INPUT:
            self.pending[rank].append((stage, microbatch))
        now += self._duration[kind]
        ends.append(now)
        self.clock[rank] = now
        self.held[rank] += self._change[kind]

    def put_weight(self, rank: int) -> None:
        """Put the rank's oldest weight gradient."""
        self.operations[rank].append((Kind.WEIGHT, *self.pending[rank].popleft()))
        self.clock[rank] += self.costs.weight
        self.held[rank] += self.holding.weight

    def put_weights(self, rank: int) -> None:
        """Put all weight gradients of a rank."""
        while self.pending[rank]:
            self.put_weight(rank)

    def make_room(self, rank: int) -> None:
        """Put weight gradients until a forward fits the memory."""
        while self.held[rank] + self.holding.forward > self.holding.most:
            self.put_weight(rank)

    def fill(self, rank: int, until: float) -> None:
        """Put the weight gradients that end before a rank must go on."""
        weight = self.costs.weight
        while self.pending[rank] and self.clock[rank] + weight <= until:
            self.put_weight(rank)

    def orders(self, schedule: str) -> Orders:
        """Return the operations as a schedule."""
        return orders_of(schedule, [rows_of(rows) for rows in self.operations], self.rank_of_stage)


def least_idle(plans: Iterable[Plan]) -> Plan:
    """Return the first plan whose most idle rank waits least. One without any wait ends the search."""
    best: Plan | None = None
    for plan in plans:
        if best is None or plan.most_idle < best.most_idle:
            best = plan
        if best.most_idle <= 0.0:
            break
    if best is None:
        raise ValueError("no plan to choose from")
    return best
