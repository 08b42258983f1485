"""Whether one source leaves out tiers of the network that another source names.

Places of the same host are compared; where the sources call hosts differently (a Kubernetes node and
its Slurm worker), those of hosts under the same leaf. A scheduler that knows the leaves and not the
spines takes all leaves for equally far (nebius/soperator pull request 2201).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import Facts, HostPlace
from meshwright.cluster.readers.document_values import shown
from meshwright.cluster.readers.scontrol_show_node import SlurmPlace
from meshwright.findings import Finding, Number, Place, Severity

_LISTED = 100
_CLIQUE = re.compile(r"(?P<uuid>[0-9a-f-]{36})\.(?P<clique>[0-9]{1,10})\Z")
_ROOT = "root"


class _Lack(msgspec.Struct, frozen=True):
    """One host that a source puts under fewer tiers than another does."""

    host: str
    leaf: str
    missing: str
    tier: int
    """From 1, the leaf being 1."""
    expected: str


def tier_findings(sources: Sequence[Facts]) -> list[Finding]:
    """Return a finding for each source that lacks a tier which a fuller source gives."""
    placed = [(facts, _Known.of(facts.places)) for facts in sources if facts.places is not None]
    found = []
    for poor, _ in placed:
        for full, known in placed:
            lacks = _lacks(poor.places or (), known) if poor is not full else []
            if lacks:
                found.append(_finding(poor, full, lacks))
    return found


def clique_findings(sources: Sequence[Facts]) -> list[Finding]:
    """Note a clique id that several clusters report: the NVLink domain is the pair, not the id.

    Domains of drivers and labels are named ``ClusterUUID.CliqueId`` (NVIDIA/nccl issue 1301).
    """
    clusters: dict[str, dict[str, str]] = {}
    for facts in sources:
        for place in facts.places or ():
            match = _CLIQUE.match(place.nvlink_domain or "")
            if match is not None:
                clusters.setdefault(match["clique"], {}).setdefault(match["uuid"], place.host)
    return [_clique_finding(clique, hosts) for clique, hosts in clusters.items() if len(hosts) > 1]


def _clique_finding(clique: str, hosts: dict[str, str]) -> Finding:
    first = [f"{host} in {uuid}" for uuid, host in hosts.items()]
    message = (
        f"clique id {clique} is reported by {len(hosts)} clusters ({shown(first)}): the id alone names no "
        "NVLink domain (32766 is a default that unrelated racks report), so the domain is the pair of "
        "cluster UUID and clique id"
    )
    numbers: dict[str, Number] = {"clique": clique, "clusters": [*hosts][:_LISTED]}
    return Finding("topology/clique-not-unique", Severity.NOTE, Place(), message, numbers)


class _Known(msgspec.Struct, frozen=True):
    """Places of one source, to be looked up."""

    by_host: dict[str, HostPlace]
    by_leaf: dict[str, HostPlace]

    @classmethod
    def of(cls, places: Sequence[HostPlace]) -> _Known:
        placed = [place for place in places if place.tiers]
        return cls({_short(one.host): one for one in placed}, {one.tiers[0]: one for one in placed})


def _lacks(poor: Sequence[HostPlace], known_places: _Known) -> list[_Lack]:
    lacks = []
    for place in poor:
        if not place.tiers:
            continue
        other = known_places.by_host.get(_short(place.host))
        other = other or known_places.by_leaf.get(place.tiers[0])
        if other is None or other.tiers[0] != place.tiers[0]:
            continue
        known = [name.lower() for name in (*place.tiers, _ROOT)]
        missing = [
            (level, name) for level, name in enumerate(other.tiers, 1) if name.lower() not in known
        ]
        if missing:
            level, name = missing[0]
            lacks.append(_Lack(place.host, place.tiers[0], name, level, _expected(place, other)))
    return lacks


def _expected(place: HostPlace, other: HostPlace) -> str:
    """Return the place as it should read: in Slurm's form, with the names of the fuller source."""
    path = [name for name in reversed(other.tiers) if name.lower() != _ROOT]
    topology, top = "default", [_ROOT]
    if isinstance(place, SlurmPlace) and place.text:
        topology, _, rest = place.text.partition(",")[0].partition(":")
        first = rest.split(":")[0]
        top = [first] if first and first not in path else []
    return ":".join([topology, *top, *path])


def _short(host: str) -> str:
    return host.partition(".")[0].lower()


def _finding(poor: Facts, full: Facts, lacks: Sequence[_Lack]) -> Finding:
    first = lacks[0]
    leaf_only = first.tier == 2
    names = sorted({lack.missing for lack in lacks})
    what = "the leaf and not the spine" if leaf_only else "fewer tiers"
    message = (
        f"{poor.path} gives {what} of {len(lacks)} hosts: {full.path} names {shown(names)} above "
        f"{first.leaf}. Leaves under one of them look as far apart as any two, so jobs are not kept "
        "together"
    )
    numbers: dict[str, Number] = {
        "missing": first.missing,
        "missing_tier": f"tier-{first.tier}",
        "expected_text": first.expected,
        "count": len(lacks),
        "hosts": [lack.host for lack in lacks[:_LISTED]],
        "missing_names": [*names[:_LISTED]],
    }
    remedy = (
        f"scontrol update NodeName={first.host} Topology={first.expected}; or let the operator pass "
        "all tiers"
        if isinstance(next(iter(poor.places or ()), None), SlurmPlace)
        else f"give all tiers, as in {full.path}"
    )
    rule = "topology/leaf-only" if leaf_only else "topology/tier-missing"
    return Finding(
        rule, Severity.WARNING, Place(poor.path, subject=first.host), message, numbers, remedy
    )
