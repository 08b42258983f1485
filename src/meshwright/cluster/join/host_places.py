"""Compare what several sources say of the same hosts, by short host name.

Which hosts are in one and not in another; two hosts under one leaf of a tree that the cables put
into different units (a host has a leaf for each rail, so what is compared is its set of leaves);
NVLink domains. Every source is compared with one other: the surest of its kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.groupings import shown, splits
from meshwright.cluster.join.host_leaves import leaf_findings
from meshwright.cluster.join.hosts_said import HostsSaid
from meshwright.cluster.join.keys import HostNames, named_domain
from meshwright.cluster.join.kinds import by_domain
from meshwright.cluster.join.places_tree import tree_of
from meshwright.cluster.join.said import JoinMade, join_made, some, told
from meshwright.cluster.switches.switch_levels import derive_levels
from meshwright.findings import Finding, Number, Place, Severity


def names_of(sources: Iterable[Facts]) -> HostNames:
    """Return the host names of all sources, by key."""
    return HostNames(_hosts(facts) for facts in sources)


def _hosts(facts: Facts) -> Iterable[str]:
    given = [*(facts.hosts or ()), *([facts.host] if facts.host else [])]
    given += [nic.host for nic in facts.nics or () if nic.host is not None]
    given += [place.host for place in facts.places or ()]
    given += [host for block in facts.blocks or () for host in block.hosts]
    return dict.fromkeys(given)


def of_fabric(facts: Facts, names: HostNames) -> HostsSaid:
    """Return the hosts of a fabric with their unit: the one in which most of their leaves are."""
    levels = derive_levels(facts)
    votes: dict[str, Counter[int]] = {}
    names_by_id = {switch.id: switch.name for switch in facts.switches or ()}
    leaves: dict[str, dict[str, None]] = {}
    for nic in facts.nics or ():
        leaf = levels.leaf_of_nic.get(nic.guid or "")
        if nic.host is not None and leaf is not None:
            key = names.key(nic.host)
            votes.setdefault(key, Counter())[levels.unit_of_leaf[leaf]] += 1
            leaves.setdefault(key, {})[names_by_id.get(leaf, leaf)] = None
    unit = {
        key: f"unit {min(counts, key=lambda one: (-counts[one], one))}"
        for key, counts in votes.items()
    }
    hosts = {names.key(host): host for host in _hosts(facts)}
    switches = {key: tuple(sorted(found)) for key, found in leaves.items()}
    return HostsSaid(facts.path, facts.format, "fabric", hosts, unit, leaves=switches)


def of_captures(captures: Sequence[Facts], names: HostNames) -> HostsSaid | None:
    """Return the hosts that name themselves in files of their own, all together."""
    own = [facts for facts in captures if facts.host]
    if not own:
        return None
    hosts = {names.key(facts.host or ""): facts.host or "" for facts in own}
    path = own[0].path if len(own) == 1 else f"{own[0].path} and {len(own) - 1} more"
    domain = _domains(own, names)
    return HostsSaid(path, own[0].format, "hosts", hosts, {}, domain)


def of_places(facts: Facts, names: HostNames) -> HostsSaid:
    """Return the hosts of a tree, of labels or of blocks."""
    leaf = {names.key(host): switch.name for switch in tree_of(facts) for host in switch.hosts}
    block = {
        names.key(host): one.comment or one.name for one in facts.blocks or () for host in one.hosts
    }
    hosts = {names.key(host): host for host in _hosts(facts)}
    kind = "tree" if leaf else "blocks" if block else "domains"
    return HostsSaid(facts.path, facts.format, kind, hosts, leaf, _domains([facts], names), block)


def _domains(sources: Iterable[Facts], names: HostNames) -> dict[str, str]:
    found = {}
    for facts in sources:
        for place in facts.places or ():
            domain = named_domain(place.nvlink_domain)
            if domain is not None:
                found[names.key(place.host)] = domain
    return found


def compare(said: Sequence[HostsSaid], names: HostNames) -> tuple[list[JoinMade], list[Finding]]:
    """Return joins by host name and what sources disagree on; the surest source stands first."""
    joins: list[JoinMade] = []
    findings: list[Finding] = []
    if names.ambiguous:
        findings.append(_ambiguous(names, said))
    for other in said[1:]:
        join, found = _same_hosts(said[0], other)
        joins.append(join)
        findings += found
    findings += leaf_findings(said)
    made, found = _compare_domains(said)
    return [*joins, *made], [*findings, *found]


def _ambiguous(names: HostNames, said: Sequence[HostsSaid]) -> Finding:
    count = len(names.ambiguous)
    numbers: dict[str, Number] = {"count": count, "names": [*names.ambiguous[:100]]}
    return Finding(
        "topology/host-name-ambiguous",
        Severity.WARNING,
        Place(said[0].path if said else None),
        f"{count} short host names stand for several hosts that differ in their domain "
        f"({some(names.ambiguous)}): these are joined by their whole names only",
        numbers,
        "write whole host names in every source",
    )


def _same_hosts(first: HostsSaid, other: HostsSaid) -> tuple[JoinMade, list[Finding]]:
    sides = (first.path, other.path)
    left = [name for key, name in first.hosts.items() if key not in other.hosts]
    right = [name for key, name in other.hosts.items() if key not in first.hosts]
    matched = len(first.hosts) - len(left)
    join = join_made(sides, "host", matched, (left, right))
    if not left and not right:
        return join, []
    numbers: dict[str, Number] = {
        "matched": matched,
        "only_left": len(left),
        "only_right": len(right),
    }
    if not matched and left and right:
        message = (
            f"no host of {other.path} ({some(right, 3)}) is in {first.path} ({some(left, 3)}): the "
            "names are of two kinds, so nothing is joined"
        )
        remedy = "give both with the same host names (what hostname -s prints)"
        return join, [told("join-refused", Severity.WARNING, sides, message, remedy, **numbers)]
    parts = [
        f"{len(missing)} of {total} hosts of {path} are not in {there} ({some(missing)})"
        for missing, total, path, there in (
            (right, len(other.hosts), other.path, first.path),
            (left, len(first.hosts), first.path, other.path),
        )
        if missing and not (other.kind == "hosts" and missing is left)
    ]
    if not parts:  # captures are taken of some hosts only
        return join, []
    # A fabric holds storage and login hosts that no scheduler knows; the reverse is a fault.
    severity = Severity.WARNING if right or first.kind != "fabric" else Severity.NOTE
    remedy = "set the node description of the adapters, or drain hosts that are gone"
    found = told("host-in-one-only", severity, sides, "; ".join(parts), remedy, **numbers)
    return join, [found]


def _compare_domains(said: Sequence[HostsSaid]) -> tuple[list[JoinMade], list[Finding]]:
    """Compare NVLink domains with each other, and blocks with the first domains.

    Names differ between sources, so what is compared is which hosts are together.
    """
    named = by_domain(one for one in said if one.domain)
    joins: list[JoinMade] = []
    findings: list[Finding] = []
    if not named:
        return [], []
    first = named[0]
    others: list[tuple[HostsSaid, Mapping[str, str], str]] = [
        (one, one.domain, "NVLink domains") for one in named[1:]
    ]
    others += [(one, one.block, "blocks") for one in said if one.block]
    for other, groups, kind in others:
        sides = (first.path, other.path)
        common = [key for key in groups if key in first.domain]
        left = [first.hosts[key] for key in first.domain if key not in groups]
        right = [other.hosts[key] for key in groups if key not in first.domain]
        joins.append(join_made(sides, "nvlink domain", len(common), (left, right)))
        findings += _domains_differ(sides, first.domain, groups, kind)
    return joins, findings


def _domains_differ(
    sides: tuple[str, str], domains: Mapping[str, str], groups: Mapping[str, str], kind: str
) -> list[Finding]:
    wide, narrow = splits(groups, domains), splits(domains, groups)
    if not wide and not narrow:
        return []
    parts = []
    if wide:
        parts.append(
            f"{len(wide)} {kind} of {sides[1]} span several NVLink domains of {sides[0]}: "
            f"{shown(wide, 'domains')}"
        )
    if narrow:
        parts.append(
            f"{len(narrow)} NVLink domains of {sides[0]} are divided by {sides[1]}: "
            f"{shown(narrow, kind)}"
        )
    message = "; ".join(parts) + f". {sides[0]} is taken"
    # Blocks smaller than a domain are a scheduler's choice; hosts of two domains in one are not.
    mild = kind == "blocks" and not wide
    return [
        told(
            "blocks-in-domain" if mild else "conflict-nvlink-domain",
            Severity.NOTE if mild else Severity.WARNING,
            sides,
            message,
            None
            if mild
            else "compare nvidia-smi -q (Fabric: ClusterUUID, CliqueId) on these hosts",
            wide=len(wide),
            narrow=len(narrow),
        )
    ]
