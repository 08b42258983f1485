"""NetQ's topology graph: tiers with their devices, and links with their cables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from meshwright.cluster.facts import Cable, Facts, Switch
from meshwright.cluster.readers.document_values import (
    child,
    items,
    known_text,
    mapping,
    shown,
    text_of,
    whole_number,
)
from meshwright.cluster.readers.host_places_findings import warn
from meshwright.documents import Node
from meshwright.errors import InputError
from meshwright.findings import Finding, Number, Place, Severity

_FORMAT = "netq_nmx"
_MAX_CABLES = 4096
"""Cables of one logical link."""
_MAX_ALL_CABLES = 1_000_000


class _Device(msgspec.Struct, frozen=True):
    """A device of the graph."""

    id: str
    name: str
    is_switch: bool
    by_lldp: bool


class _Link(msgspec.Struct, frozen=True):
    """A logical link: its cables, and how many its two numbers say."""

    id: str
    cables: tuple[Cable, ...]
    size: int
    listed: int


def read_graph(graphs: Sequence[Node], path: str) -> Facts:
    """Return switches, hosts and cables of all graphs of a file.

    A cable ends at a switch id, or at ``host:interface``. Raises ``InputError`` for a device or link
    of another form, a link to a device that is not listed, and a graph without device.
    """
    devices = {device.id: device for graph in graphs for device in _devices(graph)}
    if not devices:
        raise InputError(graphs[0].problem("the graph names no device"))
    links: list[_Link] = []
    total = 0
    for graph in graphs:
        for node in items(child(graph, "links"), "links"):
            links.append(_link(node, devices))
            total += links[-1].size
            if total > _MAX_ALL_CABLES:
                raise InputError(node.problem(f"the links hold over {_MAX_ALL_CABLES:,} cables"))
    switches = tuple(Switch(d.id, d.name) for d in devices.values() if d.is_switch)
    cables = tuple(cable for link in links for cable in link.cables)
    ids = {switch.id for switch in switches}
    between = sum(cable.a in ids and cable.b in ids for cable in cables)
    to_switch = sum((cable.a in ids) != (cable.b in ids) for cable in cables)
    return Facts(
        format=_FORMAT,
        path=path,
        hosts=tuple(dict.fromkeys(d.name for d in devices.values() if not d.is_switch)),
        switches=switches,
        cables=cables,
        counts={
            "logical_links": len(links),
            "links_switch_switch": between,
            "links_nic": to_switch,
        },
        findings=tuple(_findings(list(devices.values()), links, path)),
    )


def _devices(graph: Node) -> Iterator[_Device]:
    """Yield the devices of a graph; ``nodes`` are its tiers, each with its devices inside."""
    mapping(graph, "a graph")
    for tier in items(child(graph, "nodes"), "nodes"):
        mapping(tier, "a tier")
        inside = child(tier, "compounded_nodes")
        for node in (tier,) if inside is None else items(inside, "compounded_nodes"):
            mapping(node, "a device")
            if known_text(child(node, "node_type"), "node_type") == "tier":
                continue
            name = text_of(child(node, "id"), "id", node)
            kind = known_text(child(node, "device_type"), "device_type") or ""
            label = known_text(child(node, "name"), "name") or name
            yield _Device(name, label, kind == "switch", kind == "discovered_via_lldp")


def _link(node: Node, devices: dict[str, _Device]) -> _Link:
    mapping(node, "a link")
    ends = []
    for key in ("src", "target"):
        end = child(node, key)
        name = text_of(end, key, node)
        if name not in devices:
            raise InputError(
                (end or node).problem(f"{key} {name[:80]!r} is no device of the graph")
            )
        ends.append(devices[name])
    one, other = ends
    listed = [_interfaces(cable, node) for cable in items(child(node, "compounded_links"), "links")]
    given = child(node, "size")
    size = len(listed) if given is None else whole_number(given, "size", node, _MAX_CABLES)
    # What the size counts and no entry names is a cable all the same.
    named = [*listed, *({} for _ in range(size - len(listed)))]
    cables = tuple(Cable(_end(one, by), _end(other, by)) for by in named[:size])
    label = known_text(child(node, "id"), "id") or f"{one.id}-{other.id}"
    return _Link(label, cables, size, len(listed))


def _interfaces(cable: Node, link: Node) -> dict[str, str]:
    """Return the interface of each end of a cable, by device."""
    mapping(cable, "a cable")
    return {
        text_of(child(end, "node"), "node", link): text_of(
            child(end, "interface"), "interface", end
        )
        for end in items(child(cable, "interfaces"), "interfaces")
        if child(end, "interface") is not None
    }


def _end(device: _Device, interfaces: dict[str, str]) -> str:
    if device.is_switch:
        return device.id
    return f"{device.name}:{interfaces.get(device.id, '?')}"


def _findings(devices: Sequence[_Device], links: Sequence[_Link], path: str) -> Iterator[Finding]:
    place = Place(path)
    odd = [link for link in links if link.size != link.listed]
    if odd:
        first = odd[0]
        message = (
            f"{len(odd)} links name another number of cables than their size: {first.id} has size "
            f"{first.size} and names {first.listed}; the size is taken"
        )
        yield warn("topology/link-size", place, message, [link.id for link in odd])
    found = [device.name for device in devices if device.by_lldp]
    if found:
        message = (
            f"{len(found)} devices are known from LLDP alone and taken as hosts ({shown(found)})"
        )
        numbers: dict[str, Number] = {"count": len(found)}
        yield Finding("assumed/lldp-is-host", Severity.NOTE, place, message, numbers)
    used = {end.partition(":")[0] for link in links for c in link.cables for end in (c.a, c.b)}
    alone = [device.name for device in devices if not {device.id, device.name} & used]
    if alone:
        message = f"{len(alone)} devices have no link ({shown(alone)})"
        yield warn("topology/device-without-link", place, message, alone)
