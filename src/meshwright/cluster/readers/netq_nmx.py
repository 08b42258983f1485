"""NVIDIA NetQ's topology graph, and the compute nodes of NMX (NetQ for NVLink).

The graph names switches by tier, hosts that LLDP found, and links: one logical link of ``size`` 4
is four cables. Compute nodes carry ``DomainUUID``, the NVLink domain, and opaque GPU ids.
"""

from __future__ import annotations

import re

from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.readers.document_values import (
    child,
    items,
    known_text,
    mapping,
    parse,
    shown,
    text_of,
)
from meshwright.cluster.readers.host_places import RawPlace, settle
from meshwright.cluster.readers.host_places_findings import warn
from meshwright.cluster.readers.netq_nmx_graph import read_graph
from meshwright.documents import MappingNode, Node
from meshwright.errors import InputError
from meshwright.findings import Finding

FORMAT = "netq_nmx"

_GRAPH = re.compile(r"\"compounded_(?:links|nodes)\"[ \t\r\n]*:")
_NODES = re.compile(r"\"DomainUUID\"[ \t\r\n]*:")
_LOCATION = re.compile(r"\"(?:LocationInfo|GpuIDList)\"[ \t\r\n]*:")


def looks_like(text: str) -> bool:
    """Tell by content whether the text is a NetQ graph or a list of NMX compute nodes."""
    if _GRAPH.search(text) is not None:
        return True
    return _NODES.search(text) is not None and _LOCATION.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return switches, hosts and cables of a graph, or hosts, GPUs and domains of compute nodes.

    Raises ``InputError`` for a text of another form and a list that holds nothing.
    """
    root = parse(text, path)
    nodes = (root,) if isinstance(root, MappingNode) else items(root, "the list")
    if not nodes:
        raise InputError(root.problem("the list is empty"))
    if any(child(node, "nodes") is not None or child(node, "links") is not None for node in nodes):
        return read_graph(nodes, path)
    return _compute_nodes(nodes, path)


def _compute_nodes(nodes: tuple[Node, ...], path: str) -> Facts:
    raw: list[RawPlace] = []
    gpus: dict[str, tuple[Gpu, ...]] = {}
    sick: list[str] = []
    for node in nodes:
        mapping(node, "a compute node")
        host = text_of(child(node, "Name"), "Name", node)
        domain = known_text(child(node, "DomainUUID"), "DomainUUID")
        raw.append(RawPlace(host, (), node.place(host), domain))
        ids = items(child(node, "GpuIDList"), "GpuIDList")
        names = [text_of(one, "GpuIDList", node) for one in ids]
        gpus.setdefault(host, tuple(Gpu(i, name, host) for i, name in enumerate(names)))
        health = known_text(child(node, "Health"), "Health")
        if health is not None and health.upper() != "HEALTHY":
            sick.append(f"{host} ({health})")
    settled = settle(raw, path)
    return Facts(
        format=FORMAT,
        path=path,
        gpus=tuple(gpu for of_host in gpus.values() for gpu in of_host),
        hosts=settled.hosts,
        places=settled.places,
        counts={"nvlink_domains": len({one.nvlink_domain for one in raw} - {None})},
        findings=(*_unhealthy(nodes[0], sick), *settled.findings),
    )


def _unhealthy(first: Node, sick: list[str]) -> list[Finding]:
    if not sick:
        return []
    message = f"{len(sick)} compute nodes are not healthy: {shown(sick)}"
    return [warn("topology/node-unhealthy", first.place(), message, sick)]
