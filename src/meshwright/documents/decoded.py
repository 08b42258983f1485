"""What ``decode`` returns: the typed value, all problems, and where each value was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Generic, TypeVar, cast

import msgspec

from meshwright.documents.nodes import MappingNode, Node, SequenceNode
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

T = TypeVar("T")

_INDEX = re.compile(r"\[([0-9]{1,9})\]")


class Decoded(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """A decoded value with its problems and places.

    Paths are dotted, as the user wrote the keys: ``layout.tp``, ``traffic[0].bytes``; the empty
    path is the decoded value itself (or ``path``, where one was given to ``decode``).
    """

    value: T | None
    """``None`` when there is any problem."""
    problems: tuple[Problem, ...]
    node: Node
    path: str = ""
    """Put before every path, as in ``decode``."""

    def required(self) -> T:
        """Return the value; raises ``InputError`` with all problems when there are any."""
        if self.problems:
            raise InputError(*self.problems)
        return cast("T", self.value)

    def place(self, path: str) -> Place:
        """Return where the value of a path stands, or its nearest parent; ``subject`` is the path.

        A path outside the decoded part has the place of the whole part.
        """
        node, _ = self._find(path)
        return node.place(path or None)

    def given(self, path: str) -> bool:
        """Tell whether the user wrote the key of a path (null counts as written)."""
        return self._find(path)[1]

    @property
    def places(self) -> dict[str, Place]:
        """Every path with its place, made anew at each call; ``place`` needs no such table."""
        return {path: node.place(path or None) for path, node in walk(self.node, self.path)}

    def _find(self, path: str) -> tuple[Node, bool]:
        """Return the deepest node on the way to a path, and whether it is the path's own."""
        rest = _without(path, self.path)
        if rest is None:
            return self.node, False
        node = self.node
        while rest:
            step = _step(node, rest)
            if step is None:
                return node, False
            node, rest = step
        return node, True


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Yield every path below a node with its node, the node itself first."""
    yield path, node
    if isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            yield from walk(entry.node, joined(path, key))
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.items):
            yield from walk(item, f"{path}[{index}]")


def joined(path: str, key: str) -> str:
    """Return the path of a key."""
    return f"{path}.{key}" if path else key


def _without(path: str, prefix: str) -> str | None:
    """Return what of a path comes after the prefix; ``None`` when it is not below it."""
    if not prefix or path == prefix:
        return path[len(prefix) :]
    if path.startswith(prefix) and path[len(prefix)] in ".[":
        return path[len(prefix) :].removeprefix(".")
    return None


def _step(node: Node, rest: str) -> tuple[Node, str] | None:
    """Go one key or index down; return the node there and the rest of the path."""
    if isinstance(node, SequenceNode):
        match = _INDEX.match(rest)
        if match is None or int(match[1]) >= len(node.items):
            return None
        return node.items[int(match[1])], rest[match.end() :].removeprefix(".")
    if not isinstance(node, MappingNode):
        return None
    # A key may itself hold dots or brackets: the longest that is there wins.
    ends = [len(rest), *(index for index in range(len(rest) - 1, 0, -1) if rest[index] in ".[")]
    for end in ends:
        entry = node.entries.get(rest[:end])
        if entry is not None:
            return entry.node, rest[end:].removeprefix(".")
    return None
