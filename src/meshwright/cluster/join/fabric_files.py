"""Merge listings of one fabric: several tools, one file a plane or a part, forwarding tables.

Nodes are joined by GUID (formats that list ports give an adapter's port GUID: the switch port it
hangs on tells which node it is). A cable is the same when both its ends are. The first source in
the order ``ibnetdiscover``, ``-p``, ``iblinkinfo``, ibsim, NetQ counts, and among equals the first
path by name, whatever order they were given in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from meshwright.cluster.facts import Cable, Facts, Switch
from meshwright.cluster.join.fabric_nodes import Nodes, node_id
from meshwright.cluster.join.fabric_tables import attach_tables
from meshwright.cluster.join.host_files import MERGED
from meshwright.cluster.join.keys import HostNames
from meshwright.cluster.join.kinds import in_order, is_fabric, is_tables, without_copies
from meshwright.cluster.join.said import (
    Difference,
    JoinMade,
    conflict,
    join_made,
    paths_of,
    some,
    told,
)
from meshwright.findings import Finding, Severity
from meshwright.units import format_rate

_SAME_RATE = 0.1
"""A lane's raw and net rate differ by less; two generations by more."""

End = tuple[str, int | None]


class FabricMerge(msgspec.Struct, frozen=True):
    """One fabric's facts (``None`` without a source), sources not joined, joins and findings."""

    facts: Facts | None
    sources: tuple[str, ...] = ()
    apart: tuple[Facts, ...] = ()
    joins: tuple[JoinMade, ...] = ()
    findings: tuple[Finding, ...] = ()


def merge_fabric(sources: Sequence[Facts]) -> FabricMerge:
    """Return the fabric that the sources list; a single one comes back as it is.

    Linear in the number of cables. The findings are those of the join alone.
    """
    ordered = without_copies(in_order(sources))
    listings = [facts for facts in ordered if is_fabric(facts)]
    tables = [facts for facts in ordered if is_tables(facts)]
    apart: list[Facts] = []
    findings: list[Finding] = []
    if len(listings) > 1:
        known = [facts for facts in listings if not _without_guids(facts)]
        if known and len(known) < len(listings):
            apart = [facts for facts in listings if _without_guids(facts)]
            findings = [_no_guids(known[0], facts) for facts in apart]
            listings = known
    joins: list[JoinMade] = []
    merged = listings[0] if listings else None
    if len(listings) > 1:
        merge = _Merge(listings)
        merged = merge.facts()
        findings += merge.findings
        joins = merge.joins
    if tables:
        merged, join, said = attach_tables(merged, tables)
        joins += join
        findings += said
    used = tuple(facts.path for facts in (*listings, *tables))
    return FabricMerge(merged, used, tuple(apart), tuple(joins), tuple(findings))


def _without_guids(facts: Facts) -> bool:
    """Tell whether nodes go by LID, which is a number of one subnet only."""
    ids = [switch.id for switch in facts.switches or ()] + [nic.guid for nic in facts.nics or ()]
    return any(one is not None and one.startswith("lid-") for one in ids)


def _no_guids(kept: Facts, facts: Facts) -> Finding:
    return told(
        "join-refused",
        Severity.WARNING,
        (kept.path, facts.path),
        f"{facts.path} names nodes by LID, which another subnet may use too: without GUIDs it is "
        f"not joined with {kept.path}",
        "keep the header lines of iblinkinfo, or use iblinkinfo -l",
    )


