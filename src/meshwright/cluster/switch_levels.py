"""Levels, rails and units of a switched fabric, from its cables and host names alone.

No switch name is read. A *leaf* is a switch with a host adapter; the level of any other switch is
its distance from the nearest leaf. Two leaves that serve the same hosts are two *rails* of one
*unit* (hosts under one set of leaves). Both are decided by most hosts of a leaf, so that a few
wrong cables neither join two units nor move a rail; the wrong cables become findings.

Adapter names differ by driver (``HCA-1,2,5,6`` and ``mlx5_0,1,4,5`` are the same four rails), so
a rail is the rank of a leaf's usual adapter among those of its unit, and units that lack a leaf
are matched to fuller units whose hosts name their adapters alike.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from meshwright.cluster.facts import Facts
from meshwright.cluster.switch_faults import FaultFinder, MissingLeaf, Pod
from meshwright.cluster.switch_swaps import Plug, SwapFinder
from meshwright.findings import Finding

_MAX_LEAVES_OF_HOST = 32
"""A "host" with adapters on more leaves is a name many machines share; it has no vote."""
_DIGITS = re.compile(r"([0-9]{1,18})")

_Key = tuple[int, ...]
"""Numbers in an adapter's name, then its port: the order of a host's adapters."""


class SwitchLevels(msgspec.Struct, frozen=True):
    """Structure of a fabric; all switches and adapters by id (GUID)."""

    level_by_switch: dict[str, int]
    """0: leaf (has host adapters), else the number of cables to the nearest leaf.

    A switch without a way to any host is left out."""
    leaf_of_nic: dict[str, str]
    """The leaf of each adapter (of its lowest port)."""
    rail_of_leaf: dict[str, int]
    """From 0; 0 everywhere in a unit whose rails cannot be told."""
    unit_of_leaf: dict[str, int]
    """From 0, in the natural order of the units' first host names; leaves without a named host
    come last, each a unit of its own."""
    findings: tuple[Finding, ...] = ()


def derive_levels(facts: Facts) -> SwitchLevels:
    """Return levels, rails and units of the fabric that ``facts`` lists.

    Facts without cables give empty maps. Linear in the number of cables.
    """
    fabric = Cabling(facts)
    levels = fabric.levels()
    leaves = [switch for switch, level in levels.items() if level == 0]
    units = _Units(leaves, fabric.plugs)
    rails = _Rails(units, fabric.plugs)
    faults = FaultFinder(facts.path, fabric.names)
    swaps = SwapFinder(facts.path, fabric.names, fabric.plugs)
    findings = (
        *(faults.rails_unknown(unit, alike) for unit, alike in rails.unknown.items()),
        *(faults.leaf_missing(missing) for missing in rails.missing),
        *swaps.findings(units.home, units.unit_of_leaf),
        *faults.spine_cables(_pods(levels, fabric.trunks)),
        *faults.without_hosts(levels),
    )
    return SwitchLevels(
        levels, fabric.leaf_of_nic, rails.rail_of_leaf, units.unit_of_leaf, findings
    )


class Cabling:
    """Cables of a source sorted by what they join; ``plugs`` are those of named hosts."""

    def __init__(self, facts: Facts) -> None:
        self.names = {switch.id: switch.name for switch in facts.switches or ()}
        self.trunks: Counter[tuple[str, str]] = Counter()
        self.plugs: list[Plug] = []
        self.leaf_of_nic: dict[str, str] = {}
        self.leaves: dict[str, None] = {}
        self.nameless: Counter[str] = Counter()
        """Cables of adapters without a host's name, by leaf."""
        hosts = {nic.guid: nic for nic in facts.nics or () if nic.guid is not None}
        words: dict[str, tuple[str, _Key]] = {}
        first_port: dict[str, int] = {}
        for cable in facts.cables or ():
            ends = ((cable.a, cable.a_port), (cable.b, cable.b_port))
            for (near, near_port), (far, port) in (ends, ends[::-1]):
                nic = hosts.get(far)
                if near not in self.names or nic is None:
                    continue
                self.leaves[near] = None
                number = port or 0
                if number < first_port.get(far, number + 1):
                    first_port[far] = number
                    self.leaf_of_nic[far] = near
                if nic.host is None:
                    self.nameless[near] += 1
                else:
                    family, key = words.setdefault(nic.name, _numbers(nic.name))
                    slot = (*key, number)
                    self.plugs.append(
                        Plug(nic.host, near, nic.name, family, slot, near_port, port, far)
                    )
            if cable.a in self.names and cable.b in self.names and cable.a != cable.b:
                self.trunks[min(cable.a, cable.b), max(cable.a, cable.b)] += 1

    def levels(self) -> dict[str, int]:
        """Return each switch's distance from the leaves, in the order of the source."""
        neighbours: dict[str, list[str]] = defaultdict(list)
        for one, other in self.trunks:
            neighbours[one].append(other)
            neighbours[other].append(one)
        level = dict.fromkeys(self.leaves, 0)
        queue = deque(self.leaves)
        while queue:
            switch = queue.popleft()
            for other in neighbours[switch]:
                if other not in level:
                    level[other] = level[switch] + 1
                    queue.append(other)
        return {switch: level[switch] for switch in self.names if switch in level}


