"""The event core where messages share links: n messages on a link each get 1/n of its rate.

Processor sharing by virtual time (Parekh and Gallager, doi 10.1109/90.234856): a link's clock runs at
1/n of real time while n messages are on it, so a message that needs w seconds alone is done w after
it came by that clock, whatever comes later. Each link keeps its messages in a heap by that time, and
one heap of all events keeps the order of the whole: an operation costs a few events, each O(log n).
A rank that sends on no shared link runs ahead as in ``core.py``: no rate depends on it.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from meshwright.schedules.needs import NOTHING
from meshwright.timeline.core import Times, check_done, times_of
from meshwright.timeline.program import Program

_NEVER = float("inf")
_Events = list[tuple[float, int]]
"""Heap of when and what: the operation that ends, or ``~link`` for a link to look at."""


def run_contended(program: Program) -> Times:
    """Run a program whose messages share the links they name. Raises ``DeadlockError``.

    No operation starts earlier than in ``core.run``, and all start as there where no two messages
    are on one link at once.
    """
    events: _Events = []
    ranks = _Ranks(program, events)
    link, work, target, second = ranks.link, ranks.work, ranks.target, ranks.second
    ready, rank_of = ranks.ready, ranks.rank_of
    links = [_Link(~number, events) for number in range(max(link, default=NOTHING) + 1)]
    ranks.go_on()
    while events:
        now, code = heappop(events)
        if code >= 0:
            links[link[code]].join(now, work[code], target[code])
            if code in second:
                on, alone_s, waiting = second[code]
                if on >= 0:
                    links[on].join(now, alone_s, waiting)
                else:
                    ranks.arrive(waiting, now + alone_s)
            ready.append(rank_of[code])
        else:
            done = links[~code].turn(now)
            if done < 0:
                continue
            ranks.arrive(done, now)
        if ready:
            ranks.go_on()
    check_done(ranks.position, ranks.first)
    return times_of(program, ranks.start, ranks.end, ranks.arrival)


class _Ranks:
    """What every rank runs, and where it stands.

    ``target``, ``work`` and ``link`` belong to the message that an operation sends: who waits for
    it, its time alone, the shared link it takes (-1: none). ``second`` has link, time and waiting
    operation of the other message that leaves at the end of an overlapped pair.
    """

    __slots__ = (
        "arrival", "blocked", "clock", "duration", "end", "events", "first", "link", "need",
        "position", "rank_of", "ready", "second", "start", "target", "work",
    )  # fmt: skip

    def __init__(self, program: Program, events: _Events) -> None:
        count, waits = len(program.need), np.flatnonzero(program.need != NOTHING)
        shared = np.where(program.message_s > 0.0, program.link, NOTHING)
        waits = waits[np.argsort(shared[waits], kind="stable")]  # of two, the last stands
        sender = program.need[waits]
        target, work = np.full(count, NOTHING, dtype=np.int64), np.zeros(count)
        target[sender], work[sender] = waits, program.message_s[waits]
        link = np.full(count, NOTHING, dtype=np.int64)
        link[sender] = shared[waits]
        self.second = {
            int(program.need[one]): (int(shared[one]), float(program.message_s[one]), int(one))
            for one in waits[target[sender] != waits]
        }
        self.target, self.work, self.link = target.tolist(), work.tolist(), link.tolist()
        self.first, self.rank_of = program.orders.first.tolist(), program.orders.rank.tolist()
        self.need, self.duration = program.need.tolist(), program.duration_s.tolist()
        self.start, self.end, self.arrival = [0.0] * count, [0.0] * count, [-1.0] * count
        self.blocked = bytearray(count)
        self.position, self.clock = self.first[:-1], [0.0] * (len(self.first) - 1)
        self.ready = list(range(len(self.first) - 1))[::-1]
        self.events = events

    def arrive(self, target: int, now: float) -> None:
        """Take note that the message an operation waits for is there."""
        self.arrival[target] = now
        if self.blocked[target]:
            self.ready.append(self.rank_of[target])

    def go_on(self) -> None:
        """Run every rank that is ready until it waits, or ends an operation that uses a link."""
        need, arrival, duration, target = self.need, self.arrival, self.duration, self.target
        start, end, link, ready = self.start, self.end, self.link, self.ready
        second = self.second
        while ready:
            rank = ready.pop()
            index, stop, now = self.position[rank], self.first[rank + 1], self.clock[rank]
            while index < stop:
                if need[index] >= 0:
                    there = arrival[index]
                    if there < 0.0:
                        self.blocked[index] = 1
                        break
                    if there > now:  # noqa: PLR1730 (a call of max costs a third of the loop)
                        now = there
                start[index] = now
                now += duration[index]
                end[index] = now
                index += 1
                if link[index - 1] >= 0:  # other events may come before this one
                    heappush(self.events, (now, index - 1))
                    break
                if target[index - 1] >= 0:
                    self.arrive(target[index - 1], now + self.work[index - 1])
                    if index - 1 in second:
                        _, alone_s, waiting = second[index - 1]
                        self.arrive(waiting, now + alone_s)
            self.position[rank], self.clock[rank] = index, now


class _Link:
    """Messages on one shared link.

    Parameters
    ----------
    messages
        Heap of when each is done by the link's own clock, and of who waits for it.
    virtual, seen
        The link's own clock, and the real time at which it showed that.
    due
        When the next message is done if no other comes.
    planned
        When the link is looked at next; an event of another time is out of date.
    """

    __slots__ = ("code", "due", "events", "messages", "planned", "seen", "virtual")

    def __init__(self, code: int, events: _Events) -> None:
        self.messages: _Events = []
        self.virtual, self.seen, self.due, self.planned = 0.0, 0.0, _NEVER, _NEVER
        self.code, self.events = code, events

    def join(self, now: float, work: float, target: int) -> None:
        """Put a message on the link: its time alone and the operation that waits for it."""
        messages = self.messages
        if messages:
            self.virtual += (now - self.seen) / len(messages)
            heappush(messages, (self.virtual + work, target))
        else:
            self.virtual = 0.0
            messages.append((work, target))
        self._plan(now)

    def turn(self, now: float) -> int:
        """Take the message off that is done now; return who waits for it, or -1."""
        if now != self.planned:
            return NOTHING
        self.planned = _NEVER
        if now < self.due:  # others came, so it takes longer
            self.planned = self.due
            heappush(self.events, (self.due, self.code))
            return NOTHING
        self.virtual, target = heappop(self.messages)
        if self.messages:
            self._plan(now)
        return target

    def _plan(self, now: float) -> None:
        messages = self.messages
        self.seen = now
        left = (messages[0][0] - self.virtual) * len(messages)
        due = now + left if left > 0.0 else now  # rounding may leave less than nothing
        self.due = due
        if due < self.planned:
            self.planned = due
            heappush(self.events, (due, self.code))
