"""Values of a YAML or JSON topology file, each read with its place.

``parse`` bounds depth and size (``meshwright.documents``) and allows no tags. What stands in a
scalar is taken as written: an unquoted host name ``1101`` or an id ``3e3056`` is text here.
"""

from __future__ import annotations

from meshwright.documents import MappingNode, Node, ScalarNode, SequenceNode, parse_document
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

_BLANK = "\ufeff \t\r\n"
_NO_VALUE = {"", "unknown", "none", "null", "n/a", "<none>"}
_SHOWN = 80


def is_json(text: str) -> bool:
    """Tell whether the first character opens a JSON object or list."""
    return text.lstrip(_BLANK)[:1] in ("{", "[")


def parse(text: str, path: str) -> Node:
    """Return the root of a JSON text (first character ``{`` or ``[``) or a YAML text.

    Raises ``InputError`` with line and column: empty, no document, too deep or too large.
    """
    if not text.strip(_BLANK):
        raise InputError(Problem(Place(path, 1, 1), "the file is empty"))
    return parse_document(text, path, "json" if is_json(text) else "yaml").root


def mapping(node: Node, what: str) -> MappingNode:
    """Return the node as a mapping; raises ``InputError`` naming ``what`` it should be."""
    if not isinstance(node, MappingNode):
        raise InputError(node.problem(f"{what}: expected keys and values"))
    return node


def items(node: Node | None, what: str) -> tuple[Node, ...]:
    """Return the entries of a list, none for an absent or null one; raises ``InputError``."""
    if node is None or is_null(node):
        return ()
    if not isinstance(node, SequenceNode):
        raise InputError(node.problem(f"{what}: expected a list"))
    return node.items


def child(node: Node, *keys: str) -> Node | None:
    """Return the value under ``keys``, one inside the other; ``None`` where one is absent or null."""
    found: Node | None = node
    for key in keys:
        entry = found.entries.get(key) if isinstance(found, MappingNode) else None
        found = entry.node if entry is not None else None
    return None if found is None or is_null(found) else found


def text_of(node: Node | None, what: str, owner: Node) -> str:
    """Return a text that must be there; raises ``InputError`` at ``owner`` when it is not."""
    if node is None:
        raise InputError(owner.problem(f"{what} is missing"))
    text = _as_written(node, what)
    if not text:
        raise InputError(node.problem(f"{what} is empty"))
    return text


def known_text(node: Node | None, what: str) -> str | None:
    """Return a text, or ``None`` when it is absent, null, empty or says that it is not known."""
    return None if node is None else known(_as_written(node, what))


def known(text: str) -> str | None:
    """Return the text without blanks at its ends, or ``None`` when it says nothing."""
    text = text.strip()
    return None if text.lower() in _NO_VALUE else text


def whole_number(node: Node | None, what: str, owner: Node, maximum: int) -> int:
    """Return an integer of 0..``maximum`` that must be there; raises ``InputError``."""
    if node is None:
        raise InputError(owner.problem(f"{what} is missing"))
    value = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise InputError(node.problem(f"{what}: expected an integer from 0 to {maximum:,}"))
    return value


def is_null(node: Node) -> bool:
    """Tell whether the value is null or nothing."""
    return isinstance(node, ScalarNode) and node.value is None


def shown(names: list[str] | tuple[str, ...], limit: int = 4) -> str:
    """Return the first names for a message."""
    text = ", ".join(name[:_SHOWN] for name in names[:limit])
    return text + (", …" if len(names) > limit else "")


def _as_written(node: Node, what: str) -> str:
    if not isinstance(node, ScalarNode):
        raise InputError(node.problem(f"{what}: expected a text"))
    return "" if node.value is None else node.text
