"""What every command does at its end: print one document or one page, set the exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from meshwright.findings import Finding, has_errors

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="One JSON document on standard output."
    )(function)


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document (NaN and infinity become null)."""
    try:
        encoded = msgspec.json.encode(document)
    except (
        UnicodeEncodeError
    ):  # a file's name that is no UTF-8: shown with escapes, as on a terminal
        encoded = msgspec.json.encode(_printable(msgspec.to_builtins(document)))
    sys.stdout.flush()
    sys.stdout.buffer.write(encoded)
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


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
    """Print a page."""
    click.echo(text)


def finish(findings: Sequence[Finding]) -> None:
    """Exit with 1 when a finding is an error, else with 0."""
    sys.exit(1 if has_errors(findings) else 0)
