"""Merge a node source, a fabric source and presets into one fabric.

No file gives everything: a node file says what a host holds, a fabric file which hosts share a
switch, a preset the rates. What is joined on is the short host name and, inside a host, the order
of its adapters. What cannot be joined is a finding, never a silent guess.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from meshwright.cluster.assembly.fabric_of_facts import fabric_of_facts
from meshwright.cluster.assembly.merge_domains import domains_from_files, nvlink_domains
from meshwright.cluster.assembly.merge_fabric import check_sources, fabric_facts
from meshwright.cluster.assembly.merge_node import node_of_section
from meshwright.cluster.assembly.merging import MAX_NAMED, Merge, PlaceOf
from meshwright.cluster.assembly.wiring import facts_wiring, preset_wiring
from meshwright.cluster.build import HostSet, Wiring, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.facts import Facts
from meshwright.cluster.hostlist import Hostlists
from meshwright.cluster.join.same_findings import folded
from meshwright.cluster.nodes.node import NodeType
from meshwright.cluster.nodes.presets import NodePreset
from meshwright.cluster.sections import ClusterSection, FabricSection, HostList
from meshwright.cluster.sizes import too_large
from meshwright.cluster.switch_names import NumberedNames
from meshwright.findings import Finding, Severity

_PRESET = re.compile(r"\s*(?P<name>[A-Za-z0-9][\w.+-]*)\s*(?:[x×*]\s*(?P<count>[0-9]{1,7}))?\s*\Z")
_HOSTS_PER_UNIT = 32
"""Hosts under one set of leaves where no preset says it: a leaf of 64 ports, half of them down."""


def parse_preset(text: str) -> tuple[str, int | None] | None:
    """Return name and count of ``dgx-h100 x 2``; ``None`` when the text has another form."""
    match = _PRESET.match(text)
    if match is None:
        return None
    return match["name"], int(match["count"]) if match["count"] else None


def merge_cluster(
    section: ClusterSection, folder: Path, place: PlaceOf
) -> tuple[Fabric, list[Finding]]:
    """Return the fabric a cluster section describes, and the findings on the way.

    ``folder`` is where relative paths start, ``place`` gives the place of a key of the section.
    Raises ``InputError`` when a source cannot be read or names something unknown.
    """
    merge = Merge(folder, place)
    node, usual = node_of_section(merge, section)
    fabric = section.fabric
    if isinstance(fabric, str):
        fabric = _fabric_text(merge, fabric)
    source = (
        fabric_facts(merge, fabric.source)
        if fabric is not None and fabric.source is not None
        else None
    )
    names = _host_names(merge, section, source, node)
    too_many = too_large(len(names), node)
    if too_many is not None:
        raise merge.fail("nodes" if section.nodes is not None else "hosts", *too_many)
    hosts = HostSet(names, (node,), np.zeros(len(names), dtype=np.int32))
    wiring = _wiring(merge, hosts, source, fabric or FabricSection(), usual)
    domain, domain_names = nvlink_domains(merge, section, hosts)
    check_sources(merge, source)
    return build_fabric(hosts, domain, domain_names, wiring), folded(merge.findings, merge.facts)


def merge_network(
    section: ClusterSection, folder: Path, place: PlaceOf
) -> tuple[Fabric, list[Finding]] | None:
    """Return switches and hosts of a section that names a fabric's files and no node type.

    Each host stands there with the adapters that the files show and one GPU; a finding says so.
    ``None`` where no file joins hosts. Raises ``InputError`` as ``merge_cluster`` does.
    """
    merge = Merge(folder, place)
    fabric = section.fabric
    if isinstance(fabric, str):
        fabric = _fabric_text(merge, fabric)
    if fabric is None or fabric.source is None:
        return None
    facts = fabric_facts(merge, fabric.source)
    if not facts.hosts:
        return None
    if section.allocation is not None:
        listed = _listed(merge, section.allocation, "allocation")
        _inside(merge, listed, facts.hosts, ("allocation", Path(facts.path).name))
    made, found = fabric_of_facts(facts)
    message = (
        "the cluster file names no node type, so GPUs, NVLink and PCIe are unknown: switches and "
        f"hosts of {Path(facts.path).name} are shown, each host with its adapters and counted as one GPU"
    )
    remedy = "node: dgx-h100 (a preset), or node: {from: topo.txt}; a job needs it"
    merge.findings.append(
        Finding(
            "topology/node-unknown",
            Severity.WARNING,
            place("node"),
            message,
            {"hosts": made.num_hosts},
            remedy,
        )
    )
    check_sources(merge, facts)
    return made, folded([*merge.findings, *found], merge.facts)


def _fabric_text(merge: Merge, text: str) -> FabricSection:
    if text in ("rail-optimized", "rail-only", "leaf-spine", "roce-pod", "none"):
        return FabricSection(preset=text)  # type: ignore[arg-type]
    if merge.has(text):
        return FabricSection(source=text)
    raise merge.fail(
        "fabric",
        f"{text!r} is neither a fabric preset nor a file",
        "rail-optimized, rail-only, leaf-spine, roce-pod or a file",
    )


def _host_names(
    merge: Merge, section: ClusterSection, source: Facts | None, node: NodeType
) -> Sequence[str]:
    """Return the hosts of the fabric: all of them, in the order that gives them their place.

    Where a file says each host's place only the allocated ones are kept; on a preset a host's
    place is its number, so the allocation only says which hosts the job has (``allocated``).
    """
    known = source.hosts if source is not None else None
    if known:
        return _of_file(merge, section, known)
    if section.hosts is not None:
        names: Sequence[str] = _listed(merge, section.hosts, "hosts")
        _agrees(merge, section.nodes, names, "hosts")
    elif section.nodes is not None:
        names = NumberedNames("host", section.nodes)
    elif section.allocation is not None:
        return _listed(merge, section.allocation, "allocation")
    else:
        told = _domain_hosts(merge, section) or merge.captured
        names = told or NumberedNames("host", node.nvlink_domain_hosts)
    if section.allocation is not None:
        listed = _listed(merge, section.allocation, "allocation")
        where = "hosts" if section.hosts is not None else "the cluster"
        _inside(merge, listed, names, ("allocation", where))
    return names


def allocated(section: ClusterSection, fabric: Fabric) -> list[str] | None:
    """Return the hosts the job has, in order, where the fabric holds others too (or another order)."""
    if section.allocation is None:
        return None
    texts = [section.allocation] if isinstance(section.allocation, str) else section.allocation
    names = Hostlists(MAX_NAMED).expand(*texts)
    return None if names == list(fabric.host_names) else names


def _listed(merge: Merge, value: HostList, key: str) -> list[str]:
    names = merge.hosts(value, key)
    if not names:
        raise merge.fail(key, "names no host", 'hosts: "node[01-16]"')
    return names


def _agrees(merge: Merge, nodes: int | None, names: Sequence[str], key: str) -> None:
    if nodes is not None and nodes != len(names):
        raise merge.fail("nodes", f"says {nodes}, and {key} names {len(names)}", "leave nodes out")


def _inside(
    merge: Merge, names: Sequence[str], known: Sequence[str], what: tuple[str, str]
) -> None:
    """Refuse hosts that are not there; ``what``: the key that names them, and where they are not."""
    key, where = what
    missing = sorted(set(names) - set(known))
    if missing:
        raise merge.fail(
            key,
            f"{len(missing)} of {len(names)} hosts are not in {where}: "
            f"{', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}",
            f"it names {len(known)} hosts, {known[0]} … {known[-1]}",
        )


def _of_file(merge: Merge, section: ClusterSection, known: Sequence[str]) -> Sequence[str]:
    """Return the hosts of a fabric file: those allocated, listed, or the first ones."""
    given = section.allocation if section.allocation is not None else section.hosts
    if given is None:
        return _first_hosts(merge, known, section.nodes)
    key = "allocation" if section.allocation is not None else "hosts"
    names = _listed(merge, given, key)
    _agrees(merge, section.nodes, names, key)
    fabric = section.fabric
    source = fabric.source if isinstance(fabric, FabricSection) else fabric
    files = [source] if isinstance(source, str) else source or ()
    where = " and ".join(Path(path).name for path in files)
    _inside(merge, names, known, (key, where))
    return names


def _domain_hosts(merge: Merge, section: ClusterSection) -> list[str]:
    """Return the hosts that NVLink domains name, where nothing else names hosts."""
    named = section.nvlink_domains
    if named is None:
        return []
    if set(named) == {"from"}:
        listed = domains_from_files(merge, named["from"])
    else:
        listed = {key: merge.hosts(value, f"nvlink_domains.{key}") for key, value in named.items()}
    names = [host for hosts in listed.values() for host in hosts]
    return list(dict.fromkeys(names))


def _first_hosts(merge: Merge, known: Sequence[str], nodes: int | None) -> list[str]:
    """Return the hosts of a fabric file, or the first ones when fewer are wanted."""
    if nodes is None or nodes == len(known):
        return list(known)
    if nodes > len(known):
        raise merge.fail("nodes", f"says {nodes}, and the fabric file names {len(known)} hosts")
    merge.note(
        "assumed/first-hosts",
        "nodes",
        f"the first {nodes} of the {len(known)} hosts in the fabric file are taken.",
        "allocation: [...] with the hosts the job has",
        hosts=nodes,
        of=len(known),
    )
    return list(known[:nodes])


def _wiring(
    merge: Merge,
    hosts: HostSet,
    source: Facts | None,
    fabric: FabricSection,
    usual: NodePreset | None,
) -> Wiring | None:
    node = hosts.types[0]
    if not node.nics:
        if source is not None or fabric.preset not in (None, "none"):
            merge.note(
                "topology/no-nics",
                "node",
                "the node type names no NIC: paths between hosts are unknown.",
            )
        if source is None:
            return None
    if source is not None:
        return facts_wiring(source, hosts, fabric, merge.findings, merge.place)
    if fabric.preset == "none":
        return None
    kind = fabric.preset or (usual.fabric if usual else "rail-optimized")
    if fabric.preset is None and len(hosts.names) > 1:
        merge.note(
            "assumed/fabric",
            "fabric",
            f"no fabric is given; a {kind} one without oversubscription is assumed.",
            "fabric: {preset: rail-optimized, oversubscription: 1} or fabric: {from: ibnetdiscover.txt}",
        )
    if fabric.preset is None and fabric.radix is None and usual is not None:
        fabric = msgspec.structs.replace(fabric, radix=usual.radix)
    hosts_per_unit = usual.hosts_per_unit if usual else _HOSTS_PER_UNIT
    return preset_wiring(kind, hosts, fabric, hosts_per_unit, merge.findings, merge.place)
