"""Messages that share links: a hand example, a slow reference in fractions, what must hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.schedules.loops import gpipe, interleaved
from meshwright.schedules.orders import Kind, orders_of, rows_of
from meshwright.timeline.contended import run_contended
from meshwright.timeline.core import run
from meshwright.timeline.program import Messages, StageTimes, program_of
from timeline.samples import some_messages, some_orders, some_times


def slow_ends(program):
    """Return the ends in exact fractions: at every moment look at all ranks and all messages."""
    orders = program.orders
    rank_of, need = orders.rank.tolist(), program.need.tolist()
    receivers = {}
    for index, other in enumerate(need):
        receivers.setdefault(other, []).append(index)
    position, arrived = orders.first[:-1].tolist(), {}
    running, on_way, ends = {}, {}, {}
    now = Fraction(0)
    while len(ends) < len(need):
        for rank, index in enumerate(position):
            free = rank not in running and index < orders.first[rank + 1]
            if free and (need[index] < 0 or index in arrived):
                running[rank] = now + Fraction(float(program.duration_s[index]))
        crowd = {}
        for index in on_way:
            crowd.setdefault(program.link[index], []).append(index)
        share = {
            index: 1 if program.link[index] < 0 else len(crowd[program.link[index]])
            for index in on_way
        }
        moments = [
            *running.values(),
            *(now + left * share[index] for index, left in on_way.items()),
        ]
        then = min(moments)
        on_way = {index: left - (then - now) / share[index] for index, left in on_way.items()}
        now = then
        for index in [index for index, left in on_way.items() if left == 0]:
            arrived[index] = now
            del on_way[index]
        for rank in [rank for rank, until in running.items() if until == now]:
            index = position[rank]
            del running[rank]
            ends[index] = now
            position[rank] += 1
            for other in receivers.get(index, []):
                on_way[other] = Fraction(float(program.message_s[other]))
        for index in [index for index, left in on_way.items() if left == 0]:
            arrived[index] = now
            del on_way[index]
        assert all(rank_of[position[rank]] == rank for rank in running)
    return [float(ends[index]) for index in range(len(need))]


@given(st.data(), some_orders())
def test_equals_a_slow_reference(data, orders):
    times = data.draw(some_times(orders.chain_length))
    program = program_of(orders, times, data.draw(some_messages(orders.ranks)))
    # The first of two that run together has no end of its own.
    alone = ~orders.overlapped
    expected = np.array(slow_ends(program))[alone]
    assert run_contended(program).end_s[alone].tolist() == pytest.approx(
        expected.tolist(), abs=1e-9
    )


def test_two_ranks_send_through_one_nic():
    # Ranks 0 and 2 are on one host, 1 and 3 on the other; each host has one NIC, a message alone
    # takes 2 s. F of the stages takes 5, 1, 1 and 9 s.
    # Rank 0: F0 0-5, F1 5-10; its messages leave at 5 and 10. Rank 1: F0 7-8, on its own NIC 8-10.
    # Rank 2: F0 10-11, sends at 11 while the second message of rank 0 has 1 s left: both at half
    # rate, done at 13 with 1 s left of the other, which is alone then: 14.
    times = StageTimes(np.array([5.0, 1.0, 1.0, 9.0]), *(np.full(4, 1.0) for _ in range(3)))
    link = np.array([[0] * 4, [1] * 4, [0] * 4, [1] * 4])
    program = program_of(gpipe(4, 2), times, Messages(Messages.uniform(4, 2.0).send_s, link))
    found = run_contended(program)
    first = program.orders.first
    assert found.arrival_s[first[1] : first[1] + 2].tolist() == [7.0, 13.0]
    assert found.arrival_s[first[3]] == 14.0
    assert found.start_s[first[1] + 1] == 13.0
    alone = run(program)
    assert alone.arrival_s[first[1] + 1] == 12.0
    assert alone.arrival_s[first[3]] == 13.0


def test_messages_sent_together_take_twice_as_long():
    # Two chains against each other: both ranks end a first forward at 1 and send over one link.
    forward, full = Kind.FORWARD, Kind.BACKWARD
    orders = orders_of(
        "both ways",
        [
            rows_of([(forward, 0, 0), (forward, 3, 0), (full, 3, 0), (full, 0, 0)]),
            rows_of([(forward, 2, 0), (forward, 1, 0), (full, 1, 0), (full, 2, 0)]),
        ],
        np.array([0, 1, 1, 0]),
        chains=2,
    )
    messages = Messages(Messages.uniform(2, 1.0).send_s, np.zeros((2, 2), dtype=np.int64))
    # F 0-1, both messages 1-3, F 3-4, B 4-6, both messages 6-8, B 8-10.
    found = run_contended(program_of(orders, StageTimes.equal(2), messages))
    assert found.arrival_s.tolist() == [0.0, 3.0, 0.0, 8.0] * 2
    assert found.end_s.tolist() == [1.0, 4.0, 6.0, 10.0] * 2


@given(st.data(), some_orders())
def test_equals_the_plain_core_where_no_messages_meet(data, orders):
    # A rank's sends are at least as far apart as a message is long, and each rank has its own link.
    assume(not orders.overlapped.any())  # two messages leave a pair at once
    times = data.draw(some_times(orders.chain_length, least=3))
    send_s = data.draw(some_messages(orders.ranks, most=3)).send_s / 3.0
    link = np.repeat(np.arange(orders.ranks), orders.ranks).reshape(send_s.shape)
    program = program_of(orders, times, Messages(send_s, link))
    plain, found = run(program), run_contended(program)
    assert found.start_s.tolist() == plain.start_s.tolist()
    assert found.end_s.tolist() == plain.end_s.tolist()
    assert found.arrival_s.tolist() == plain.arrival_s.tolist()


@given(st.data(), some_orders())
def test_equals_the_plain_core_without_links(data, orders):
    times = data.draw(some_times(orders.chain_length))
    messages = data.draw(some_messages(orders.ranks))
    program = program_of(orders, times, Messages(messages.send_s))
    plain, found = run(program), run_contended(program)
    assert found.end_s.tolist() == plain.end_s.tolist()
    assert found.arrival_s.tolist() == plain.arrival_s.tolist()


@given(st.data(), some_orders())
def test_never_earlier_than_alone_and_no_byte_is_lost(data, orders):
    times = data.draw(some_times(orders.chain_length))
    program = program_of(orders, times, data.draw(some_messages(orders.ranks)))
    found = run_contended(program)
    assert np.all(found.start_s >= run(program).start_s - 1e-9)
    for link in set(program.link.tolist()) - {-1}:
        on_it = np.flatnonzero(program.link == link)
        sent, there = found.end_s[program.need[on_it]], found.arrival_s[on_it]
        assert np.all(there - sent >= program.message_s[on_it] - 1e-9)
        # A link works at its whole rate while there is anything on it: it is busy as long as all
        # its messages take one by one.
        busy_s, until = 0.0, 0.0
        for begin, end in sorted(zip(sent.tolist(), there.tolist(), strict=True)):
            busy_s += max(end - max(begin, until), 0.0)
            until = max(until, end)
        assert busy_s == pytest.approx(program.message_s[on_it].sum(), abs=1e-9)


def test_more_ranks_to_a_nic_take_longer():
    orders, times = interleaved(8, 16, 2), StageTimes.equal(16)
    spans = []
    for sharing in (1, 2, 4, 8):
        link = np.repeat(np.arange(8) // sharing, 8).reshape(8, 8)
        messages = Messages(Messages.uniform(8, 0.8).send_s, link)
        spans.append(run_contended(program_of(orders, times, messages)).makespan_s)
    assert spans == sorted(spans)
    assert spans[-1] > 1.5 * spans[0]
