"""Time of one message between two pipeline ranks, by the route of their GPUs.

All pipelines of a job run in step: what leaves a stage leaves it in all groups at once, so a NIC
that two tensor-parallel ranks share carries both their messages. The time is that of the busiest link
on the way, bytes over its stated rate, and the latency of the hop: a lower bound, as everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.links import LATENCY_S
from meshwright.costs.bound import busy_s
from meshwright.costs.stage_ways import WayCollector
from meshwright.groups.grid import Ranks
from meshwright.routes.patterns import transfer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NO_LINK = -1
_AS_BUSY = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class StageSends:
    """Messages between pipeline ranks.

    ``send_s[pp, pp]``: 0 where two ranks are not neighbours; ``link[pp, pp]``: messages with the same
    number share their slowest link, -1 for one that shares it with none; of links that are equally
    slow those count that lead away from the sender (``stage_ways.py``). ``kind[pp, pp]``: kind of the
    slowest link, ``""`` where there is none. ``lost``: pairs that no path of known rate joins.
    """

    send_s: Floats
    link: Ints
    kind: tuple[tuple[str, ...], ...]
    lost: tuple[tuple[int, int], ...]


def neighbours(pp: int, rank_of_stage: Sequence[int] | Ints = ()) -> list[tuple[int, int]]:
    """Return the ordered pairs of ranks that exchange messages.

    Ranks next to each other do, and the last and the first where each rank holds several stages in
    a loop; ``rank_of_stage``: a map of the user's own, whose stages send to the next and back.
    """
    loop = [*range(pp), 0] if pp > 1 else []
    found: dict[tuple[int, int], None] = {}
    for chain in (loop, [int(rank) for rank in rank_of_stage]):
        for a, b in pairwise(chain):
            if a != b and min(a, b) >= 0:
                found |= dict.fromkeys(((a, b), (b, a)))
    return list(found)


def stage_sends(
    members: Ranks,
    slot_by_rank: Ints,
    fabric: Fabric,
    message_bytes: float,
    pairs: list[tuple[int, int]],
) -> StageSends:
    """Return the time of a message for every pair of pipeline ranks.

    Parameters
    ----------
    members[groups, pp]
        Ranks of every pipeline, by stage.
    slot_by_rank[world]
        Where each rank sits.
    """
    pp = members.shape[1]
    send_s, link = np.zeros((pp, pp)), np.full((pp, pp), NO_LINK, dtype=np.int64)
    kind = [[""] * pp for _ in range(pp)]
    busiest, lost = {}, []
    for a, b in pairs:
        collector = WayCollector(fabric)
        size = np.full(len(members), float(message_bytes))
        transfer(slot_by_rank[members[:, a]], slot_by_rank[members[:, b]], size, collector)
        busy = busy_s(collector.load_bytes(), fabric)
        is_rated = np.nanmax(busy, initial=0.0) > 0.0
        if collector.lost_bytes > 0 or (message_bytes > 0 and not is_rated):
            lost.append((a, b))
        if not is_rated:
            continue
        slowest = int(np.nanargmax(busy))
        as_busy = busy >= busy[slowest] * _AS_BUSY
        out = as_busy & collector.outward()
        busiest[a, b] = np.flatnonzero(out if out.any() else as_busy)
        kind[a][b] = fabric.links.classes[int(fabric.links.class_of_link[slowest])].kind
        send_s[a, b] = busy[slowest] + hop_s(kind[a][b])
    for pair, number in _shared(busiest).items():
        link[pair] = number
    return StageSends(send_s, link, tuple(map(tuple, kind)), tuple(lost))


def hop_s(kind: str) -> float:
    """Return the latency of one message whose slowest link is of a kind."""
    return 2 * LATENCY_S["nic" if kind == "fabric" else kind]


def _shared(busiest: dict[tuple[int, int], Ints]) -> dict[tuple[int, int], int]:
    """Return a number for each link that several pairs have among their slowest.

    A message has one number: of its links the one that most messages share (then the lowest), so that
    two messages are never said to share a link because a third shares one with each.
    """
    left = {pair: set(links.tolist()) for pair, links in busiest.items()}
    groups: list[list[tuple[int, int]]] = []
    while True:
        count = Counter(link for links in left.values() for link in links)
        most = max(count.values(), default=0)
        if most < 2:
            break
        link = min(one for one, times in count.items() if times == most)
        groups.append([pair for pair, links in left.items() if link in links])
        for pair in groups[-1]:
            del left[pair]
    ordered = enumerate(sorted(groups, key=min))
    return {pair: number for number, pairs in ordered for pair in pairs}
