"""TOML to nodes: values from ``tomllib``, places from a scan of the same text."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from meshwright.documents.limits import MAX_DEPTH
from meshwright.documents.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from meshwright.documents.source import At, Locator, ProblemList, Source
from meshwright.documents.toml_places import Spot, TomlPlaces
from meshwright.errors import InputError, Problem

_ERROR_PLACE = re.compile(r"\s*\(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)")

_LONG_INTEGER = re.compile(r"[0-9][0-9_]{999,}")
"""Of so many digits that Python refuses to read it."""

_TWICE = re.compile(r"overwrite|declare|[Dd]uplicate|mutate|redefine")


def toml_root(source: Source, problems: ProblemList) -> Node:
    """Return the root node of a TOML text.

    Dates and times go to ``problems``. Raises ``InputError`` for all else: syntax, duplicate keys,
    no key at all, nesting deeper than ``MAX_DEPTH``, too many values.
    """
    places = TomlPlaces(source)
    try:
        values = tomllib.loads(source.text)
    except RecursionError:
        message = f"nested deeper than {MAX_DEPTH} levels"
        raise InputError(source.problem((1, 1), message)) from None
    except ValueError as error:
        twice = places.twice if _TWICE.search(str(error)) else []
        raise InputError(*(twice or [_syntax_problem(source, error)])) from None
    if not values:
        raise InputError(source.problem((1, 1), "the document holds no value"))
    return _Builder(source, problems).node(values, places.root, (1, 1), 1)


def _syntax_problem(source: Source, error: ValueError) -> Problem:
    text = str(error)
    if "int_max_str_digits" in text:
        found = _LONG_INTEGER.search(source.text)
        at = Locator(source.text)(found.start()) if found else (1, 1)
        return source.problem(at, "this integer does not fit 64 bits")
    match = _ERROR_PLACE.search(text)
    if match is not None and match[1]:
        at = int(match[1]), int(match[2])
    else:
        at = len(source.lines), len(source.lines[-1]) + 1
    message = f"not valid TOML: {_ERROR_PLACE.sub('', text)}"
    unquoted = "Invalid value" in text
    return source.problem(at, message, remedy="put text in quotes" if unquoted else None)


class _Builder:
    """Walks values and places side by side; a value without a place has that of its table."""

    def __init__(self, source: Source, problems: ProblemList) -> None:
        self._source = source
        self._problems = problems

    def node(self, value: Any, spot: Spot | None, around: At, depth: int) -> Node:
        """Return the node of a value; ``around`` is the place of what encloses it."""
        at = spot.at if spot is not None else around
        if isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                message = f"nested deeper than {MAX_DEPTH} levels"
                raise InputError(self._source.problem(at, message))
            return (
                self._mapping(value, spot, at, depth)
                if isinstance(value, dict)
                else self._sequence(value, spot, at, depth)
            )
        text = spot.text if spot is not None and spot.text is not None else str(value)
        if not isinstance(value, str | int | float):
            self._problems.add(
                self._source.problem(
                    at, "dates and times are not allowed", remedy=f'write it in quotes: "{text}"'
                )
            )
            value = text
        return ScalarNode(self._source, *at, value, text)

    def _mapping(self, value: dict[str, Any], spot: Spot | None, at: At, depth: int) -> Node:
        entries: dict[str, Entry] = {}
        for key, inner in value.items():
            inner_spot = spot.keys.get(key) if spot is not None else None
            key_at = inner_spot.key_at if inner_spot is not None else at
            entries[key] = Entry(*key_at, self.node(inner, inner_spot, at, depth + 1))
        return MappingNode(self._source, *at, entries)

    def _sequence(self, value: list[Any], spot: Spot | None, at: At, depth: int) -> Node:
        spots = spot.items if spot is not None and len(spot.items) == len(value) else None
        items = tuple(
            self.node(inner, spots[index] if spots is not None else None, at, depth + 1)
            for index, inner in enumerate(value)
        )
        return SequenceNode(self._source, *at, items)
