"""Join all topology sources of one cluster: node types, one fabric, one tree, places of hosts.

What is joined, and on which key, is a list of ``JoinMade``; what differs or cannot be joined is a
list of findings. Nothing depends on the order of the sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.adapter_hosts import named_by_captures
from meshwright.cluster.join.fabric_files import merge_fabric
from meshwright.cluster.join.host_by_guid import hosts_by_guid
from meshwright.cluster.join.host_groups import HostType, join_hosts
from meshwright.cluster.join.host_places import (
    compare,
    names_of,
    of_captures,
    of_fabric,
    of_places,
)
from meshwright.cluster.join.hosts_said import HostsSaid
from meshwright.cluster.join.keys import HostNames
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
from meshwright.cluster.join.said import JoinMade
from meshwright.findings import Finding


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
    by_guid, told_by_guid = hosts_by_guid(listing, own)
    said = hosts_said(listing, ordered, names)
    compared, differences = compare(said, names)
    return Joined(
        hosts=hosts.types,
        fabric=listing,
        tree=tree,
        places=tuple(facts for facts in placing if facts.places or facts.blocks),
        apart=(*hosts.apart, *fabric.apart),
        said=tuple(said),
        joins=(*hosts.joins, *fabric.joins, *join, *by_guid, *compared),
        findings=(
            *hosts.findings,
            *fabric.findings,
            *tree_findings,
            *found,
            *told_by_guid,
            *differences,
        ),
    )


def hosts_said(fabric: Facts | None, sources: Sequence[Facts], names: HostNames) -> list[HostsSaid]:
    """Return what the cables say of hosts, then trees, labels and blocks, then captures."""
    said = [of_fabric(fabric, names)] if fabric is not None and is_fabric(fabric) else []
    placing = [facts for facts in in_order(sources) if _is_placing(facts) and not is_host(facts)]
    said += [of_places(facts, names) for facts in _together(placing) if not is_fabric(facts)]
    captures = of_captures([facts for facts in sources if is_host(facts)], names)
    return [*said, captures] if captures else said


def _together(placing: Sequence[Facts]) -> list[Facts]:
    """Return the sources, those that give one host a file (a driver's view) as one source."""
    single = [facts for facts in placing if facts.format == "nvidia_smi_q_fabric"]
    if len(single) < 2:
        return list(placing)
    first = single[0]
    united = msgspec.structs.replace(
        first,
        path=f"{first.path} and {len(single) - 1} more",
        hosts=tuple(dict.fromkeys(host for facts in single for host in facts.hosts or ())),
        places=tuple(place for facts in single for place in facts.places or ()),
    )
    return [united, *(facts for facts in placing if facts.format != "nvidia_smi_q_fabric")]


def says_hosts(facts: Facts) -> bool:
    """Tell whether a source other than cables says something of named hosts."""
    return not is_fabric(facts) and (_is_placing(facts) or facts.host is not None)


def _is_placing(facts: Facts) -> bool:
    return is_tree(facts) or has_places(facts) or has_domains(facts) or bool(facts.blocks)
