"""Slurm ``topology.yaml`` (25.05 and later): several named topologies in one file.

Each entry names one plugin: ``tree``, ``block``, ``flat``, ``ring`` or ``torus3d``. Partitions choose
one; the one with ``cluster_default`` serves the others. Grammar: ``man topology.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from meshwright.cluster.facts import Block, Facts, TreeSwitch
from meshwright.cluster.readers.document_values import (
    child,
    is_null,
    items,
    mapping,
    parse,
    shown,
    text_of,
    whole_number,
)
from meshwright.cluster.readers.host_places_findings import warn
from meshwright.cluster.readers.named_tree import (
    Hostlists,
    check_tree,
    line_of,
    named_switches,
)
from meshwright.cluster.readers.slurm_topology_conf_lines import Line
from meshwright.documents import Node, ScalarNode
from meshwright.errors import InputError
from meshwright.findings import Finding

FORMAT = "slurm_topology_yaml"

_NAME = re.compile(r"^[ \t]*(?:-[ \t]+)?[\"']?topology[\"']?[ \t]*:[ \t]*\S", re.M)
_PLUGIN = re.compile(
    r"^[ \t]+(?:-[ \t]+)?[\"']?(?:tree|block|flat|ring|torus3d)[\"']?[ \t]*:", re.M
)
_PLUGINS = ("tree", "block", "flat", "ring", "torus3d")
_MAX_SIZE = 1_000_000


class _Topology(msgspec.Struct, frozen=True):
    """One entry of the file."""

    name: str
    node: Node
    plugin: str
    default: bool
    switches: tuple[tuple[TreeSwitch, Line], ...] = ()
    blocks: tuple[tuple[Block, Line], ...] = ()
    sizes: tuple[int, ...] = ()
    pieces: int = 0
    """Rings or toruses."""
    hosts: tuple[str, ...] = ()
    """Of rings and toruses."""


def looks_like(text: str) -> bool:
    """Tell by content whether the text is a ``topology.yaml``."""
    return _NAME.search(text) is not None and _PLUGIN.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return the tree, the blocks and all hosts; ``cluster_default`` wins over the first of a kind.

    Raises ``InputError`` for a text of another form, a name defined twice in one topology, and a
    switch that is its own ancestor.
    """
    root = parse(text, path)
    hostlists = Hostlists()
    topologies = [_topology(node, hostlists) for node in items(root, "topology.yaml")]
    if not topologies:
        raise InputError(root.problem("the file names no topology"))
    tree, blocks = _chosen(topologies, "tree"), _chosen(topologies, "block")
    findings: list[Finding] = []
    for topology in topologies:
        odd = check_tree(path, topology.switches, topology.blocks)
        if topology in (tree, blocks):
            findings += odd
    findings += _not_used(topologies, [tree, blocks])
    switches = tuple(switch for switch, _ in tree.switches) if tree else None
    return Facts(
        format=FORMAT,
        path=path,
        hosts=tuple(dict.fromkeys(host for topology in topologies for host in _hosts(topology))),
        switches=None if switches is None else named_switches(switches),
        tree=switches,
        blocks=tuple(block for block, _ in blocks.blocks) if blocks else None,
        block_sizes=(blocks.sizes or None) if blocks else None,
        counts=_counts(topologies),
        findings=tuple(findings),
    )


def _hosts(topology: _Topology) -> tuple[str, ...]:
    below = [switch.hosts for switch, _ in topology.switches]
    below += [block.hosts for block, _ in topology.blocks]
    return (*(host for hosts in below for host in hosts), *topology.hosts)


def _chosen(topologies: list[_Topology], plugin: str) -> _Topology | None:
    same = [topology for topology in topologies if topology.plugin == plugin]
    return next((topology for topology in same if topology.default), same[0] if same else None)


def _counts(topologies: list[_Topology]) -> dict[str, int]:
    def pieces(plugin: str) -> int:
        return sum(topology.pieces for topology in topologies if topology.plugin == plugin)

    return {
        "topologies": len(topologies),
        "blocks": sum(len(topology.blocks) for topology in topologies),
        "rings": pieces("ring"),
        "toruses": pieces("torus3d"),
    }


def _not_used(topologies: list[_Topology], used: list[_Topology | None]) -> list[Finding]:
    findings = []
    for plugin, kind in (("ring", "rings"), ("torus3d", "toruses"), ("tree", ""), ("block", "")):
        left = [t for t in topologies if t.plugin == plugin and t not in used]
        if not left:
            continue
        names = tuple(topology.name for topology in left)
        if kind:
            rule = f"topology/{'ring' if plugin == 'ring' else 'torus'}-ignored"
            message = f"{shown(names)}: {kind} give hosts only and are not used for paths"
        else:
            rule = "topology/topology-ignored"
            message = (
                f"{shown(names)}: a second {plugin} topology is not used for paths; the one with "
                "cluster_default is taken, else the first"
            )
        findings.append(warn(rule, left[0].node.place(), message, names))
    return findings


def _topology(node: Node, hostlists: Hostlists) -> _Topology:
    entries = mapping(node, "a topology").entries
    name = text_of(child(node, "topology"), "topology", node)
    default = child(node, "cluster_default")
    named = [plugin for plugin in _PLUGINS if plugin in entries]
    if len(named) != 1:
        message = f"topology {name!r} names {len(named)} plugins, not one of {', '.join(_PLUGINS)}"
        raise InputError(node.problem(message))
    start = _Topology(
        name, node, named[0], isinstance(default, ScalarNode) and default.value is True
    )
    body = entries[named[0]].node
    if named[0] == "flat" or is_null(body):
        return start
    return _READERS[named[0]](start, mapping(body, named[0]), hostlists)


def _tree(start: _Topology, body: Node, hostlists: Hostlists) -> _Topology:
    switches = []
    for node in items(child(body, "switches"), "switches"):
        mapping(node, "a switch")
        name = text_of(child(node, "switch"), "switch", node)
        below = hostlists.of_node(child(node, "children"), "children")
        hosts = hostlists.of_node(child(node, "nodes"), "nodes")
        switches.append((TreeSwitch(name, tuple(below), tuple(hosts), node.line), line_of(node)))
    return msgspec.structs.replace(start, switches=tuple(switches))


def _block(start: _Topology, body: Node, hostlists: Hostlists) -> _Topology:
    blocks = []
    for node in items(child(body, "blocks"), "blocks"):
        mapping(node, "a block")
        name = text_of(child(node, "block"), "block", node)
        hosts = hostlists.of_node(child(node, "nodes"), "nodes")
        blocks.append((Block(name, tuple(hosts), node.line), line_of(node)))
    sizes = tuple(
        whole_number(size, "block_sizes", body, _MAX_SIZE)
        for size in items(child(body, "block_sizes"), "block_sizes")
    )
    return msgspec.structs.replace(start, blocks=tuple(blocks), sizes=sizes)


def _pieces(start: _Topology, body: Node, hostlists: Hostlists) -> _Topology:
    key = "rings" if start.plugin == "ring" else "toruses"
    nodes = items(child(body, key), key)
    hosts: list[str] = []
    for node in nodes:
        mapping(node, f"an entry of {key}")
        hosts += hostlists.of_node(child(node, "nodes"), "nodes")
    return msgspec.structs.replace(start, pieces=len(nodes), hosts=tuple(hosts))


_READERS: dict[str, Callable[[_Topology, Node, Hostlists], _Topology]] = {
    "tree": _tree,
    "block": _block,
    "ring": _pieces,
    "torus3d": _pieces,
}
