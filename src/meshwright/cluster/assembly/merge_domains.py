"""Which hosts share an NVLink domain: as named, as files say, or in order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from meshwright.cluster.assembly.merging import Merge
from meshwright.cluster.build import HostSet
from meshwright.cluster.facts import Facts
from meshwright.cluster.join.keys import HostNames, named_domain
from meshwright.cluster.join.kinds import by_domain, has_domains, is_host
from meshwright.cluster.join.said import some
from meshwright.cluster.nodes.rack_scale import domain_unknown, rack_scale, rack_scale_name
from meshwright.cluster.sections import ClusterSection, HostList
from meshwright.cluster.switch_names import NumberedNames


def nvlink_domains(
    merge: Merge, section: ClusterSection, hosts: HostSet
) -> tuple[np.ndarray | None, list[str] | NumberedNames | None]:
    """Return the NVLink domain of every host, and the names of the domains."""
    named = section.nvlink_domains
    if named is None:
        return _domains_by_order(merge, hosts)
    position = {name: index for index, name in enumerate(hosts.names)}
    members = _members(merge, named, position)
    domain = np.full(len(hosts.names), -1, dtype=np.int32)
    names: list[str] = []
    for name, found in members.items():
        present = [position[host] for host in found if host in position]
        if not present:
            continue
        if (domain[present] >= 0).any():
            raise merge.fail(
                f"nvlink_domains.{name}", f"a host of {name} is in another NVLink domain too"
            )
        domain[present] = len(names)
        names.append(name)
    _unknown_members(merge, named, members, position)
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


def _unknown_members(
    merge: Merge,
    named: dict[str, HostList],
    members: dict[str, list[str]],
    position: dict[str, int],
) -> None:
    """Say which hosts of domains written by hand are not in the cluster: a rack may be misspelt.

    Files may well name more racks than the job's hosts.
    """
    if set(named) == {"from"}:
        return
    for name, hosts in members.items():
        lost = [host for host in hosts if host not in position]
        if lost and len(lost) == len(hosts):
            merge.note(
                "topology/domain-hosts-unknown",
                f"nvlink_domains.{name}",
                f"no host of NVLink domain {name} is in the cluster ({some(lost)})",
                "compare the spelling with hosts:, or leave the domain out",
                hosts=len(lost),
            )


def _members(
    merge: Merge, named: dict[str, HostList], position: dict[str, int]
) -> dict[str, list[str]]:
    """Return the hosts of each domain; those of files by short name where the whole one differs."""
    if set(named) != {"from"}:
        return {name: merge.hosts(value, f"nvlink_domains.{name}") for name, value in named.items()}
    found = domains_from_files(merge, named["from"])
    listed = [host for hosts in found.values() for host in hosts]
    if all(host in position for host in listed):
        return found
    names = HostNames([position, listed])
    by_key = {names.key(host): host for host in position}
    return {
        name: [by_key.get(names.key(host), host) for host in hosts] for name, hosts in found.items()
    }


def _domains_by_order(
    merge: Merge, hosts: HostSet
) -> tuple[np.ndarray | None, NumberedNames | None]:
    """Join hosts in the given order, as many as the node type says; ``None``: each alone."""
    joined = hosts.types[0].nvlink_domain_hosts
    if joined == 1:
        _domains_unknown(merge, hosts)
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


def _domains_unknown(merge: Merge, hosts: HostSet) -> None:
    """Warn where hosts may be trays of a rack, and nothing says which belong together."""
    node = hosts.types[0]
    if len(hosts.names) < 2 or not any(node.on_switch()):
        return
    facts = next((one for one in merge.facts if is_host(one) and rack_scale(one)), None)
    if facts is not None or rack_scale_name(node.gpu):
        place = merge.place("nvlink_domains")
        merge.findings.append(domain_unknown(place, facts, len(hosts.names)))


def domains_from_files(merge: Merge, sources: HostList) -> dict[str, list[str]]:
    """Return the NVLink domains that files name: of host labels and the like, else of blocks.

    Where several name domains, the first in the order of ``kinds.by_domain`` counts; another one
    adds hosts that it does not have, to the domain of those they are with. Raises ``InputError``
    where no file names any.
    """
    files = by_domain(merge.read_all(sources, "nvlink_domains.from"))
    if any(has_domains(facts) for facts in files):
        return _united([facts for facts in files if has_domains(facts)])
    shown = ", ".join(Path(facts.path).name for facts in files)
    blocks: dict[str, list[str]] = {}
    for facts in files:
        for block in facts.blocks or ():
            if block.hosts:
                blocks.setdefault(block.comment or block.name, []).extend(block.hosts)
    if not blocks:
        raise merge.fail(
            "nvlink_domains.from", f"{shown} names no NVLink domains and no blocks of hosts"
        )
    merge.note(
        "assumed/blocks-are-domains",
        "nvlink_domains.from",
        f"each block of hosts in {shown} is taken as an NVLink domain, as the key says; a scheduler's "
        "block need not be one.",
        "host labels (nvidia.com/gpu.clique), or nvlink_domains: {name: hosts, …}",
        blocks=len(blocks),
    )
    return {name: list(dict.fromkeys(hosts)) for name, hosts in blocks.items()}


def _united(files: list[Facts]) -> dict[str, list[str]]:
    """Return the domains of all sources; their names differ, so hosts in both tell which is which."""
    names = HostNames(
        [place.host for place in facts.places or () if place.nvlink_domain] for facts in files
    )
    domain_of: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for facts in files:
        groups: dict[str, list[str]] = {}
        for place in facts.places or ():
            if named_domain(place.nvlink_domain) is not None:
                key = names.key(place.host)
                spelled.setdefault(key, place.host)
                groups.setdefault(str(place.nvlink_domain), []).append(key)
        for name, keys in groups.items():
            known = Counter(domain_of[key] for key in keys if key in domain_of)
            target = min(known, key=lambda one: (-known[one], one)) if known else name
            for key in keys:
                domain_of.setdefault(key, target)
    domains: dict[str, list[str]] = {}
    for key, name in domain_of.items():
        domains.setdefault(name, []).append(spelled[key])
    return domains
