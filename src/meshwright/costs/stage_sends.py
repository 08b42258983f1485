"""Time of one message between two pipeline ranks, by the route of their GPUs.

All pipelines of a job run in step: what leaves a stage leaves it in all groups at once, so a NIC
that two tensor-parallel ranks share carries both their messages. The time is that of the busiest link
on the way, bytes over its stated rate, and the latency of the hop: a lower bound, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.links import LATENCY_S
from meshwright.costs.bound import busy_s
from meshwright.groups.grid import Ranks
from meshwright.routes.loads import LoadCollector
from meshwright.routes.patterns import transfer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NO_LINK = -1
_AS_BUSY = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class StageSends:
    """Messages between pipeline ranks.

    ``send_s[pp, pp]``: 0 where two ranks are not neighbours; ``link[pp, pp]``: messages with the same
    number share their slowest link, -1 for one that shares it with none; of a link into the network
    and one out of it that are equally slow the one into it counts. ``kind[pp, pp]``: kind of the
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
        collector = LoadCollector(fabric)
        size = np.full(len(members), float(message_bytes))
        transfer(slot_by_rank[members[:, a]], slot_by_rank[members[:, b]], size, collector)
        busy = busy_s(collector.load_bytes(), fabric)
        is_rated = np.nanmax(busy, initial=0.0) > 0.0
        if collector.lost_bytes > 0 or (message_bytes > 0 and not is_rated):
            lost.append((a, b))
        if not is_rated:
            continue
        slowest = int(np.nanargmax(busy))
        busiest[a, b] = _on_the_way_out(np.flatnonzero(busy >= busy[slowest] * _AS_BUSY), fabric)
        kind[a][b] = fabric.links.classes[int(fabric.links.class_of_link[slowest])].kind
        send_s[a, b] = busy[slowest] + hop_s(kind[a][b])
    for pair, number in _shared(busiest).items():
        link[pair] = number
    return StageSends(send_s, link, tuple(map(tuple, kind)), tuple(lost))


def hop_s(kind: str) -> float:
    """Return the latency of one message whose slowest link is of a kind."""
    return 2 * LATENCY_S["nic" if kind == "fabric" else kind]


def _on_the_way_out(links: Ints, fabric: Fabric) -> Ints:
    """Return the links that lead away from the sender, where there are any among these.

    A message fills one link of its way; were both ends taken, all stages of a pipeline would seem to
    share one link, each with the next.
    """
    back = np.array([one.direction in ("in", "down") for one in fabric.links.classes])
    out = links[~back[fabric.links.class_of_link[links]]]
    return out if len(out) else links


def _shared(busiest: dict[tuple[int, int], Ints]) -> dict[tuple[int, int], int]:
    """Return a number for each link that several pairs have as their slowest."""
    number: dict[tuple[int, int], int] = {}
    found: list[tuple[set[int], list[tuple[int, int]]]] = []
    for pair, links in busiest.items():
        mine, pairs = set(links.tolist()), [pair]
        for other in [one for one in found if one[0] & mine]:
            found.remove(other)
            mine |= other[0]
            pairs += other[1]
        found.append((mine, pairs))
    for index, (_, pairs) in enumerate(sorted(found, key=lambda one: min(one[1]))):
        if len(pairs) > 1:
            number |= dict.fromkeys(pairs, index)
    return number
