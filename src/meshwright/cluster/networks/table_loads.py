"""What the forwarding tables load when every adapter sends one flow to every other.

For each destination the flows gather along the tree of its routes, so the work is switches times
LIDs; 2,000 adapters are four million pairs and a few hundred thousand table entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.facts import Cable, Facts
from meshwright.cluster.networks.table_graph import (
    ARRIVES,
    LOOP,
    NO_CABLE,
    NO_ENTRY,
    OTHER_END,
    TableGraph,
    Target,
    Trees,
)

Longs = NDArray[np.int64]
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class LostPairs:
    """Ordered pairs of adapters between which no packet arrives, for one reason."""

    count: int
    examples: tuple[tuple[int, Target], ...]
    """Switch of some sources, and the destination."""


@dataclass(frozen=True, slots=True)
class PairLoads:
    """Flows on every cable between switches, for one flow of every ordered pair of adapters.

    Arrays ``[cables]``: ``up`` from the lower end ``a`` of a cable, ``down`` from the upper one;
    ``…_largest`` is what goes to the one destination that has most there.
    """

    cables: Sequence[Cable]
    up: Longs
    down: Longs
    up_largest: Longs
    down_largest: Longs
    pairs: int
    """Ordered pairs of adapters, those without a LID as sources only."""
    lost: Mapping[int, LostPairs]
    """By what stops them (``NO_ENTRY`` … ``LOOP`` of ``table_graph``)."""


def all_pairs_loads(facts: Facts, graph: TableGraph | None = None) -> PairLoads:
    """Return the flows that all pairs of adapters put on the cables of a fabric.

    ``facts`` holds cables and tables; ``graph`` as made from them, where it is there already.
    Adapters count by their lowest port with a cable and its first LID.
    """
    graph = graph or TableGraph.of(facts)
    sources = np.bincount(
        np.array([plug[0] for plug in graph.plug_by_nic.values()], dtype=np.int64),
        minlength=len(graph.switch_names),
    )
    edges = 2 * len(graph.cables)
    loads, largest = np.zeros(edges, dtype=np.int64), np.zeros(edges, dtype=np.int64)
    counts = dict.fromkeys((NO_ENTRY, NO_CABLE, OTHER_END, LOOP), 0)
    examples: dict[int, list[tuple[int, Target]]] = {end: [] for end in counts}
    for part, trees in graph.chunks(graph.targets):
        some = graph.targets[part]
        weight = np.repeat(sources[:, None], len(some), axis=1)
        # No adapter sends to itself.
        weight[[one.switch for one in some], np.arange(len(some))] -= 1
        for end, found in examples.items():
            stopped = (trees.end == end) & (weight > 0)
            if stopped.any():
                counts[end] += int(weight[stopped].sum())
                where = np.argwhere(stopped)[: _EXAMPLES - len(found)]
                found += [(int(switch), some[column]) for switch, column in where]
        edge, flows = _gather(trees, weight)
        loads += np.bincount(edge, weights=flows, minlength=edges).astype(np.int64)
        np.maximum.at(largest, edge, flows)
    half = len(graph.cables)
    return PairLoads(
        cables=graph.cables,
        up=loads[:half],
        down=loads[half:],
        up_largest=largest[:half],
        down_largest=largest[half:],
        pairs=len(graph.targets) * (len(graph.plug_by_nic) - 1),
        lost={end: LostPairs(counts[end], tuple(examples[end])) for end in counts if counts[end]},
    )


def _gather(trees: Trees, weight: Longs) -> tuple[NDArray[np.int32], Longs]:
    """Move what starts at each switch down the trees; return (cable, flows) of every step."""
    hops = trees.hops.ravel()
    spots = np.flatnonzero((trees.end.ravel() == ARRIVES) & (hops > 0))
    order = spots[np.argsort(-hops[spots], kind="stable")]
    onto = trees.next_switch.ravel()[order].astype(np.int64) * weight.shape[1]
    onto += order % weight.shape[1]
    flows = weight.ravel()
    begin = 0
    # The furthest switches first: what passes a switch is complete before it moves on.
    for end in [*(np.flatnonzero(np.diff(hops[order])) + 1).tolist(), len(order)]:
        np.add.at(flows, onto[begin:end], flows[order[begin:end]])
        begin = end
    return trees.edge.ravel()[order], flows[order]
