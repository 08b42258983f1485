"""Ranks that wait for their sends: closed forms, Megatron's own sequence of calls, what must hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.loops import gpipe, interleaved, one_forward_one_backward
from meshwright.timeline.blocking import run_blocking
from meshwright.timeline.blocking_turns import turns
from meshwright.timeline.core import run
from meshwright.timeline.program import Messages, StageTimes, program_of
from timeline.samples import some_messages, some_orders, some_times


def equal_stages(orders, forward, backward, send):
    times = StageTimes.equal(orders.chain_length, forward, backward / 2, backward / 2)
    return program_of(orders, times, Messages.uniform(orders.ranks, send))


# Makespan of 1F1B with F, B and messages of c by hand.
#
# p=2: rank 1 begins at F+c: F, B. Then both ranks post a pair (B down, the next F up) at once: its
# rank 1 goes on c later. So rank 1 ends its last B at (F+c) + m(F+B) + (m-1)c, and rank 0 gets it c
# later and runs B: (m+1)(F+B+c) in all.
#
# One microbatch: it goes down and up: p(F+B) + 2(p-1)c.
#
# p=3, m=2, F=1, B=2, c=0.5. Rank 0: F0 0-1, F1 1.5-2.5, sent when rank 1 posts it, which is
# after its F0 (1.5-2.5) together with that one's send: both 2.5-3. Rank 1: F1 3-4. Rank 2: F0
# 3-4, B0 4-6, posts B0 and F1 at 6; rank 1 did so at 4: both 6-6.5. Rank 2: F1 6.5-7.5, B1 7.5-9.5.
# Rank 1: B0 6.5-8.5; posts B0, and B1 in the same breath: B1 is there at 9.5+0.5 = 10. Rank 0: B0
# is sent at 8.5-9: 9-11. Rank 1: B1 10-12, sent 12-12.5; rank 0: B1 12.5-14.5.
def test_1f1b_of_two_ranks_by_its_closed_form():
    for microbatches in range(1, 9):
        found = run_blocking(equal_stages(one_forward_one_backward(2, microbatches), 3, 5, 0.5))
        assert found.makespan_s == (microbatches + 1) * 8.5


def test_one_microbatch_goes_down_and_up():
    for pp in range(1, 9):
        found = run_blocking(equal_stages(one_forward_one_backward(pp, 1), 3, 5, 0.5))
        assert found.makespan_s == pp * 8 + 2 * (pp - 1) * 0.5


def test_three_ranks_two_microbatches_by_hand():
    program = equal_stages(one_forward_one_backward(3, 2), 1, 2, 0.5)
    found = run_blocking(program)
    assert found.start_s.tolist() == [0, 1.5, 9, 12.5, 1.5, 3, 6.5, 10, 3, 4, 6.5, 7.5]
    assert found.end_s.tolist() == [1, 2.5, 11, 14.5, 2.5, 4, 8.5, 12, 4, 6, 7.5, 9.5]
    # Asynchronous, rank 0 runs F1 1-2, rank 1 2.5-3.5, and rank 2 need not wait for it at 6.
    assert run(program).makespan_s == 14.0


def megatron_calls(pp, microbatches, rank, *, together):
    """Return what Megatron's 1F1B without interleaving does: computations and groups of messages.

    ``forward_backward_pipelining_without_interleaving``: a message is named by what it carries,
    the rank whose output it is and the microbatch. ``together``: calls that follow one another
    (``send_forward``, ``recv_forward`` in warm-up) are posted as one, which Megatron does not.
    """
    first, last = rank == 0, rank == pp - 1
    ahead = min(pp - 1 - rank, microbatches)
    rest = microbatches - ahead
    calls = []

    def group(*messages):
        names = [name for name in messages if name is not None]
        if together and calls and calls[-1][0] == "group":
            names = calls.pop()[1] + names
        calls.append(("group", names))

    def input_of(microbatch):
        return None if first else ("F", rank - 1, microbatch)

    def output_of(microbatch):
        return None if last else ("F", rank, microbatch)

    def gradient_in(microbatch):
        return None if last else ("B", rank + 1, microbatch)

    def gradient_out(microbatch):
        return None if first else ("B", rank, microbatch)

    for microbatch in range(ahead):
        group(input_of(microbatch))  # recv_forward
        calls.append(("F", microbatch))
        group(output_of(microbatch))  # send_forward
    if rest:
        group(input_of(ahead))
    for at in range(rest):
        calls.append(("F", at + ahead))
        group(output_of(at + ahead), gradient_in(at))  # send_forward_recv_backward
        calls.append(("B", at))
        if at == rest - 1:
            group(gradient_out(at))  # send_backward
        else:
            group(gradient_out(at), input_of(at + ahead + 1))  # send_backward_recv_forward
    for at in range(rest, microbatches):
        group(gradient_in(at))  # recv_backward
        calls.append(("B", at))
        group(gradient_out(at))
    return calls


def megatron_ends(pp, microbatches, cost, send, *, together=True):
    """Run the calls: a message goes when both sides are at it; a group waits for all of its own."""
    calls = [megatron_calls(pp, microbatches, rank, together=together) for rank in range(pp)]
    position, clock = [0] * pp, [Fraction(0)] * pp
    posted, done, ends = {}, {}, {}
    moved = True
    while moved:
        moved = False
        for rank in range(pp):
            while position[rank] < len(calls[rank]):
                what, about = calls[rank][position[rank]]
                if what != "group":
                    clock[rank] += cost[what]
                    ends[what, rank, about] = clock[rank]
                else:
                    for name in about:
                        posted.setdefault(name, {})[rank] = clock[rank]
                        if len(posted[name]) == 2:
                            done[name] = max(posted[name].values()) + send
                    if not all(name in done for name in about):
                        break
                    clock[rank] = max([clock[rank], *(done[name] for name in about)])
                position[rank] += 1
                moved = True
    assert all(position[rank] == len(calls[rank]) for rank in range(pp))
    return ends


@pytest.mark.parametrize("pp", range(1, 8))
def test_1f1b_runs_as_megatrons_calls_do(pp):
    for microbatches in (1, 2, 3, 5, 8, 13):
        for forward, backward, send in ((1, 2, 0), (1, 2, 0.25), (2, 2, 3), (3, 1, 0.5)):
            orders = one_forward_one_backward(pp, microbatches)
            found = run_blocking(equal_stages(orders, forward, backward, send))
            cost = {"F": Fraction(forward), "B": Fraction(backward)}
            ends = megatron_ends(pp, microbatches, cost, Fraction(send))
            rows = zip(orders.kind, orders.rank, orders.microbatch, strict=True)
            assert found.end_s.tolist() == [
                float(ends["FB"[kind], rank, microbatch]) for kind, rank, microbatch in rows
            ]
            # Megatron's calls one by one cost up to a message a warm-up or cool-down step more.
            one_by_one = megatron_ends(pp, microbatches, cost, Fraction(send), together=False)
            more = float(max(one_by_one.values())) - found.makespan_s
            assert 0 <= more <= 2 * (pp - 1) * send


def test_steady_state_costs_two_messages_a_microbatch():
    # Ranks in the middle post one pair after F and one after B.
    spans = [
        run_blocking(equal_stages(one_forward_one_backward(4, m), 1, 2, 0.5)).makespan_s
        for m in (40, 41)
    ]
    assert spans[1] - spans[0] == 1 + 2 + 2 * 0.5
    spans = [
        run(equal_stages(one_forward_one_backward(4, m), 1, 2, 0.5)).makespan_s for m in (40, 240)
    ]
    assert 3 <= (spans[1] - spans[0]) / 200 <= 4


def test_gpipe_sends_in_the_way_of_its_forwards():
    # Rank 0 sends after each forward: a microbatch every F+c; backwards the same.
    for pp in range(2, 6):
        for microbatches in range(1, 7):
            found = run_blocking(equal_stages(gpipe(pp, microbatches), 1, 2, 0.5))
            one_way = (pp - 1) * 0.5
            expected = (pp + microbatches - 1) * 3 + 2 * one_way + 2 * (microbatches - 1) * 0.5
            assert found.makespan_s == expected


def test_free_messages_cost_nothing_where_operations_are_equal():
    for orders in (one_forward_one_backward(4, 9), gpipe(4, 9)):
        program = equal_stages(orders, 1, 1, 0)
        assert run_blocking(program).end_s.tolist() == run(program).end_s.tolist()
    for orders in (interleaved(4, 8, 2), interleaved(8, 32, 4)):
        program = equal_stages(
            orders, 1, 1, 0
        )  # a forward may wait for its turn, the step does not
        assert run_blocking(program).makespan_s == run(program).makespan_s


@given(st.data(), some_orders())
def test_never_earlier_than_asynchronous(data, orders):
    times = data.draw(some_times(orders.chain_length))
    program = program_of(orders, times, data.draw(some_messages(orders.ranks)))
    found, plain = run_blocking(program), run(program)
    assert np.all(found.start_s >= plain.start_s)
    assert np.all(found.arrival_s >= plain.arrival_s)
    # In program order on each rank, none before its message.
    assert np.all(found.start_s >= found.arrival_s)
    for rank in range(orders.ranks):
        of_rank = orders.of_rank(rank)
        assert np.all(found.start_s[of_rank][1:] >= found.end_s[of_rank][:-1])


@given(st.data(), some_orders())
def test_a_rank_is_held_until_its_send_is_done(data, orders):
    times = data.draw(some_times(orders.chain_length))
    program = program_of(orders, times, data.draw(some_messages(orders.ranks)))
    found = run_blocking(program)
    rank, turned = orders.rank, set(turns(orders).tolist())
    for index, other in enumerate(program.need.tolist()):
        if other < 0 or rank[other] == rank[index]:
            continue
        after = other + 1 + (other in turned)
        if after < orders.first[rank[other] + 1]:
            assert found.start_s[after] >= found.arrival_s[index]
        # Its message goes while neither rank computes.
        begin, end = found.arrival_s[index] - program.message_s[index], found.arrival_s[index]
        for side in (rank[other], rank[index]):
            of_rank = orders.of_rank(side)
            computes = (found.start_s[of_rank] < end) & (found.end_s[of_rank] > begin)
            computes &= found.end_s[of_rank] > found.start_s[of_rank]
            assert not (computes.any() and end > begin)


@given(st.data(), some_orders())
def test_longer_operations_and_messages_never_make_it_shorter(data, orders):
    times = data.draw(some_times(orders.chain_length))
    messages = data.draw(some_messages(orders.ranks))
    more = data.draw(some_times(orders.chain_length))
    longer = StageTimes(
        times.forward_s + more.forward_s,
        times.input_s + more.input_s,
        times.weight_s,
        times.recompute_s,
    )
    slower = Messages(messages.send_s + data.draw(some_messages(orders.ranks)).send_s)
    before = run_blocking(program_of(orders, times, messages))
    after = run_blocking(program_of(orders, longer, slower))
    assert np.all(after.end_s >= before.end_s)
