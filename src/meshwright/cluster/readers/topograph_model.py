"""topograph's model YAML: switches with their children, and blocks of hosts under a leaf.

``blocks[].switch`` is the leaf of the block's hosts. The NVLink domain stands in an annotation or
label that ends in ``/domain`` (``/sub-domain`` a part of it), in older models ``…/accelerator``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from meshwright.cluster.facts import Facts, HostPlace, TreeSwitch
from meshwright.cluster.readers.document_values import (
    child,
    items,
    known_text,
    mapping,
    parse,
)
from meshwright.cluster.readers.host_places_findings import depth_findings, warn
from meshwright.cluster.readers.named_tree import Hostlists, check_tree, line_of, named_switches
from meshwright.cluster.readers.slurm_topology_conf_lines import Line
from meshwright.documents import MappingNode, Node
from meshwright.errors import InputError
from meshwright.findings import Finding, Place

FORMAT = "topograph_model"

_BLOCKS = re.compile(r"^blocks[ \t]*:", re.M)
_CONTENT = re.compile(r"^(?:switches[ \t]*:|[ \t]*(?:-[ \t]+)?nodes[ \t]*:)", re.M)

_MAX_TIERS = 64


class _Block(msgspec.Struct, frozen=True):
    """One entry of ``blocks``."""

    node: Node
    switch: str | None
    hosts: tuple[str, ...]
    domain: str | None
    sub_domain: str | None


def looks_like(text: str) -> bool:
    """Tell by content whether the text is a topograph model."""
    return _BLOCKS.search(text) is not None and _CONTENT.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return the tree, the hosts, and for each host its switches and its NVLink domain.

    Raises ``InputError`` for a text of another form and a switch that is its own ancestor.
    """
    root = mapping(parse(text, path), "a topograph model")
    hostlists = Hostlists()
    blocks = [_block(node, hostlists) for node in items(child(root, "blocks"), "blocks")]
    tree = _tree(root, blocks, hostlists)
    if not tree and not any(block.hosts for block in blocks):
        raise InputError(root.problem("the model names no switch and no host"))
    findings = check_tree(path, tree)
    switches = tuple(switch for switch, _ in tree)
    places, twice = _places(blocks, _ways_up(path, tree))
    domains = {block.domain for block in blocks if block.domain}
    subs = {(block.domain, block.sub_domain) for block in blocks if block.sub_domain}
    return Facts(
        format=FORMAT,
        path=path,
        hosts=tuple(place.host for place in places),
        switches=named_switches(switches),
        tree=switches,
        places=places,
        counts={
            "accelerator_domains": len(domains),
            "sub_domains": len(subs),
            "leaves": sum(bool(switch.hosts) for switch in switches),
        },
        findings=(*findings, *twice, *_depths(places, findings, path)),
    )


def _depths(
    places: tuple[HostPlace, ...], findings: tuple[Finding, ...], path: str
) -> list[Finding]:
    """Leave out what the checks of the tree have said already."""
    said = {finding.rule for finding in findings}
    return [found for found in depth_findings(places, (), path) if found.rule not in said]


def _block(node: Node, hostlists: Hostlists) -> _Block:
    mapping(node, "a block")
    labels: dict[str, str | None] = {}
    for key in ("annotations", "labels"):
        found = child(node, key)
        if found is not None:
            for name, entry in mapping(found, key).entries.items():
                labels.setdefault(name, known_text(entry.node, name))
    return _Block(
        node,
        known_text(child(node, "switch"), "switch"),
        tuple(hostlists.of_node(child(node, "nodes"), "nodes")),
        _label(labels, "/domain") or _label(labels, "/accelerator"),
        _label(labels, "/sub-domain"),
    )


def _label(labels: Mapping[str, str | None], end: str) -> str | None:
    return next((value for name, value in labels.items() if value and name.endswith(end)), None)


def _tree(
    root: MappingNode, blocks: list[_Block], hostlists: Hostlists
) -> list[tuple[TreeSwitch, Line]]:
    """Return the switches of the file; leaves are often named in ``blocks`` only."""
    hosts: dict[str, list[str]] = {}
    first: dict[str, Node] = {}
    for block in blocks:
        if block.switch is not None:
            hosts.setdefault(block.switch, []).extend(block.hosts)
            first.setdefault(block.switch, block.node)
    tree = []
    given = child(root, "switches")
    entries = mapping(given, "switches").entries if given is not None else {}
    for name, entry in entries.items():
        below = hostlists.of_node(child(entry.node, "switches"), f"switches of {name}")
        at = entry.node
        switch = TreeSwitch(name, tuple(below), tuple(hosts.pop(name, ())), entry.line)
        tree.append((switch, line_of(at)))
    for name, under in hosts.items():
        node = first[name]
        tree.append((TreeSwitch(name, (), tuple(under), node.line), line_of(node)))
    return tree


def _ways_up(path: str, tree: list[tuple[TreeSwitch, Line]]) -> dict[str, tuple[str, ...]]:
    """Return for each switch with hosts the switches from it to its root."""
    parent: dict[str, str] = {}
    for switch, _ in tree:
        for name in switch.switches:
            parent.setdefault(name, switch.name)
    ways = {}
    for switch, line in tree:
        if switch.hosts:
            way = [switch.name]
            while way[-1] in parent and len(way) <= _MAX_TIERS:
                way.append(parent[way[-1]])
            if len(way) > _MAX_TIERS:
                message = f"switch {switch.name} lies more than {_MAX_TIERS} levels deep"
                raise line.error(path, 0, message)
            ways[switch.name] = tuple(way)
    return ways


def _places(
    blocks: list[_Block], ways: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[HostPlace, ...], list[Finding]]:
    places: dict[str, HostPlace] = {}
    moved: dict[str, None] = {}
    where: Place | None = None
    for block in blocks:
        tiers = ways.get(block.switch or "", ())
        for host in block.hosts:
            place = HostPlace(host, tiers, block.domain)
            if places.setdefault(host, place) != place:
                moved[host] = None
                where = where or block.node.place(host)
    if where is None:
        return tuple(places.values()), []
    message = f"{len(moved)} hosts stand in two blocks; the first is kept"
    return tuple(places.values()), [warn("topology/host-twice", where, message, tuple(moved))]
