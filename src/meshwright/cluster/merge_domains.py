"""Which hosts share an NVLink domain: as named, as a file says, or in order."""

from __future__ import annotations

import numpy as np

from meshwright.cluster.build import HostSet
from meshwright.cluster.merging import Merge
from meshwright.cluster.sections import ClusterSection, HostList
from meshwright.cluster.switch_names import NumberedNames


def nvlink_domains(
    merge: Merge, section: ClusterSection, hosts: HostSet
) -> tuple[np.ndarray | None, list[str] | NumberedNames | None]:
    """Return the NVLink domain of every host, and the names of the domains."""
    named = section.nvlink_domains
    if named is None:
        return _domains_by_order(merge, hosts)
    if set(named) == {"from"}:
        named = domains_from_file(merge, str(named["from"]))
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


def domains_from_file(merge: Merge, source: str) -> dict[str, HostList]:
    """Return the NVLink domains that a file names: of host labels, else blocks of hosts.

    Raises ``InputError`` where it names neither.
    """
    facts = merge.read(source, "nvlink_domains.from")
    domains: dict[str, list[str]] = {}
    for place in facts.places or ():
        if place.nvlink_domain is not None:
            domains.setdefault(place.nvlink_domain, []).append(place.host)
    if domains:
        return {name: tuple(hosts) for name, hosts in domains.items()}
    blocks = {
        block.comment or block.name: block.hosts for block in facts.blocks or () if block.hosts
    }
    if not blocks:
        raise merge.fail(
            "nvlink_domains.from", f"{source} names no NVLink domains and no blocks of hosts"
        )
    merge.note(
        "assumed/blocks-are-domains",
        "nvlink_domains.from",
        f"each block of hosts in {source} is taken as an NVLink domain, as the key says; a scheduler's "
        "block need not be one.",
        "host labels (nvidia.com/gpu.clique), or nvlink_domains: {name: hosts, …}",
        blocks=len(blocks),
    )
    return {name: tuple(hosts) for name, hosts in blocks.items()}