def _numbers(name: str) -> tuple[str, _Key]:
    """Split ``mlx5_10`` into its text ``mlx#_#`` and its numbers (5, 10)."""
    parts = _DIGITS.split(name)
    return "#".join(parts[::2]), tuple(int(part) for part in parts[1::2])


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a sort key by which ``n9`` stands before ``n10``."""
    parts = _DIGITS.split(name)
    numbers = [*(int(part) for part in parts[1::2]), -1]
    return tuple(zip(parts[::2], numbers, strict=True))


class _Units:
    """Leaves joined into units by the hosts they share."""

    def __init__(self, leaves: list[str], plugs: list[Plug]) -> None:
        self.leaves = leaves
        self.position = {leaf: index for index, leaf in enumerate(leaves)}
        leaves_of_host: dict[str, set[str]] = defaultdict(set)
        keys: dict[str, Counter[tuple[str, _Key]]] = defaultdict(Counter)
        for plug in plugs:
            leaves_of_host[plug.host].add(plug.leaf)
            keys[plug.leaf][plug.family, plug.key] += 1
        self.leaves_of_host = leaves_of_host
        self.usual_keys = {leaf: _usual(counts) for leaf, counts in keys.items()}
        labels = self._join()
        self._attach(labels)
        self.unit_of_leaf = self._number(labels)
        self.leaves_of_unit: dict[int, list[str]] = defaultdict(list)
        for leaf, unit in self.unit_of_leaf.items():
            self.leaves_of_unit[unit].append(leaf)
        self.home = {host: self._home(leaves) for host, leaves in leaves_of_host.items()}
        self.first_host: dict[int, str] = {}
        for host in sorted(self.home, key=_natural):
            self.first_host.setdefault(self.home[host], host)

    def _join(self) -> npt.NDArray[np.int64]:
        """Return a label for each leaf: leaves share one when most hosts of both are the same."""
        voters = [
            sorted(self.position[leaf] for leaf in leaves)
            for leaves in self.leaves_of_host.values()
            if 2 <= len(leaves) <= _MAX_LEAVES_OF_HOST
        ]
        count = len(self.leaves)
        if not voters:
            return np.arange(count, dtype=np.int64)
        leaf = np.fromiter((item for row in voters for item in row), dtype=np.int64)
        host = np.repeat(np.arange(len(voters)), [len(row) for row in voters])
        size = np.bincount(leaf, minlength=count)
        pairs = [
            leaf[:-step][same] * count + leaf[step:][same]
            for step in range(1, min(_MAX_LEAVES_OF_HOST, len(leaf)))
            if (same := host[:-step] == host[step:]).any()
        ]
        codes, shared = np.unique(np.concatenate(pairs), return_counts=True)
        one, other = codes // count, codes % count
        joined = shared * 2 > np.maximum(size[one], size[other])
        edges = zip(one[joined].tolist(), other[joined].tolist(), strict=True)
        return np.array(_components(count, edges), dtype=np.int64)

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
            if len(leaves) > _MAX_LEAVES_OF_HOST:
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

    def _number(self, labels: npt.NDArray[np.int64]) -> dict[str, int]:
        """Return unit numbers, by their first host in natural order, nameless ones last."""
        first: dict[int, tuple[tuple[str, int], ...]] = {}
        for host, leaves in self.leaves_of_host.items():
            key = _natural(host)
            for leaf in leaves:
                label = int(labels[self.position[leaf]])
                # a host's own unit holds most of its leaves; a stray cable must not count
                if len(leaves) > 1 and not self._is_home(label, leaves, labels):
                    continue
                if label not in first or key < first[label]:
                    first[label] = key
        order = list(dict.fromkeys(labels.tolist()))
        order.sort(key=lambda label: (label not in first, first.get(label, ())))
        rank = {label: index for index, label in enumerate(order)}
        return {leaf: rank[int(labels[index])] for leaf, index in self.position.items()}

    def _is_home(self, label: int, leaves: set[str], labels: npt.NDArray[np.int64]) -> bool:
        here = sum(int(labels[self.position[leaf]]) == label for leaf in leaves)
        return here * 2 > len(leaves)

    def _home(self, leaves: set[str]) -> int:
        """Return the unit in which a host has most of its leaves."""
        return _first_most(Counter(self.unit_of_leaf[leaf] for leaf in sorted(leaves)))


def _usual(counts: Counter[tuple[str, _Key]]) -> tuple[str, _Key]:
    """Return the first adapter, in order, of those that are usual on a leaf.

    Usual: at least half as frequent as the most frequent one, of the most frequent family.
    """
    families: Counter[str] = Counter()
    for (family, _), count in counts.items():
        families[family] += count
    family = min(families, key=lambda name: (-families[name], name))
    own = {key: count for (name, key), count in counts.items() if name == family}
    most = max(own.values())
    return family, min(key for key, count in own.items() if count * 2 >= most)


def _first_most(counts: Counter[int]) -> int:
    """Return the most frequent item, the smallest of equals; -1 when there is none."""
    return min(counts, key=lambda item: (-counts[item], item), default=-1)


def _components(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
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


def _usual_sets(
    sets: Iterable[tuple[str, frozenset[_Key]]],
) -> dict[str, list[frozenset[_Key]]]:
    """Return, by family, the adapter sets that a tenth of the family's units or more have."""
    counts = Counter(sets)
    totals: Counter[str] = Counter()
    for (family, _), count in counts.items():
        totals[family] += count
    usual: dict[str, list[frozenset[_Key]]] = defaultdict(list)
    for (family, keys), count in counts.items():
        if count * 10 >= totals[family]:
            usual[family].append(keys)
    return usual


