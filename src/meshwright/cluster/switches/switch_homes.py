"""The unit of each host: that of most of its leaves; where two units have as many, what else tells.

A host with one of two adapters in another unit fits both by itself. What decides, in this order:
the fewest misplaced cables, a second host whose misplaced cables are the reverse (two cables
swapped), the number of hosts of other units, and last the names of the hosts beside it. What
nothing decides stays open, and all explanations are kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from meshwright.cluster.switches.host_order import NameOrder, natural
from meshwright.cluster.switches.switch_doubts import Doubt
from meshwright.cluster.switches.switch_swaps import Misplaced, Plug, doubled_hosts

MAX_LEAVES_OF_HOST = 32
"""A "host" with adapters on more leaves is a name many machines share; it has no vote."""
_LEAST_HOSTS = 2
"""So many hosts, at least, must have an adapter on a leaf for it to be that adapter's."""

_Slot = tuple[int, str, tuple[int, ...]]
_Ends = frozenset[tuple[str, str]]


class Homes(msgspec.Struct, frozen=True):
    """The unit of each host, and what of it is in doubt."""

    unit_of_host: dict[str, int]
    doubts: tuple[Doubt, ...] = ()
    """Hosts whose cables fit two units alike; nothing else is to be said of their cables."""


class _Option(msgspec.Struct, frozen=True):
    """A unit that a host may belong to, and its cables that are misplaced then."""

    unit: int
    moves: tuple[Misplaced, ...]

    def ends(self) -> _Ends:
        return frozenset((move.plug.leaf, move.right) for move in self.moves)

    def reverse(self) -> _Ends:
        return frozenset((right, leaf) for leaf, right in self.ends())


_Case = list[tuple[str, _Option]]
"""One explanation: each host with its option."""


def settle_homes(
    plugs: Sequence[Plug],
    leaves_of_host: Mapping[str, set[str]],
    unit_of_leaf: Mapping[str, int],
    settled: Mapping[str, int],
) -> Homes:
    """Return the unit of each host; ``settled`` has that of hosts of which it is known already.

    Linear, but for sorting names where names must decide.
    """
    home: dict[str, int] = {}
    tied: dict[str, tuple[int, ...]] = {}
    for host, leaves in leaves_of_host.items():
        counts = Counter(unit_of_leaf[leaf] for leaf in leaves)
        most = max(counts.values())
        units = sorted(unit for unit, count in counts.items() if count == most)
        home[host] = units[0]
        if host in settled:
            home[host] = settled[host]
        elif len(units) > 1 and len(leaves) <= MAX_LEAVES_OF_HOST:
            tied[host] = tuple(units)
    if not tied:
        return Homes(home)
    return _Settling(plugs, home, tied, unit_of_leaf).settle()


