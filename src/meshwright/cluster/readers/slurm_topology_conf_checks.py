"""Slurm ``topology.conf``, third step: whether the definitions fit together as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from meshwright.cluster.degraded.leaf_only import leaf_only
from meshwright.cluster.facts import Block, TreeSwitch
from meshwright.cluster.hostlist import compress_hostlist
from meshwright.cluster.readers.slurm_topology_conf_definitions import Definitions
from meshwright.findings import Finding, Number, Place, Severity

_SHOWN = 5
_LISTED = 100
_SPINE_REMEDY = "name the switches above: SwitchName=spine1 Switches=leaf[1-8]"


def check_definitions(definitions: Definitions) -> tuple[Finding, ...]:
    """Return what is odd about the definitions.

    Raises ``InputError`` for a switch that is its own ancestor.
    """
    path, switches = definitions.path, definitions.switches
    _refuse_cycles(definitions)
    return (
        *_undefined_children(path, switches),
        *_second_parents(path, switches),
        *_separate_trees(path, switches),
        *_hosts_twice(path, "switch", switches.values()),
        *_hosts_twice(path, "block", definitions.blocks.values()),
        *_rings(definitions),
    )


def _refuse_cycles(definitions: Definitions) -> None:
    """Refuse a switch that is its own ancestor."""
    below = {name: switch.switches for name, switch in definitions.switches.items()}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        chain = [str(name) for name in reversed(error.args[1])]
        shown = " > ".join(chain if len(chain) < 8 else [*chain[:6], "...", chain[-1]])
        line = definitions.line_of[f"switch {chain[0]}"]
        message = f"switch {chain[0]} is its own ancestor: {shown}"
        raise line.error(definitions.path, 0, message) from None


def _undefined_children(path: str, switches: dict[str, TreeSwitch]) -> Iterator[Finding]:
    for switch in switches.values():
        missing = [name for name in switch.switches if name not in switches]
        if missing:
            shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
            message = f"switch {switch.name} has children that no line defines: {shown}"
            numbers: dict[str, Number] = {
                "switch": switch.name,
                "count": len(missing),
                "undefined": [*missing[:_LISTED]],
            }
            place = Place(path, switch.line)
            yield Finding("topology/switch-undefined", Severity.WARNING, place, message, numbers)


def _second_parents(path: str, switches: dict[str, TreeSwitch]) -> Iterator[Finding]:
    parent: dict[str, str] = {}
    shared = [
        (child, parent[child], switch)
        for switch in switches.values()
        for child in switch.switches
        if parent.setdefault(child, switch.name) != switch.name
    ]
    if shared:
        child, one, two = shared[0]
        message = (
            f"{len(shared)} times a switch has a second parent, so this is no tree: "
            f"{child} is a child of both {one} and {two.name}"
        )
        numbers: dict[str, Number] = {
            "count": len(shared),
            "switches": [name for name, _, _ in shared[:_LISTED]],
        }
        place = Place(path, two.line)
        yield Finding("topology/switch-two-parents", Severity.WARNING, place, message, numbers)


def _separate_trees(path: str, switches: dict[str, TreeSwitch]) -> Iterator[Finding]:
    children = {child for switch in switches.values() for child in switch.switches}
    roots = [name for name in switches if name not in children]
    if len(roots) < 2:
        return
    if not any(switch.switches for switch in switches.values()):
        first = switches[roots[0]].line
        yield leaf_only(path, roots, first, "", _SPINE_REMEDY)
        return
    seen: set[str] = set()
    below = [(root, _hosts_below(root, switches, seen)) for root in roots]
    parts = [f"{root} ({len(h)} hosts: {_short(h)})" for root, h in below[:_SHOWN]]
    more = f" and {len(roots) - _SHOWN} more" if len(roots) > _SHOWN else ""
    message = (
        f"the {len(roots)} trees have no common root: {'; '.join(parts)}{more}. "
        "The path between hosts of different trees is unknown"
    )
    numbers: dict[str, Number] = {
        "roots": len(roots),
        "hosts_by_root": {root: len(hosts) for root, hosts in below[:_LISTED]},
    }
    place = Place(path, switches[roots[1]].line)
    remedy = "keep each job under one tree, or define the switch that joins them"
    yield Finding("topology/no-common-root", Severity.WARNING, place, message, numbers, remedy)


def _hosts_below(root: str, switches: dict[str, TreeSwitch], seen: set[str]) -> list[str]:
    """Return the hosts under a root that no earlier root has."""
    hosts: list[str] = []
    stack = [root]
    while stack:
        name = stack.pop()
        if name in seen or name not in switches:
            continue
        seen.add(name)
        hosts += switches[name].hosts
        stack.extend(reversed(switches[name].switches))
    return hosts


def _hosts_twice(path: str, kind: str, owners: Iterable[TreeSwitch | Block]) -> Iterator[Finding]:
    first: dict[str, TreeSwitch | Block] = {}
    twice: list[tuple[str, TreeSwitch | Block, TreeSwitch | Block]] = []
    for owner in owners:
        for host in owner.hosts:
            if host in first:
                twice.append((host, first[host], owner))
            else:
                first[host] = owner
    if not twice:
        return
    names = list(dict.fromkeys(host for host, _, _ in twice))
    shown = "; ".join(
        f"{host} under {one.name} (line {one.line}) and {two.name} (line {two.line})"
        for host, one, two in twice[:_SHOWN]
    )
    message = f"{len(names)} hosts stand more than once under a {kind}: {shown}"
    numbers: dict[str, Number] = {"count": len(names), "hosts": [*names[:_LISTED]]}
    place = Place(path, twice[0][2].line)
    remedy = f"leave each host under the one {kind} that it hangs on"
    yield Finding("topology/host-twice", Severity.WARNING, place, message, numbers, remedy)


def _rings(definitions: Definitions) -> Iterator[Finding]:
    if definitions.has_ring:
        message = "RingName lines give hosts only: rings are not used for paths"
        numbers: dict[str, Number] = {"hosts": len(definitions.ring_hosts)}
        place = Place(definitions.path)
        yield Finding("topology/ring-ignored", Severity.WARNING, place, message, numbers)


def _short(hosts: list[str]) -> str:
    text = compress_hostlist(hosts)
    return text if len(text) <= 80 else text[:80] + "..."
