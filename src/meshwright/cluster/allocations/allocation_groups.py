"""Which leaf and which block each host is in, from whatever source says so.

A *leaf* is the switch (or the unit of rails) under which hosts are together; a *block* a scheduler's
block or, without one, an NVLink domain. The source that knows most of the hosts asked for is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.switches.switch_levels import derive_levels


class HostGroups(msgspec.Struct, frozen=True):
    """Groups of hosts that a source names, in the source's order."""

    kind: str
    """``leaf``, ``unit`` (a set of rails' leaves), ``place``, ``block`` or ``nvlink_domain``."""
    path: str
    members: Mapping[str, Sequence[str]]
    """All hosts of each group, as the source names them."""


def best_groups(candidates: Iterator[HostGroups], hosts: Sequence[str]) -> HostGroups | None:
    """Return the groups that hold most of the hosts; the first of equals; ``None`` without any."""
    best, most = None, 0
    for groups in candidates:
        found = len(group_of(groups, hosts))
        if found > most:
            best, most = groups, found
    return best


def group_of(groups: HostGroups, hosts: Sequence[str]) -> dict[str, str]:
    """Return the group of each host that is in one.

    A host is found by its name, else by its first word without case, where that is unique.
    """
    exact: dict[str, str] = {}
    short: dict[str, str | None] = {}
    for name, members in groups.members.items():
        for host in members:
            exact[host] = name
            word = _short(host)
            short[word] = name if short.get(word, name) == name else None
    found = {host: exact.get(host) or short.get(_short(host)) for host in hosts}
    return {host: name for host, name in found.items() if name is not None}


def leaf_groups(sources: Sequence[Facts]) -> Iterator[HostGroups]:
    """Yield what each source says of leaves: trees of switches, cables, places."""
    for of in (_of_tree, _of_cables, _of_places):
        yield from _all(sources, of)


def block_groups(sources: Sequence[Facts]) -> Iterator[HostGroups]:
    """Yield what each source says of blocks: a scheduler's, then NVLink domains."""
    for of in (_of_blocks, _of_domains):
        yield from _all(sources, of)


def _all(
    sources: Sequence[Facts], of: Callable[[Facts], HostGroups | None]
) -> Iterator[HostGroups]:
    for facts in sources:
        groups = of(facts)
        if groups is not None and groups.members:
            yield groups


def _short(host: str) -> str:
    return host.partition(".")[0].lower()


def _of_tree(facts: Facts) -> HostGroups | None:
    if not facts.tree:
        return None
    leaves = {one.comment or one.name: one.hosts for one in facts.tree if one.hosts}
    return HostGroups("leaf", facts.path, leaves)


def _of_cables(facts: Facts) -> HostGroups | None:
    """Return hosts by unit: a host with an adapter on each rail is under several leaves."""
    if not facts.cables or not facts.nics:
        return None
    levels = derive_levels(facts)
    names = {switch.id: switch.name for switch in facts.switches or ()}
    leaves: dict[int, list[str]] = {}
    for leaf, unit in levels.unit_of_leaf.items():
        leaves.setdefault(unit, []).append(leaf)
    title = {
        unit: names.get(found[0], found[0]) if len(found) == 1 else f"unit {unit}"
        for unit, found in leaves.items()
    }
    unit_of: dict[str, int] = {}
    for nic in facts.nics:
        own = levels.leaf_of_nic.get(nic.guid or "")
        if nic.host is not None and own is not None:
            unit_of.setdefault(nic.host, levels.unit_of_leaf[own])
    members: dict[str, list[str]] = {title[unit]: [] for unit in sorted(title)}
    for host, unit in unit_of.items():
        members[title[unit]].append(host)
    several = any(len(found) > 1 for found in leaves.values())
    return HostGroups("unit" if several else "leaf", facts.path, members)


def _of_places(facts: Facts) -> HostGroups | None:
    members: dict[str, list[str]] = {}
    for place in facts.places or ():
        if place.tiers:
            members.setdefault(place.tiers[0], []).append(place.host)
    return HostGroups("place", facts.path, members)


def _of_blocks(facts: Facts) -> HostGroups | None:
    blocks = {one.comment or one.name: one.hosts for one in facts.blocks or () if one.hosts}
    return HostGroups("block", facts.path, blocks)


def _of_domains(facts: Facts) -> HostGroups | None:
    members: dict[str, list[str]] = {}
    for place in facts.places or ():
        if place.nvlink_domain is not None:
            members.setdefault(place.nvlink_domain, []).append(place.host)
    return HostGroups("nvlink_domain", facts.path, members)
