"""A single value to a type: numbers, text, choices, conversions and unions of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from meshwright.documents.constraints import AsWritten, Convert, Refused, called, check
from meshwright.documents.core_schema import resolve
from meshwright.documents.limits import MAX_SHOWN
from meshwright.documents.nearest import nearest
from meshwright.documents.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    ScalarValue,
    SequenceNode,
    has_nul,
    is_oversized,
)
from meshwright.documents.source import shown

_NAMES: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
    None: "null",
}
_YES_NO = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def describe_type(hint: Any) -> str:
    """Return what may be written for a type: ``an integer or null``.

    Raises ``TypeError`` for a type that ``decode`` does not know.
    """
    origin = get_origin(hint)
    if origin is Annotated:
        convert = _convert(hint.__metadata__)
        return (convert.expected if convert else None) or describe_type(hint.__origin__)
    if origin in (Union, UnionType):
        words = dict.fromkeys(describe_type(member) for member in get_args(hint))
        return " or ".join(words)
    choices = choices_of(hint)
    if choices is not None:
        words = {str(choice): None for choice in choices}
        return f"one of {', '.join(words)}" if len(words) > 1 else next(iter(words), "nothing")
    if hint in _NAMES:
        return _NAMES[hint]
    if (origin or hint) in (list, tuple, Sequence):
        return "a list"
    if (origin or hint) in (dict, Mapping):
        return "a mapping"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "anything" if issubclass(hint, Node) else "a mapping"
    if hint in (Any, object):
        return "anything"
    raise TypeError(f"{hint!r} is no type that decode knows")


def describe_node(node: Node) -> str:
    """Return what a node is: ``text 'abc'``, ``a list``."""
    if not isinstance(node, ScalarNode):
        return {MappingNode: "a mapping", SequenceNode: "a list"}[type(node)]
    if node.value is None:
        return "null" if node.text else "nothing (null)"
    if isinstance(node.value, bool):
        return node.text
    if isinstance(node.value, str):
        return f"text {shown(node.value)}"
    kind = "the integer" if isinstance(node.value, int) else "the number"
    return f"{kind} {node.text[:MAX_SHOWN]}"


def choices_of(hint: Any) -> tuple[Any, ...] | None:
    """Return the values a ``Literal`` or an ``Enum`` allows, as written; ``None`` for others."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return tuple(member.value for member in hint)
    return None


def is_plain(value: ScalarValue, hint: Any) -> bool:
    """Tell at once that ``scalar`` would return a value as it is; False is no answer."""
    return type(value) in _plain_types(hint) and not is_oversized(value) and not has_nul(value)


@functools.lru_cache(maxsize=4096)
def _plain_types(hint: Any) -> frozenset[type]:
    """Return the types whose values a hint takes unchanged and unchecked."""
    if get_origin(hint) in (Union, UnionType):
        members = get_args(hint)
        # Nodes and values as written are not for ``scalar`` to give.
        raw = any(member in (Any, object, Node) for member in members)
        return frozenset() if raw else frozenset().union(*map(_plain_types, members))
    if hint is None or hint is NoneType:
        return frozenset((NoneType,))
    return frozenset((hint,)) if hint in (str, int, bool) else frozenset()


def scalar(node: ScalarNode, hint: Any) -> Any:
    """Return the value of a node as a type; raises ``Refused``.

    ``hint`` is ``int``, ``float``, ``str``, ``bool``, ``None``, a ``Literal``, an ``Enum``, any of
    them ``Annotated``, or a union; containers are refused.
    """
    if has_nul(node.value):
        raise Refused("text holds a NUL character, which no name or path has", "leave out \\0")
    origin = get_origin(hint)
    if origin is Annotated:
        return _annotated(node, hint.__origin__, hint.__metadata__)
    if origin in (Union, UnionType):
        return _union(node, hint)
    if is_oversized(node.value):
        remedy = f"write it as text in quotes, or as a number: {_exponent(node.text)}"
        raise Refused("this integer does not fit 64 bits", remedy)
    choices = choices_of(hint)
    if choices is not None:
        return _choice(node, hint, choices)
    if hint is None or hint is NoneType:
        fits = node.value is None
    elif hint is float:
        fits = isinstance(node.value, int | float) and not isinstance(node.value, bool)
    else:
        fits = hint in _NAMES and type(node.value) is hint
    if not fits:
        raise _mismatch(node, hint)
    return _finite(node) if hint is float else node.value


