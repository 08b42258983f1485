"""Cables that run slower than their peers.

A cable is compared at both of its ends: one that is slower than most of its leaf's and most of its
spine's is odd, while a switch or host of an older generation has slow cables only and is not.
Where nearly all of a tier run faster, all cables of one switch or host at a lower rate are odd too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

import msgspec

from meshwright.cluster.degraded.peers import some
from meshwright.cluster.facts import Facts
from meshwright.cluster.switch_names import short_name
from meshwright.cluster.switches.switch_levels import Cabling, SwitchLevels
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import format_rate

_NEARLY_ALL = 0.9
_LEAST_PEERS = 3
_LISTED = 100


class _End(msgspec.Struct, frozen=True):
    """An end of a cable: a switch, or an adapter of a host."""

    owner: str
    """Name of the switch or host."""
    device: str | None
    port: int | None

    def __str__(self) -> str:
        name = short_name(self.owner) if self.device is None else f"{self.owner} {self.device}"
        return name if self.port is None else f"{name} port {self.port}"


class _Run(msgspec.Struct, frozen=True):
    """A cable: ``low`` ends at a leaf or host, ``high`` at the switch above."""

    kind: Hashable
    """``host``, or the levels of the two switches: one end's cables of a kind are compared."""
    group: Hashable
    """The other end's: below a leaf, only cables of the same adapter name are peers."""
    low: _End
    high: _End
    rate: float


def cable_rate_findings(facts: Facts, cabling: Cabling, levels: SwitchLevels) -> list[Finding]:
    """Return one finding for each end (leaf or host) whose cables are slow; linear in the cables."""
    if len({cable.rate_bytes_per_s for cable in facts.cables or ()} - {None}) < 2:
        return []
    groups: dict[Hashable, list[_Run]] = defaultdict(list)
    own: dict[tuple[Hashable, str], Counter[float]] = defaultdict(Counter)
    for run in _runs(facts, cabling, levels):
        groups[run.group].append(run)
        own[run.kind, run.low.owner][run.rate] += 1
    odd: dict[str, list[_Run]] = defaultdict(list)
    rates: dict[str, Counter[float]] = {}
    for group in groups.values():
        for run in _slow(group, own):
            odd[run.low.owner].append(run)
            rates[run.low.owner] = Counter(one.rate for one in group)
    # iblinkinfo's reader counts the cables that could run faster itself.
    below = [one for one in facts.findings if one.rule == "topology/link-below-capability"]
    told = sum(int(str(one.numbers["count"])) for one in below)
    if told >= sum(map(len, odd.values())):
        return []
    return [_finding(facts.path, runs, rates[low]) for low, runs in odd.items()]


def _runs(facts: Facts, cabling: Cabling, levels: SwitchLevels) -> Iterator[_Run]:
    level, names = levels.level_by_switch, cabling.names
    hosts = {nic.guid: nic for nic in facts.nics or () if nic.guid is not None}
    for cable in facts.cables or ():
        rate = cable.rate_bytes_per_s
        ends = ((cable.a, cable.a_port), (cable.b, cable.b_port))
        if not rate:
            continue
        if cable.a in names and cable.b in names:
            low, high = sorted(ends, key=lambda end: level.get(end[0], len(names)))
            tiers = (level.get(low[0], -1), level.get(high[0], -1))
            one, other = (_End(names[guid], None, port) for guid, port in (low, high))
            yield _Run(tiers, tiers, one, other, rate)
            continue
        for (near, near_port), (far, far_port) in (ends, ends[::-1]):
            nic = hosts.get(far)
            if near in names and nic is not None:
                host = _End(nic.host or f"adapter {far}", nic.name, far_port)
                # Without a host's name the adapter's own says nothing either.
                group = ("host", nic.name if nic.host else None)
                yield _Run("host", group, host, _End(names[near], None, near_port), rate)


def _slow(
    runs: Sequence[_Run], own: Mapping[tuple[Hashable, str], Mapping[float, int]]
) -> list[_Run]:
    """Return the slow ones of a group; ``own``: rates of all cables of an end, by kind and end."""
    rates = Counter(run.rate for run in runs)
    if len(rates) < 2:
        return []
    above: dict[str, Counter[float]] = defaultdict(Counter)
    for run in runs:
        above[run.high.owner][run.rate] += 1
    top, count = rates.most_common(1)[0]
    nearly_all = count >= _NEARLY_ALL * len(runs)
    return [
        run
        for run in runs
        if sum(number for rate, number in rates.items() if rate > run.rate) >= _LEAST_PEERS
        and (
            (nearly_all and run.rate < top)
            or run.rate < min(_most(own[run.kind, run.low.owner]), _most(above[run.high.owner]))
        )
    ]


def _most(counts: Mapping[float, int]) -> float:
    """Return the most frequent rate, the higher of equals."""
    return max(counts, key=lambda rate: (counts[rate], rate))


def _finding(path: str, odd: Sequence[_Run], rates: Mapping[float, int]) -> Finding:
    """Return the finding on the slow cables of one leaf or host; ``rates`` are those of the peers."""
    low, slowest = odd[0].low.owner, min(run.rate for run in odd)
    peers = _most({rate: count for rate, count in rates.items() if rate > slowest})
    which = "a cable runs" if len(odd) == 1 else f"{len(odd)} cables run"
    shown = [f"{run.low} to {run.high}" for run in odd]
    message = (
        f"{short_name(low)}: {which} at {format_rate(slowest)} where {rates[peers]} like it run at "
        f"{format_rate(peers)}: {some(shown, 6)}"
    )
    numbers: dict[str, Number] = {
        "at": low,
        "cables": [*shown[:_LISTED]],
        "bytes_per_s": slowest,
        "peers_bytes_per_s": peers,
        "peers": rates[peers],
    }
    return Finding(
        "topology/cable-slow",
        Severity.WARNING,
        Place(path, subject=shown[0]),
        message,
        numbers,
        "reseat or replace the cable, and look at width and speed of both ports (iblinkinfo, mlxlink)",
    )
