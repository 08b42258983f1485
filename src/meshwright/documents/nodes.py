"""The tree of a document: every value with its line and column, whatever the format was."""

from __future__ import annotations

from typing import Any

import msgspec

from meshwright.documents.limits import INT64_MAX, INT64_MIN
from meshwright.documents.source import At, Source
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

# gc=False: nodes form no cycles, and a large document has a million of them.

ScalarValue = str | int | float | bool | None


class Node(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A value of a document: a ``MappingNode``, a ``SequenceNode`` or a ``ScalarNode``.

    ``line`` and ``column`` count from 1 and are those of the value's first character.
    """

    source: Source
    line: int
    column: int

    @property
    def at(self) -> At:
        """Line and column."""
        return self.line, self.column

    def place(self, subject: str | None = None) -> Place:
        """Return where the value stands; ``subject`` is the path of its key."""
        return self.source.place(self.at, subject)

    def problem(
        self, message: str, *, remedy: str | None = None, subject: str | None = None
    ) -> Problem:
        """Return a problem of this value, with the offending line."""
        return self.source.problem(self.at, message, remedy=remedy, subject=subject)

    def to_builtins(self) -> Any:
        """Return the value as dict, list, str, int, float, bool and None.

        Raises ``InputError`` for an integer that 64 bits cannot hold.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source.file}:{self.line}:{self.column})"


class Entry(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The value of a key, with the line and column of the key."""

    line: int
    column: int
    node: Node

    @property
    def at(self) -> At:
        """Line and column of the key."""
        return self.line, self.column


class MappingNode(Node, frozen=True, eq=False, gc=False):
    """Keys and their values, in the order written."""

    entries: dict[str, Entry]

    def to_builtins(self) -> dict[str, Any]:
        """Return a dict; see ``Node.to_builtins``."""
        return {key: entry.node.to_builtins() for key, entry in self.entries.items()}


class SequenceNode(Node, frozen=True, eq=False, gc=False):
    """A list."""

    items: tuple[Node, ...]

    def to_builtins(self) -> list[Any]:
        """Return a list; see ``Node.to_builtins``."""
        return [item.to_builtins() for item in self.items]


class ScalarNode(Node, frozen=True, eq=False, gc=False):
    """Text, an integer, a number, true, false or null; ``text`` is how it was written."""

    value: ScalarValue
    text: str

    def to_builtins(self) -> ScalarValue:
        """Return the value; see ``Node.to_builtins``."""
        if is_oversized(self.value):
            raise InputError(self.problem("this integer does not fit 64 bits"))
        return self.value


class Document(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A document that was read: its root value and its text."""

    root: Node
    source: Source

    @property
    def file(self) -> str:
        """The file's name as it was given."""
        return self.source.file

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines; ``lines[0]`` is line 1."""
        return self.source.lines


def is_oversized(value: object) -> bool:
    """Tell whether a value is an integer outside signed 64 bits."""
    return isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX


def has_nul(value: object) -> bool:
    """Tell whether a value is text with a NUL character: the system refuses such a path."""
    return isinstance(value, str) and "\0" in value
