"""Host cables on the wrong leaf: an adapter on another leaf than that adapter of most hosts.

Two misplaced cables, each where the other belongs, are one fault: the two are swapped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set

import msgspec

from meshwright.cluster.switch_names import short_name
from meshwright.findings import Finding, Number, Place, Severity

RULE = "topology/rail-miscabled"


class Plug(msgspec.Struct, frozen=True):
    """A cable between a named host's adapter and a leaf."""

    host: str
    leaf: str
    name: str
    family: str
    """The adapter's name without its numbers."""
    key: tuple[int, ...]
    """Numbers in the adapter's name, then its port: the order of a host's adapters."""
    leaf_port: int | None = None
    port: int | None = None
    """Port of the adapter."""
    guid: str | None = None


_Slot = tuple[int, str, tuple[int, ...]]
"""Unit of the host, family and key of the adapter."""


class Misplaced(msgspec.Struct, frozen=True):
    """A misplaced cable and the leaf where it belongs."""

    plug: Plug
    right: str


def expected_leaves(
    plugs: Sequence[Plug], unit_of_host: Mapping[str, int], unit_of_leaf: Mapping[str, int]
) -> dict[_Slot, str]:
    """Return the leaf of most hosts of a unit, for adapters on several leaves, where it is clear."""
    where: dict[_Slot, Counter[str]] = defaultdict(Counter)
    for plug in plugs:
        where[unit_of_host[plug.host], plug.family, plug.key][plug.leaf] += 1
    expected: dict[_Slot, str] = {}
    for slot, counts in where.items():
        leaf, most = counts.most_common(1)[0]
        clear = len(counts) > 1 and most >= 2 * (counts.total() - most)
        if clear and unit_of_leaf[leaf] == slot[0]:
            expected[slot] = leaf
    return expected


def doubled_hosts(plugs: Sequence[Plug]) -> set[str]:
    """Return names that more than one machine has: no one can tell where each of them belongs."""
    guids: dict[tuple[str, str, int | None], str | None] = {}
    return {
        plug.host
        for plug in plugs
        if guids.setdefault((plug.host, plug.name, plug.port), plug.guid) != plug.guid
    }


class SwapFinder:
    """Finds misplaced cables; ``names`` has each switch's name by its id."""

    def __init__(self, path: str, names: Mapping[str, str], plugs: Sequence[Plug]) -> None:
        self._path = path
        self._names = names
        self._plugs = plugs

    def findings(
        self,
        unit_of_host: Mapping[str, int],
        unit_of_leaf: Mapping[str, int],
        apart: Set[str] = frozenset(),
    ) -> list[Finding]:
        """Return one finding for each swapped pair, then one for each host with others.

        ``apart``: hosts of which nothing is to be said here.
        """
        expected = expected_leaves(self._plugs, unit_of_host, unit_of_leaf)
        doubled = doubled_hosts(self._plugs)
        wrong = [
            Misplaced(plug, right)
            for plug in self._plugs
            if (right := expected.get((unit_of_host[plug.host], plug.family, plug.key), plug.leaf))
            != plug.leaf
            and plug.host not in doubled
            and plug.host not in apart
        ]
        if not wrong:
            return []
        usual: dict[str, Counter[str]] = defaultdict(Counter)
        for plug in self._plugs:
            usual[plug.leaf][plug.name] += 1
        renumbered = _renumbered(wrong)
        swaps, rest = _pair_up([one for one in wrong if one.plug.host not in renumbered])
        alone: dict[str, list[Misplaced]] = defaultdict(list)
        for one in rest:
            alone[one.plug.host].append(one)
        return [
            *(self._swap(one, other) for one, other in swaps),
            *(self._misplaced(own, usual) for own in alone.values()),
            *(self._renumbered(own) for own in renumbered.values()),
        ]

    def _short(self, switch: str) -> str:
        return short_name(self._names[switch])

    def _swap(self, one: Misplaced, other: Misplaced) -> Finding:
        both = (one, other)
        ends = [f"{self._adapter(each.plug)} on {self._at(each.plug)}" for each in both]
        message = (
            f"two cables are swapped: {ends[0]} belongs on {self._short(one.right)}, and {ends[1]} belongs on "
            f"{self._short(other.right)}, as the same adapters of most hosts there"
        )
        remedy = (
            f"swap the two cables at {self._at(one.plug)} and {self._at(other.plug)} (or at the two "
            "adapters), and list the fabric again"
        )
        if one.plug.host == other.plug.host:
            remedy += "; if this host's adapters are only numbered otherwise than the others', rename them instead"
        return self._finding(both, message, remedy)

    def _misplaced(self, own: Sequence[Misplaced], usual: Mapping[str, Counter[str]]) -> Finding:
        words = [
            f"{each.plug.name}{port_words(each.plug.port)} is on {self._at(each.plug)} (most hosts there: "
            f"{usual[each.plug.leaf].most_common(1)[0][0]}) and belongs on {self._short(each.right)}"
            for each in own
        ]
        message = f"host {own[0].plug.host}: {'; '.join(words)}"
        moves = "; ".join(
            f"from {self._at(one.plug)} to {self._short(one.right)}" for one in own[:8]
        )
        remedy = f"move the cable {moves}; see what else hangs there, and list the fabric again"
        return self._finding(own, message, remedy)

    def _renumbered(self, own: Sequence[Misplaced]) -> Finding:
        words = [
            f"{each.plug.name}{port_words(each.plug.port)} on {self._at(each.plug)} belongs on "
            f"{self._short(each.right)}"
            for each in own
        ]
        host = own[0].plug.host
        message = (
            f"host {host}: {len(own)} cables hang on each other's leaves, or its adapters are numbered otherwise "
            f"than those of its unit's other hosts: {'; '.join(words)}"
        )
        remedy = (
            f"compare PCI addresses of the adapters of {host} with another host's (ibdev2netdev -v): where they are "
            "numbered otherwise, rename the adapters instead of moving cables (udev rule by PCI address); else move "
            f"the cables at {' and '.join(self._at(one.plug) for one in own[:8])}"
        )
        return self._finding(own, message, remedy)

    def _adapter(self, plug: Plug) -> str:
        return f"host {plug.host} {plug.name}{port_words(plug.port)}"

    def _at(self, plug: Plug) -> str:
        return f"{self._short(plug.leaf)}{port_words(plug.leaf_port)}"

    def _finding(self, wrong: Sequence[Misplaced], message: str, remedy: str) -> Finding:
        place = Place(self._path, subject=self._at(wrong[0].plug))
        numbers = numbers_of(wrong, self._names)
        return Finding(RULE, Severity.WARNING, place, message, numbers, remedy)