class _Rails:
    """Rail numbers of the leaves, the same for the same adapters in all units."""

    def __init__(self, units: _Units, plugs: list[Plug]) -> None:
        self.units = units
        self.unknown: dict[int, list[str]] = {}
        """Leaves of the units whose rails cannot be told."""
        self.missing: list[MissingLeaf] = []
        self.rail_of_leaf = dict.fromkeys(units.leaves, 0)
        self.hosts = Counter(units.home.values())
        self.labels: dict[tuple[str, _Key], str] = {}
        for plug in plugs:
            self.labels.setdefault((plug.family, plug.key), plug.name)
        adapters = {
            unit: own
            for unit, leaves in units.leaves_of_unit.items()
            if len(leaves) > 1 and (own := self._adapters(unit, leaves)) is not None
        }
        self.usual_sets = _usual_sets(
            (family, frozenset(keys)) for family, keys in adapters.values()
        )
        sizes = Counter(len(keys) for _, keys in adapters.values())
        most = max(sizes, key=lambda size: (sizes[size], size), default=0)
        for unit, (family, keys) in adapters.items():
            self._number(unit, family, keys, most)

    def _number(self, unit: int, family: str, keys: dict[_Key, str], most: int) -> None:
        """Give a unit's leaves their rails and note the leaves that it lacks."""
        full = self._fullest(family, frozenset(keys))
        order = sorted(full) + sorted(set(keys) - full)
        rail = {key: index for index, key in enumerate(order)}
        for key, leaf in keys.items():
            self.rail_of_leaf[leaf] = rail[key]
        missing = [key for key in order if key not in keys]
        for key in missing:
            self._lacks(unit, rail[key], self.labels[family, key])
        if not missing and len(keys) < most < len(keys) * 2:
            self._lacks(unit, None, None)

    def _adapters(self, unit: int, leaves: list[str]) -> tuple[str, dict[_Key, str]] | None:
        """Return the family and, for each usual adapter, the leaf; ``None`` if leaves are alike."""
        family, _ = Counter(self.units.usual_keys[leaf][0] for leaf in leaves).most_common(1)[0]
        keys = {self.units.usual_keys[leaf][1]: leaf for leaf in leaves}
        alike = len(keys) < len(leaves)
        if not alike and all(self.units.usual_keys[leaf][0] == family for leaf in leaves):
            return family, keys
        self.unknown[unit] = leaves
        return None

    def _fullest(self, family: str, keys: frozenset[_Key]) -> frozenset[_Key]:
        """Return the adapters that a unit of this kind usually has.

        The largest usual set that holds the unit's own adapters and at most half as many more;
        else the largest usual set among its own; else its own.
        """
        usual = self.usual_sets.get(family, [])
        room = max(1, len(keys) // 2)
        above = [other for other in usual if keys <= other and len(other) <= len(keys) + room]
        below = [other for other in usual if other < keys]
        return max(above or below or [keys], key=lambda other: (len(other), sorted(other)))

    def _lacks(self, unit: int, rail: int | None, adapter: str | None) -> None:
        first = self.units.first_host.get(unit, "-")
        self.missing.append(MissingLeaf(unit, rail, adapter, self.hosts[unit], first))


def _pods(levels: dict[str, int], trunks: Counter[tuple[str, str]]) -> list[Pod]:
    """Return the cables between leaves and spines, by connected part."""
    cables: dict[tuple[str, str], int] = {}
    for (one, other), count in trunks.items():
        pair = (one, other) if levels.get(one) == 0 else (other, one)
        if levels.get(pair[0]) == 0 and levels.get(pair[1]) == 1:
            cables[pair] = count
    nodes = {node: index for index, node in enumerate(dict.fromkeys(x for p in cables for x in p))}
    label = _components(len(nodes), ((nodes[a], nodes[b]) for a, b in cables))
    pods: dict[int, dict[tuple[str, str], int]] = defaultdict(dict)
    for pair, count in cables.items():
        pods[label[nodes[pair[0]]]][pair] = count
    return list(pods.values())
