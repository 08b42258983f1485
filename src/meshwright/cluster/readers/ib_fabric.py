"""InfiniBand text formats other than the plain listing: from ports and cables to facts.

Nodes and cables are gathered into the same ``Listing`` that ``ibnetdiscover`` gives, so that the
same checks apply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from meshwright.cluster.facts import Cable, Facts, Nic, OtherDevice, Switch
from meshwright.cluster.readers.ibnetdiscover_findings import check_listing
from meshwright.cluster.readers.ibnetdiscover_listing import End, Link, Listing, Node
from meshwright.cluster.readers.ibnetdiscover_names import host_and_device, other_kind
from meshwright.cluster.readers.ibnetdiscover_rates import link_rate

_GUID = re.compile(r"[0-9a-f]{16}")
_NEAR_GUIDS = 8
"""Port GUIDs of one adapter follow its node GUID; two adapters lie further apart."""


class Fabric:
    """Gathers nodes and cables; a node's key is its kind and id, as in ``Listing``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[End, End], Link] = {}
        self._adapter_of_port: dict[str, str] = {}
        self._ports: dict[str, set[int]] = {}
        self._named: dict[str, list[str]] = {}

    def node(self, kind: str, guid: str, name: str, line: int) -> Node:
        """Return the node with this id, made on first sight."""
        key = kind + guid
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = Node(kind, guid, name, line)
        node.name = node.name or name
        return node

    def adapter(self, port_guid: str, port: int, name: str, line: int) -> Node:
        """Return the adapter that a port belongs to.

        Formats that list ports give port GUIDs. Two ports are of one adapter when description and
        GUID say so: same text, different port numbers, GUIDs next to each other.
        """
        key = self._adapter_of_port.get(port_guid)
        if key is None:
            key = self._sibling(port_guid, port, name) or "H" + port_guid
            self._adapter_of_port[port_guid] = key
            self._named.setdefault(name, []).append(port_guid)
        self._ports.setdefault(key, set()).add(port)
        return self.node("H", key[1:], name, line)

    def _sibling(self, port_guid: str, port: int, name: str) -> str | None:
        if not _GUID.fullmatch(port_guid):
            return None
        number = int(port_guid, 16)
        # Few ports share a description, except where it names no host: look at the last ones.
        for other in self._named.get(name, ())[-16:]:
            key = self._adapter_of_port[other]
            near = _GUID.fullmatch(other) and abs(int(other, 16) - number) <= _NEAR_GUIDS
            if near and port not in self._ports[key]:
                return key
        return None

    def link(self, here: End, there: End, speed: tuple[str, str]) -> None:
        """Add one side's view of a cable; ``speed`` is width and InfiniBand generation."""
        seen = self.links.get((there, here))
        if seen is not None:
            seen.sides = 2
        elif (here, there) not in self.links:
            self.links[here, there] = Link(speed)

    def listing(self) -> Listing:
        """Return what was gathered."""
        return Listing(self.path, self.nodes, self.links, [])


def fabric_facts(listing: Listing, format_name: str, counts: Mapping[str, int]) -> Facts:
    """Return the facts of a listing: switches, adapters, other devices, hosts, cables, findings.

    Rates are bytes per second in one direction. ``Nic.guid`` is the node's id, a GUID where the
    source gives one, so that cables always find their ends.
    """
    nics, others = _end_points(listing)
    return Facts(
        format=format_name,
        path=listing.path,
        nics=tuple(nics),
        other_devices=tuple(others),
        hosts=tuple(dict.fromkeys(nic.host for nic in nics if nic.host is not None)),
        switches=tuple(
            Switch(node.guid, node.name or node.guid, _guid_or_none(node.guid))
            for node in listing.nodes.values()
            if node.kind == "S"
        ),
        cables=tuple(
            Cable(a[0][1:], b[0][1:], a[1], b[1], link_rate(*link.speed), link.sides == 2)
            for (a, b), link in listing.links.items()
        ),
        counts=dict(counts),
        findings=check_listing(listing, nics),
    )


def _guid_or_none(text: str) -> str | None:
    return text if _GUID.fullmatch(text) else None


def _end_points(listing: Listing) -> tuple[list[Nic], list[OtherDevice]]:
    first: dict[str, tuple[int, float | None]] = {}
    for ends, link in listing.links.items():
        for key, port in ends:
            if key not in first or port < first[key][0]:
                first[key] = (port, link_rate(*link.speed))
    nics: list[Nic] = []
    others: list[OtherDevice] = []
    for key, node in listing.nodes.items():
        if node.kind == "S":
            continue
        kind = "router" if node.kind == "R" else other_kind(node.name)
        if kind is not None:
            others.append(OtherDevice(node.guid, node.name, kind))
            continue
        host, device = host_and_device(node.name)
        lowest = first.get(key)
        nics.append(
            Nic(
                index=len(nics),
                name=device or node.guid,
                host=host,
                guid=node.guid,
                port=lowest[0] if lowest else None,
                rate_bytes_per_s=lowest[1] if lowest else None,
                lid=node.lid if lowest and lowest[0] == node.lid_port else None,
            )
        )
    return nics, others
