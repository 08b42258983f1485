"""Whether files that name one host are of one machine, and whether a GUID stands in two hosts.

A machine is known by the UUIDs of its GPUs and the GUIDs of its adapters. Files of one host name
with none of these in common are of two machines; a GUID in the files of two hosts is a cloned image
or firmware, or one machine that was captured under two names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.host_devices import gpu_uuid
from meshwright.cluster.join.keys import HostNames, guid_key
from meshwright.cluster.join.said import some, told
from meshwright.cluster.natural_order import in_name_order
from meshwright.findings import Finding, Severity

Ids = tuple[frozenset[str], frozenset[str]]
"""UUIDs of GPUs, GUIDs of adapters."""


def hosts_by_name(
    named: Sequence[Facts], names: HostNames
) -> tuple[dict[str, list[Facts]], list[Facts], list[Finding]]:
    """Return files by host key in the order of names, files of second machines of a name, and findings."""
    found: dict[str, list[Facts]] = {}
    for facts in named:
        found.setdefault(names.key(facts.host or ""), []).append(facts)
    apart: list[Facts] = []
    findings: list[Finding] = []
    by_host: dict[str, list[Facts]] = {}
    for key in in_name_order(found):
        machines = by_machine(found[key])
        by_host[key] = machines[0]
        if len(machines) > 1:
            findings.append(_two_machines(names.spelled(key), machines))
            apart += [facts for files in machines[1:] for facts in files]
    return by_host, apart, findings


def by_machine(files: Sequence[Facts]) -> list[list[Facts]]:
    """Return the files of one host name by machine, the first file's machine first.

    Files are of two machines where both have UUIDs, or both GUIDs, and share none of either. A file
    without ids is taken as the first machine's. Linear in the number of ids.
    """
    machines: list[list[Facts]] = []
    known: list[tuple[set[str], set[str]]] = []
    at_id: dict[str, int] = {}
    for facts in files:
        ids = _ids(facts)
        found = next((at_id[one] for kind in ids for one in kind if one in at_id), None)
        if found is None:
            found = next((at for at, one in enumerate(known) if not _comparable(one, ids)), None)
        if found is None:
            found = len(machines)
            machines.append([])
            known.append((set(), set()))
        machines[found].append(facts)
        for mine, values in zip(known[found], ids, strict=True):
            mine.update(values)
            at_id |= dict.fromkeys(values, found)
    return machines


def _ids(facts: Facts) -> Ids:
    uuids = (gpu_uuid(gpu) for gpu in facts.gpus or ())
    guids = (guid_key(nic.guid) for nic in facts.nics or ())
    return frozenset(filter(None, uuids)), frozenset(filter(None, guids))


def _comparable(known: tuple[set[str], set[str]], ids: Ids) -> bool:
    return any(mine and theirs for mine, theirs in zip(known, ids, strict=True))


def _two_machines(name: str, machines: Sequence[Sequence[Facts]]) -> Finding:
    """Return the finding on several machines of one name; the first one keeps it."""
    first, *others = machines
    paths = [one[0].path for one in others]
    return told(
        "host-name-twice",
        Severity.WARNING,
        (first[0].path, paths[0]),
        f"{_number(len(machines))} machines are called {name}: no GPU UUID and no adapter GUID of "
        f"{first[0].path} is in {some(paths, 3)}. {first[0].path} is taken for {name}, and the "
        "other is joined with nothing",
        "give each machine a name of its own (hostnamectl set-hostname), and capture it again; or "
        "leave out the file that is of no host of this cluster",
        host=name,
        machines=[[facts.path for facts in files] for files in machines],
    )


def _number(count: int) -> str:
    return {2: "two", 3: "three"}.get(count, str(count))


def duplicate_guids(by_host: Mapping[str, Sequence[Facts]], names: HostNames) -> list[Finding]:
    """Return a finding for each host whose adapters' GUIDs stand in other hosts' files too."""
    owner: dict[str, _Adapter] = {}
    found: dict[str, dict[str, list[tuple[_Adapter, _Adapter]]]] = {}
    for key, files in by_host.items():
        for adapter in _adapters(key, files):
            first = owner.setdefault(adapter.guid, adapter)
            if first.key != key:
                found.setdefault(first.key, {}).setdefault(key, []).append((first, adapter))
    return [_duplicate([*others.values()], names) for others in found.values()]


class _Adapter(msgspec.Struct, frozen=True):
    key: str
    guid: str
    name: str
    path: str


def _adapters(key: str, files: Iterable[Facts]) -> Iterable[_Adapter]:
    for facts in files:
        for nic in facts.nics or ():
            guid = guid_key(nic.guid)
            if guid is not None:
                yield _Adapter(key, guid, nic.name, facts.path)


def _duplicate(others: Sequence[Sequence[tuple[_Adapter, _Adapter]]], names: HostNames) -> Finding:
    """Return the finding on one host; ``others``: by other host, the adapters that share a GUID."""
    mine, theirs = others[0][0]
    hosts = [names.spelled(mine.key), *(names.spelled(same[0][1].key) for same in others)]
    more = f", and {len(others[0]) - 1} more GUIDs" if len(others[0]) > 1 else ""
    if len(others) > 1:
        more += f"; {len(others) - 1} more hosts share GUIDs with {hosts[0]} ({some(hosts[2:], 3)})"
    return told(
        "duplicate-guid",
        Severity.WARNING,
        (mine.path, theirs.path),
        f"{hosts[0]} and {hosts[1]} have adapters of the same GUID: {mine.guid} is {mine.name} of "
        f"{hosts[0]} in {mine.path} and {theirs.name} of {hosts[1]} in {theirs.path}{more}. A subnet "
        "manager cannot tell them apart",
        "if one machine was captured under two names, leave one file out; else burn the right GUIDs "
        "into one of them (flint), and capture both again",
        hosts=hosts[:100],
        count=len({adapter.guid for same in others for adapter, _ in same}),
        guids=[adapter.guid for adapter, _ in others[0][:100]],
    )
