"""What ran when on every rank: one record for what was simulated and what a trace file says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.origin import Origin
from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import Ints
from meshwright.timeline.core import Times
from meshwright.timeline.program import Floats, Program


@dataclass(frozen=True, slots=True)
class Timeline:
    """Operations of every rank with their times, rank after rank, in the order they ran.

    Parameters
    ----------
    schedule
        Name of the schedule.
    first[ranks + 1]
        Rank r ran the operations ``first[r]`` to ``first[r + 1] - 1``.
    kind[ops], stage[ops], microbatch[ops]
        As in ``Orders``: a ``Kind``, a chain entry, a microbatch of its chain.
    overlapped[ops]
        The operation ran together with the next, which has the time of both; itself it has none.
    start_s[ops], end_s[ops]
        Operations of one rank do not overlap.
    sender[ops]
        Operation whose message from another rank it waited for; -1 where there was none.
    sent_s[ops], arrival_s[ops]
        When that message set out and when it was there; 0 where there was none.
    stages, chains
        Stages of the model; pipelines that run against each other (1 or 2).
    origin
        Where the times come from.
    blocking
        Ranks waited for their sends.
    """

    schedule: str
    first: Ints
    kind: Ints
    stage: Ints
    microbatch: Ints
    overlapped: NDArray[np.bool_]
    start_s: Floats
    end_s: Floats
    sender: Ints
    sent_s: Floats
    arrival_s: Floats
    stages: int
    chains: int
    origin: Origin
    blocking: bool = False

    @property
    def ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.first) - 1

    @property
    def rank(self) -> Ints:
        """Return the rank of every operation, ``[ops]``."""
        return np.repeat(np.arange(self.ranks), np.diff(self.first))

    @property
    def number(self) -> Ints:
        """Return the microbatch of every operation, the second chain's after the first's, ``[ops]``."""
        return self.microbatch + self.stage // max(self.stages, 1) * self.microbatches_of_chain

    @property
    def microbatches_of_chain(self) -> int:
        """Microbatches that enter one chain."""
        return int(self.microbatch.max()) + 1 if len(self.microbatch) else 0

    @property
    def microbatches(self) -> int:
        """Microbatches of all chains."""
        return self.chains * self.microbatches_of_chain

    @property
    def begin_s(self) -> float:
        """Start of the first operation of all ranks."""
        return float(self.start_s.min()) if len(self.start_s) else 0.0

    @property
    def finish_s(self) -> float:
        """End of the last operation of all ranks."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0

    @property
    def makespan_s(self) -> float:
        """From the first start to the last end."""
        return self.finish_s - self.begin_s

    def of_rank(self, rank: int) -> slice:
        """Return where the operations of a rank stand."""
        return slice(int(self.first[rank]), int(self.first[rank + 1]))


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure of every rank over time: it keeps its value until the next change.

    ``first[ranks + 1]``: rank r has the changes ``first[r]`` to ``first[r + 1] - 1``, in order of
    time; ``time_s[changes]``, ``value[changes]``. ``name``: such as ``activations``; ``unit``: such as
    ``microbatches`` or ``bytes``.
    """

    name: str
    unit: str
    first: Ints
    time_s: Floats
    value: Floats

    def of_rank(self, rank: int) -> slice:
        """Return where the changes of a rank stand."""
        return slice(int(self.first[rank]), int(self.first[rank + 1]))


def timeline_of(program: Program, times: Times, *, blocking: bool = False) -> Timeline:
    """Return what a run of a program says.

    ``blocking``: ranks waited for their sends, so a message set out when both its ends were ready
    (``blocking.py``); else when its sender ended.
    """
    orders, need = program.orders, program.need
    sender = need.copy()
    waits = np.flatnonzero(need != NOTHING)
    rank = orders.rank
    sender[waits[rank[need[waits]] == rank[waits]]] = NOTHING
    start_s, end_s = times.start_s.copy(), times.end_s.copy()
    pair = np.flatnonzero(orders.overlapped)
    start_s[pair] = end_s[pair] = start_s[pair + 1]
    sent_s, arrival_s = _messages(program, times, sender, blocking=blocking)
    return Timeline(
        schedule=orders.schedule,
        first=orders.first,
        kind=orders.kind,
        stage=orders.stage,
        microbatch=orders.microbatch,
        overlapped=orders.overlapped,
        start_s=start_s,
        end_s=end_s,
        sender=sender,
        sent_s=sent_s,
        arrival_s=arrival_s,
        stages=orders.chain_length,
        chains=orders.chains,
        origin=Origin.MODELLED,
        blocking=blocking,
    )


def _messages(
    program: Program, times: Times, sender: Ints, *, blocking: bool
) -> tuple[Floats, Floats]:
    """Return when each operation's message set out and was there, ``[ops]`` each."""
    there = sender != NOTHING
    arrival_s = np.where(there, times.arrival_s, 0.0)
    if blocking:
        return np.where(there, arrival_s - program.message_s, 0.0), arrival_s
    sent_s = np.where(there, times.end_s[sender], 0.0)
    return sent_s, arrival_s
