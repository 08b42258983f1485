"""Adapters of a fabric and of hosts' captures, by GUID: hosts for those without a name, and conflicts.

A listing knows an adapter by its GUID and by the description that its host gave it; a capture says
which GUID each device of a host has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.join.fabric_nodes import NEAR_GUIDS
from meshwright.cluster.join.host_devices import device_name
from meshwright.cluster.join.host_machines import hosts_by_name
from meshwright.cluster.join.keys import HostNames, guid_key
from meshwright.cluster.join.said import Difference, JoinMade, conflict, join_made, some, told
from meshwright.cluster.natural_order import natural_key
from meshwright.findings import Finding, Number, Severity

_NODE_GUIDS = ("ibnetdiscover", "ibsim_net")
"""Formats that give an adapter's own GUID; the others give that of a port, which lies near it."""
_UNPLACED = "topology/nic-without-host"

_Owned = tuple[Facts, Nic]


def named_by_captures(
    fabric: Facts | None, captures: Sequence[Facts], names: HostNames
) -> tuple[Facts | None, list[JoinMade], list[Finding]]:
    """Give adapters without a host name the host whose capture has their GUID; say what differs."""
    owner = _owners(captures, names)
    if fabric is None or fabric.nics is None or not owner:
        return fabric, [], []
    nics = [_named(nic, owner, names) for nic in fabric.nics]
    findings = [*_other_hosts(fabric, owner, names), *_other_guids(fabric, owner, names)]
    sides = _sides(fabric, owner)
    seen = {guid_key(nic.guid) for nic in fabric.nics}
    absent = [
        f"{facts.host} {nic.name}" for guid, (facts, nic) in owner.items() if guid not in seen
    ]
    matched = sum((guid_key(nic.guid) or "") in owner for nic in fabric.nics)
    joins = [join_made(sides, "guid", matched, ((), absent))]
    left = sum(nic.host is None for nic in nics)
    named = sum(nic.host is None for nic in fabric.nics) - left
    if not named:
        return fabric, joins, findings
    still = f"; {left} more are in no capture" if left else ""
    message = (
        f"{named} adapters of {fabric.path} have no host name; their GUID names it in {sides[1]}"
        f"{still}"
    )
    findings.append(
        told("host-by-guid", Severity.NOTE, sides, message, None, adapters=named, left=left)
    )
    hosts = dict.fromkeys([*(fabric.hosts or ()), *(nic.host for nic in nics if nic.host)])
    filled = msgspec.structs.replace(fabric, nics=tuple(nics), hosts=tuple(hosts))
    return filled, joins, findings


def _named(nic: Nic, owner: Mapping[str, _Owned], names: HostNames) -> Nic:
    """Return an adapter without a host with that of the capture which has its GUID."""
    found = owner.get(guid_key(nic.guid) or "")
    if found is None or nic.host is not None:
        return nic
    host = names.spelled(found[0].host or "")
    return msgspec.structs.replace(nic, host=host, name=found[1].name)


def _other_hosts(fabric: Facts, owner: Mapping[str, _Owned], names: HostNames) -> Iterable[Finding]:
    """Yield conflicts on adapters that a capture gives another host than the listing."""
    differ: dict[str, list[Difference]] = {}
    for nic in fabric.nics or ():
        found = owner.get(guid_key(nic.guid) or "")
        if found is None or nic.host is None:
            continue
        if names.key(nic.host) != names.key(found[0].host or ""):
            shown = Difference(f"adapter {nic.guid}", str(nic.host), str(found[0].host))
            differ.setdefault(found[0].path, []).append(shown)
    for path, one in differ.items():
        sides = (fabric.path, path)
        yield conflict("adapter-host", "the host", sides, one, f"{fabric.path} is taken")


def _owners(captures: Sequence[Facts], names: HostNames) -> dict[str, _Owned]:
    """Return by GUID the adapters of hosts that name themselves; a second machine of a name has none."""
    by_host, _, _ = hosts_by_name([facts for facts in captures if facts.host], names)
    owner: dict[str, _Owned] = {}
    for files in by_host.values():
        for facts in files:
            for nic in facts.nics or ():
                guid = guid_key(nic.guid)
                if guid is not None:
                    owner.setdefault(guid, (facts, nic))
    return owner


def _sides(fabric: Facts, owner: Mapping[str, _Owned]) -> tuple[str, str]:
    used = sorted({facts.path for facts, _ in owner.values()}, key=natural_key)
    return fabric.path, used[0] if len(used) == 1 else f"{used[0]} and {len(used) - 1} more"


def _other_guids(fabric: Facts, owner: Mapping[str, _Owned], names: HostNames) -> Iterable[Finding]:
    """Yield conflicts on devices whose capture has another GUID than the listing.

    A GUID that the listing puts on another host is a wrong host name, which is said apart.
    """
    expected: dict[tuple[str, str], tuple[str, str]] = {}
    for guid, (facts, nic) in owner.items():
        name = device_name(nic)
        if name is not None:
            expected.setdefault((names.key(facts.host or ""), name), (guid, facts.path))
    where = {guid_key(nic.guid): nic.host for nic in fabric.nics or ()}
    slack = 0 if fabric.format in _NODE_GUIDS else NEAR_GUIDS
    differ: dict[str, list[Difference]] = {}
    for nic in fabric.nics or ():
        listed, name = guid_key(nic.guid), device_name(nic)
        if nic.host is None or listed is None or name is None:
            continue
        key = names.key(nic.host)
        known = expected.get((key, name))
        if known is None or abs(int(known[0], 16) - int(listed, 16)) <= slack:
            continue
        elsewhere = where.get(known[0])
        if elsewhere is None or names.key(elsewhere) == key:
            differ.setdefault(known[1], []).append(
                Difference(f"{nic.host} {name}", listed, known[0])
            )
    for path, found in differ.items():
        sides = (fabric.path, path)
        yield conflict("adapter-guid", "the GUID", sides, found, f"{fabric.path} is taken")


def still_unplaced(source: Facts, fabric: Facts | None) -> list[Finding]:
    """Return a listing's own findings, of adapters without a host only those that no capture names.

    ``fabric``: the listings joined, with the hosts that captures named.
    """
    findings = list(source.findings)
    nameless = [nic for nic in source.nics or () if nic.host is None]
    if fabric is None or not nameless or not any(one.rule == _UNPLACED for one in findings):
        return findings
    host_of = {guid_key(nic.guid): nic.host for nic in fabric.nics or ()}
    left = [nic for nic in nameless if host_of.get(guid_key(nic.guid)) is None]
    if len(left) == len(nameless):
        return findings
    told_now = [_fewer(one, left, len(nameless)) for one in findings if one.rule == _UNPLACED]
    return [
        *(one for one in findings if one.rule != _UNPLACED),
        *(one for one in told_now if left),
    ]


def _fewer(finding: Finding, left: Sequence[Nic], total: int) -> Finding:
    guids = [str(nic.guid) for nic in left]
    numbers: dict[str, Number] = {"count": len(left), "guids": [*guids[:100]], "listed": total}
    message = (
        f"{len(left)} of {total} adapters that name no host are in no capture either and cannot be "
        f"placed: {some(guids)}"
    )
    return msgspec.structs.replace(finding, message=message, numbers=numbers)
