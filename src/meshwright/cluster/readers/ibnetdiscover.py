"""``ibnetdiscover``: the switches, adapters and cables of an InfiniBand fabric.

Only the plain listing is read (its grammar stands in ``ibnetdiscover_listing``);
``ibnetdiscover -p`` is another format.
"""

from __future__ import annotations

import re

from meshwright.cluster.facts import Cable, Facts, Nic, OtherDevice, Switch
from meshwright.cluster.readers.ibnetdiscover_findings import check_listing
from meshwright.cluster.readers.ibnetdiscover_listing import Listing, read_listing
from meshwright.cluster.readers.ibnetdiscover_names import host_and_device, other_kind
from meshwright.cluster.readers.ibnetdiscover_rates import link_rate

FORMAT = "ibnetdiscover"

_LOOKS = re.compile(
    r"^(?:(?:Switch|Ca|Rt)[ \t]+[0-9]+[ \t]+\"[SHR]-[0-9a-fA-F]{1,16}\"|(?:switch|ca)guid=0x)", re.M
)
_IBSIM = re.compile(r"^Hca[ \t]", re.M)


def looks_like(text: str) -> bool:
    """Tell by content whether the text is a plain ``ibnetdiscover`` listing."""
    return _LOOKS.search(text) is not None and _IBSIM.search(text) is None


def read(text: str, path: str) -> Facts:
    """Return the switches, adapters, other devices, hosts and cables of a fabric.

    Ids are GUIDs of 16 hexadecimal digits, also in ``Cable.a`` and ``Cable.b``. A node without a
    stanza of its own counts, and its cables have ``listed_twice`` false.

    Raises ``InputError`` for lines of no known form (up to 20 are named) and for a file that is
    empty, binary or cut off within a line or a stanza.
    """
    listing = read_listing(text, path)
    nics, others = _end_points(listing)
    return Facts(
        format=FORMAT,
        path=path,
        nics=tuple(nics),
        other_devices=tuple(others),
        hosts=tuple(dict.fromkeys(nic.host for nic in nics if nic.host is not None)),
        switches=tuple(
            Switch(node.guid, node.name or node.guid, node.guid)
            for node in listing.nodes.values()
            if node.kind == "S"
        ),
        cables=tuple(
            Cable(a[0][1:], b[0][1:], a[1], b[1], link_rate(*link.speed), link.sides == 2)
            for (a, b), link in listing.links.items()
        ),
        findings=check_listing(listing, nics),
    )


def _end_points(listing: Listing) -> tuple[list[Nic], list[OtherDevice]]:
    """Return the adapters of hosts, and the adapters and routers that belong to no host."""
    first = _first_links(listing)
    nics: list[Nic] = []
    others: list[OtherDevice] = []
    for key, node in listing.nodes.items():
        if node.kind == "S":
            continue
        kind = "router" if node.kind == "R" else other_kind(node.name)
        if kind is not None:
            others.append(OtherDevice(node.guid, node.name, kind))
            continue
        host, name = host_and_device(node.name)
        port, rate = first.get(key, (None, None))
        nics.append(
            Nic(
                index=len(nics),
                name=name or node.guid,
                host=host,
                guid=node.guid,
                port=port,
                rate_bytes_per_s=rate,
            )
        )
    return nics, others


def _first_links(listing: Listing) -> dict[str, tuple[int, float | None]]:
    """Return for each end point its lowest port with a cable, and that cable's rate."""
    first: dict[str, tuple[int, float | None]] = {}
    for ends, link in listing.links.items():
        for key, port in ends:
            if key[0] != "S" and (key not in first or port < first[key][0]):
                first[key] = (port, link_rate(*link.speed))
    return first