class _Merge:
    """Takes the cables of one source after the other."""

    def __init__(self, sources: Sequence[Facts]) -> None:
        self.sources = sources
        self.findings: list[Finding] = []
        self.joins: list[JoinMade] = []
        self.nodes = Nodes()
        self._cables: dict[tuple[End, End, int], Cable] = {}
        self._far: dict[tuple[str, int], tuple[End, str]] = {}
        """Far end of each port, and the path of the source that says so."""
        for number, facts in enumerate(sources):
            self._take(facts, number)
        names = HostNames(_hosts_of(facts) for facts in sources)
        self._names = names

    def facts(self) -> Facts:
        """Return the merged facts."""
        nodes, names = self.nodes, self._names
        nics = tuple(
            msgspec.structs.replace(
                nic, index=at, host=None if nic.host is None else names.spelled(nic.host)
            )
            for at, nic in enumerate(nodes.nics.values())
        )
        listed = [names.spelled(host) for facts in self.sources for host in facts.hosts or ()]
        return Facts(
            format=MERGED,
            path=paths_of(self.sources),
            nics=nics,
            other_devices=tuple(nodes.others.values()),
            hosts=tuple(dict.fromkeys(listed)),
            switches=tuple(nodes.switches.values()),
            cables=tuple(self._cables.values()),
            counts={k: v for facts in reversed(self.sources) for k, v in facts.counts.items()},
        )

    def _take(self, facts: Facts, number: int) -> None:
        sides = (paths_of(self.sources[:number]), facts.path)
        alias = self._aliases(facts) if number else {}
        before = set(self.nodes.switches)
        self.findings += self.nodes.take(facts, alias, sides)
        rates: list[Difference] = []
        ends: dict[str, list[Difference]] = {}
        count: dict[tuple[End, End], int] = {}
        for cable in facts.cables or ():
            one, other = node_id(cable.a), node_id(cable.b)
            a, b = (alias.get(one, one), cable.a_port), (alias.get(other, other), cable.b_port)
            pair = (a, b) if _order(a) <= _order(b) else (b, a)
            turn = count[pair] = count.get(pair, -1) + 1
            # Without a port number parallel cables are told by their number only.
            key = (*pair, turn if None in (a[1], b[1]) else 0)
            known = self._cables.get(key)
            if known is not None:
                self._same_cable(key, known, cable, rates)
            elif not self._port_taken(pair, facts.path, ends):
                self._cables[key] = msgspec.structs.replace(cable, a=a[0], b=b[0])
                self._plug(pair, facts.path)
        if number:
            self._say(sides, rates, ends, before)

    def _say(
        self,
        sides: tuple[str, str],
        rates: list[Difference],
        ends: dict[str, list[Difference]],
        before: set[str],
    ) -> None:
        if rates:
            taken = f"{sides[0]} is taken"
            self.findings.append(conflict("cable-rate", "the rate", sides, rates, taken))
        for path, differences in ends.items():
            here = (path, sides[1])
            subject = "the far end"
            taken = f"{path} is taken"
            self.findings.append(conflict("far-end", subject, here, differences, taken))
        mine = {node_id(switch.id) for switch in self.sources_switches(sides[1])}
        both = before & mine
        only = (self._named(before - mine), self._named(mine - before))
        self.joins.append(join_made(sides, "guid", len(both), only))
        if both and (only[0] or only[1]):
            self.findings.append(_switches_alone(sides, only))
        elif not both and before and mine:
            self.findings.append(_parts(sides, len(before), len(mine)))

    def sources_switches(self, path: str) -> Iterable[Switch]:
        """Return the switches of the source with this path."""
        return next(facts.switches or () for facts in self.sources if facts.path == path)

    def _named(self, ids: Iterable[str]) -> list[str]:
        switches = self.nodes.switches
        return sorted(switches[one].name if one in switches else one for one in ids)

    def _same_cable(
        self, key: tuple[End, End, int], known: Cable, cable: Cable, rates: list[Difference]
    ) -> None:
        one, two = known.rate_bytes_per_s, cable.rate_bytes_per_s
        if one and two and abs(one - two) > _SAME_RATE * max(one, two):
            rates.append(Difference(self._cable(key), format_rate(one), format_rate(two)))
        self._cables[key] = msgspec.structs.replace(
            known,
            rate_bytes_per_s=one or two,
            listed_twice=known.listed_twice or cable.listed_twice,
        )

    def _cable(self, key: tuple[End, End, int]) -> str:
        return f"the cable {self._end(key[0])} to {self._end(key[1])}"

    def _end(self, end: End) -> str:
        name = self.nodes.name(end[0])
        return name if end[1] is None else f"{name} port {end[1]}"

    def _port_taken(
        self, pair: tuple[End, End], path: str, ends: dict[str, list[Difference]]
    ) -> bool:
        """Tell whether another source has another cable in one of the two ports."""
        for here, there in (pair, pair[::-1]):
            if here[1] is None:
                continue
            known = self._far.get((here[0], here[1]))
            if known is not None and known[1] != path:
                found = Difference(self._end(here), self._end(known[0]), self._end(there))
                ends.setdefault(known[1], []).append(found)
                return True
        return False

    def _plug(self, pair: tuple[End, End], path: str) -> None:
        for here, there in (pair, pair[::-1]):
            if here[1] is not None:
                self._far.setdefault((here[0], here[1]), (there, path))

    def _aliases(self, facts: Facts) -> dict[str, str]:
        """Return adapters that go by another id here: same switch port, same host and device."""
        known_nics = self.nodes.nics
        ids = ((node_id(nic.guid), nic) for nic in facts.nics or () if nic.guid is not None)
        new = {one: nic for one, nic in ids if one not in known_nics}
        if not new:
            return {}
        found: dict[str, str] = {}
        for cable in facts.cables or ():
            for near, port, far in (
                (cable.a, cable.a_port, cable.b),
                (cable.b, cable.b_port, cable.a),
            ):
                nic = new.get(node_id(far))
                if nic is None or port is None:
                    continue
                known = self._far.get((node_id(near), port))
                other = known_nics.get(known[0][0]) if known is not None else None
                if other is not None and self.nodes.is_same_adapter(other, nic):
                    found[node_id(far)] = node_id(other.guid)
        return found


def _order(end: End) -> tuple[str, int]:
    return (end[0], -1 if end[1] is None else end[1])


def _hosts_of(facts: Facts) -> Iterable[str]:
    return dict.fromkeys(
        [*(facts.hosts or ()), *(nic.host for nic in facts.nics or () if nic.host is not None)]
    )


def _switches_alone(sides: tuple[str, str], only: tuple[list[str], list[str]]) -> Finding:
    parts = [
        f"{len(names)} only in {path} ({some(names, 4)})"
        for path, names in zip(sides, only, strict=True)
        if names
    ]
    return told(
        "switch-in-one-only",
        Severity.NOTE,
        sides,
        f"switches that one source alone has: {'; '.join(parts)}; all are kept",
        only_left=len(only[0]),
        only_right=len(only[1]),
    )


def _parts(sides: tuple[str, str], left: int, right: int) -> Finding:
    return told(
        "fabric-parts",
        Severity.NOTE,
        sides,
        f"{sides[0]} ({left} switches) and {sides[1]} ({right}) share no switch: they are taken as "
        "two planes or parts of one cluster, with no cable between",
        in_left=left,
        in_right=right,
    )
