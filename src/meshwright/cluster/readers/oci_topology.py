"""Oracle Cloud: local block, network block and HPC island of bare-metal GPU hosts.

Three sources say the same under different names: the list of compute hosts (``localBlockId``, or
``local-block-id`` from the command line), the instance metadata ``/opc/v2/host/rdmaTopologyData``
(``customerLocalBlock``) of one host, and that metadata gathered as ``host: {...}`` lines. The GPU
memory fabric is the NVLink domain. Blocks are places, not switches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.document_values import (
    child,
    is_null,
    items,
    known_text,
    mapping,
    parse,
)
from meshwright.cluster.readers.host_places import RawPlace, settle
from meshwright.cluster.readers.host_places_findings import list_incomplete
from meshwright.documents import MappingNode, Node, SequenceNode
from meshwright.errors import InputError

FORMAT = "oci_topology"

_LOOKS = re.compile(
    r"(?<![\w./-])[\"']?(?:customer)?(?:local|network)[-_]?block(?:[-_]?id)?[\"']?[ \t\r\n]*:", re.I
)
_TIERS = ("localblock", "networkblock", "hpcisland")
_DOMAIN = "gpumemoryfabric"
_HOST = ("displayname", "hostname", "instanceid", "hostid", "id")
_PAGE = "opc-next-page"


def looks_like(text: str) -> bool:
    """Tell by content whether the text places hosts in Oracle's blocks."""
    return _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return the hosts, their places (local block, network block, HPC island) and NVLink domains.

    Raises ``InputError`` for a text of another form and one without host.
    """
    root = parse(text, path)
    raw = [_host(node, name) for node, name in _hosts(root)]
    if not raw:
        raise InputError(root.problem("the text places no host"))
    settled = settle(raw, path)
    token = child(root, _PAGE)
    more = [] if token is None else [list_incomplete(token.place(_PAGE), _PAGE)]
    counts = {
        f"{name}s": len({one.tiers[level] for one in raw} - {None})
        for level, name in enumerate(("local_block", "network_block", "hpc_island"))
    }
    counts["accelerator_domains"] = len({one.nvlink_domain for one in raw} - {None})
    return Facts(
        format=FORMAT,
        path=path,
        hosts=settled.hosts,
        places=settled.places,
        counts=counts,
        findings=(*more, *settled.findings),
    )


def _hosts(root: Node) -> Iterator[tuple[Node, str | None]]:
    """Yield every host's fields, and its name where that is a key outside them."""
    listed: Node | None = child(root, "data") or root
    listed = child(listed, "items") if listed and child(listed, "items") else listed
    if isinstance(listed, SequenceNode):
        for node in items(listed, "hosts"):
            yield node, None
    elif isinstance(listed, MappingNode):
        fields = _fields(listed)
        if any(key in fields for key in (*_TIERS, "rdmatopologydata")):
            yield listed, None
            return
        for name, entry in listed.entries.items():
            if not is_null(entry.node):
                yield entry.node, name


def _fields(node: Node) -> dict[str, Node]:
    """Return the values by name without case, hyphens, ``customer`` and ``Id``."""
    fields: dict[str, Node] = {}
    for key, entry in mapping(node, "a host").entries.items():
        name = re.sub(r"[^a-z]", "", key.lower()).removeprefix("customer")
        short = name.removesuffix("id") if name not in ("id", "hostid", "instanceid") else name
        fields.setdefault(short, entry.node)
    return fields


def _host(node: Node, name: str | None) -> RawPlace:
    fields = _fields(node)
    if "rdmatopologydata" in fields and not is_null(fields["rdmatopologydata"]):
        # /opc/v2/host has a networkBlockId of another kind beside it.
        outer = {key: value for key, value in fields.items() if key in _HOST}
        fields = outer | _fields(fields["rdmatopologydata"])
    named = (known_text(fields.get(key), key) for key in _HOST)
    host = name or next((found for found in named if found), None)
    if host is None:
        raise InputError(node.problem("the host has no name and no id"))
    tiers = tuple(known_text(fields.get(key), key) for key in _TIERS)
    return RawPlace(host, tiers, node.place(host), known_text(fields.get(_DOMAIN), _DOMAIN))