class _Settling:
    """Decides for the hosts that have as many leaves in two units or more."""

    def __init__(
        self,
        plugs: Sequence[Plug],
        home: dict[str, int],
        tied: Mapping[str, tuple[int, ...]],
        unit_of_leaf: Mapping[str, int],
    ) -> None:
        self._home = home
        self._unit_of_leaf = unit_of_leaf
        wanted = {unit for units in tied.values() for unit in units}
        where: dict[_Slot, Counter[str]] = defaultdict(Counter)
        own: dict[str, list[Plug]] = defaultdict(list)
        clear: list[Plug] = []
        for plug in plugs:
            if plug.host in tied:
                own[plug.host].append(plug)
            elif home[plug.host] in wanted:
                clear.append(plug)
                where[home[plug.host], plug.family, plug.key][plug.leaf] += 1
        self._right = self._usual_leaves(where)
        self._clear_ends = self._misplaced_ends(clear)
        doubled = doubled_hosts([plug for plugs in own.values() for plug in plugs])
        self._options: dict[str, list[_Option]] = {}
        for host in sorted(own, key=natural):
            options = [] if host in doubled else self._of_host(own[host], tied[host])
            if options:
                home[host] = options[0].unit
            if len(options) > 1 and options[0].moves:
                self._options[host] = options
        self._sizes = Counter(unit for host, unit in home.items() if host not in self._options)

    def _usual_leaves(self, where: Mapping[_Slot, Counter[str]]) -> dict[_Slot, str]:
        """Return the leaf of each adapter of each unit, by the hosts that belong there for certain."""
        right: dict[_Slot, str] = {}
        for slot, counts in where.items():
            leaf, most = max(counts.items(), key=lambda item: (item[1], item[0]))
            enough = most >= _LEAST_HOSTS and most >= 2 * (counts.total() - most)
            if enough and self._unit_of_leaf[leaf] == slot[0]:
                right[slot] = leaf
        return right

    def _misplaced_ends(self, clear: Iterable[Plug]) -> set[tuple[str, str]]:
        """Return leaf and right leaf of the misplaced cables of hosts with a clear home."""
        found: set[tuple[str, str]] = set()
        for plug in clear:
            right = self._right.get((self._home[plug.host], plug.family, plug.key), plug.leaf)
            if right != plug.leaf:
                found.add((plug.leaf, right))
        return found

    def _of_host(self, plugs: Sequence[Plug], units: tuple[int, ...]) -> list[_Option]:
        """Return the units with the fewest misplaced cables, of those where one is in place."""
        options: list[tuple[int, _Option]] = []
        for unit in units:
            moves: list[Misplaced] = []
            in_place = strange = 0
            for plug in plugs:
                right = self._right.get((unit, plug.family, plug.key))
                if right is None:
                    strange += self._unit_of_leaf[plug.leaf] != unit
                elif right == plug.leaf:
                    in_place += 1
                else:
                    moves.append(Misplaced(plug, right))
            if in_place:
                options.append((len(moves) + strange, _Option(unit, tuple(moves))))
        least = min((cost for cost, _ in options), default=0)
        return [option for cost, option in options if cost == least]

    def settle(self) -> Homes:
        """Decide by swaps, sizes and names; keep what stays open."""
        pairs, single = self._pairs()
        cases: list[list[_Case]] = list(pairs)
        for host in single:
            options = self._by_clear_hosts(self._options[host])
            if len(options) > 1:
                options = self._by_size(options)
            self._home[host] = options[0].unit
            if len(options) > 1:
                cases.append([[(host, option)] for option in options])
            else:
                self._sizes[options[0].unit] += 1
        if not cases:
            return Homes(self._home)
        open_hosts = {host for case in cases for host, _ in case[0]}
        known = {host: unit for host, unit in self._home.items() if host not in open_hosts}
        order = NameOrder(known, open_hosts)
        return Homes(self._home, tuple(self._doubt(case, order) for case in cases))

    def _pairs(self) -> tuple[list[list[_Case]], list[str]]:
        """Return the explanations of each pair whose cables are swapped, and the hosts left."""
        by_ends: dict[_Ends, list[str]] = defaultdict(list)
        for host in reversed(self._options):
            for option in self._options[host]:
                by_ends[option.ends()].append(host)
        done: set[str] = set()
        pairs: list[list[_Case]] = []
        for host, options in self._options.items():
            if host in done:
                continue
            for option in options:
                waiting = by_ends[option.reverse()]
                while waiting and waiting[-1] in done:
                    waiting.pop()
                other = waiting[-1] if waiting else host
                if other != host:
                    done |= {host, other}
                    pairs.append(self._of_pair(host, other))
                    break
        return pairs, [host for host in self._options if host not in done]

    def _of_pair(self, host: str, other: str) -> list[_Case]:
        return [
            [(host, mine), (other, its)]
            for mine in self._options[host]
            for its in self._options[other]
            if mine.ends() == its.reverse()
        ]

    def _by_clear_hosts(self, options: list[_Option]) -> list[_Option]:
        """Prefer what makes a swap with a cable of a host whose unit is clear."""
        swaps = [option for option in options if option.reverse() <= self._clear_ends]
        return swaps or options

    def _by_size(self, options: list[_Option]) -> list[_Option]:
        """Prefer what gives these units as many hosts as most others have."""
        own = {option.unit for option in options}
        others = Counter(size for unit, size in self._sizes.items() if unit not in own)
        usual, count = max(others.items(), default=(0, 0), key=lambda item: (item[1], item[0]))
        if not count or count * 2 <= others.total():
            return options

        def off(option: _Option) -> int:
            return sum(abs(self._sizes[unit] + (unit == option.unit) - usual) for unit in own)

        least = min(map(off, options))
        return [option for option in options if off(option) == least]

    def _doubt(self, case: list[_Case], order: NameOrder) -> Doubt:
        """Choose among explanations by the hosts' names; the chosen one stands first."""
        units = [{host: option.unit for host, option in way} for way in case]
        best = order.best(units)
        ways = case if best is None else [case[best], *case[:best], *case[best + 1 :]]
        for host, option in ways[0]:
            self._home[host] = option.unit
        return Doubt(
            tuple(tuple(move for _, option in way for move in option.moves) for way in ways),
            by_names=best is not None,
        )
