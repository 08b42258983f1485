"""Even spreading over all shortest paths of any switch graph, as loads on bundles of cables.

A walk moves what many senders have for one target, switch by switch, nearer to it. Leaves with the
same neighbours (*twins*: the leaves of a pod) need one walk together: up to the last hop every way
to one is a way to the other, and what arrives at a neighbour divides among the twins as the demand
does. That is exact for the flows of one class of twins to another, since senders that are twins
spread alike; tests hold it equal to one walk a target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
_CELLS = 1 << 22
"""Numbers of one array in a chunk of walks."""


@dataclass(frozen=True, slots=True)
class Bundles:
    """Parallel cables of one switch pair as one edge; the second half holds them turned round.

    ``tail``, ``head``, ``count`` have ``2B`` entries; ``up_of_cable[c]`` and ``down_of_cable[c]`` are
    the bundles of a cable from its lower to its upper end, and back.
    """

    tail: Longs
    head: Longs
    count: Floats
    up_of_cable: Longs
    down_of_cable: Longs

    @staticmethod
    def of(lower: Ints, upper: Ints) -> Bundles:
        """Return the bundles of cables between these switches."""
        both = np.stack([np.minimum(lower, upper), np.maximum(lower, upper)])
        pairs, of_cable = np.unique(both, axis=1, return_inverse=True)
        ends = pairs.astype(np.int64)
        of_cable = of_cable.ravel()
        half = pairs.shape[1]
        count = np.bincount(of_cable, minlength=half).astype(np.float64)
        return Bundles(
            np.concatenate([ends[0], ends[1]]),
            np.concatenate([ends[1], ends[0]]),
            np.tile(count, 2),
            np.where(lower <= upper, of_cable, of_cable + half),
            np.where(lower <= upper, of_cable + half, of_cable),
        )

    def out_of(self, switches: Longs, num_switches: int) -> tuple[Longs, Longs]:
        """Return for each switch its bundles outwards: positions in ``switches``, bundle numbers."""
        order = np.argsort(self.tail, kind="stable")
        start = np.searchsorted(self.tail[order], np.arange(num_switches + 1))
        width = start[switches + 1] - start[switches]
        step = np.arange(int(width.sum())) - np.repeat(np.cumsum(width) - width, width)
        bundle = order[np.repeat(start[switches], width) + step]
        return np.repeat(np.arange(len(switches)), width), bundle

    def turned(self, bundle: Longs) -> Longs:
        """Return the same bundles in the other direction."""
        half = len(self.tail) // 2
        return np.where(bundle < half, bundle + half, bundle - half)


def bundle_loads(
    bundles: Bundles, leaves: Longs, pairs: tuple[Longs, Longs, Floats], num_switches: int
) -> Floats:
    """Return ``[2B]``: bytes on every bundle in each direction.

    ``leaves`` are the switches of all leaves; ``pairs`` origin and target leaf (each pair once,
    never equal, joined) and the bytes between them.
    """
    origin, target, demand = (column[pairs[2] > 0] for column in pairs)
    twin = twin_classes(bundles, leaves, num_switches)
    inside = twin[origin] == twin[target]
    loads = _among_twins(
        bundles,
        leaves,
        (origin[inside], target[inside], demand[inside]),
        num_switches,
    )
    origin, target, demand = origin[~inside], target[~inside], demand[~inside]
    classes = int(twin.max(initial=0)) + 1
    key = twin[origin] * classes + twin[target]
    if len(np.unique(key)) >= len(np.unique(target)):
        twin, key = np.arange(len(leaves)), target  # one walk a target is less work
    walks, row = np.unique(key, return_inverse=True)
    first = _first_of(twin, len(leaves))
    goal = leaves[first[twin[target]]]
    walk_goal = np.zeros(len(walks), dtype=np.int64)
    walk_goal[row] = goal
    chunk = max(1, _CELLS // max(len(bundles.tail), num_switches, 1))
    for begin in range(0, len(walks), chunk):
        mine = (row >= begin) & (row < begin + chunk)
        flow = np.zeros((min(chunk, len(walks) - begin), num_switches))
        np.add.at(flow, (row[mine] - begin, leaves[origin[mine]]), demand[mine])
        arrivals = _walk(bundles, flow, walk_goal[begin : begin + chunk], loads)
        wanted = (row[mine] - begin, leaves[target[mine]], demand[mine])
        _last_hop(bundles, arrivals, wanted, loads, num_switches)
    return loads


def twin_classes(bundles: Bundles, leaves: Longs, num_switches: int) -> Longs:
    """Return ``[len(leaves)]``: a number that leaves with the same neighbours and counts share."""
    owner, bundle = bundles.out_of(leaves, num_switches)
    width = np.bincount(owner, minlength=len(leaves))
    order = np.lexsort((bundles.head[bundle], owner))
    head, count = bundles.head[bundle][order], bundles.count[bundle][order]
    start = np.concatenate([[0], np.cumsum(width)])
    known: dict[bytes, int] = {}
    return np.array(
        [
            known.setdefault(
                head[start[leaf] : start[leaf + 1]].tobytes()
                + count[start[leaf] : start[leaf + 1]].tobytes(),
                len(known),
            )
            for leaf in range(len(leaves))
        ],
        dtype=np.int64,
    )


def _first_of(group: Longs, length: int) -> Longs:
    """Return the first member of each group."""
    first = np.full(int(group.max(initial=0)) + 1, length, dtype=np.int64)
    np.minimum.at(first, group, np.arange(len(group)))
    return first


def _among_twins(
    bundles: Bundles,
    leaves: Longs,
    pairs: tuple[Longs, Longs, Floats],
    num_switches: int,
) -> Floats:
    """Two hops between twins: over each common neighbour by its share of the cables."""
    loads = np.zeros(len(bundles.tail))
    origin, target, demand = pairs
    for leaf, turned in ((origin, False), (target, True)):
        total = np.bincount(leaf, weights=demand, minlength=len(leaves))
        used = np.flatnonzero(total > 0)
        owner, bundle = bundles.out_of(leaves[used], num_switches)
        ways = np.bincount(owner, weights=bundles.count[bundle], minlength=len(used))
        share = total[used][owner] * bundles.count[bundle] / ways[owner]
        np.add.at(loads, bundles.turned(bundle) if turned else bundle, share)
    return loads


def _walk(
    bundles: Bundles, flow: Floats, goals: Longs, loads: Floats
) -> tuple[Longs, Longs, Floats]:
    """Move ``flow[walk, switch]`` to the goals, adding to ``loads`` all but the last hop.

    Returns the last hop: walk, switch before the goal, share of the walk's flow that comes by it.
    """
    tail, head, count = bundles.tail, bundles.head, bundles.count
    distance = _distances(bundles, flow.shape[1], goals)
    total = flow.sum(axis=1)
    nearer = distance[:, tail] == distance[:, head] + 1
    last: tuple[Longs, Longs, Floats] = (
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.int64),
        np.empty(0),
    )
    for steps in range(int(distance[np.isfinite(distance)].max(initial=0)), 0, -1):
        row, edge = np.nonzero(nearer & (distance[:, tail] == steps))
        ways = np.zeros_like(flow)
        np.add.at(ways, (row, tail[edge]), count[edge])
        part = flow[row, tail[edge]] * count[edge] / ways[row, tail[edge]]
        if steps > 1:
            np.add.at(flow, (row, head[edge]), part)
            loads += np.bincount(edge, weights=part, minlength=len(tail))
        else:
            last = (row, tail[edge], part / total[row])
    return last


def _last_hop(
    bundles: Bundles,
    arrivals: tuple[Longs, Longs, Floats],
    wanted: tuple[Longs, Longs, Floats],
    loads: Floats,
    num_switches: int,
) -> None:
    """Divide what stands before the goals among the targets of each walk.

    ``wanted``: walk, target switch and bytes of each pair.
    """
    walk, before, share = arrivals
    used = share > 0
    walk, before, share = walk[used], before[used], share[used]
    row, switch, demand = wanted
    key, where = np.unique(row * num_switches + switch, return_inverse=True)
    total = np.bincount(where, weights=demand, minlength=len(key))
    start = np.searchsorted(walk, np.arange(int(key.max(initial=0)) // num_switches + 2))
    width = start[key // num_switches + 1] - start[key // num_switches]
    step = np.arange(int(width.sum())) - np.repeat(np.cumsum(width) - width, width)
    arrival = np.repeat(start[key // num_switches], width) + step
    names = bundles.tail * num_switches + bundles.head
    order = np.argsort(names)
    hop = before[arrival] * num_switches + np.repeat(key % num_switches, width)
    bundle = order[np.searchsorted(names[order], hop)]
    np.add.at(loads, bundle, share[arrival] * np.repeat(total, width))


def _distances(bundles: Bundles, num_switches: int, goals: Longs) -> Floats:
    """Return hops from every switch to each goal: ``[goal, switch]``, inf where unreachable."""
    distance = np.full((len(goals), num_switches), np.inf)
    distance[np.arange(len(goals)), goals] = 0
    for steps in range(1, num_switches):
        row, edge = np.nonzero(
            (distance[:, bundles.head] == steps - 1) & np.isinf(distance[:, bundles.tail])
        )
        if not len(row):
            break
        distance[row, bundles.tail[edge]] = steps
    return distance
