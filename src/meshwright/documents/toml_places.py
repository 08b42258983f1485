"""Where the keys and values of a TOML text stand: a light scan beside ``tomllib``.

The scan accepts a little more than TOML does and stops at what it cannot follow; ``tomllib`` has
the last word on syntax and values. It also refuses, before ``tomllib`` runs, the nesting on which
that recurses (arrays, inline tables) or takes quadratic time (dotted keys).
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from meshwright.documents.limits import MAX_DEPTH, MAX_TOML_NODES
from meshwright.documents.source import At, Locator, Source, shown
from meshwright.errors import InputError, Problem

_SPACE = re.compile(r"[ \t]*+")
_BLANK = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:[^"\\\n]++|\\.)*+"')
_LITERAL = re.compile(r"'[^'\n]*+'")
_LONG_BASIC = re.compile(r'"""(?:[^"\\]++|\\[\s\S]|"{1,2}(?!"))*+""""{0,2}')
_LONG_LITERAL = re.compile(r"'''(?:[^']++|'{1,2}(?!'))*+''''{0,2}")
_TOKEN = re.compile(r"[^,\]}\n#]+")


class Spot:
    """The place of one value, of its key, and of what is inside it."""

    __slots__ = ("at", "defined", "depth", "items", "key_at", "keys", "text")

    def __init__(self, at: At, key_at: At, depth: int) -> None:
        self.at = at
        self.key_at = key_at
        self.depth = depth
        self.keys: dict[str, Spot] = {}
        self.items: list[Spot] = []
        self.text: str | None = None
        self.defined = False


class TomlPlaces:
    """The scan's answer: ``root``, and the keys and tables that stand twice.

    Raises ``InputError`` for nesting deeper than ``MAX_DEPTH`` and for too many values.
    """

    def __init__(self, source: Source) -> None:
        self.root = Spot((1, 1), (1, 1), 1)
        self.twice: list[Problem] = []
        self._source = source
        self._text = source.text
        self._locate = Locator(source.text)
        self._offset = 0
        self._count = 0
        self._scan()

    def _scan(self) -> None:
        table: Spot | None = self.root
        while table is not None and self._skip(_BLANK):
            table = self._header() if self._peek() == "[" else self._pair(table)

    def _peek(self) -> str:
        return self._text[self._offset : self._offset + 1]

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        """Skip what matches; return False at the end of the text."""
        match = pattern.match(self._text, self._offset)
        if match is not None:
            self._offset = match.end()
        return self._offset < len(self._text)

    def _here(self) -> At:
        return self._locate(self._offset)

    def _fail(self, at: At, message: str) -> NoReturn:
        raise InputError(self._source.problem(at, message))

    def _new(self, at: At, key_at: At, depth: int) -> Spot:
        self._count += 1
        if self._count > MAX_TOML_NODES:
            self._fail(at, f"the document holds more than {MAX_TOML_NODES:,} values")
        # A scalar may stand inside MAX_DEPTH containers.
        if depth > MAX_DEPTH + 1:
            self._fail(at, f"nested deeper than {MAX_DEPTH} levels")
        return Spot(at, key_at, depth)

    def _header(self) -> Spot | None:
        """Read ``[table]`` or ``[[array]]``; return the table that pairs go into."""
        at = self._here()
        is_array = self._text.startswith("[[", self._offset)
        self._offset += 2 if is_array else 1
        path = self._key()
        if not path or self._peek() != "]":
            return None
        self._offset += 2 if is_array else 1
        parent = self._descend(self.root, path[:-1])
        name, key_at = path[-1]
        spot = parent.keys.get(name)
        if spot is None:
            spot = parent.keys[name] = self._new(at, key_at, parent.depth + 1)
        elif spot.defined and not (is_array and spot.items):
            self._note_twice(name, key_at, spot.key_at)
        spot.defined = True
        if not is_array:
            spot.at = at
            return spot
        item = self._new(at, key_at, spot.depth + 1)
        spot.items.append(item)
        return item

    def _descend(self, spot: Spot, path: list[tuple[str, At]]) -> Spot:
        for name, at in path:
            if name not in spot.keys:
                spot.keys[name] = self._new(at, at, spot.depth + 1)
            spot = spot.keys[name]
            if spot.items:
                spot = spot.items[-1]
        return spot

    def _note_twice(self, name: str, at: At, first: At) -> None:
        message = f"key {shown(name)} stands twice, first at line {first[0]}, column {first[1]}"
        if len(self.twice) < MAX_DEPTH:
            self.twice.append(self._source.problem(at, message, remedy="keep one of the two"))

    def _pair(self, table: Spot) -> Spot | None:
        """Read ``key = value`` into the table; return the table, or None when lost."""
        path = self._key()
        if not path or self._peek() != "=":
            return None
        self._offset += 1
        self._skip(_SPACE)
        parent = self._descend(table, path[:-1])
        name, key_at = path[-1]
        spot = self._new(self._here(), key_at, parent.depth + 1)
        spot.defined = True
        if name in parent.keys:
            self._note_twice(name, key_at, parent.keys[name].key_at)
        else:
            parent.keys[name] = spot
        return table if self._value(spot) else None

    def _key(self) -> list[tuple[str, At]]:
        """Read a dotted key and the space after it; return its parts, none when it is broken."""
        parts: list[tuple[str, At]] = []
        while True:
            self._skip(_SPACE)
            at = self._here()
            if len(parts) >= MAX_DEPTH:
                self._fail(at, f"nested deeper than {MAX_DEPTH} levels")
            match = next(
                (
                    match
                    for pattern in (_BARE_KEY, _BASIC, _LITERAL)
                    if (match := pattern.match(self._text, self._offset))
                ),
                None,
            )
            if match is None:
                return []
            self._offset = match.end()
            parts.append((_key_text(match[0]), at))
            self._skip(_SPACE)
            if self._peek() != ".":
                return parts
            self._offset += 1

    def _value(self, spot: Spot) -> bool:
        """Read a value; return False when lost."""
        char = self._peek()
        if char in ("[", "{"):
            if spot.depth > MAX_DEPTH:
                self._fail(spot.at, f"nested deeper than {MAX_DEPTH} levels")
            self._offset += 1
            return self._array(spot) if char == "[" else self._inline(spot)
        quoted = (_LONG_BASIC, _LONG_LITERAL, _BASIC, _LITERAL)
        for pattern in quoted if char in ('"', "'") else (_TOKEN,):
            match = pattern.match(self._text, self._offset)
            if match is not None:
                self._offset = match.end()
                spot.text = match[0].strip() if pattern is _TOKEN else None
                return True
        return False

    def _array(self, spot: Spot) -> bool:
        while self._skip(_BLANK):
            if self._peek() == "]":
                self._offset += 1
                return True
            here = self._here()
            item = self._new(here, here, spot.depth + 1)
            spot.items.append(item)
            if not self._value(item) or not self._skip(_BLANK):
                return False
            if self._peek() == ",":
                self._offset += 1
            elif self._peek() != "]":
                return False
        return False

    def _inline(self, spot: Spot) -> bool:
        while self._skip(_BLANK):
            if self._peek() == "}":
                self._offset += 1
                return True
            if self._pair(spot) is None or not self._skip(_BLANK):
                return False
            if self._peek() == ",":
                self._offset += 1
            elif self._peek() != "}":
                return False
        return False


def _key_text(written: str) -> str:
    """Return a key without its quotes; one with an escape JSON does not know stays as written."""
    if written[0] == '"' and "\\" in written:
        try:
            return str(json.loads(written))
        except ValueError:
            return written
    return written[1:-1] if written[0] in "\"'" else written
