"""What the event core runs: durations, waits and messages of every operation of a schedule."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshwright.schedules.needs import NOTHING, needs
from meshwright.schedules.orders import Ints, Kind, Orders

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds of one microbatch on every stage of the model, ``[stages]`` each.

    A full backward takes ``input_s + weight_s``; ``recompute_s`` is added to the operation that
    first needs the activations again (the full backward or the input gradient).
    """

    forward_s: Floats
    input_s: Floats
    weight_s: Floats
    recompute_s: Floats

    @staticmethod
    def equal(
        stages: int, forward_s: float = 1.0, input_s: float = 1.0, weight_s: float = 1.0
    ) -> StageTimes:
        """Return the same times for every stage."""
        return StageTimes(
            *(np.full(stages, float(value)) for value in (forward_s, input_s, weight_s, 0.0))
        )

    def scaled(self, factors: Floats) -> StageTimes:
        """Return the times with every stage's multiplied by its factor."""
        return StageTimes(
            self.forward_s * factors,
            self.input_s * factors,
            self.weight_s * factors,
            self.recompute_s * factors,
        )

    @property
    def by_part(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Forward, input gradient, weight gradient and recomputation."""
        return self.forward_s, self.input_s, self.weight_s, self.recompute_s

    @property
    def total_s(self) -> Floats:
        """All work of one microbatch by stage."""
        return self.forward_s + self.input_s + self.weight_s + self.recompute_s


@dataclass(frozen=True, slots=True)
class Messages:
    """Time of one message between two ranks.

    ``send_s[ranks, ranks]``: alone on its path; the diagonal is 0. ``link[ranks, ranks]``: number of
    the link that messages share, -1 where they share none.
    """

    send_s: Floats
    link: Ints | None = None

    @staticmethod
    def uniform(ranks: int, send_s: float = 0.0) -> Messages:
        """Return the same time between any two ranks."""
        return Messages(np.where(np.eye(ranks, dtype=bool), 0.0, send_s))


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in program order; see ``Orders``.

    ``duration_s[ops]``: of an overlapped pair, the second operation has the time of both and the first
    none, so the pair starts when both their messages are there; ``need[ops]``: the operation whose message it waits for (-1: none);
    ``message_s[ops]``: the time of that message alone on its path; ``link[ops]``: the shared link it
    takes (-1: none).
    """

    orders: Orders
    duration_s: Floats
    need: Ints
    message_s: Floats
    link: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def program_of(orders: Orders, times: StageTimes, messages: Messages | None = None) -> Program:
    """Lower a schedule to what the event core runs.

    Parameters
    ----------
    times
        By stage of the model; both chains of a schedule with two share them.
    messages
        Nothing costs time where left out.
    """
    need = needs(orders)
    message_s = np.zeros(len(need))
    link = np.full(len(need), NOTHING, dtype=np.int64)
    if messages is not None:
        waits = need != NOTHING
        rank = orders.rank
        source, target = rank[need[waits]], rank[waits]
        message_s[waits] = messages.send_s[source, target]
        if messages.link is not None:
            link[waits] = messages.link[source, target]
    return Program(
        orders=orders,
        duration_s=durations(orders, times),
        need=need,
        message_s=message_s,
        link=link,
    )


def durations(orders: Orders, times: StageTimes) -> Floats:
    """Return how long each operation takes, ``[ops]``, as in ``Program``."""
    stage = orders.stage % orders.chain_length
    by_kind = np.stack(
        [
            times.forward_s,
            times.input_s + times.weight_s + times.recompute_s,
            times.input_s + times.recompute_s,
            times.weight_s,
        ]
    )
    duration_s = by_kind[orders.kind, stage]
    pair = np.flatnonzero(orders.overlapped)
    duration_s[pair + 1] += duration_s[pair]
    duration_s[pair] = 0.0
    return duration_s


def splits_backward(orders: Orders) -> bool:
    """Tell whether the schedule runs any weight gradient by itself."""
    return bool(np.any(orders.kind == Kind.WEIGHT))
