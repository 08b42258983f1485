"""Merge a node source, a fabric source and presets into one fabric.

No file gives everything: a node file says what a host holds, a fabric file which hosts share a
switch, a preset the rates. What is joined on is the short host name and, inside a host, the order
of its adapters. What cannot be joined is a finding, never a silent guess.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from meshwright.cluster.build import HostSet, Wiring, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import GpuModel, find_gpu, suggest_gpus
from meshwright.cluster.hostlist import expand_hostlist
from meshwright.cluster.node import NodeType, node_from_facts
from meshwright.cluster.presets import (
    bare_node,
    find_preset,
    node_from_preset,
    suggest_preset,
)
from meshwright.cluster.sections import ClusterSection, FabricSection, HostList, NodeSection
from meshwright.cluster.switch_names import NumberedNames
from meshwright.cluster.wiring import facts_wiring, preset_wiring
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

_PRESET = re.compile(r"\s*(?P<name>[A-Za-z0-9][\w.+-]*)\s*(?:[x×*]\s*(?P<count>[0-9]{1,7}))?\s*\Z")
PlaceOf = Callable[[str], Place]
MAX_HOST_GPUS = 1 << 16
MAX_GPUS = 1 << 22
"""GPUs of one cluster: thirty times the largest planned for, and a bound on memory."""


@dataclass(slots=True)
class Merge:
    """One merge in progress: where relative paths start, where keys stand, what was found."""

    folder: Path
    place: PlaceOf
    findings: list[Finding] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)

    def read(self, source: str, key: str) -> Facts:
        """Read a topology file named in the cluster file; findings are kept."""
        from meshwright.cluster.readers import read_topology  # noqa: PLC0415 - presets need no reader

        path = self.folder / source
        if not self.has(source):
            raise InputError(Problem(self.place(key), f"no such file: {source}"))
        facts = read_topology(path)
        self.findings += facts.findings
        self.facts.append(facts)
        return facts

    def has(self, source: str) -> bool:
        """Tell whether a name is that of a file; one no file can have is none."""
        return os.path.exists(self.folder / source)  # noqa: PTH110 - never raises

    def fail(self, key: str, message: str, remedy: str | None = None) -> InputError:
        """Return the error for a key of the cluster file."""
        return InputError(Problem(self.place(key), message, remedy=remedy))

    def hosts(self, value: HostList, key: str) -> list[str]:
        """Expand hostlist text or a list of such; duplicates are refused."""
        texts = [value] if isinstance(value, str) else list(value)
        try:
            names = [name for text in texts for name in expand_hostlist(text)]
        except ValueError as error:
            raise self.fail(key, str(error)) from None
        twice = sorted(name for name, count in Counter(names).items() if count > 1)[:5]
        if twice:
            raise self.fail(key, f"hosts named twice: {', '.join(twice)}")
        return names

    def note(
        self, rule: str, key: str, message: str, remedy: str | None = None, **numbers: object
    ) -> None:
        """Keep a note."""
        self.findings.append(
            Finding(rule, Severity.NOTE, self.place(key), message, numbers, remedy)  # type: ignore[arg-type]
        )


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
    node, hosts_per_unit, fabric_preset = _node(merge, section)
    fabric = section.fabric
    if isinstance(fabric, str):
        fabric = _fabric_text(merge, fabric)
    source = merge.read(fabric.source, "fabric.from") if fabric and fabric.source else None
    names = _host_names(merge, section, source, node)
    kind = node if node is not None else bare_node(_gpus_unknown(merge))
    if len(names) * kind.num_gpus > MAX_GPUS:
        raise merge.fail("nodes", f"{len(names):,} hosts of {kind.num_gpus:,} GPUs are too many")
    hosts = HostSet(names, (kind,), np.zeros(len(names), dtype=np.int32))
    wiring = _wiring(
        merge, hosts, source, fabric or FabricSection(), (hosts_per_unit, fabric_preset)
    )
    domain, domain_names = _nvlink_domains(merge, section, hosts)
    return build_fabric(hosts, domain, domain_names, wiring), merge.findings


def _fabric_text(merge: Merge, text: str) -> FabricSection:
    if text in ("rail-optimized", "rail-only", "leaf-spine", "none"):
        return FabricSection(preset=text)  # type: ignore[arg-type]
    if merge.has(text):
        return FabricSection(source=text)
    raise merge.fail(
        "fabric",
        f"{text!r} is neither a fabric preset nor a file",
        "rail-optimized, rail-only, leaf-spine or a file",
    )


def _node(merge: Merge, section: ClusterSection) -> tuple[NodeType | None, int | None, str | None]:
    """Return the node type, hosts a unit and the usual fabric preset."""
    node = section.node
    if node is None:
        return None, None, None
    if isinstance(node, str):
        preset = find_preset(node)
        if preset is not None:
            return node_from_preset(preset), preset.hosts_per_unit, preset.fabric
        if not merge.has(node):
            near = suggest_preset(node)
            hint = f"did you mean {' or '.join(near)}?" if near else "a preset or a file"
            raise merge.fail("node", f"{node!r} is no node preset and no file", hint)
        node = NodeSection(source=node)
    return _node_from_section(merge, node, section.fabric is not None), None, None


def _node_from_section(merge: Merge, node: NodeSection, has_fabric: bool) -> NodeType:
    gpu = None
    if node.gpu is not None:
        try:
            gpu = find_gpu(node.gpu)
        except KeyError:
            near = suggest_gpus(node.gpu)
            hint = f"did you mean {' or '.join(near)}?" if near else None
            raise merge.fail("node.gpu", f"unknown GPU {node.gpu!r}", hint) from None
    if node.source is None:
        if node.gpus is None:
            raise merge.fail(
                "node",
                "names no file and no number of GPUs",
                "node: {from: topo.txt, gpu: H100-SXM}",
            )
        if node.gpus > MAX_HOST_GPUS:
            raise merge.fail("node.gpus", f"{node.gpus:,} GPUs are too many for one host")
        return bare_node(node.gpus, has_nic=has_fabric)
    facts = merge.read(node.source, "node.from")
    if facts.format not in ("nvidia_smi_topo_m", "nccl_topo_xml"):
        raise merge.fail("node.from", f"{node.source} is {facts.format}, which describes no host")
    if not facts.gpus:
        raise merge.fail(
            "node.from", f"{node.source} names no GPU", "a full `nvidia-smi topo -m`, or a preset"
        )
    apart = {one.host for one in facts.gpus}
    if len(apart) > 1:
        raise merge.fail(
            "node.from",
            f"{node.source} holds {len(apart)} hosts; a node file describes one",
            "the topology XML of one host, and nvlink_domains: for what joins them",
        )
    if gpu is None:
        gpu = _gpu_in_file(facts)
    if gpu is None:
        merge.note(
            "topology/gpu-model-unknown",
            "node.from",
            "the file names no GPU model, so NVLink and PCIe rates are unknown or assumed.",
            "node: {from: …, gpu: H100-SXM}",
        )
    result, findings = node_from_facts(facts, gpu, node.nic, node.source)
    merge.findings += findings
    return result


def _gpu_in_file(facts: Facts) -> GpuModel | None:
    models = {gpu.model for gpu in facts.gpus or ()} - {None}
    if len(models) != 1:
        return None
    try:
        return find_gpu(str(models.pop()))
    except KeyError:
        return None


def _gpus_unknown(merge: Merge) -> int:
    raise merge.fail(
        "node",
        "the cluster names no node type",
        "node: dgx-h100, or node: {gpus: 8} when only the count is known",
    )


def _host_names(
    merge: Merge, section: ClusterSection, source: Facts | None, node: NodeType | None
) -> list[str] | NumberedNames:
    given = section.allocation if section.allocation is not None else section.hosts
    key = "allocation" if section.allocation is not None else "hosts"
    known = source.hosts if source is not None else None
    if section.hosts is not None and section.allocation is not None and known is None:
        known = tuple(merge.hosts(section.hosts, "hosts"))
    if given is None:
        if known:
            return _first_hosts(merge, known, section.nodes)
        count = section.nodes or (node.nvlink_domain_hosts if node else 1)
        return NumberedNames("host", count)
    names = merge.hosts(given, key)
    if not names:
        raise merge.fail(key, "names no host", 'hosts: "node[01-16]"')
    if section.nodes is not None and section.nodes != len(names):
        raise merge.fail(
            "nodes", f"says {section.nodes}, and {key} names {len(names)}", "leave nodes out"
        )
    if known is not None:
        missing = sorted(set(names) - set(known))
        if missing:
            source_name = source.path if source is not None else "hosts"
            raise merge.fail(
                key,
                f"{len(missing)} of {len(names)} hosts are not in {Path(source_name).name}: "
                f"{', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}",
                f"it names {len(known)} hosts, {known[0]} … {known[-1]}",
            )
    return names


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
    usual: tuple[int | None, str | None],
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
    hosts_per_unit, preset = usual
    if fabric.preset is None and len(hosts.names) > 1:
        merge.note(
            "assumed/fabric",
            "fabric",
            f"no fabric is given; a {preset or 'rail-optimized'} one without oversubscription is assumed.",
            "fabric: {preset: rail-optimized, oversubscription: 1} or fabric: {from: ibnetdiscover.txt}",
        )
    kind = fabric.preset or preset or "rail-optimized"
    return preset_wiring(kind, hosts, fabric, hosts_per_unit or 32, merge.findings)


def _nvlink_domains(
    merge: Merge, section: ClusterSection, hosts: HostSet
) -> tuple[np.ndarray | None, list[str] | NumberedNames | None]:
    """Return the NVLink domain of every host, and the names of the domains."""
    named = section.nvlink_domains
    if named is None:
        return _domains_by_order(merge, hosts)
    if set(named) == {"from"}:
        named = _domains_from_file(merge, str(named["from"]))
    position = {name: index for index, name in enumerate(hosts.names)}
    domain = np.full(len(hosts.names), -1, dtype=np.int32)
    names: list[str] = []
    for name, value in named.items():
        members = merge.hosts(value, f"nvlink_domains.{name}")
        present = [position[host] for host in members if host in position]
        if not present:
            continue
        if (domain[present] >= 0).any():
            raise merge.fail(
                f"nvlink_domains.{name}", f"a host of {name} is in another NVLink domain too"
            )
        domain[present] = len(names)
        names.append(name)
    alone = np.flatnonzero(domain < 0)
    domain[alone] = len(names) + np.arange(len(alone))
    left = [hosts.names[host] for host in alone.tolist()]
    if left:
        merge.note(
            "assumed/nvlink-domains",
            "nvlink_domains",
            f"{len(left)} of {len(domain)} hosts are in none of the NVLink domains given "
            f"({', '.join(left[:4])}{' …' if len(left) > 4 else ''}); "
            "each is taken as a domain of its own.",
            "name every host of the cluster in one domain",
            hosts=len(left),
        )
    return domain, names + left


def _domains_by_order(
    merge: Merge, hosts: HostSet
) -> tuple[np.ndarray | None, NumberedNames | None]:
    """Join hosts in the given order, as many as the node type says; ``None``: each alone."""
    joined = hosts.types[0].nvlink_domain_hosts
    if joined == 1:
        return None, None
    domain = np.arange(len(hosts.names), dtype=np.int32) // joined
    if not isinstance(hosts.names, NumberedNames):
        merge.note(
            "assumed/nvlink-domains",
            "nvlink_domains",
            f"no NVLink domains are given; each {joined} hosts in the given order are taken as one.",
            'nvlink_domains: {rack01: "rack01-tray[01-18]", …}',
        )
    return domain, NumberedNames("nvlink-domain", int(domain.max(initial=-1)) + 1)


def _domains_from_file(merge: Merge, source: str) -> dict[str, HostList]:
    facts = merge.read(source, "nvlink_domains.from")
    if not facts.blocks:
        raise merge.fail("nvlink_domains.from", f"{source} names no blocks of hosts")
    return {block.comment or block.name: block.hosts for block in facts.blocks if block.hosts}
