"""Nodes to typed frozen structs, with every problem reported at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin

import msgspec

from meshwright.documents.constraints import Refused, called, check
from meshwright.documents.decoded import Decoded, joined
from meshwright.documents.nearest import nearest
from meshwright.documents.nodes import Document, Entry, MappingNode, Node, ScalarNode, SequenceNode
from meshwright.documents.scalar_types import describe_node, describe_type, is_plain, scalar
from meshwright.documents.source import ProblemList, shown
from meshwright.errors import InputError

T = TypeVar("T")

_FAILED: Final = object()
"""Stands for a value whose problem is already listed."""

_MAX_LISTED_KEYS = 40


def decode(
    document_or_node: Document | Node,
    struct_type: type[T],
    *,
    path: str = "",
    aliases: Mapping[str, str] | None = None,
) -> Decoded[T]:
    """Return a document, or one value of it, as a type; nothing is raised for what was written.

    Parameters
    ----------
    document_or_node
        What was read; a node knows its file.
    struct_type
        A ``msgspec.Struct``, or any type that a field may have: ``int`` (within 64 bits), ``float``
        (an integer will do; never infinite), ``str``, ``bool``, ``None``, ``Literal``, ``Enum``,
        ``list[T]``, ``tuple[T, ...]``, ``tuple[A, B]``, ``dict[str, T]``, ``Mapping[str, T]``,
        unions of these (chosen by what was written: mapping, list or single value),
        ``Annotated`` with the marks of ``constraints``, ``Any`` (builtins as written) and ``Node``
        (for a section that somebody else decodes).
    path
        The path of this value in the whole file (``layout``), put before every path.
    aliases
        Key spelled wrong to right key (``tensor_parallel`` to ``tp``), for suggestions only.

    Raises
    ------
    TypeError
        ``struct_type`` holds a type that is not listed above (an error of the program).
    """
    node = document_or_node.root if isinstance(document_or_node, Document) else document_or_node
    decoder = _Decoder(aliases or {})
    value = decoder.value(node, struct_type, path)
    problems = decoder.problems.in_order()
    return Decoded(None if problems else cast("T", value), problems, node, path)


class _Decoder:
    """Walks nodes and types together; ``MAX_DEPTH`` of the document bounds the recursion."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self.problems = ProblemList()
        self._aliases = aliases

    def value(self, node: Node, hint: Any, path: str) -> Any:
        """Return the value of a node as a type, or ``_FAILED`` with its problems listed."""
        if isinstance(node, ScalarNode) and is_plain(node.value, hint):
            return node.value
        try:
            raw = _raw_kind(hint)
            if raw is not None and not (_is_null(node) and NoneType in get_args(hint)):
                return node if raw is Node else node.to_builtins()
            if isinstance(node, ScalarNode):
                return scalar(node, hint)
            if isinstance(node, MappingNode):
                return self._mapping(node, hint, path)
            return self._sequence(cast("SequenceNode", node), hint, path)
        except Refused as refused:
            if not self.problems.full():
                message, remedy = refused.message, refused.remedy
                self.problems.add(node.problem(message, remedy=remedy, subject=path or None))
        except InputError as error:
            self.problems.extend(error.problems)
        return _FAILED

    def _mapping(self, node: MappingNode, hint: Any, path: str) -> Any:
        candidates = [(kind, marks) for kind, marks in _members(hint) if _is_mapping(kind)]
        if not candidates:
            raise _mismatch(node, hint)
        kind, marks = candidates[0]
        if len(candidates) > 1:
            kind, marks = min(candidates, key=lambda one: _distance(node, one[0]))
        read = self._struct if _is_struct(kind) else self._dict
        value = read(node, kind, path)
        if value is not _FAILED:
            check(value, marks)
        return value

    def _struct(self, node: MappingNode, struct_type: type[msgspec.Struct], path: str) -> Any:
        fields = _fields_of(struct_type)
        values: dict[str, Any] = {}
        failed = False
        for key, entry in node.entries.items():
            if key not in fields:
                self._unknown(node, key, entry, list(fields), path)
                failed = True
                continue
            value = self.value(entry.node, fields[key].type, joined(path, key))
            failed = failed or value is _FAILED
            values[fields[key].name] = value
        for key, info in fields.items():
            if info.required and key not in node.entries:
                failed = True
                self._missing(node, key, info, path)
        return _FAILED if failed else called(lambda given: struct_type(**given), values)

    def _unknown(
        self, node: MappingNode, key: str, entry: Entry, allowed: list[str], path: str
    ) -> None:
        if self.problems.full():
            return
        near = nearest(key, allowed, self._aliases)
        hint = f"; did you mean {near!r}?" if near else ""
        listed = ", ".join(allowed[:_MAX_LISTED_KEYS]) or "none"
        more = ", …" if len(allowed) > _MAX_LISTED_KEYS else ""
        problem = node.source.problem(
            entry.at,
            f"unknown key {shown(key)}{hint}",
            remedy=None if near else f"keys allowed here: {listed}{more}",
            subject=joined(path, key),
        )
        self.problems.add(problem)

    def _missing(
        self, node: MappingNode, key: str, info: msgspec.structs.FieldInfo, path: str
    ) -> None:
        if self.problems.full():
            return
        remedy = f"write {key}: {describe_type(info.type)}"
        message = f"missing key {key!r}"
        self.problems.add(node.problem(message, remedy=remedy, subject=joined(path, key)))

    def _dict(self, node: MappingNode, hint: Any, path: str) -> Any:
        arguments = get_args(hint) or (str, Any)
        if arguments[0] is not str:
            raise TypeError(f"{hint}: keys of a mapping are str")
        values = {
            key: self.value(entry.node, arguments[1], joined(path, key))
            for key, entry in node.entries.items()
        }
        return _FAILED if any(value is _FAILED for value in values.values()) else values

    def _sequence(self, node: SequenceNode, hint: Any, path: str) -> Any:
        candidates = [(kind, marks) for kind, marks in _members(hint) if _is_sequence(kind)]
        if not candidates:
            raise _mismatch(node, hint)
        kind, marks = candidates[0]
        count = len(node.items)
        types = _item_types(kind, count)
        if len(types) != count:
            raise Refused(f"expected a list of {len(types)} values, not of {count}")
        values = [
            self.value(item, item_type, f"{path}[{index}]")
            for index, (item, item_type) in enumerate(zip(node.items, types, strict=True))
        ]
        if any(value is _FAILED for value in values):
            return _FAILED
        value = tuple(values) if (get_origin(kind) or kind) is tuple else values
        check(value, marks)
        return value


