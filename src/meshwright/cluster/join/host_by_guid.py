"""Which host of a fabric a file of a host without a name is of: the GUIDs of its adapters say it.

A matrix of ``nvidia-smi topo -m`` names neither its host nor a GUID: it can be the type of every
host, and joins no adapter. Where a join cannot be made it is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.keys import guid_key
from meshwright.cluster.join.said import JoinMade, join_made, some, told
from meshwright.findings import Finding, Severity


def hosts_by_guid(
    fabric: Facts | None, own: Sequence[Facts]
) -> tuple[list[JoinMade], list[Finding]]:
    """Return joins of nameless files of hosts with the fabric on GUID, and those that fail."""
    if fabric is None or not fabric.nics:
        return [], []
    host_of = {key: nic.host for nic in fabric.nics if (key := guid_key(nic.guid)) is not None}
    joins: list[JoinMade] = []
    findings: list[Finding] = []
    for facts in own:
        if facts.host is not None or not facts.nics:
            continue
        mine = {key: nic.name for nic in facts.nics if (key := guid_key(nic.guid)) is not None}
        matched = [key for key in mine if key in host_of]
        absent = [name for key, name in mine.items() if key not in host_of]
        sides = (fabric.path, facts.path)
        if mine:
            joins.append(join_made(sides, "guid", len(matched), ((), absent)))
        hosts = Counter(host_of[key] or "an adapter without a host name" for key in matched)
        findings += _said(sides, (len(facts.nics), mine, absent), hosts)
    return joins, findings


def _said(
    sides: tuple[str, str], adapters: tuple[int, dict[str, str], list[str]], hosts: Counter[str]
) -> list[Finding]:
    count, mine, absent = adapters
    names = [*hosts]
    if len(hosts) > 1:
        message = (
            f"the adapters of {sides[1]} are on {len(hosts)} hosts of {sides[0]} by their GUIDs "
            f"({some(names)}): one file is of one host"
        )
        remedy = "look at the node descriptions of these adapters, or give each host its own file"
        return [
            told("conflict-adapter-host", Severity.WARNING, sides, message, remedy, hosts=names)
        ]
    if hosts:
        message = (
            f"{sides[1]} is of host {names[0]} by the GUIDs of {len(mine) - len(absent)} adapters"
        )
        more = f"; {len(absent)} are not in {sides[0]} ({some(absent)})" if absent else ""
        severity = Severity.WARNING if absent else Severity.NOTE
        look = "look at the cables of the adapters that are not listed" if absent else None
        return [told("host-by-guid", severity, sides, message + more, look, hosts=names)]
    if mine:
        message = (
            f"no adapter GUID of {sides[1]} is in {sides[0]}: which of its hosts this is stays unknown, "
            "and it is taken as the type of all"
        )
    else:
        message = (
            f"{sides[1]} names neither its host nor GUIDs of its {count} adapters, so none is joined with "
            f"an adapter of {sides[0]}: it is taken as the type of all hosts"
        )
    how = "meshwright capture on the host, or an NCCL topology dump, which have GUIDs"
    return [told("host-not-joined", Severity.NOTE, sides, message, how)]
