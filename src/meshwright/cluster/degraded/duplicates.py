"""Things that stand twice: GUIDs, hosts of one name, hosts under two switches, GPUs of one UUID."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from meshwright.cluster.degraded.peers import some
from meshwright.cluster.facts import Facts
from meshwright.cluster.switch_names import short_name
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural, verb

_LISTED = 100
_LEAST_HOSTS = 4


def duplicate_findings(facts: Facts) -> list[Finding]:
    """Return what a source names twice; linear in its size."""
    return [
        *_same_names(facts),
        *_same_guids(facts),
        *_same_uuids(facts),
        *_hosts_under_two(facts),
        *_hosts_in_two_places(facts),
    ]


def _warn(
    facts: Facts, rule: str, message: str, numbers: dict[str, Number], remedy: str
) -> Finding:
    place = Place(facts.path, subject=str(next(iter(numbers.values()))))
    return Finding(f"topology/{rule}", Severity.WARNING, place, message, numbers, remedy)


def _same_names(facts: Facts) -> Iterator[Finding]:
    """Report hosts that have one adapter name with two GUIDs: two machines of one name."""
    if not facts.cables:
        return
    guids: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for nic in facts.nics or ():
        if nic.host is not None and nic.guid is not None:
            guids[nic.host][nic.name].append(nic.guid)
    doubled = {
        host: twice
        for host, adapters in guids.items()
        if (twice := {name: found for name, found in adapters.items() if len(set(found)) > 1})
    }
    if len(doubled) * 2 > len(guids) >= _LEAST_HOSTS:
        return  # so many: here all adapters of a host have one name
    where = _leaf_ports(facts)
    for host, twice in doubled.items():
        machines = max(len(set(found)) for found in twice.values())
        name, found = next(iter(twice.items()))
        shown = [f"GUID {guid}{where.get(guid, '')}" for guid in dict.fromkeys(found)]
        message = (
            f"{machines} machines call themselves {host}: {name} stands there with {some(shown, 4)}"
        )
        message += f" ({plural(len(twice) - 1, 'more adapter')} alike)" if len(twice) > 1 else ""
        numbers: dict[str, Number] = {
            "host": host,
            "machines": machines,
            "adapters": {name: [*found[:_LISTED]] for name, found in [*twice.items()][:_LISTED]},
        }
        remedy = f"give each machine its own host name and node description; until then {host} cannot be placed"
        yield _warn(facts, "duplicate-host-name", message, numbers, remedy)


def _leaf_ports(facts: Facts) -> dict[str, str]:
    """Return, by adapter id, the switch port where its cable ends, as words."""
    names = {switch.id: short_name(switch.name) for switch in facts.switches or ()}
    where: dict[str, str] = {}
    for cable in facts.cables or ():
        for near, port, far in ((cable.a, cable.a_port, cable.b), (cable.b, cable.b_port, cable.a)):
            if near in names:
                at = f" at {names[near]}" + ("" if port is None else f" port {port}")
                where.setdefault(far, at)
    return where


def _same_guids(facts: Facts) -> Iterator[Finding]:
    """Report ids of two things; cables find their ends by id, so they may go to either."""
    if not facts.cables:
        return
    owners: dict[str, list[str]] = defaultdict(list)
    for nic in facts.nics or ():
        if nic.guid is not None:
            owners[nic.guid].append(f"{nic.host or 'adapter'} {nic.name}")
    for switch in facts.switches or ():
        owners[switch.guid or switch.id].append(switch.name)
    for guid, names in owners.items():
        if len(names) > 1:
            message = f"{len(names)} nodes have the GUID {guid} ({some(names, 4)})"
            numbers: dict[str, Number] = {"guid": guid, "names": [*names[:_LISTED]]}
            remedy = "burn the right GUID into one of them (flint), then list the fabric again"
            yield _warn(facts, "duplicate-guid", message, numbers, remedy)


def _same_uuids(facts: Facts) -> Iterator[Finding]:
    gpus: dict[str, list[str]] = defaultdict(list)
    for gpu in facts.gpus or ():
        if gpu.uuid:
            gpus[gpu.uuid].append(f"{gpu.host} {gpu.name}" if gpu.host else gpu.name)
    for uuid, names in gpus.items():
        if len(names) > 1:
            message = f"{len(names)} GPUs have the UUID {uuid} ({some(names, 4)})"
            numbers: dict[str, Number] = {"uuid": uuid, "gpus": [*names[:_LISTED]]}
            remedy = "look whether one host's output was pasted for two"
            yield _warn(facts, "duplicate-uuid", message, numbers, remedy)


def _hosts_under_two(facts: Facts) -> Iterator[Finding]:
    """Report hosts under two lowest switches of a tree, or in two blocks."""
    tree = [(one.name, one.hosts) for one in facts.tree or () if not one.switches]
    blocks = [(one.name, one.hosts) for one in facts.blocks or ()]
    for kind, owners in (("switch", tree), ("block", blocks)):
        twice = _twice(owners)
        if not twice:
            continue
        shown = [f"{host} under {' and '.join(names[:4])}" for host, names in twice.items()]
        stand = "stands" if len(twice) == 1 else "stand"
        message = (
            f"{plural(len(twice), 'host')} {stand} more than once under a {kind}: {some(shown, 4)}"
        )
        numbers: dict[str, Number] = {"hosts": [*twice][:_LISTED], "count": len(twice)}
        remedy = f"leave each host under the one {kind} that it hangs on"
        yield _warn(facts, "host-twice", message, numbers, remedy)


def _twice(owners: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    under: dict[str, list[str]] = defaultdict(list)
    for name, hosts in owners:
        for host in hosts:
            under[host].append(name)
    return {host: names for host, names in under.items() if len(names) > 1}


def _hosts_in_two_places(facts: Facts) -> Iterator[Finding]:
    counts = Counter(place.host for place in facts.places or ())
    twice = [host for host, count in counts.items() if count > 1]
    if not twice:
        return
    shown = []
    for host in twice[:4]:
        named = [
            place.tiers[0] for place in facts.places or () if place.host == host and place.tiers
        ]
        shown.append(f"{host} ({' and '.join(named[:4])})" if named else host)
    message = (
        f"{plural(len(twice), 'host')} {verb(len(twice))} listed more than once: {some(shown, 4)}"
    )
    numbers: dict[str, Number] = {"hosts": [*twice[:_LISTED]], "count": len(twice)}
    remedy = "leave one entry for each host"
    yield _warn(facts, "host-twice", message, numbers, remedy)
