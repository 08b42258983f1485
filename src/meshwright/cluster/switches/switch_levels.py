"""Levels, rails and units of a switched fabric, from its cables and host names alone.

No switch name is read (their order settles which of two leaves is which where nothing else does).
A *leaf* is a switch with a host adapter; the level of any other switch is
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

import msgspec

from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.switches.switch_doubts import DoubtFinder
from meshwright.cluster.switches.switch_faults import FaultFinder, MissingLeaf, MissingPlane, Pod
from meshwright.cluster.switches.switch_swaps import Plug, SwapFinder
from meshwright.cluster.switches.switch_units import Units, components_of
from meshwright.findings import Finding

_DIGITS = re.compile(r"([0-9]{1,18})")

_LEAST_HOSTS = 3
"""Fewer hosts do not tell that their unit lacks a plane."""

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
    unit_of_host: dict[str, int] = {}
    """The unit in which a host has most of its leaves, or to which it seems to belong."""


def derive_levels(facts: Facts) -> SwitchLevels:
    """Return levels, rails and units of the fabric that ``facts`` lists.

    Facts without cables give empty maps. Linear in the number of cables.
    """
    fabric = Cabling(facts)
    levels = fabric.levels()
    leaves = [switch for switch, level in levels.items() if level == 0]
    units = Units(leaves, fabric.plugs, fabric.names)
    rails = _Rails(units, fabric.plugs)
    faults = FaultFinder(facts.path, fabric.names)
    swaps = SwapFinder(facts.path, fabric.names, fabric.plugs)
    findings = (
        *(faults.rails_unknown(unit, alike) for unit, alike in rails.unknown.items()),
        *(faults.leaf_missing(missing) for missing in rails.missing),
        *map(faults.plane_missing, rails.missing_planes),
        *swaps.findings(units.home, units.unit_of_leaf, units.hosts_in_doubt),
        *map(DoubtFinder(facts.path, fabric.names).finding, units.doubts),
        *faults.units_not_judged(units.unjudged),
        *faults.spine_cables(_pods(levels, fabric.trunks)),
        *faults.without_hosts(levels),
    )
    return SwitchLevels(
        levels, fabric.leaf_of_nic, rails.rail_of_leaf, units.unit_of_leaf, findings, units.home
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
        self._slots: dict[tuple[str, int], tuple[str, _Key]] = {}
        self._first_port: dict[str, int] = {}
        for cable in facts.cables or ():
            a, b = cable.a, cable.b
            a_is_switch, b_is_switch = a in self.names, b in self.names
            if a_is_switch and (nic := hosts.get(b)) is not None:
                self._plug(a, cable.a_port, nic, cable.b_port)
            if b_is_switch and (nic := hosts.get(a)) is not None:
                self._plug(b, cable.b_port, nic, cable.a_port)
            if a_is_switch and b_is_switch and a != b:
                pair = (a, b) if a < b else (b, a)
                self.trunks[pair] = self.trunks.get(pair, 0) + 1

    def _plug(self, leaf: str, leaf_port: int | None, nic: Nic, port: int | None) -> None:
        far = str(nic.guid)
        self.leaves[leaf] = None
        number = port or 0
        if number < self._first_port.get(far, number + 1):
            self._first_port[far] = number
            self.leaf_of_nic[far] = leaf
        if nic.host is None:
            self.nameless[leaf] += 1
            return
        known = self._slots.get((nic.name, number))
        if known is None:
            family, key = _numbers(nic.name)
            known = self._slots[nic.name, number] = (family, (*key, number))
        family, slot = known
        self.plugs.append(Plug(nic.host, leaf, nic.name, family, slot, leaf_port, port, far))

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


def _usual_sets(
    counts: Counter[tuple[str, frozenset[_Key]]],
) -> dict[str, list[frozenset[_Key]]]:
    """Return, by family, the adapter sets that a tenth of the family's units or more have."""
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

    def __init__(self, units: Units, plugs: list[Plug]) -> None:
        self.units = units
        self.unknown: dict[int, list[str]] = {}
        """Leaves of the units whose rails cannot be told."""
        self.missing: list[MissingLeaf] = []
        self.missing_planes: list[MissingPlane] = []
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
        sets = Counter((family, frozenset(keys)) for family, keys in adapters.values())
        self.usual_sets = _usual_sets(sets)
        self.count_of_set = sets.copy()
        sizes = Counter(len(keys) for _, keys in adapters.values())
        most = max(sizes, key=lambda size: (sizes[size], size), default=0)
        alone = {
            unit: units.usual_keys[leaves[0]]
            for unit, leaves in units.leaves_of_unit.items()
            if len(leaves) == 1 and leaves[0] in units.one_adapter
        }
        self.count_of_set += Counter((family, frozenset({key})) for family, key in alone.values())
        for unit, (family, key) in alone.items():
            self._plane(unit, family, frozenset({key}))
        for unit, (family, keys) in adapters.items():
            self._number(unit, family, keys, most)

    def _number(self, unit: int, family: str, keys: dict[_Key, str], most: int) -> None:
        """Give a unit's leaves their rails and note the leaves that it lacks."""
        whole = self._plane(unit, family, frozenset(keys))
        full = whole or self._fullest(family, frozenset(keys))
        order = sorted(full) + sorted(set(keys) - full)
        rail = {key: index for index, key in enumerate(order)}
        for key, leaf in keys.items():
            self.rail_of_leaf[leaf] = rail[key]
        missing = [key for key in order if key not in keys and whole is None]
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

    def _plane(self, unit: int, family: str, keys: frozenset[_Key]) -> frozenset[_Key] | None:
        """Return the adapters with a port more that as many units have or more, and note the port."""
        adapters = sorted({key[:-1] for key in keys})
        for other in self.usual_sets.get(family, []):
            ports = {key[-1] for key in other - keys}
            whole = {*keys, *((*adapter, port) for adapter in adapters for port in ports)}
            common = self.count_of_set[family, other] >= self.count_of_set[family, keys]
            if len(ports) == 1 and whole == other and common and self.hosts[unit] >= _LEAST_HOSTS:
                port = min(ports)
                names = tuple(self.labels[family, (*adapter, port)] for adapter in adapters)
                hosts = tuple(self.units.hosts_of_unit[unit])
                others = self.count_of_set[family, other]
                self.missing_planes.append(MissingPlane(unit, port, names, hosts, others))
                return other
        return None

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
    label = components_of(len(nodes), ((nodes[a], nodes[b]) for a, b in cables))
    pods: dict[int, dict[tuple[str, str], int]] = defaultdict(dict)
    for pair, count in cables.items():
        pods[label[nodes[pair[0]]]][pair] = count
    return list(pods.values())
