"""Kubernetes objects of a YAML or JSON text: its nodes, and the levels of a Kueue Topology."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from meshwright.cluster.readers.document_values import (
    child,
    is_json,
    is_null,
    items,
    known_text,
    mapping,
    parse,
    text_of,
)
from meshwright.documents import Node, ScalarNode
from meshwright.documents.limits import MAX_NODES
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

CONTROL_PLANE = re.compile(r"node-role\.kubernetes\.io/(?:control-plane|master)\Z")
_SEPARATOR = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.M)
_CONTENT = re.compile(r"^(?!---[ \t]*(?:#.*)?\r?$|\.\.\.|[ \t]*(?:#|\r?$))", re.M)
_HOSTNAME = "kubernetes.io/hostname"
_MAX_LEVELS = 16
_SMALLER = (
    "give a smaller list: kubectl get nodes --show-labels, or "
    "kubectl get nodes -o json | jq '{kind, items: [.items[] | {kind, metadata: "
    "{name: .metadata.name, labels: .metadata.labels}}]}'"
)


class KubernetesNode(msgspec.Struct, frozen=True):
    """A node with its labels."""

    name: str
    labels: dict[str, str]
    place: Place
    is_control_plane: bool


class Listing(msgspec.Struct, frozen=True):
    """What a text lists."""

    nodes: tuple[KubernetesNode, ...]
    kueue_levels: tuple[str, ...] = ()
    """Labels, farthest first, without the host name."""
    continued: tuple[Place, ...] = ()
    """Places of tokens that say a list goes on."""


def read_documents(text: str, path: str) -> Listing:
    """Return the nodes of all documents of a text.

    Raises ``InputError`` with line and column, also for the second and later documents.
    """
    found = _Found()
    for document, lines_before in _documents(text):
        try:
            found.take(_parsed(document, path), lines_before)
        except InputError as error:
            raise InputError(
                *(_shifted(problem, lines_before) for problem in error.problems)
            ) from None
    return Listing(tuple(found.nodes), tuple(found.levels), tuple(found.continued))


def _parsed(document: str, path: str) -> Node:
    try:
        return parse(document, path)
    except InputError as error:
        # Most of what kubectl prints of a node is its status, which is not wanted here.
        if document.count('":') > MAX_NODES // 2:
            for problem in error.problems:
                problem.remedy = problem.remedy or _SMALLER
        raise


def _documents(text: str) -> Iterator[tuple[str, int]]:
    """Yield the documents of a YAML text with the number of lines before each.

    One document at a time is parsed: a separator never stands inside a value, whose lines are
    indented.
    """
    starts = [] if is_json(text) else [match.start() for match in _SEPARATOR.finditer(text)]
    lines_before, begin = 0, 0
    for end in [*(start for start in starts if start > 0), len(text)]:
        document = text[begin:end]
        whole = begin == 0 and end == len(text)
        if whole or _CONTENT.search(document) is not None:
            yield document, lines_before
        lines_before += document.count("\n")
        begin = end


def _shifted(problem: Problem, lines: int) -> Problem:
    problem.place = _down(problem.place, lines)
    return problem


def _down(place: Place, lines: int) -> Place:
    return msgspec.structs.replace(place, line=(place.line or 1) + lines)


class _Found:
    """Gathers nodes, document by document."""

    def __init__(self) -> None:
        self.nodes: list[KubernetesNode] = []
        self.levels: list[str] = []
        self.continued: list[Place] = []

    def take(self, node: Node, lines: int, kind: str | None = None) -> None:
        """Take an object: a node, a list of objects, a kind cluster or a Kueue topology."""
        mapping(node, "a Kubernetes object")
        kind = known_text(child(node, "kind"), "kind") or kind or ""
        if kind.endswith("List"):
            token = child(node, "metadata", "continue")
            if token is not None and known_text(token, "continue"):
                self.continued.append(_down(token.place("continue"), lines))
            for item in items(child(node, "items"), "items"):
                self.take(item, lines, "Node" if kind == "NodeList" else None)
        elif kind == "Node":
            self._take_node(node, lines)
        elif kind == "Cluster":
            self._take_kind_cluster(node, lines)
        elif kind == "Topology":
            self._take_kueue_topology(node)

    def _take_node(self, node: Node, lines: int) -> None:
        name = text_of(child(node, "metadata", "name"), "metadata.name", node)
        labels = _labels(child(node, "metadata", "labels"))
        control = any(CONTROL_PLANE.match(label) for label in labels)
        self.nodes.append(KubernetesNode(name, labels, _down(node.place(name), lines), control))

    def _take_kind_cluster(self, node: Node, lines: int) -> None:
        """Name the nodes as kind does: ``<cluster>-worker``, ``<cluster>-worker2``."""
        cluster = known_text(child(node, "name"), "name") or "kind"
        seen: dict[str, int] = {}
        for one in items(child(node, "nodes"), "nodes"):
            mapping(one, "a node")
            role = known_text(child(one, "role"), "role") or "worker"
            seen[role] = seen.get(role, 0) + 1
            name = f"{cluster}-{role}" + (str(seen[role]) if seen[role] > 1 else "")
            labels = _labels(child(one, "labels"))
            place = _down(one.place(name), lines)
            self.nodes.append(KubernetesNode(name, labels, place, role == "control-plane"))

    def _take_kueue_topology(self, node: Node) -> None:
        levels = items(child(node, "spec", "levels"), "spec.levels")
        if len(levels) > _MAX_LEVELS:
            raise InputError(node.problem(f"a Topology has more than {_MAX_LEVELS} levels"))
        names = [text_of(child(level, "nodeLabel"), "nodeLabel", level) for level in levels]
        self.levels = self.levels or [name for name in names if name != _HOSTNAME]


def _labels(node: Node | None) -> dict[str, str]:
    if node is None:
        return {}
    entries = mapping(node, "labels").entries
    labels = {}
    for name, entry in entries.items():
        value = entry.node
        if not isinstance(value, ScalarNode):
            raise InputError(value.problem(f"label {name[:80]}: expected a text"))
        labels[name] = "" if is_null(value) else value.text
    return labels
