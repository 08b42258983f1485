"""Google Compute Engine instances with ``resourceStatus.physicalHostTopology``.

Cluster, block, sub-block and host of a VM, farthest first; a field may be null. Older answers have
``physicalHost: "/block/sub-block/host"``. These are places, not switches; the physical host of a
VM is no tier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.document_values import (
    child,
    items,
    known,
    known_text,
    mapping,
    parse,
    text_of,
)
from meshwright.cluster.readers.host_places import RawPlace, settle
from meshwright.cluster.readers.host_places_findings import list_incomplete
from meshwright.documents import MappingNode, Node, SequenceNode
from meshwright.errors import InputError

FORMAT = "gcp_physical_host"

_LOOKS = re.compile(r"(?<![\w./-])[\"']?physicalHost(?:Topology)?[\"']?[ \t\r\n]*:")


def looks_like(text: str) -> bool:
    """Tell by content whether the text lists instances with their physical hosts."""
    return _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return the VMs and their places: sub-block, block, cluster.

    Raises ``InputError`` for a text of another form and a list without instance.
    """
    root = parse(text, path)
    raw = [_vm(node) for node in _instances(root)]
    if not raw:
        raise InputError(root.problem("the list holds no instance"))
    settled = settle(raw, path)
    token = child(root, "nextPageToken")
    more = [] if token is None else [list_incomplete(token.place("nextPageToken"), "nextPageToken")]
    tiers = [one.tiers[::-1] for one in raw]
    return Facts(
        format=FORMAT,
        path=path,
        hosts=settled.hosts,
        places=settled.places,
        counts={
            "clusters": len({way[:1] for way in tiers if way[0]}),
            "blocks": len({way[:2] for way in tiers if way[1]}),
            "sub_blocks": len({way for way in tiers if way[2]}),
            "vms": len(settled.hosts),
        },
        findings=(*more, *settled.findings),
    )


def _instances(root: Node) -> Iterator[Node]:
    """Yield the instances of a list, of one zone, of all zones, or the single one."""
    listed = child(root, "items")
    if isinstance(listed, MappingNode):
        for zone in listed.entries.values():
            yield from items(child(zone.node, "instances"), "instances")
    elif listed is not None:
        yield from items(listed, "items")
    elif isinstance(root, SequenceNode):
        yield from root.items
    elif child(root, "resourceStatus") is not None:
        yield root


def _vm(node: Node) -> RawPlace:
    mapping(node, "an instance")
    host = text_of(child(node, "name"), "name", node)
    status = child(node, "resourceStatus")
    tiers: tuple[str | None, ...] = (None, None, None)
    if status is not None:
        mapping(status, "resourceStatus")
        named = child(status, "physicalHostTopology")
        older = known_text(child(status, "physicalHost"), "physicalHost")
        if named is not None:
            tiers = _named(mapping(named, "physicalHostTopology"))
        elif older is not None:
            block, sub_block, *_ = [*older.strip("/").split("/", 3), "", ""]
            tiers = (known(sub_block), known(block), None)
    return RawPlace(host, tiers, node.place(host), whole=True)


def _named(node: MappingNode) -> tuple[str | None, ...]:
    # REST writes subBlock, the documentation elsewhere subblock.
    fields = {key.lower(): entry.node for key, entry in node.entries.items()}
    return tuple(known_text(fields.get(key), key) for key in ("subblock", "block", "cluster"))
