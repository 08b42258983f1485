"""The fabric of a cluster from one file or several: cables first, else a tree of switches."""

from __future__ import annotations

from pathlib import Path

from meshwright.cluster.assembly.merging import Merge
from meshwright.cluster.facts import Facts
from meshwright.cluster.join.adapter_hosts import named_by_captures, still_unplaced
from meshwright.cluster.join.all_sources import hosts_said, says_hosts
from meshwright.cluster.join.fabric_files import merge_fabric
from meshwright.cluster.join.host_places import compare, names_of
from meshwright.cluster.join.kinds import has_places, is_fabric, is_host, is_tables, is_tree
from meshwright.cluster.join.places_tree import network_tree
from meshwright.cluster.sections import HostList


def fabric_facts(merge: Merge, sources: HostList) -> Facts:
    """Return what the files of ``fabric.from`` say of the network.

    Cables and forwarding tables are joined; without any, the tree of a scheduler, labels or a cloud
    is taken. Adapters without a host name get that of a capture (of ``node.from``) with their GUID.
    Raises ``InputError`` where nothing in them joins hosts.
    """
    files = merge.read_all(sources, "fabric.from")
    if any(is_fabric(facts) for facts in files):
        joined = merge_fabric([facts for facts in files if is_fabric(facts) or is_tables(facts)])
        merge.findings += joined.findings
        captures = [facts for facts in merge.facts if is_host(facts)]
        listing, _, found = named_by_captures(joined.facts, captures, names_of(merge.facts))
        merge.findings += found
        for facts in filter(is_fabric, files):
            _settle(merge, facts, listing)
        return listing or files[0]
    if any(is_tables(facts) for facts in files):
        raise merge.fail(
            "fabric.from",
            f"{Path(files[0].path).name} holds forwarding tables and no cables",
            "fabric: {from: [ibnetdiscover.txt, opensm-lfts.dump]}",
        )
    tree, found = network_tree([facts for facts in files if is_tree(facts) or has_places(facts)])
    merge.findings += found
    if tree is not None:
        return tree
    named = [facts for facts in files if facts.hosts]
    return named[0] if named else files[0]


def _settle(merge: Merge, source: Facts, fabric: Facts | None) -> None:
    """Take back what a listing alone did not know, and the whole fabric does."""
    own = {id(finding) for finding in source.findings}
    others = [finding for finding in merge.findings if id(finding) not in own]
    merge.findings[:] = [*still_unplaced(source, fabric), *others]


def check_sources(merge: Merge, fabric: Facts | None) -> None:
    """Compare what all files of the cluster say of its hosts; findings are kept."""
    if len(merge.facts) < 2 or not any(map(says_hosts, merge.facts)):
        return
    names = names_of(merge.facts)
    said = hosts_said(fabric, merge.facts, names)
    if len(said) > 1:
        merge.findings += compare(said, names)[1]