def _renumbered(wrong: Sequence[Misplaced]) -> dict[str, list[Misplaced]]:
    """Return the hosts with three cables or more, each on the leaf of another one of them."""
    by_host: dict[str, list[Misplaced]] = defaultdict(list)
    for one in wrong:
        by_host[one.plug.host].append(one)
    return {
        host: own
        for host, own in by_host.items()
        if len(own) > 2 and sorted(one.plug.leaf for one in own) == sorted(one.right for one in own)
    }


def numbers_of(wrong: Sequence[Misplaced], names: Mapping[str, str]) -> dict[str, Number]:
    """Return a finding's numbers on misplaced cables; ``names``: of switches by id."""
    plugs = [one.plug for one in wrong]
    return {
        "host": plugs[0].host,
        "hosts": [plug.host for plug in plugs],
        "adapters": [plug.name for plug in plugs],
        "adapter_ports": [plug.port for plug in plugs],
        "leaves": [names[plug.leaf] for plug in plugs],
        "leaf_ports": [plug.leaf_port for plug in plugs],
        "expected_leaves": [names[one.right] for one in wrong],
    }


def port_words(number: int | None) -> str:
    """Return `` port 3``, or nothing where the port is unknown."""
    return "" if number is None else f" port {number}"


def _pair_up(
    wrong: Sequence[Misplaced],
) -> tuple[list[tuple[Misplaced, Misplaced]], list[Misplaced]]:
    """Pair cables that hang each where the other belongs: of one host first, then of one adapter."""
    waiting: dict[tuple[str, str], list[Misplaced]] = defaultdict(list)
    for one in wrong:
        waiting[one.plug.leaf, one.right].append(one)
    pairs: list[tuple[Misplaced, Misplaced]] = []
    rest: list[Misplaced] = []
    for (leaf, right), here in waiting.items():
        there = waiting.get((right, leaf), [])
        if leaf > right and there:
            continue  # paired from the other side
        left = _match(here, there, pairs)
        rest += [one for one in (*here, *there) if id(one) in left]
    order = {id(one): at for at, one in enumerate(wrong)}
    # Whatever the order of the file, a pair reads the same.
    pairs = [(one, other) if _key(one) <= _key(other) else (other, one) for one, other in pairs]
    return (
        sorted(pairs, key=lambda pair: order[id(pair[0])]),
        sorted(rest, key=lambda one: order[id(one)]),
    )


def _match(
    here: Sequence[Misplaced], there: Sequence[Misplaced], pairs: list[tuple[Misplaced, Misplaced]]
) -> set[int]:
    """Append pairs and return the ids of what is left: by host, by adapter, then as they come."""
    open_here = {id(one): one for one in here}
    open_there = {id(one): one for one in there}
    for kind in (_host, _name, _any):
        by_kind: dict[str, list[Misplaced]] = defaultdict(list)
        for other in open_there.values():
            by_kind[kind(other)].append(other)
        for one in list(open_here.values()):
            found = by_kind[kind(one)]
            if found:
                other = found.pop(0)
                pairs.append((one, other))
                del open_here[id(one)], open_there[id(other)]
    return {*open_here, *open_there}


def _key(one: Misplaced) -> tuple[str, tuple[int, ...], str]:
    return one.plug.host, one.plug.key, one.plug.leaf


def _host(one: Misplaced) -> str:
    return one.plug.host


def _name(one: Misplaced) -> str:
    return one.plug.name


def _any(_: Misplaced) -> str:
    return ""
