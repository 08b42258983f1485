"""``ibnetdiscover``: what is odd about a fabric's listing as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from meshwright.cluster.facts import Nic
from meshwright.cluster.readers.ibnetdiscover_listing import Listing, Node
from meshwright.cluster.readers.ibnetdiscover_names import other_kind
from meshwright.cluster.readers.ibnetdiscover_rates import link_rate
from meshwright.cluster.switch_names import short_name
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural, verb

_SHOWN = 5
_LISTED = 100


def check_listing(listing: Listing, nics: Sequence[Nic]) -> tuple[Finding, ...]:
    """Return the findings on a listing and the host adapters (``nics``) in it."""
    return (
        *_shared_guids(listing),
        *_nameless(listing, nics),
        *_unlisted(listing),
        *_listed_once(listing),
        *_busy_ports(listing),
        *_unknown_rates(listing),
    )


def _shared_guids(listing: Listing) -> Iterator[Finding]:
    nodes_of_guid: dict[str, list[Node]] = {}
    for node in (*listing.nodes.values(), *listing.repeats):
        nodes_of_guid.setdefault(node.guid, []).append(node)
    for guid, nodes in nodes_of_guid.items():
        if len(nodes) < 2:
            continue
        names = [node.name for node in nodes]
        lines = ", ".join(str(node.line) for node in nodes[:_SHOWN])
        message = f"{len(nodes)} nodes have the GUID {guid} ({_some(names)}; lines {lines})"
        place = Place(listing.path, nodes[1].line)
        numbers: dict[str, Number] = {"guid": guid, "names": [*names[:_LISTED]]}
        remedy = "burn the right GUID into one of them (flint), then list the fabric again"
        yield Finding("topology/duplicate-guid", Severity.WARNING, place, message, numbers, remedy)


def _nameless(listing: Listing, nics: Sequence[Nic]) -> Iterator[Finding]:
    nameless = [nic for nic in nics if nic.host is None]
    if not nameless:
        return
    switch_port = _switch_ports(listing, {f"H{nic.guid}" for nic in nameless})
    adapters = []
    for nic in nameless:
        leaf, port = switch_port.get(f"H{nic.guid}", (None, None))
        adapters.append((nic, leaf, port))
    shown = _some(
        f"{nic.name} (GUID {nic.guid}"
        + (f" at {short_name(leaf)} port {port})" if leaf is not None else ", no cable)")
        for nic, leaf, port in adapters
    )
    name = "names" if len(nameless) == 1 else "name"
    message = f"{plural(len(nameless), 'adapter')} {name} no host and cannot be placed: {shown}"
    numbers: dict[str, Number] = {
        "count": len(nameless),
        "guids": [nic.guid for nic in nameless[:_LISTED]],
        "leaves": [leaf for _, leaf, _ in adapters[:_LISTED]],
        "leaf_ports": [port for _, _, port in adapters[:_LISTED]],
    }
    remedy = (
        "find the machine at the leaf's port, and set its node description (rdma-ndd, or "
        "/sys/class/infiniband/*/node_desc)"
    )
    place = Place(listing.path, listing.nodes[f"H{nameless[0].guid}"].line)
    rule = "topology/nic-without-host"
    yield Finding(rule, Severity.WARNING, place, message, numbers, remedy)


def _switch_ports(listing: Listing, keys: set[str]) -> dict[str, tuple[str, int]]:
    """Return the switch and port where the first cable of each of these adapters ends."""
    found: dict[str, tuple[str, int]] = {}
    for one, other in listing.links:
        for near, far in ((one, other), (other, one)):
            if far[0] in keys and listing.nodes[near[0]].kind == "S":
                node = listing.nodes[near[0]]
                found.setdefault(far[0], (node.name or node.guid, near[1]))
    return found


def _unlisted(listing: Listing) -> Iterator[Finding]:
    unlisted = [
        node
        for node in listing.nodes.values()
        if not node.listed and not (node.kind == "H" and other_kind(node.name))
    ]
    if unlisted:
        shown = _some(short_name(node.name) for node in unlisted)
        named = "1 switch or adapter is"
        if len(unlisted) > 1:
            named = f"{len(unlisted)} switches or adapters are"
        message = (
            f"{named} named as a far end and without a stanza, so the file may be cut off or "
            f"filtered: {shown}"
        )
        numbers: dict[str, Number] = {
            "count": len(unlisted),
            "guids": [node.guid for node in unlisted[:_LISTED]],
        }
        place = Place(listing.path)
        remedy = "save the whole output of ibnetdiscover again, without a filter"
        yield Finding("topology/node-not-listed", Severity.WARNING, place, message, numbers, remedy)


def _listed_once(listing: Listing) -> Iterator[Finding]:
    once = sum(link.sides == 1 for link in listing.links.values())
    if once:
        cables = len(listing.links)
        message = f"{once} of {cables} cables {verb(once)} shown by one end only"
        numbers: dict[str, Number] = {"count": once, "cables": cables}
        place = Place(listing.path)
        yield Finding("topology/cable-listed-once", Severity.NOTE, place, message, numbers)


def _busy_ports(listing: Listing) -> Iterator[Finding]:
    uses = Counter(end for ends in listing.links for end in ends)
    # Nodes of one GUID have the ports of both: that is a finding of its own.
    doubled = {node.guid for node in listing.repeats}
    busy = [
        (key, port)
        for (key, port), count in uses.items()
        if count > 1 and listing.nodes[key].guid not in doubled
    ]
    if busy:
        shown = _some(f"port {port} of {listing.nodes[key].name}" for key, port in busy)
        message = f"{plural(len(busy), 'port')} {verb(len(busy))} shown with more than one far end: {shown}"
        numbers: dict[str, Number] = {"count": len(busy)}
        place = Place(listing.path)
        remedy = "list the fabric again: it changed while it was read, or two files were joined"
        yield Finding(
            "topology/port-listed-twice", Severity.WARNING, place, message, numbers, remedy
        )


def _unknown_rates(listing: Listing) -> Iterator[Finding]:
    speeds = Counter(link.speed for link in listing.links.values())
    unknown = {f"{w}x{g}": n for (w, g), n in speeds.items() if link_rate(w, g) is None}
    if unknown:
        message = f"{sum(unknown.values())} cables have a speed of no known rate: "
        message += _some(unknown)
        counts: dict[str, Number] = dict(list(unknown.items())[:_LISTED])
        numbers: dict[str, Number] = {"cables": counts}
        place = Place(listing.path)
        remedy = "look at the port with iblinkinfo; its rate is left out here"
        yield Finding("topology/rate-unknown", Severity.WARNING, place, message, numbers, remedy)


def _some(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:_SHOWN]) + (", ..." if len(distinct) > _SHOWN else "")