def _exponent(digits: str) -> str:
    return f"{digits[:1]}e{len(digits) - 1}" if digits.isdigit() else "1e20"


def _finite(node: ScalarNode) -> float:
    value = float(node.value or 0)
    if not math.isfinite(value):
        raise Refused(f"expected a finite number, not {node.text[:MAX_SHOWN]}")
    return value


def _mismatch(node: ScalarNode, hint: Any) -> Refused:
    return Refused(_expected(node, hint), _remedy(node, hint))


def _expected(node: ScalarNode, hint: Any) -> str:
    return f"expected {describe_type(hint)}, not {describe_node(node)}"


def _remedy(node: ScalarNode, hint: Any) -> str | None:
    """Return what the user may have meant to write."""
    value = node.value
    if value is None:
        return "write a value, or remove the key"
    if hint is str:
        return f'write it in quotes: "{node.text[:100]}"'
    if hint is int and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return f"write {int(value)}"
    if not isinstance(value, str):
        return None
    if hint is bool:
        word = _YES_NO.get(value.lower(), value.lower())
        return f"write {word}" if word in ("true", "false") else None
    if hint in (int, float) and len(value) <= 30:
        plain = value.strip().replace("_", "").replace(",", "")
        meant = resolve(plain) if plain else None
        if isinstance(meant, int | float) and not isinstance(meant, bool):
            return f"write {plain}, without quotes"
    return None


def _choice(node: ScalarNode, hint: Any, choices: tuple[ScalarValue, ...]) -> Any:
    for choice in choices:
        if choice == node.value and type(choice) is type(node.value):
            return hint(choice) if isinstance(hint, type) else choice
    message = _expected(node, hint)
    words = [str(choice) for choice in choices]
    near = nearest(node.value, words) if isinstance(node.value, str) else None
    quoted = f'write it in quotes: "{node.text}"' if node.text in words else None
    raise Refused(message + (f"; did you mean {near!r}?" if near else ""), quoted)


def _convert(marks: tuple[Any, ...]) -> Convert | None:
    return next((mark for mark in marks if isinstance(mark, Convert)), None)


def _allows_null(hint: Any) -> bool:
    return hint in (None, NoneType) or (
        get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    )


def _annotated(node: ScalarNode, inner: Any, marks: tuple[Any, ...]) -> Any:
    convert = _convert(marks)
    if any(isinstance(mark, AsWritten) for mark in marks) and node.value is not None:
        node = msgspec.structs.replace(node, value=node.text)
    if convert is None or (node.value is None and _allows_null(inner)):
        value = scalar(node, inner)
    elif node.value is None or (isinstance(node.value, bool) and inner is not bool):
        hint = Annotated[inner, convert]
        raise _mismatch(node, hint)
    elif is_oversized(node.value):
        return scalar(node, int)
    else:
        value = called(convert.function, node.value)
    check(value, marks)
    return value


def _takes(hint: Any, node: ScalarNode) -> bool:
    """Tell whether a member of a union is the one meant for this kind of value."""
    origin = get_origin(hint)
    if origin is Annotated:
        if _convert(hint.__metadata__) is not None:
            return node.value is not None and not isinstance(node.value, bool)
        return _takes(hint.__origin__, node)
    if origin in (Union, UnionType):
        return any(_takes(member, node) for member in get_args(hint))
    choices = choices_of(hint)
    if choices is not None:
        return any(type(choice) is type(node.value) for choice in choices)
    if hint is float:
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return hint in _NAMES and type(node.value) is (NoneType if hint is None else hint)


def _union(node: ScalarNode, hint: Any) -> Any:
    """Return the value by the first member that fits, an exact type before a float."""
    members = get_args(hint)
    meant = [member for member in members if _takes(member, node)]
    meant.sort(key=lambda member: member is not type(node.value))
    refusals: list[Refused] = []
    for member in meant:
        try:
            return scalar(node, member)
        except Refused as refusal:
            refusals.append(refusal)
    if len(refusals) == 1:
        raise refusals[0]
    remedies = (_remedy(node, member) for member in members if member is not NoneType)
    raise Refused(_expected(node, hint), next(filter(None, remedies), None))
