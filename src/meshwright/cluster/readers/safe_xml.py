"""XML from people we do not know, read with bounds.

Expat alone builds whatever the document asks for: entities that multiply, nesting without end.
Here nothing is declared, fetched or expanded, and depth, number and size of elements are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn
from xml.parsers import expat

import msgspec

from meshwright.errors import InputError, Problem
from meshwright.findings import Place

MAX_DEPTH = 64
MAX_ELEMENTS = 200_000
MAX_ATTRIBUTES = 64
MAX_VALUE_CHARACTERS = 16_384
MAX_TEXT_CHARACTERS = 4 << 20
"""Between the tags of all elements together; a bandwidth matrix of 256 devices has a tenth."""
_EXCERPT_CHARACTERS = 160
_CHUNK_CHARACTERS = 1 << 20


class Element(msgspec.Struct, frozen=True):
    """One element; ``line`` and ``column`` (from 1) are those of its ``<``."""

    tag: str
    attributes: Mapping[str, str]
    children: tuple[Element, ...]
    text: str
    """Characters directly under the element, joined."""
    line: int
    column: int

    def place(self, path: str) -> Place:
        """Return where the element stands in the file ``path``."""
        return Place(path, self.line, self.column, self.tag)


def parse_xml(text: str, path: str, *, allow_doctype: bool = False) -> Element:
    """Return the root element of ``text``.

    Blank lines, a byte order mark and comments before the root are accepted. With
    ``allow_doctype`` a DOCTYPE that only names an external file is passed over, unread.

    Raises
    ------
    InputError
        With line and column: not well-formed or truncated, a DOCTYPE or an entity declaration,
        nesting deeper than ``MAX_DEPTH``, or an element beyond one of the other bounds.
    """
    return _Reading(text, path, allow_doctype=allow_doctype).root()


class _Open:
    """An element whose end tag has not come yet."""

    __slots__ = ("attributes", "characters", "children", "column", "line", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], line: int, column: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.column = column
        self.children: list[Element] = []
        self.characters: list[str] = []

    def close(self) -> Element:
        return Element(
            tag=self.tag,
            attributes=self.attributes,
            children=tuple(self.children),
            text="".join(self.characters),
            line=self.line,
            column=self.column,
        )


class _Reading:
    """One run of the parser over one text."""

    def __init__(self, text: str, path: str, *, allow_doctype: bool) -> None:
        self._path = path
        self._text = text
        # A declaration must stand first for expat; people paste it under a blank line.
        self._body = text.lstrip("\ufeff \t\r\n")
        skipped = text[: len(text) - len(self._body)]
        self._first_line = skipped.count("\n")
        self._first_column = len(skipped) - (skipped.rfind("\n") + 1)
        self._allow_doctype = allow_doctype
        self._stack: list[_Open] = []
        self._root: Element | None = None
        self._count = self._characters_read = 0
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.EntityDeclHandler = self._entity
        self._parser.ExternalEntityRefHandler = self._external

    def root(self) -> Element:
        if not self._body.strip():
            self._fail("the file is empty", 1, 1, remedy="give the XML text itself")
        try:
            # Piece by piece: what is refused early costs no second copy of a large file.
            for start in range(0, len(self._body), _CHUNK_CHARACTERS):
                piece = self._body[start : start + _CHUNK_CHARACTERS]
                self._parser.Parse(piece.encode("utf-8", "replace"))
            self._parser.Parse(b"", True)  # noqa: FBT003
        except expat.ExpatError as error:
            line, column = self._position(error.lineno, error.offset)
            reason = expat.ErrorString(error.code)
            self._fail(f"not well-formed XML, or cut off: {reason}", line, column)
        if self._root is None:
            self._fail("the file holds no XML element", 1, 1)
        return self._root

    def _position(self, line: int, offset: int) -> tuple[int, int]:
        """Return line and column in the whole text; ``offset`` counts from 0 as expat does."""
        column = offset + 1 + (self._first_column if line == 1 else 0)
        return line + self._first_line, column

    def _here(self) -> tuple[int, int]:
        return self._position(self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber)

    def _fail(self, message: str, line: int, column: int, *, remedy: str | None = None) -> NoReturn:
        start = 0
        for _ in range(line - 1):
            start = self._text.find("\n", start) + 1
        end = self._text.find("\n", start)
        excerpt = self._text[start : end if end >= 0 else None]
        raise InputError(
            Problem(
                Place(self._path, line, column),
                message,
                remedy=remedy,
                excerpt=excerpt.strip()[:_EXCERPT_CHARACTERS] or None,
            )
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line, column = self._here()
        self._count += 1
        if self._count > MAX_ELEMENTS:
            self._fail(f"more than {MAX_ELEMENTS:,} elements", line, column)
        if len(self._stack) >= MAX_DEPTH:
            self._fail(f"elements are nested deeper than {MAX_DEPTH}", line, column)
        if len(attributes) > MAX_ATTRIBUTES:
            self._fail(f"{tag} has more than {MAX_ATTRIBUTES} attributes", line, column)
        for name, value in attributes.items():
            if max(len(name), len(value)) > MAX_VALUE_CHARACTERS:
                message = f"an attribute of {tag} is longer than {MAX_VALUE_CHARACTERS} characters"
                self._fail(message, line, column)
        self._stack.append(_Open(tag, attributes, line, column))

    def _end(self, tag: str) -> None:  # noqa: ARG002 - expat has matched it already
        element = self._stack.pop().close()
        if self._stack:
            self._stack[-1].children.append(element)
        else:
            self._root = element

    def _characters(self, data: str) -> None:
        if not self._stack or data.isspace():
            return
        self._characters_read += len(data)
        if self._characters_read > MAX_TEXT_CHARACTERS:
            line, column = self._here()
            self._fail(f"more than {MAX_TEXT_CHARACTERS:,} characters of text", line, column)
        self._stack[-1].characters.append(data)

    def _doctype(
        self, name: str, system_id: str | None, public_id: str | None, has_subset: int
    ) -> None:
        del name, system_id, public_id
        if has_subset or not self._allow_doctype:
            line, column = self._here()
            message = "a DOCTYPE is not read: it could declare entities or name other files"
            self._fail(message, line, column, remedy="delete the <!DOCTYPE ...> declaration")

    def _entity(self, *declaration: object) -> None:
        del declaration
        line, column = self._here()
        self._fail("an entity declaration is not read", line, column, remedy="delete it")

    def _external(self, *reference: object) -> int:
        del reference
        line, column = self._here()
        self._fail("a reference to another file is not followed", line, column)
