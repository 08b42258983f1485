"""Plain values to YAML text, for files that the program writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from meshwright.documents.core_schema import resolve
from meshwright.documents.limits import MAX_DEPTH

_LINE_ENDS = re.compile(r"[\x85\u2028\u2029]")


def dump_yaml(value: object) -> str:
    """Return builtins (mappings with text keys, lists, tuples, scalars) as YAML text.

    ``parse_document`` reads it back to the same value, tuples as lists. Text that YAML 1.1 or the
    core schema would read as something else is quoted. Raises ``TypeError`` for other types, and
    ``ValueError`` for nesting deeper than ``MAX_DEPTH`` (so also for a value inside itself).
    """
    text: str = yaml.dump(
        _plain(value, 1),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 20,
    )
    return text.removesuffix("...\n")


class _Dumper(yaml.SafeDumper):
    """Writes text with quotes where needed, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class gives it
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if not isinstance(resolve(text), str):
        # The base class quotes what YAML 1.1 reads as no text; the core schema reads more (1e9).
        style = "'"
    elif _LINE_ENDS.search(text):
        # Only double quotes escape these; elsewhere a parser folds them.
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _plain(value: object, depth: int) -> object:
    """Return the value as exactly dict, list and scalars."""
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("keys of a mapping are str")
        return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in value]
    raise TypeError(f"{type(value).__name__} is no plain value")
