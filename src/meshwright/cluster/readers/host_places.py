"""From what labels and clouds say of each host to places with whole names, and to a tree.

A tier that says nothing ends what is known of a host: above a gap no path can be drawn, and a host
whose nearest tier is unknown has no place. Names of logical places (rack ``r1``) are unique only
under their parent, so they are written ``b1/r1``; names of switches stand for themselves unless
the file shows one under two parents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from meshwright.cluster.facts import HostPlace, Switch, TreeSwitch
from meshwright.cluster.readers.document_values import shown
from meshwright.cluster.readers.host_places_findings import depth_findings, warn
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place

_MAX_TIERS = 16


class RawPlace(msgspec.Struct, frozen=True):
    """What a source says of one host; ``tiers`` nearest first, ``None`` where it says nothing."""

    host: str
    tiers: tuple[str | None, ...]
    place: Place
    nvlink_domain: str | None = None
    whole: bool = False
    """Names are unique only under their parent."""
    switches: bool = False
    """The tiers are switches, not logical places."""


class Settled(msgspec.Struct, frozen=True):
    """Places of all hosts, and the tree of those tiers that are switches."""

    hosts: tuple[str, ...]
    places: tuple[HostPlace, ...]
    switches: tuple[Switch, ...]
    tree: tuple[TreeSwitch, ...]
    findings: tuple[Finding, ...]


def settle(raw: Iterable[RawPlace], path: str) -> Settled:
    """Return places, switches and findings; a host listed twice keeps its first place.

    Raises ``InputError`` for a host that names more than 16 tiers.
    """
    once, findings = _each_once(raw)
    known = [_nearest_known(one.tiers) for one in once]
    named, ambiguous = _named(once, known, path)
    places = tuple(
        HostPlace(one.host, tiers, one.nvlink_domain)
        for one, tiers in zip(once, named, strict=True)
    )
    tree = _tree(
        (place, one.place.line)
        for one, place in zip(once, places, strict=True)
        if one.switches and place.tiers
    )
    broken = {
        one.host for one, tiers in zip(once, known, strict=True) if any(one.tiers[1:]) and not tiers
    }
    return Settled(
        hosts=tuple(one.host for one in once),
        places=places,
        switches=tuple(Switch(switch.name, switch.name) for switch in tree),
        tree=tree,
        findings=(*findings, *ambiguous, *depth_findings(places, broken, path)),
    )


def _each_once(raw: Iterable[RawPlace]) -> tuple[list[RawPlace], list[Finding]]:
    first: dict[str, RawPlace] = {}
    moved: list[RawPlace] = []
    for one in raw:
        if len(one.tiers) > _MAX_TIERS:
            message = f"host {one.host[:80]} names more than {_MAX_TIERS} tiers"
            raise InputError(Problem(one.place, message))
        kept = first.setdefault(one.host, one)
        if (kept.tiers, kept.nvlink_domain) != (one.tiers, one.nvlink_domain):
            moved.append(one)
    if not moved:
        return list(first.values()), []
    names = tuple(dict.fromkeys(one.host for one in moved))
    message = f"{len(names)} hosts stand twice, with two places ({shown(names)}); the first is kept"
    finding = warn("topology/host-twice", moved[0].place, message, names)
    return list(first.values()), [finding]


def _nearest_known(tiers: Sequence[str | None]) -> tuple[str, ...]:
    known: list[str] = []
    for name in tiers:
        if name is None:
            break
        known.append(name)
    return tuple(known)


def _named(
    raw: Sequence[RawPlace], known: Sequence[tuple[str, ...]], path: str
) -> tuple[list[tuple[str, ...]], list[Finding]]:
    """Return the names of every host's tiers, made whole where they must be."""
    plain = [tiers for one, tiers in zip(raw, known, strict=True) if not one.whole]
    ambiguous = _ambiguous(plain)
    named = [
        _whole(tiers) if one.whole or ambiguous else tiers
        for one, tiers in zip(raw, known, strict=True)
    ]
    if not ambiguous:
        return named, []
    message = (
        f"{len(ambiguous)} names stand under two parents or at two levels ({shown(ambiguous)}); "
        "each is taken as one of its own, and all are named with their parents"
    )
    return named, [warn("topology/name-not-unique", Place(path), message, ambiguous)]


def _whole(tiers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("/".join(reversed(tiers[level:])) for level in range(len(tiers)))


def _ambiguous(chains: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names that one chain puts under another parent, or at another level, than before.

    Without such a name every switch has one parent of the next level, so the tree has no cycle.
    """
    level_of: dict[str, int] = {}
    parent_of: dict[str, str] = {}
    odd: dict[str, None] = {}
    for chain in chains:
        for level, name in enumerate(chain):
            parent = chain[level + 1] if level + 1 < len(chain) else None
            if level_of.setdefault(name, level) != level:
                odd[name] = None
            if parent is not None and parent_of.setdefault(name, parent) != parent:
                odd[name] = None
    return tuple(odd)


def _tree(places: Iterable[tuple[HostPlace, int | None]]) -> tuple[TreeSwitch, ...]:
    """Return the switches, each before those under it, in the order of the hosts."""
    children: dict[str, dict[str, None]] = {}
    hosts: dict[str, list[str]] = {}
    line_of: dict[str, int | None] = {}
    for place, line in places:
        parent: str | None = None
        for name in reversed(place.tiers):
            line_of.setdefault(name, line)
            children.setdefault(name, {})
            if parent is not None:
                children[parent][name] = None
            parent = name
        hosts.setdefault(place.tiers[0], []).append(place.host)
    return tuple(
        TreeSwitch(name, tuple(below), tuple(hosts.get(name, ())), line_of[name])
        for name, below in children.items()
    )
