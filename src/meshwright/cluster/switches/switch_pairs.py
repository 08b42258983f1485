"""Swapped cables in units of two hosts, where no majority tells which host is wired as planned.

Two leaves with one cable of each of two adapters, instead of both cables of one adapter: two
cables are swapped. Each leaf may be either adapter's, so there are two pairs of cables of which
one is swapped; swapping either pair makes the units regular.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from meshwright.cluster.switches.host_order import NameOrder, NaturalKey, natural
from meshwright.cluster.switches.switch_doubts import Doubt
from meshwright.cluster.switches.switch_swaps import Misplaced, Plug, doubled_hosts

_LEAST_UNITS = 3
"""So many units of two hosts show that the others are meant so."""

_Adapter = tuple[str, tuple[int, ...]]
_Slot = tuple[int, str, tuple[int, ...]]


class SmallUnits(msgspec.Struct, frozen=True):
    """What can be said of leaves with two cables."""

    slot_of_leaf: dict[str, _Slot] = {}
    """Label of the unit and adapter for which a leaf of a swapped pair is taken."""
    label_of_host: dict[str, int] = {}
    """Label of the units of the hosts that are in doubt."""
    doubts: tuple[Doubt, ...] = ()
    unjudged: tuple[str, ...] = ()
    """Leaves of two cables which form no unit, or whose adapters hang on two leaves: perhaps as meant."""


def settle_small_units(
    plugs: Sequence[Plug], label_of_leaf: Mapping[str, int], names: Mapping[str, str]
) -> SmallUnits:
    """Return what is to be said of leaves with two cables of two adapters. Linear.

    ``label_of_leaf``: the same for leaves that are known to be of one unit.
    """
    by_leaf: dict[str, list[Plug]] = defaultdict(list)
    count = Counter(plug.leaf for plug in plugs)
    if 2 not in count.values():
        return SmallUnits()
    for plug in plugs:
        if count[plug.leaf] == 2:
            by_leaf[plug.leaf].append(plug)
    homes = _homes(plugs, {plug.host for own in by_leaf.values() for plug in own}, label_of_leaf)
    homes |= _pairs_by_name(by_leaf, homes, label_of_leaf)

    def slot(plug: Plug) -> _Slot | None:
        home = homes.get(plug.host)
        return None if home is None else (home, plug.family, plug.key)

    mixed = {
        leaf: own
        for leaf, own in by_leaf.items()
        if None not in (slot(own[0]), slot(own[1])) and slot(own[0]) != slot(own[1])
    }
    small = SmallUnits()
    if mixed:
        small = _Mixed(plugs, by_leaf, mixed, homes, label_of_leaf, names).settle()
    unjudged = dict.fromkeys((*_alone(plugs, by_leaf, label_of_leaf, small), *small.unjudged))
    return msgspec.structs.replace(small, unjudged=tuple(unjudged))


def _alone(
    plugs: Sequence[Plug],
    by_leaf: Mapping[str, list[Plug]],
    label_of_leaf: Mapping[str, int],
    small: SmallUnits,
) -> tuple[str, ...]:
    """Return the leaves in no unit with others though each of their hosts has several cables."""
    leaves_of_label = Counter(label_of_leaf.values())
    cables = Counter(plug.host for plug in plugs)
    alone = tuple(
        leaf
        for leaf, own in by_leaf.items()
        if leaf not in small.slot_of_leaf
        and leaves_of_label[label_of_leaf[leaf]] == 1
        and all(cables[plug.host] > 1 for plug in own)
    )
    return alone if len(alone) > 1 else ()


def _homes(
    plugs: Sequence[Plug], hosts: set[str], label_of_leaf: Mapping[str, int]
) -> dict[str, int]:
    """Return the label of most leaves of these hosts, where it is clear and of several leaves."""
    leaves: dict[str, set[str]] = defaultdict(set)
    for plug in plugs:
        if plug.host in hosts:
            leaves[plug.host].add(plug.leaf)
    homes: dict[str, int] = {}
    for host, own in leaves.items():
        two = Counter(label_of_leaf[leaf] for leaf in own).most_common(2)
        if two[0][1] > 1 and (len(two) < 2 or two[0][1] > two[1][1]):
            homes[host] = two[0][0]
    return homes


def _pairs_by_name(
    by_leaf: Mapping[str, list[Plug]], homes: Mapping[str, int], label_of_leaf: Mapping[str, int]
) -> dict[str, int]:
    """Return a new label for every two hosts without a unit that follow one another by name.

    Only where three units or more are of two hosts, and these follow one another too.
    """
    astray: dict[str, Counter[str]] = defaultdict(Counter)
    hosts: dict[int, set[str]] = defaultdict(set)
    for leaf, own in by_leaf.items():
        for plug in own:
            if plug.host not in homes:
                astray[plug.host][leaf] += 1
            elif homes[plug.host] == label_of_leaf[leaf]:
                hosts[homes[plug.host]].add(plug.host)
    units = {unit: own for unit, own in hosts.items() if len(own) == 2}
    known = {host: unit for unit, own in units.items() for host in own}
    order = NameOrder(known, astray)
    if len(units) < _LEAST_UNITS or not order.units_follow or not astray:
        return {}
    found: dict[str, int] = {}
    for number, run in enumerate(order.open_runs()):
        if len(run) % 2 == 0:
            found |= {host: -1 - number * len(astray) - at // 2 for at, host in enumerate(run)}
    return found


class _Mixed:
    """Leaves with one cable of each of two adapters."""

    def __init__(
        self,
        plugs: Sequence[Plug],
        by_leaf: Mapping[str, list[Plug]],
        mixed: Mapping[str, list[Plug]],
        homes: Mapping[str, int],
        label_of_leaf: Mapping[str, int],
        names: Mapping[str, str],
    ) -> None:
        self._homes = homes
        self._by_leaf = by_leaf
        self._mixed = mixed
        self._label_of_leaf = label_of_leaf
        self._names = names
        self._doubled = doubled_hosts([plug for own in mixed.values() for plug in own])
        wanted = {self._slot(plug) for own in mixed.values() for plug in own}
        self._plugs_of: dict[_Slot, list[Plug]] = defaultdict(list)
        adapters: dict[str, Counter[_Adapter]] = defaultdict(Counter)
        for plug in plugs:
            if plug.host in homes and self._slot(plug) in wanted:
                self._plugs_of[self._slot(plug)].append(plug)
            if plug.leaf not in mixed:
                adapters[plug.leaf][plug.family, plug.key] += 1
        self._units_of: dict[_Adapter, set[int]] = defaultdict(set)
        """Units that have a leaf for this adapter alone."""
        for leaf, counts in adapters.items():
            if len(counts) == 1 and counts.total() > 1:
                self._units_of[next(iter(counts))].add(label_of_leaf[leaf])

    def _slot(self, plug: Plug) -> _Slot:
        return self._homes[plug.host], plug.family, plug.key

    def settle(self) -> SmallUnits:
        """Return the pairs of leaves between which two cables are swapped."""
        slot_of_leaf: dict[str, _Slot] = {}
        doubts: list[Doubt] = []
        for leaf, own in self._mixed.items():
            if any(len(self._plugs_of[self._slot(plug)]) != 2 for plug in own):
                continue
            slots = sorted({self._slot(plug) for plug in own}, key=self._order)
            pair = sorted(
                {plug.leaf for slot in slots for plug in self._plugs_of[slot]},
                key=lambda one: (natural(self._names[one]), one),
            )
            if leaf in slot_of_leaf or not self._is_swap(slots, pair, own):
                continue
            slot_of_leaf |= dict(zip(pair, slots, strict=True))
            ways = (self._moves(slots, pair), self._moves(slots, pair[::-1]))
            doubts.append(Doubt(ways, by_names=False))
        self._fill(slot_of_leaf)
        unjudged = [
            leaf
            for leaf, own in self._mixed.items()
            if leaf not in slot_of_leaf and any(self._is_spread(self._slot(plug)) for plug in own)
        ]
        label_of_host = {host: self._homes[host] for doubt in doubts for host in doubt.hosts()}
        return SmallUnits(slot_of_leaf, label_of_host, tuple(doubts), tuple(unjudged))

    def _fill(self, slot_of_leaf: dict[str, _Slot]) -> None:
        """Give the other leaves of units that were made by their hosts' names to these units."""
        made = {label for label, *_ in slot_of_leaf.values() if label < 0}
        for leaf, own in self._by_leaf.items():
            slots = {self._slot(plug) for plug in own if self._homes.get(plug.host) in made}
            if len(slots) == 1:
                slot_of_leaf.setdefault(leaf, next(iter(slots)))

    def _is_spread(self, slot: _Slot) -> bool:
        own = self._plugs_of[slot]
        return len(own) == 2 and own[0].leaf != own[1].leaf

    def _order(self, slot: _Slot) -> tuple[NaturalKey, _Slot]:
        return min(natural(plug.host) for plug in self._plugs_of[slot]), slot

    def _is_swap(self, slots: Sequence[_Slot], pair: Sequence[str], own: Sequence[Plug]) -> bool:
        """Tell whether two adapters have one cable each on both of two leaves, and nothing else."""
        if len(pair) != 2 or not all(leaf in self._mixed for leaf in pair):
            return False
        if any(plug.host in self._doubled for slot in slots for plug in self._plugs_of[slot]):
            return False
        if not all(self._is_spread(slot) for slot in slots):
            return False
        if own[0].host == own[1].host:
            # A host with two adapters on a leaf may be meant so: other units must tell.
            (home, *_), _ = slots
            units = [self._units_of[family, key] for _, family, key in slots]
            return bool((units[0] & units[1]) - {home})
        return True

    def _moves(self, slots: Sequence[_Slot], leaves: Sequence[str]) -> tuple[Misplaced, ...]:
        return tuple(
            Misplaced(plug, leaf)
            for slot, leaf in zip(slots, leaves, strict=True)
            for plug in self._plugs_of[slot]
            if plug.leaf != leaf
        )
