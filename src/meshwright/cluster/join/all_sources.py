"""Join all topology sources of one cluster: node types, one fabric, one tree, places of hosts.

What is joined, and on which key, is a list of ``JoinMade``; what differs or cannot be joined is a
list of findings. Nothing depends on the order of the sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.join.fabric_files import merge_fabric
from meshwright.cluster.join.host_groups import HostType, join_hosts
from meshwright.cluster.join.host_places import (
    HostsSaid,
    compare,
    names_of,
    of_captures,
    of_fabric,
    of_places,
)
from meshwright.cluster.join.keys import HostNames, guid_key
from meshwright.cluster.join.kinds import (
    has_domains,
    has_places,
    in_order,
    is_fabric,
    is_host,
    is_tables,
    is_tree,
    without_copies,
)
from meshwright.cluster.join.places_tree import network_tree
from meshwright.cluster.join.said import Difference, JoinMade, conflict, join_made, told
from meshwright.findings import Finding, Severity


class Joined(msgspec.Struct, frozen=True):
    """All sources together."""

    hosts: tuple[HostType, ...]
    """Node types: the commonest first."""
    fabric: Facts | None
    """Cables of all listings, each once, and forwarding tables."""
    tree: Facts | None
    """One tree of switches and hosts, of schedulers, labels or clouds."""
    places: tuple[Facts, ...]
    """Sources that give places, blocks or NVLink domains of hosts."""
    apart: tuple[Facts, ...]
    """Sources that could not be joined with the others; findings say why."""
    said: tuple[HostsSaid, ...]
    """What each source says of hosts by key: leaf (of a fabric: unit), domain, block."""
    joins: tuple[JoinMade, ...]
    findings: tuple[Finding, ...]
    """Of the joins alone; each source keeps its own."""


def join_sources(sources: Sequence[Facts]) -> Joined:
    """Return what the sources say together. Work is linear in what they list.

    Sources that say the same as another one count once.
    """
    ordered = without_copies(in_order(sources))
    own = [facts for facts in ordered if is_host(facts)]
    hosts = join_hosts(own)
    fabric = merge_fabric([facts for facts in ordered if is_fabric(facts) or is_tables(facts)])
    placing = [facts for facts in ordered if _is_placing(facts)]
    tree, tree_findings = network_tree(placing)
    names = names_of(ordered)
    listing, join, found = named_by_captures(fabric.facts, own, names)
    said = hosts_said(listing, ordered, names)
    compared, differences = compare(said, names)
    return Joined(
        hosts=hosts.types,
        fabric=listing,
        tree=tree,
        places=tuple(facts for facts in placing if facts.places or facts.blocks),
        apart=(*hosts.apart, *fabric.apart),
        said=tuple(said),
        joins=(*hosts.joins, *fabric.joins, *join, *compared),
        findings=(*hosts.findings, *fabric.findings, *tree_findings, *found, *differences),
    )


def hosts_said(fabric: Facts | None, sources: Sequence[Facts], names: HostNames) -> list[HostsSaid]:
    """Return what the cables say of hosts, then trees, labels and blocks, then captures."""
    said = [of_fabric(fabric, names)] if fabric is not None and is_fabric(fabric) else []
    placing = [facts for facts in in_order(sources) if _is_placing(facts) and not is_host(facts)]
    said += [of_places(facts, names) for facts in placing if not is_fabric(facts)]
    captures = of_captures([facts for facts in sources if is_host(facts)], names)
    return [*said, captures] if captures else said


def says_hosts(facts: Facts) -> bool:
    """Tell whether a source other than cables says something of named hosts."""
    return not is_fabric(facts) and (_is_placing(facts) or facts.host is not None)


def _is_placing(facts: Facts) -> bool:
    return is_tree(facts) or has_places(facts) or has_domains(facts) or bool(facts.blocks)


def named_by_captures(
    fabric: Facts | None, captures: Sequence[Facts], names: HostNames
) -> tuple[Facts | None, list[JoinMade], list[Finding]]:
    """Give adapters without a host name the host whose capture has their GUID."""
    owner = _owners(captures)
    if fabric is None or fabric.nics is None or not owner:
        return fabric, [], []
    nics: list[Nic] = []
    differ: dict[str, list[Difference]] = {}
    named = matched = 0
    for listed in fabric.nics:
        nic = listed
        found = owner.get(guid_key(nic.guid) or "")
        matched += found is not None
        if found is not None and nic.host is None:
            named += 1
            host = names.spelled(found[0].host or "")
            nic = msgspec.structs.replace(nic, host=host, name=found[1].name)
        elif found is not None and names.key(nic.host or "") != names.key(found[0].host or ""):
            shown = Difference(f"adapter {nic.guid}", str(nic.host), str(found[0].host))
            differ.setdefault(found[0].path, []).append(shown)
        nics.append(nic)
    used = sorted({facts.path for facts, _ in owner.values()})
    sides = (fabric.path, used[0] if len(used) == 1 else f"{used[0]} and {len(used) - 1} more")
    findings = [
        conflict("adapter-host", "the host", (fabric.path, path), one, f"{fabric.path} is taken")
        for path, one in differ.items()
    ]
    seen = {guid_key(nic.guid) for nic in fabric.nics}
    absent = [
        f"{facts.host} {nic.name}" for guid, (facts, nic) in owner.items() if guid not in seen
    ]
    joins = [join_made(sides, "guid", matched, ((), absent))]
    if not named:
        return fabric, joins, findings
    message = (
        f"{named} adapters of {fabric.path} have no host name; their GUID names it in {sides[1]}"
    )
    findings.append(told("host-by-guid", Severity.NOTE, sides, message, None, adapters=named))
    hosts = dict.fromkeys([*(fabric.hosts or ()), *(nic.host for nic in nics if nic.host)])
    filled = msgspec.structs.replace(fabric, nics=tuple(nics), hosts=tuple(hosts))
    return filled, joins, findings


def _owners(captures: Sequence[Facts]) -> dict[str, tuple[Facts, Nic]]:
    """Return by GUID the adapters of hosts that name themselves."""
    owner: dict[str, tuple[Facts, Nic]] = {}
    for facts in captures:
        for nic in facts.nics or ():
            guid = guid_key(nic.guid)
            if facts.host and guid is not None:
                owner.setdefault(guid, (facts, nic))
    return owner
