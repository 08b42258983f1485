"""Messages and FSDP's actions written out: torch's rows, and what must hold for any schedule."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import UsageError
from meshwright.schedules.make import make_orders
from meshwright.schedules.torch_form.actions import NO_MICROBATCH, Act, computations
from meshwright.schedules.torch_form.comms import lowered
from meshwright.schedules.torch_form.csv_read import parse_torch_csv
from meshwright.schedules.torch_form.csv_write import torch_csv
from schedule_samples import golden, orders_from, sizes, torch_cells

NAMES = {
    "Interleaved1F1B": "interleaved",
    "InterleavedZeroBubble": "interleaved-zb",
    "LoopedBFS": "looped-bfs",
    "DualPipeV": "dualpipev",
    "ZBVZeroBubble": "zb-v",
}
VALID = (
    ("1f1b", 4, 6, {}),
    ("gpipe", 3, 2, {}),
    ("interleaved", 3, 6, {"chunks": 3}),
    ("interleaved-zb", 4, 10, {"chunks": 2}),
    ("zb-v", 3, 6, {"convention": "torch"}),
    ("dualpipe", 4, 10, {}),
    ("dualpipev", 3, 8, {}),
    ("chimera", 4, 8, {}),
)


def rows(actions, rank):
    of_rank = actions.of_rank(rank)
    return list(
        zip(
            actions.act[of_rank].tolist(),
            actions.stage[of_rank].tolist(),
            actions.microbatch[of_rank].tolist(),
            strict=True,
        )
    )


@pytest.mark.golden
def test_torch_rows():
    compared = 0
    for row in golden("pipeline_torch_comms.csv"):
        p, m, v, rank = sizes(row)
        orders = make_orders(NAMES[row["schedule"]], p, m, chunks=v, convention="torch")
        found = torch_csv(lowered(orders)).splitlines()[rank]
        assert found.split(",") == row["ops"].split(), row
        compared += 1
    assert compared == 42


@pytest.mark.parametrize(("schedule", "p", "m", "options"), VALID, ids=str)
def test_every_message_has_both_ends_in_the_same_order(schedule, p, m, options):
    orders = make_orders(schedule, p, m, **options)
    actions = lowered(orders)
    length, home = orders.chain_length, orders.rank_of_stage
    sent, received = {}, {}
    for rank in range(p):
        for act, stage, microbatch in rows(actions, rank):
            if act in (Act.SEND_F, Act.SEND_B):
                other = stage + (1 if act == Act.SEND_F else -1)
                key = (rank, int(home[other]))
                sent.setdefault(key, []).append((act + 1, other, microbatch))
            elif act in (Act.RECV_F, Act.RECV_B):
                other = stage - (1 if act == Act.RECV_F else -1)
                key = (int(home[other]), rank)
                received.setdefault(key, []).append((act, stage, microbatch))
    assert sent == received
    assert all(source != target for source, target in sent)
    crossings = sum(
        home[entry] != home[entry + 1]
        for entry in range(len(home) - 1)
        if entry % length < length - 1
    )
    each = orders.microbatches // orders.chains
    assert sum(len(one) for one in sent.values()) == 2 * crossings * each


@pytest.mark.parametrize(("schedule", "p", "m", "options"), VALID, ids=str)
def test_messages_stand_around_what_they_belong_to(schedule, p, m, options):
    orders = make_orders(schedule, p, m, **options)
    actions = lowered(orders)
    length, home = orders.chain_length, orders.rank_of_stage
    for rank in range(p):
        of_rank = rows(actions, rank)
        at = {row: place for place, row in enumerate(of_rank)}
        for act, stage, microbatch in of_rank:
            here = at[act, stage, microbatch]
            backward = next(
                (at[kind, stage, microbatch] for kind in (1, 2) if (kind, stage, microbatch) in at),
                None,
            )
            if act == Act.SEND_F:
                assert at[Act.FORWARD, stage, microbatch] < here
            elif act == Act.SEND_B:
                assert backward < here
            elif act == Act.FORWARD and stage % length and home[stage - 1] != rank:
                assert at[Act.RECV_F, stage, microbatch] < here
            elif act in (Act.BACKWARD, Act.INPUT) and stage % length < length - 1:
                assert home[stage + 1] == rank or at[Act.RECV_B, stage, microbatch] < here
    assert same_computations(orders, actions)


def same_computations(orders, actions):
    again = computations(actions)
    return all(
        np.array_equal(getattr(orders, key), getattr(again, key))
        for key in ("first", "kind", "stage", "microbatch", "overlapped")
    )


@given(p=st.integers(1, 4), v=st.integers(2, 6), rounds=st.integers(1, 3))
def test_stages_are_gathered_before_use_and_three_at_once(p, v, rounds):
    orders = make_orders("looped-bfs", p, p * rounds, chunks=v)
    actions = lowered(orders)
    for rank in range(p):
        there, counts = set(), Counter()
        for act, stage, microbatch in rows(actions, rank):
            counts[act] += 1
            if act == Act.UNSHARD:
                assert stage not in there
                there.add(stage)
            elif act == Act.RESHARD:
                there.remove(stage)
            elif act == Act.REDUCE_GRAD:
                assert microbatch == NO_MICROBATCH
            elif act <= Act.WEIGHT:
                assert stage in there
            assert len(there) <= 3
        assert not there
        assert counts[Act.UNSHARD] == counts[Act.RESHARD] >= v
        assert counts[Act.REDUCE_GRAD] == v


def test_1f1b_by_hand():
    actions = lowered(make_orders("1f1b", 2, 2), sharded=False)
    first, last = torch_csv(actions).splitlines()
    assert first == "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1"
    assert last == "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1"


def test_stages_that_come_in_one_pair_are_gathered_together():
    """Then four are there at once: torch 2.13 lowers this file to the same actions."""
    text = "0F0,1F0,2F0,3F0,0F1,1F1,(2F1;3B0)OVERLAP_F_B,3F1,2B0,1B0,0B0,3B1,2B1,1B1,0B1"
    actions = lowered(computations(parse_torch_csv(text, "s.csv")))
    assert torch_csv(actions) == (
        "0UNSHARD,1UNSHARD,2UNSHARD,0F0,0RESHARD,3UNSHARD,1F0,1RESHARD,0UNSHARD,2F0,2RESHARD,"
        "1UNSHARD,3F0,2UNSHARD,0F1,0RESHARD,1F1,(2F1;3B0)OVERLAP_F_B,3F1,3RESHARD,0UNSHARD,2B0,"
        "2RESHARD,3UNSHARD,1B0,1RESHARD,2UNSHARD,0B0,0RESHARD,1UNSHARD,3B1,3REDUCE_GRAD,3RESHARD,"
        "0UNSHARD,2B1,2REDUCE_GRAD,2RESHARD,1B1,1REDUCE_GRAD,1RESHARD,0B1,0REDUCE_GRAD,0RESHARD"
        "\n"
    )
    assert torch_cells(computations(actions), 0) == text.split(",")


def test_a_deadlock_is_no_endless_loop():
    with pytest.raises(UsageError, match="deadlocks"):
        lowered(orders_from("0F0 0B0 0F1 0B1", "1F1 1F0 1B1 1B0"))
