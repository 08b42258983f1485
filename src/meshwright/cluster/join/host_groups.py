"""Which sources are of one host, and which hosts are of one type.

A source that names its host is joined with others of that host. Sources without a name are of one
host, unless two of one format differ: a host has one matrix. Hosts of equal shape (devices, links,
classes, rates) are one node type; a finding names those that differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.host_devices import gpu_pci
from meshwright.cluster.join.host_differences import differences, shape_of, words
from meshwright.cluster.join.host_files import HostMerge, merge_host
from meshwright.cluster.join.host_machines import duplicate_guids, hosts_by_name
from meshwright.cluster.join.keys import HostNames
from meshwright.cluster.join.kinds import in_order, without_copies
from meshwright.cluster.join.said import JoinMade, some, told
from meshwright.cluster.natural_order import natural_key
from meshwright.findings import Finding, Number, Place, Severity

_SEVERAL = ("nvidia_smi_topo_p2p", "nccl_graph_xml")
"""Formats of which one host may well give several files (five kinds of peer access)."""
_SHOWN = 4
"""Differences of two node types written out in a message."""


class HostType(msgspec.Struct, frozen=True):
    """Equal hosts: their names where known, the facts of the first of them, and all sources."""

    name: str
    """The first host's name, else the file's."""
    hosts: tuple[str, ...]
    """Names of the hosts, in order; empty where no source names one."""
    facts: Facts
    sources: tuple[str, ...]
    """Paths of all files of these hosts."""


class HostsJoined(msgspec.Struct, frozen=True):
    """Node types, the most hosts first; sources joined with none; joins and findings."""

    types: tuple[HostType, ...]
    apart: tuple[Facts, ...]
    joins: tuple[JoinMade, ...]
    findings: tuple[Finding, ...]


def join_hosts(sources: Sequence[Facts]) -> HostsJoined:
    """Return the node types that these sources of hosts describe. Linear in the number of hosts."""
    ordered = without_copies(in_order(sources))
    fused = [facts for facts in ordered if _num_hosts(facts) > 1]
    single = [facts for facts in ordered if _num_hosts(facts) <= 1]
    named = [facts for facts in single if facts.host]
    nameless = [facts for facts in single if not facts.host]
    findings: list[Finding] = [_fused(facts) for facts in fused]
    names = HostNames([facts.host] for facts in named if facts.host)
    by_host, twice, said = hosts_by_name(named, names)
    findings += said
    merged = {key: merge_host(files) for key, files in by_host.items()}
    types = _types([(names.spelled(one.facts.host or key), one) for key, one in merged.items()])
    unnamed, apart, said = _nameless(nameless)
    apart += twice
    findings += [*duplicate_guids(by_host, names), *said]
    joins = [join for one in merged.values() for join in one.joins]
    if len(types) == 1 and len(unnamed) == 1 and unnamed[0]:
        types = [_with_nameless(types[0], by_host, unnamed[0], names)]
        merged = {"": types[0][1]}
        joins = list(types[0][1].joins)
    elif unnamed:
        if types:
            findings.append(_unassigned(unnamed, types))
        extra = [merge_host(files) for files in unnamed]
        types += [((), one) for one in extra]
        merged |= {f"\0{at}": one for at, one in enumerate(extra)}
        joins += [join for one in extra for join in one.joins]
    for one in merged.values():
        findings += one.findings
        apart += one.apart
    findings += _differ(types)
    made = tuple(_host_type(hosts, one, by_host, names) for hosts, one in types)
    return HostsJoined(made, (*fused, *apart), tuple(joins), tuple(findings))


Type = tuple[tuple[str, ...], HostMerge]


def _num_hosts(facts: Facts) -> int:
    return len({gpu.host for gpu in facts.gpus or ()} - {None})


def _fused(facts: Facts) -> Finding:
    return Finding(
        "topology/several-hosts",
        Severity.NOTE,
        Place(facts.path),
        f"the file holds {_num_hosts(facts)} hosts in one, so it is joined with no other file",
        {"hosts": _num_hosts(facts)},
        "give one file a host",
    )


def _types(hosts: Sequence[tuple[str, HostMerge]]) -> list[Type]:
    """Group named hosts of equal shape; the commonest type first."""
    found: dict[tuple[object, ...], list[tuple[str, HostMerge]]] = {}
    for name, one in hosts:
        found.setdefault(shape_of(one.facts), []).append((name, one))
    groups = sorted(found.values(), key=lambda group: (-len(group), natural_key(group[0][0])))
    return [(tuple(name for name, _ in group), group[0][1]) for group in groups]


def _nameless(sources: Sequence[Facts]) -> tuple[list[list[Facts]], list[Facts], list[Finding]]:
    """Return groups of sources of one host each, sources of no known host, and what was said."""
    by_format: dict[str, list[Facts]] = {}
    for facts in sources:
        kept = by_format.setdefault(facts.format, [])
        if facts.format in _SEVERAL or not any(_is_alike(facts, other) for other in kept):
            kept.append(facts)
    several = {
        name: files
        for name, files in by_format.items()
        if len(files) > 1 and name not in _SEVERAL and not _same_machine(files)
    }
    if not several:
        together = [facts for files in by_format.values() for facts in files]
        return ([together] if together else []), [], []
    hosts = [[facts] for files in several.values() for facts in files]
    rest = [facts for name, files in by_format.items() if name not in several for facts in files]
    first, second = next(iter(several.values()))[:2]
    findings = []
    if rest or len(several) > 1:
        message = (
            f"{first.path} and {second.path} are of two hosts that differ, and no file names its "
            f"host: which of them {some([one.path for one in rest] or ['the others'])} belongs to "
            "is unknown, so nothing is joined"
        )
        findings.append(
            told("join-refused", Severity.WARNING, (first.path, second.path), message, _CAPTURE)
        )
    return hosts, rest, findings


_CAPTURE = "give the files of one host at a time"


def _is_alike(facts: Facts, other: Facts) -> bool:
    return shape_of(facts) == shape_of(other)


def _same_machine(files: Sequence[Facts]) -> bool:
    """Tell whether files of one format list the same GPUs by PCI address."""
    first = {gpu_pci(gpu) for gpu in files[0].gpus or ()}
    return (
        bool(first)
        and None not in first
        and all({gpu_pci(gpu) for gpu in facts.gpus or ()} == first for facts in files[1:])
    )


def _with_nameless(
    one: Type, by_host: dict[str, list[Facts]], files: Sequence[Facts], names: HostNames
) -> Type:
    """Join sources without a host name with the first host of the only type there is."""
    own = by_host[names.key(one[0][0])]
    return one[0], merge_host([*own, *files])


def _unassigned(groups: Sequence[Sequence[Facts]], types: Sequence[Type]) -> Finding:
    first = groups[0][0].path
    message = (
        f"{first} names no host, and there are {len(types)} node types of named hosts: which one it "
        "describes is unknown, so it stands alone"
    )
    return told(
        "join-refused",
        Severity.WARNING,
        (types[0][1].facts.path, first),
        message,
        "give the file of one host together with that host's capture",
    )


def _differ(types: Sequence[Type]) -> list[Finding]:
    """Say what each further type has otherwise than the first."""
    findings = []
    for hosts, one in types[1:]:
        usual = types[0][1].facts
        found = differences(usual, one.facts)
        what = "; ".join(words(difference) for difference in found[:_SHOWN]) or "their devices"
        more = f" ({len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
        values: list[Number] = [[d.what, d.left, d.right] for d in found]
        findings.append(
            told(
                "hosts-differ",
                Severity.WARNING,
                (usual.path, one.facts.path),
                f"{_whose(hosts, one)} {'differs' if len(hosts) <= 1 else 'differ'} from "
                f"{_whose(*types[0])}: {what}{more}",
                "repair or leave out the odd hosts, or plan for each type alone",
                hosts=list(hosts[:100]),
                count=len(hosts),
                differences=values,
            )
        )
    return findings


def _whose(hosts: Sequence[str], one: HostMerge) -> str:
    if not hosts:
        return one.facts.path
    return hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts ({some(hosts, 3)})"


def _host_type(
    hosts: tuple[str, ...],
    one: HostMerge,
    by_host: dict[str, list[Facts]],
    names: HostNames,
) -> HostType:
    own = [facts.path for name in hosts for facts in by_host[names.key(name)]]
    paths = dict.fromkeys([*own, *one.sources])
    name = hosts[0] if hosts else one.facts.path
    return HostType(name, hosts, one.facts, tuple(paths))
