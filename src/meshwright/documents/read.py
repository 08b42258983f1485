"""A file or a text to a document, by its format."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from meshwright.documents.json_nodes import json_root
from meshwright.documents.limits import MAX_FILE_BYTES
from meshwright.documents.nodes import Document
from meshwright.documents.source import NEWLINE, YAML_NEWLINE, Locator, ProblemList, Source
from meshwright.documents.toml_nodes import toml_root
from meshwright.documents.yaml_nodes import yaml_root
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

_FORMAT: Final = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
_ROOT: Final = {"yaml": yaml_root, "json": json_root, "toml": toml_root}
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_BOM = "\ufeff"


def read_document(
    path: str | os.PathLike[str], *, problems: list[Problem] | None = None
) -> Document:
    """Read a YAML, JSON or TOML file.

    The suffix names the format (``.yaml``, ``.yml``, ``.json``, ``.toml``); with any other suffix
    a text that starts with ``{`` is JSON and everything else YAML.

    Parameters
    ----------
    path
        The file; at most ``MAX_FILE_BYTES`` (16 MiB) of UTF-8, with or without a byte order mark.
    problems
        Where given, problems that leave the document readable (a key twice, a tag, a merge key, a
        key that is no text, a date) are appended to it, so that a caller can report them together
        with those of ``decode``. Otherwise they are raised.

    Raises
    ------
    InputError
        The file cannot be read, or is no document; all problems found are in it.
    """
    file = os.fspath(path)
    if not file:
        raise InputError(Problem(Place(subject="file"), "the name of the file is empty"))
    text = _decoded(file, _content(file))
    suffix = Path(file).suffix.lower()
    by_content = "json" if text.lstrip(_BOM + " \t\r\n").startswith("{") else "yaml"
    return parse_document(text, file, _FORMAT.get(suffix, by_content), problems=problems)


def parse_document(
    text: str,
    file: str,
    format: str = "yaml",  # noqa: A002 - the word that fits
    *,
    problems: list[Problem] | None = None,
) -> Document:
    """Return the document of a text; ``file`` is the name that its places carry.

    ``format`` is ``yaml``, ``json`` or ``toml`` (else ``ValueError``); for ``problems`` and the
    ``InputError`` raised see ``read_document``.
    """
    if format not in _ROOT:
        raise ValueError(f"format {format!r} is none of {', '.join(_ROOT)}")
    source = Source(file, text.removeprefix(_BOM), YAML_NEWLINE if format == "yaml" else NEWLINE)
    _check_characters(source)
    found = ProblemList()
    try:
        root = _ROOT[format](source, found)
    except InputError as error:
        found.extend(error.problems)
        raise InputError(*found.in_order()) from None
    if problems is not None:
        problems.extend(found.in_order())
    elif found.in_order():
        raise InputError(*found.in_order())
    return Document(root, source)


def _check_characters(source: Source) -> None:
    match = _FORBIDDEN.search(source.text)
    if match is not None:
        at = Locator(source.text)(match.start())
        message = f"character U+{ord(match[0]):04X} is not allowed in a text"
        raise InputError(source.problem(at, message, remedy="remove it, or write it as an escape"))
    if not source.text.strip():
        raise InputError(Problem(Place(source.file), "the file is empty"))


def _content(file: str) -> bytes:
    try:
        # A pipe or device might never end; only what is a file is opened.
        mode = Path(file).stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "a pipe or device"
            raise InputError(Problem(Place(file), f"this is {kind}, not a file"))
        with Path(file).open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise InputError(Problem(Place(file), "no such file")) from None
    except OSError as error:
        message = f"the file cannot be read: {error.strerror or error}"
        raise InputError(Problem(Place(file), message)) from None
    except ValueError:
        raise InputError(Problem(Place(file), "no file can have this name")) from None
    if len(content) > MAX_FILE_BYTES:
        raise InputError(Problem(Place(file), f"the file is over {MAX_FILE_BYTES >> 20} MiB"))
    return content


def _decoded(file: str, content: bytes) -> str:
    offset = content.find(0)
    if offset >= 0:
        raise InputError(_binary(file, content, offset, "a NUL byte: this is no text file"))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"byte 0x{content[error.start]:02x} is not UTF-8"
        raise InputError(_binary(file, content, error.start, reason)) from None


def _binary(file: str, content: bytes, offset: int, reason: str) -> Problem:
    line = content.count(b"\n", 0, offset) + 1
    start = content.rfind(b"\n", 0, offset) + 1
    column = len(content[start:offset].decode("utf-8", "replace")) + 1
    remedy = "save the file as UTF-8 text"
    return Problem(Place(file, line, column), f"at byte offset {offset}: {reason}", remedy=remedy)
