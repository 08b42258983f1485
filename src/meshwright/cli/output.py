"""What every command does at its end: print one document or one page, set the exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click
import msgspec

from meshwright.findings import Finding, has_errors

_FLOAT_BITS = 1023
"""Of the largest integer that a float surely holds."""
F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="One JSON document on standard output."
    )(function)


def print_json(
    document: dict[str, Any], streamed: tuple[str, Iterable[Sequence[Any]]] | None = None
) -> None:
    """Print one JSON document (NaN and infinity become null).

    ``streamed``: the name of a key of the document, and its list in parts that are encoded and
    written one after the other, so that it never stands whole in memory.
    """
    if "findings" in document:
        document = document | {"findings": _within_64_bits(document["findings"])}
    sys.stdout.flush()
    for piece in _pieces(document, streamed):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _pieces(
    document: dict[str, Any], streamed: tuple[str, Iterable[Sequence[Any]]] | None
) -> Iterator[bytes]:
    """Yield the text of a document."""
    if streamed is None:
        yield _encoded(document)
        return
    name, parts = streamed
    opening = b"{"
    for key, value in document.items():
        yield opening + _encoded(key) + b":"
        opening = b","
        if key != name:
            yield _encoded(value)
            continue
        yield b"["
        separator = b""
        for part in parts:
            if part:
                yield separator + _encoded(part)[1:-1]
                separator = b","
        yield b"]"
    yield b"}"


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (
        UnicodeEncodeError
    ):  # a file's name that is no UTF-8: shown with escapes, as on a terminal
        return msgspec.json.encode(_printable(msgspec.to_builtins(value)))


def _within_64_bits(value: Any) -> Any:
    """Return a finding's value; integers that few readers of JSON hold exactly become floats."""
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return float(value) if value.bit_length() <= _FLOAT_BITS else None
    if isinstance(value, dict):
        return {key: _within_64_bits(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_within_64_bits(one) for one in value]
    return value


def _printable(value: Any) -> Any:
    """Return a document's value with what is no text replaced by escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(one) for one in value]
    return value


def print_text(text: str) -> None:
    """Print a page; a blank stands for what a terminal would obey (names come from files)."""
    from meshwright.errors import without_controls

    click.echo("\n".join(map(without_controls, text.split("\n"))))


def finish(findings: Sequence[Finding]) -> None:
    """Exit with 1 when a finding is an error, else with 0."""
    sys.exit(1 if has_errors(findings) else 0)
