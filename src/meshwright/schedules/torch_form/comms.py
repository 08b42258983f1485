"""Lowering: a schedule of computations with its messages and FSDP's actions written out.

Source: pytorch torch/distributed/pipelining/schedules.py (``_prepare_schedule_with_comms``,
``_add_send_recv``). The ranks take turns, one action each; a send stands behind its computation, and
at the same moment its receive is put at the end of what the other rank has so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.errors import UsageError
from meshwright.schedules.needs import needs
from meshwright.schedules.orders import Ints, Kind, Orders
from meshwright.schedules.torch_form.actions import Act, Actions
from meshwright.schedules.torch_form.shards import Whole, reductions_after, shards_before


def lowered(orders: Orders, *, sharded: bool = True) -> Actions:
    """Return the actions of every rank.

    Parameters
    ----------
    sharded
        With UNSHARD, RESHARD and REDUCE_GRAD, as torch always writes them.

    Raises
    ------
    UsageError
        No rank can go on (``schedules/validity.py`` says why).
    """
    code = _Code(len(orders.rank_of_stage), orders.microbatches + 1)
    turns = [_turns(orders, rank, code, sharded) for rank in range(orders.ranks)]
    rows = _in_turns(orders, turns, code)
    packed = np.array([one for of_rank in rows for one in of_rank], dtype=np.int64)
    rest, microbatch = np.divmod(packed // 2, code.microbatches)
    act, stage = np.divmod(rest, code.stages)
    lengths = [len(of_rank) for of_rank in rows]
    return Actions(
        schedule=orders.schedule,
        first=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        act=act,
        stage=stage,
        microbatch=microbatch - 1,
        overlapped=packed % 2 == 1,
    )


@dataclass(frozen=True, slots=True)
class _Code:
    """Packs an action into one number, since lists of numbers cost a tenth of lists of tuples."""

    stages: int
    microbatches: int

    def pack(self, act: Ints, stage: Ints, microbatch: Ints) -> Ints:
        """Return the numbers of actions; the last bit is 1 for one that runs with the next."""
        return ((act * self.stages + stage) * self.microbatches + microbatch + 1) * 2

    def whole(self, actions: list[Whole]) -> list[int]:
        """Return the numbers of actions on a whole stage, each as ``-1 - number``."""
        return [-1 - (act * self.stages + stage) * self.microbatches * 2 for act, stage in actions]


def _turns(orders: Orders, rank: int, code: _Code, sharded: bool) -> list[int]:
    """Return what a rank does in its turns: an operation or the first of a pair, or ``_Code.whole``."""
    of_rank = orders.of_rank(rank)
    pair = orders.overlapped[of_rank].tolist()
    if not sharded:
        return [of_rank.start + at for at in range(len(pair)) if not at or not pair[at - 1]]
    stages = orders.stage[of_rank].tolist()
    before, last = shards_before(stages, pair)
    each = orders.microbatches // orders.chains
    after = reductions_after(orders.kind[of_rank].tolist(), stages, each)
    turns: list[int] = []
    for at in range(len(pair)):
        turns += code.whole(before.get(at, []))
        second = bool(at and pair[at - 1])
        if not second:
            turns.append(of_rank.start + at)
        if not pair[at]:
            turns += code.whole((after.get(at - 1, []) if second else []) + after.get(at, []))
    return turns + code.whole(last)


def _messages(orders: Orders, code: _Code) -> tuple[list[int], list[int], list[int]]:
    """Return for each operation the rank that it sends to (-1: none), the send, the receive."""
    length, stage = orders.chain_length, orders.stage
    forward = orders.kind == Kind.FORWARD
    sends = np.where(forward, stage % length < length - 1, stage % length > 0)
    sends &= orders.kind != Kind.WEIGHT
    other = np.where(forward, stage + 1, stage - 1)
    rank = orders.rank_of_stage[np.where(sends, other, stage)]
    to = np.where(sends & (rank != orders.rank), rank, -1)
    send = code.pack(np.where(forward, Act.SEND_F, Act.SEND_B), stage, orders.microbatch)
    receive = code.pack(np.where(forward, Act.RECV_F, Act.RECV_B), other, orders.microbatch)
    return to.tolist(), send.tolist(), receive.tolist()


def _in_turns(orders: Orders, turns: list[list[int]], code: _Code) -> list[list[int]]:
    """Return the packed actions of every rank."""
    to, send, receive = _messages(orders, code)
    need, pair = needs(orders).tolist(), orders.overlapped.tolist()
    own = (code.pack(orders.kind, orders.stage, orders.microbatch) + orders.overlapped).tolist()
    rows: list[list[int]] = [[] for _ in turns]
    done = bytearray(len(own) + 1)
    done[-1] = 1  # what waits for nothing waits for number -1
    position = [0] * len(turns)
    waiting = [rank for rank, of_rank in enumerate(turns) if of_rank]
    while waiting:
        moved = False
        for rank in waiting:
            turn = turns[rank][position[rank]]
            if turn < 0:
                rows[rank].append(-1 - turn)
            else:
                last = turn + pair[turn]
                if not done[need[turn]] or not done[need[last]]:
                    continue
                rows[rank] += own[turn : last + 1]
                for index in range(turn, last + 1):
                    done[index] = 1
                    if to[index] >= 0:
                        rows[rank].append(send[index])
                        rows[to[index]].append(receive[index])
            position[rank] += 1
            moved = True
        waiting = [rank for rank in waiting if position[rank] < len(turns[rank])]
        if waiting and not moved:
            raise UsageError(f"the schedule {orders.schedule} deadlocks: no message can be placed")
    return rows
