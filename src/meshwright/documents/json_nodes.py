"""JSON to nodes: strict RFC 8259, with the place of every value and duplicate keys refused."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from meshwright.documents.core_schema import integer
from meshwright.documents.limits import MAX_DEPTH, MAX_NODES
from meshwright.documents.nodes import (
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    ScalarValue,
    SequenceNode,
)
from meshwright.documents.source import At, Locator, ProblemList, Source, shown
from meshwright.errors import InputError

_SPACE = re.compile(r"[ \t\n\r]*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\.)*+"')
_KEY = re.compile(r'[ \t\n\r]*+(?P<key>"[^"\\\x00-\x1f]*+")[ \t\n\r]*+:[ \t\n\r]*+')
"""A key without escapes, its colon, and the space up to the value."""
_COMMA = re.compile(r"[ \t\n\r]*+,")
_SCALAR = re.compile(
    r"(?P<integer>-?(?:0|[1-9][0-9]*+))(?P<rest>(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)"
    r"(?![0-9A-Za-z_.+-])|(?P<word>true|false|null)(?![0-9A-Za-z_])"
)
_WORD = re.compile(r"[^\s,:\[\]{}\"]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WORDS: dict[str, ScalarValue] = {"true": True, "false": False, "null": None}


def json_root(source: Source, problems: ProblemList) -> Node:
    """Return the root node of a JSON text.

    Duplicate keys go to ``problems``. Raises ``InputError`` for all else: syntax, nesting deeper
    than ``MAX_DEPTH``, too many values.
    """
    scanner = _Scanner(source, problems)
    root = scanner.value(1)
    scanner.end()
    return root


class _Scanner:
    """Recursive descent; ``MAX_DEPTH`` bounds the recursion."""

    def __init__(self, source: Source, problems: ProblemList) -> None:
        self._source = source
        self._text = source.text
        self._problems = problems
        self._locate = Locator(source.text)
        self._offset = 0
        self._count = 0

    def value(self, depth: int) -> Node:
        """Return the value that starts after white space."""
        char = self._next()
        at = self._locate(self._offset)
        self._count += 1
        if self._count > MAX_NODES:
            self._fail(f"the document holds more than {MAX_NODES:,} values", at)
        if char in ("{", "["):
            if depth > MAX_DEPTH:
                self._fail(f"nested deeper than {MAX_DEPTH} levels", at)
            self._offset += 1
            return self._object(at, depth) if char == "{" else self._array(at, depth)
        if char == '"':
            text = self._string(at)
            return ScalarNode(self._source, *at, text, text)
        return self._scalar(at)

    def end(self) -> None:
        """Refuse anything after the value."""
        if self._next():
            self._wrong("expected the end of the document")

    def _next(self) -> str:
        """Skip white space and return the character there, or an empty text at the end."""
        match = _SPACE.match(self._text, self._offset)
        self._offset = match.end() if match else self._offset
        return self._text[self._offset : self._offset + 1]

    def _fail(self, message: str, at: At, remedy: str | None = None) -> NoReturn:
        raise InputError(self._source.problem(at, message, remedy=remedy))

    def _wrong(self, expected: str) -> NoReturn:
        match = _WORD.match(self._text, self._offset)
        found = match[0] if match else self._text[self._offset : self._offset + 1]
        tail = f", not {shown(found)}" if found else ", not the end of the file"
        comma = self._text[: self._offset].rstrip().endswith(",") and found in ("]", "}")
        remedy = "remove the comma before it" if comma else None
        self._fail(f"not valid JSON: {expected}{tail}", self._locate(self._offset), remedy)

    def _object(self, at: At, depth: int) -> Node:
        entries: dict[str, Entry] = {}
        closed = self._closes("}")
        while not closed:
            key, key_at = self._key()
            node = self.value(depth + 1)
            if key in entries:
                self._report_twice(key, key_at, entries[key].at)
            else:
                entries[key] = Entry(*key_at, node)
            closed = self._ends("}")
        return MappingNode(self._source, *at, entries)

    def _key(self) -> tuple[str, At]:
        """Step over a key and its colon; return it with its place."""
        match = _KEY.match(self._text, self._offset)
        if match is not None:
            self._offset = match.end()
            return match["key"][1:-1], self._locate(match.start("key"))
        if self._next() != '"':
            self._wrong("expected a key in double quotes")
        at = self._locate(self._offset)
        key = self._string(at)
        if self._next() != ":":
            self._wrong("expected ':' after the key")
        self._offset += 1
        return key, at

    def _array(self, at: At, depth: int) -> Node:
        items: list[Node] = []
        closed = self._closes("]")
        while not closed:
            items.append(self.value(depth + 1))
            closed = self._ends("]")
        return SequenceNode(self._source, *at, tuple(items))

    def _closes(self, bracket: str) -> bool:
        if self._next() != bracket:
            return False
        self._offset += 1
        return True

    def _ends(self, bracket: str) -> bool:
        """Step over a comma, or the bracket that closes the container, and tell whether it does."""
        match = _COMMA.match(self._text, self._offset)
        if match is not None:
            self._offset = match.end()
            return False
        if not self._closes(bracket):
            self._wrong(f"expected ',' or '{bracket}'")
        return True

    def _report_twice(self, key: str, at: At, first: At) -> None:
        message = f"key {shown(key)} stands twice, first at line {first[0]}, column {first[1]}"
        self._problems.add(self._source.problem(at, message, remedy="keep one of the two"))

    def _string(self, at: At) -> str:
        match = _STRING.match(self._text, self._offset)
        if match is None:
            self._fail("not valid JSON: this text is not closed on its line", at)
        self._offset = match.end()
        if "\\" not in match[0]:
            return match[0][1:-1]
        try:
            text = str(json.loads(match[0]))
        except ValueError:
            self._fail("not valid JSON: this text has a backslash that starts no escape", at)
        if _SURROGATE.search(text):
            self._fail("half a surrogate pair is no character", at)
        return text

    def _scalar(self, at: At) -> Node:
        match = _SCALAR.match(self._text, self._offset)
        if match is None:
            self._wrong("expected a value")
        self._offset = match.end()
        value: ScalarValue
        if match["word"]:
            value = _WORDS[match["word"]]
        elif match["rest"]:
            value = float(match[0])
        else:
            value = integer(match["integer"])
        return ScalarNode(self._source, *at, value, match[0])