@functools.cache
def _fields_of(struct_type: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields by the key that the user writes."""
    return {info.encode_name: info for info in msgspec.structs.fields(struct_type)}


def _distance(node: MappingNode, kind: Any) -> float:
    """Count the keys by which a mapping misses a type; a dict comes after a perfect struct."""
    if not _is_struct(kind):
        return 0.5
    fields = _fields_of(kind)
    missing = sum(info.required and key not in node.entries for key, info in fields.items())
    return missing + sum(key not in fields for key in node.entries)


def _mismatch(node: Node, hint: Any) -> Refused:
    return Refused(f"expected {describe_type(hint)}, not {describe_node(node)}")


def _members(hint: Any, marks: tuple[Any, ...] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the types a hint is made of, unions and annotations taken apart, with their marks."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _members(hint.__origin__, marks + hint.__metadata__)
    if origin in (Union, UnionType):
        return [member for part in get_args(hint) for member in _members(part, marks)]
    return [(hint, marks)]


def _raw_kind(hint: Any) -> Any:
    """Return ``Node`` or ``Any`` where a type asks for what was written as it is."""
    if get_origin(hint) in (Union, UnionType):
        return next(filter(None, (_raw_kind(member) for member in get_args(hint))), None)
    return Any if hint is object else hint if hint in (Any, Node) else None


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _is_mapping(hint: Any) -> bool:
    return _is_struct(hint) or (get_origin(hint) or hint) in (dict, Mapping)


def _is_sequence(hint: Any) -> bool:
    return (get_origin(hint) or hint) in (list, tuple, Sequence)


def _item_types(hint: Any, count: int) -> Sequence[Any]:
    """Return the type of each of ``count`` items; another length for a tuple of fixed length."""
    arguments = get_args(hint)
    if not arguments:
        return [Any] * count
    is_fixed = get_origin(hint) is tuple and arguments[-1] is not Ellipsis
    return arguments if is_fixed else [arguments[0]] * count
