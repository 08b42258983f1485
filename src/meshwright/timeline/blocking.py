"""Ranks that wait for their sends.

Between two operations a rank posts what its last operation sends together with the receives that
stand there, and goes on when all of them are done. A message starts when both ranks have posted it
and takes its time alone on the path.

A receive is posted as late as does not hold up its sender, were every operation one unit of time and
messages free. For 1F1B these are the pairs of Megatron and torch (``send_forward_recv_backward``,
``send_backward_recv_forward``: NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py; pytorch
torch/distributed/pipelining/schedules.py, ``Schedule1F1B``); in warm-up and cool-down Megatron posts
the send and the next receive one after the other, here they go together. Interleaved ranks exchange once
a turn of forward and backward (``blocking_turns.py``). The order alone decides, not the times: no time that grows makes the whole shorter.
All that waits starts later than what it waits for, by those units, so nothing waits in a circle.

torch's lowering for its runtime (``schedules/torch_form/comms.py``) is no list for ranks that wait: it receives
long before the need, which costs nothing there because the runtime waits where a message is used.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import Ints
from meshwright.timeline.blocking_turns import apart, together, turns
from meshwright.timeline.core import Times, run, times_of
from meshwright.timeline.program import Program


def run_blocking(program: Program) -> Times:
    """Run a program whose ranks wait for their sends. Raises ``DeadlockError``.

    No operation starts earlier than in ``core.run``. Messages share no links here. ``arrival_s`` is
    when the message that an operation waits for was there, though the operation may wait for others.
    """
    first = turns(program.orders)
    if not len(first):
        return _run(program)
    return apart(program, first, _run(together(program, first)))


def _run(program: Program) -> Times:
    begin, before = _received_before(program)
    first, need = program.orders.first.tolist(), program.need.tolist()
    message, duration = program.message_s.tolist(), program.duration_s.tolist()
    received = before.tolist()
    bounds, group = (values.tolist() for values in _groups(program, before))
    count = len(need)
    start, end, arrival = [0.0] * count, [0.0] * count, [0.0] * count
    posted = [0.0] * (count + 1)  # the messages in front of each operation
    opens = bytearray(count + 1)
    for index in first:
        opens[index] = 1
    for index in np.argsort(begin, kind="stable").tolist():  # none waits for a later one
        now = posted[index]
        for other in group[bounds[index] : bounds[index + 1]]:
            # The receiver's side reckons it from the same two, and finds the same.
            there = max(end[need[other]], posted[received[other]]) + message[other]
            arrival[other] = there
            if there > now:  # noqa: PLR1730 (a call of max costs a third of the loop)
                now = there
        start[index] = now
        end[index] = now = now + duration[index]
        if not opens[index + 1]:
            posted[index + 1] = now
    return times_of(program, start, end, arrival)


def _groups(program: Program, before: Ints) -> tuple[Ints, Ints]:
    """Return the messages in front of each operation, named by the operation that waits for them.

    ``bounds[ops + 1]``, and the messages: those in front of operation i are ``bounds[i]`` to
    ``bounds[i + 1] - 1``. What a rank's last operation sends holds nobody up and is left out.
    """
    need, rank = program.need, program.orders.rank
    waits = np.flatnonzero(need != NOTHING)
    sent = waits[rank[need[waits]] != rank[waits]]
    sent = sent[~np.isin(need[sent] + 1, program.orders.first)]
    message = np.concatenate([waits, sent])
    place = np.concatenate([before[waits], need[sent] + 1])
    by_place = np.argsort(place, kind="stable")
    return np.searchsorted(place[by_place], np.arange(len(need) + 1)), message[by_place]


def _received_before(program: Program) -> tuple[Ints, Ints]:
    """Return in which unit each operation begins, and in front of which its message is received.

    ``[ops]`` each; the second is -1 where an operation waits for no message. A receive stands behind
    what its rank is running when the sender ends, and then behind all that its rank ends before the
    sender begins its next; in no case between two operations that run together.
    """
    orders, need = program.orders, program.need
    unit_s = np.where(orders.overlapped, 0.0, 1.0)
    units = run(replace(program, duration_s=unit_s, message_s=np.zeros(len(need))))
    begin, end = units.start_s.astype(np.int64), units.end_s.astype(np.int64)
    begin_next = np.append(begin[1:], 0)
    begin_next[orders.first[1:][np.diff(orders.first) > 0] - 1] = np.iinfo(np.int64).max
    before = np.full(len(need), NOTHING, dtype=np.int64)
    for rank in range(orders.ranks):
        of_rank = orders.of_rank(rank)
        own = of_rank.start + np.flatnonzero(need[of_rank] != NOTHING)
        sender = need[own]
        asked = np.searchsorted(begin[of_rank], end[sender])
        latest = np.searchsorted(end[of_rank], begin_next[sender], side="right")
        before[own] = np.minimum(of_rank.start + np.maximum(asked, latest), own)
    waits = np.flatnonzero(before > 0)
    before[waits] -= orders.overlapped[before[waits] - 1]
    return begin, before
