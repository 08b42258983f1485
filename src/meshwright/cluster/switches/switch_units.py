"""Units of a fabric: leaves that serve the same hosts, decided by most hosts of each leaf."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshwright.cluster.switches.host_order import natural
from meshwright.cluster.switches.switch_homes import MAX_LEAVES_OF_HOST, settle_homes
from meshwright.cluster.switches.switch_pairs import SmallUnits, settle_small_units
from meshwright.cluster.switches.switch_swaps import Plug

_Key = tuple[int, ...]
"""Numbers in an adapter's name, then its port: the order of a host's adapters."""


class Units:
    """Leaves joined into units by the hosts they share."""

    def __init__(self, leaves: list[str], plugs: list[Plug], names: dict[str, str]) -> None:
        self.leaves = leaves
        self.position = {leaf: index for index, leaf in enumerate(leaves)}
        leaves_of_host: dict[str, set[str]] = defaultdict(set)
        keys: dict[str, Counter[tuple[str, _Key]]] = defaultdict(Counter)
        for plug in plugs:
            leaves_of_host[plug.host].add(plug.leaf)
            keys[plug.leaf][plug.family, plug.key] += 1
        self.leaves_of_host = leaves_of_host
        self.usual_keys = {leaf: _usual(counts) for leaf, counts in keys.items()}
        self.one_adapter = {leaf for leaf, counts in keys.items() if len(counts) == 1}
        """Leaves on which all hosts have the same adapter."""
        labels = self._join()
        self._attach(labels)
        small = self._small_units(labels, plugs, names)
        self.unit_of_leaf = self._number(labels)
        self.leaves_of_unit: dict[int, list[str]] = defaultdict(list)
        for leaf, unit in self.unit_of_leaf.items():
            self.leaves_of_unit[unit].append(leaf)
        unit_of = {
            label: self.unit_of_leaf[leaf] for leaf, (label, *_) in small.slot_of_leaf.items()
        }
        settled = {host: unit_of[label] for host, label in small.label_of_host.items()}
        homes = settle_homes(plugs, leaves_of_host, self.unit_of_leaf, settled)
        self.home = homes.unit_of_host
        self.doubts = (*homes.doubts, *small.doubts)
        self.unjudged = small.unjudged
        self.hosts_in_doubt = {host for doubt in self.doubts for host in doubt.hosts()}
        self.first_host: dict[int, str] = {}
        for host in sorted(self.home, key=natural):
            self.first_host.setdefault(self.home[host], host)

    def _join(self) -> npt.NDArray[np.int64]:
        """Return a label for each leaf: leaves share one when most hosts of both are the same."""
        voters = [
            sorted(self.position[leaf] for leaf in leaves)
            for leaves in self.leaves_of_host.values()
            if 2 <= len(leaves) <= MAX_LEAVES_OF_HOST
        ]
        count = len(self.leaves)
        if not voters:
            return np.arange(count, dtype=np.int64)
        leaf = np.fromiter((item for row in voters for item in row), dtype=np.int64)
        host = np.repeat(np.arange(len(voters)), [len(row) for row in voters])
        size = np.bincount(leaf, minlength=count)
        pairs = [
            leaf[:-step][same] * count + leaf[step:][same]
            for step in range(1, min(MAX_LEAVES_OF_HOST, len(leaf)))
            if (same := host[:-step] == host[step:]).any()
        ]
        codes, shared = np.unique(np.concatenate(pairs), return_counts=True)
        one, other = codes // count, codes % count
        joined = shared * 2 > np.maximum(size[one], size[other])
        edges = zip(one[joined].tolist(), other[joined].tolist(), strict=True)
        return np.array(components_of(count, edges), dtype=np.int64)

    def _attach(self, labels: npt.NDArray[np.int64]) -> None:
        """Give a leaf left alone (few of its hosts are named) to the unit of most of its hosts.

        Only where the unit has no leaf of that adapter yet; this never joins two units.
        """
        size = np.bincount(labels, minlength=len(labels))
        alone = [leaf for leaf in self.leaves if size[labels[self.position[leaf]]] == 1]
        if len(alone) == len(self.leaves):
            return
        taken: dict[int, set[tuple[str, _Key]]] = defaultdict(set)
        votes: dict[str, Counter[int]] = {leaf: Counter() for leaf in alone}
        for leaf in self.leaves:
            if leaf not in votes and leaf in self.usual_keys:
                taken[int(labels[self.position[leaf]])].add(self.usual_keys[leaf])
        for leaves in self.leaves_of_host.values():
            if len(leaves) > MAX_LEAVES_OF_HOST:
                continue
            others = Counter(int(labels[self.position[x]]) for x in leaves if x not in votes)
            for leaf in leaves & votes.keys():
                votes[leaf][_first_most(others)] += 1
        for leaf, ballot in votes.items():
            unit = _first_most(ballot)
            key = self.usual_keys.get(leaf)
            if unit < 0 or key is None or ballot[unit] * 2 <= ballot.total():
                continue
            if key not in taken[unit]:
                taken[unit].add(key)
                labels[self.position[leaf]] = unit

    @cached_property
    def hosts_of_unit(self) -> dict[int, list[str]]:
        """Hosts by unit, in the natural order of their names."""
        hosts: dict[int, list[str]] = defaultdict(list)
        for host in sorted(self.home, key=natural):
            hosts[self.home[host]].append(host)
        return hosts

    def _small_units(
        self, labels: npt.NDArray[np.int64], plugs: list[Plug], names: dict[str, str]
    ) -> SmallUnits:
        """Give each leaf of two swapped cables to a unit, for one adapter."""
        label_of_leaf = dict(zip(self.leaves, labels.tolist(), strict=True))
        small = settle_small_units(plugs, label_of_leaf, names)
        for leaf, (label, family, key) in small.slot_of_leaf.items():
            labels[self.position[leaf]] = label
            self.usual_keys[leaf] = family, key
        return small

    def _number(self, labels: npt.NDArray[np.int64]) -> dict[str, int]:
        """Return unit numbers, by their first host in natural order, nameless ones last."""
        label_of: list[int] = labels.tolist()
        first: dict[int, tuple[tuple[str, int], ...]] = {}
        for host, leaves in self.leaves_of_host.items():
            key = natural(host)
            own = Counter(label_of[self.position[leaf]] for leaf in leaves)
            for label, count in own.items():
                # a host's own unit holds most of its leaves; a stray cable must not count
                if len(leaves) > 1 and count * 2 <= len(leaves):
                    continue
                if label not in first or key < first[label]:
                    first[label] = key
        order = list(dict.fromkeys(label_of))
        order.sort(key=lambda label: (label not in first, first.get(label, ())))
        rank = {label: index for index, label in enumerate(order)}
        return {leaf: rank[label_of[index]] for leaf, index in self.position.items()}


def _usual(counts: Counter[tuple[str, _Key]]) -> tuple[str, _Key]:
    """Return the first adapter, in order, of those that are usual on a leaf.

    Usual: more than half as frequent as the most frequent one, of the most frequent family.
    """
    families: Counter[str] = Counter()
    for (family, _), count in counts.items():
        families[family] += count
    family = min(families, key=lambda name: (-families[name], name))
    own = {key: count for (name, key), count in counts.items() if name == family}
    most = max(own.values())
    return family, min(key for key, count in own.items() if count * 2 > most)


def _first_most(counts: Counter[int]) -> int:
    """Return the most frequent item, the smallest of equals; -1 when there is none."""
    return min(counts, key=lambda item: (-counts[item], item), default=-1)


def components_of(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return for each of ``count`` items the smallest item of its connected component."""
    parent = list(range(count))

    def find(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for one, other in edges:
        a, b = find(one), find(other)
        parent[max(a, b)] = min(a, b)
    return [find(item) for item in range(count)]
