"""The text of a trace file, a piece at a time: plain or gzip, bounded, with a place for problems."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, cast

import msgspec

from meshwright.errors import InputError, Problem, without_controls
from meshwright.findings import Place
from meshwright.units import MIB, format_binary_bytes

MAX_TEXT_BYTES: Final = 1024 * MIB
"""Largest trace, unpacked. 524,288 operations with counters are about 300 MiB."""
MAX_VALUE_CHARACTERS: Final = 2 * MIB
"""Largest single event or other value; files hold millions of events of a few hundred."""
_PIECE_BYTES = MIB // 2
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN: Final = re.compile(r"[ \t\r\n,]*")
_GOES_ON: Final = ("", *"0123456789.eE+-")
"""What a number may go on with, the end of what was read included."""
_GZIP: Final = b"\x1f\x8b"
_SHOWN = 60


class TraceText:
    """Decoded text with a position; what lies before it is forgotten.

    ``strict``: a key that stands twice in an object is refused; else the last one holds.
    All methods raise ``InputError`` for what cannot be read.
    """

    def __init__(
        self,
        file: str,
        stream: BinaryIO,
        *,
        strict: bool = False,
        limit_bytes: int = MAX_TEXT_BYTES,
    ) -> None:
        self.file = file
        self._stream = stream
        self._strict = strict
        self._limit_bytes = limit_bytes
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._parse = json.JSONDecoder(
            parse_constant=_refuse_constant, object_pairs_hook=_unique if strict else None
        ).raw_decode
        self._text = ""
        self._at = self._start = 0
        self._singly = 0
        """Up to here values are taken one by one: together they could not be parsed."""
        self._read_bytes = 0
        self._ended = False
        self._line = 1
        self._before = 0
        """Characters of the current line that are forgotten."""

    def character(self) -> str:
        """Return the next character that is not blank without taking it; empty at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank is not None else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def take(self, wanted: str, after: str) -> str:
        """Take the next character, which must be one of ``wanted``; ``after``: what stood before."""
        found = self.character()
        if not found or found not in wanted:
            shown = f"{found!r}" if found else "the end of the file"
            choice = " or ".join(repr(one) for one in wanted)
            self.refuse(f"{shown} where {choice} is expected after {after}")
        self._at += 1
        return found

    def value(self) -> Any:
        """Take one JSON value."""
        self.character()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, json.JSONDecodeError) and self._may_be_cut() and self._fill():
                    continue
                self._refuse_value(error)
            if self._ends(value, end) or not self._fill():
                if end - self._at > MAX_VALUE_CHARACTERS:
                    self.refuse(f"a value of over {format_binary_bytes(MAX_VALUE_CHARACTERS)}")
                self._start, self._at = self._at, end
                return value

    def values(self) -> list[Any]:
        """Take one or more JSON values with commas between them: as many as whole lines are at hand."""
        end = self._text.rfind("\n", self._at)
        if self._strict or self._at < self._singly or end <= self._at:
            return [self.value()]
        piece = self._text[self._at : end].rstrip(" \t\r\n").removesuffix(",")
        try:
            found: list[Any] = msgspec.json.decode(f"[{piece}]")
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            found = []
        if not found:
            self._singly = end
            return [self.value()]
        self._start, self._at = self._at, self._at + len(piece)
        return found

    def place(self) -> Place:
        """Return where the next character stands."""
        return self._place(self._at)

    def place_of_value(self, number: int = 0) -> Place:
        """Return where one of the values taken last begins, before anything else is taken."""
        at = self._start
        for _ in range(number):
            at = self._parse(self._text, at)[1]
            blank = _BETWEEN.match(self._text, at)
            at = at if blank is None else blank.end()
        return self._place(at)

    def refuse(self, message: str, remedy: str | None = None) -> NoReturn:
        """Raise ``InputError`` at the next character."""
        raise InputError(Problem(self.place(), message, remedy=remedy))

    def _ends(self, value: Any, end: int) -> bool:
        """Tell whether a value ends where it seems to: of ``1.5`` only ``1.`` may have been read."""
        if isinstance(value, int | float):
            return self._text[end : end + 1] not in _GOES_ON
        return True

    def _may_be_cut(self) -> bool:
        """Tell whether the value may go on in what was not read yet."""
        if self._ended:
            return False
        if len(self._text) - self._at > MAX_VALUE_CHARACTERS:
            limit = format_binary_bytes(MAX_VALUE_CHARACTERS)
            self.refuse(f"a value of over {limit}, or one that does not end")
        return True

    def _refuse_value(self, error: Exception) -> NoReturn:
        at, reason = self._at, "it is nested too deep"
        if isinstance(error, json.JSONDecodeError):
            at, reason = error.pos, error.msg[:1].lower() + error.msg[1:]
        elif isinstance(error, ValueError):
            reason = str(error)
        problem = f"this is no JSON value: {reason}"
        raise InputError(Problem(self._place(at), problem, excerpt=self._excerpt(at)))

    def _excerpt(self, at: int) -> str:
        begin = max(self._text.rfind("\n", 0, at) + 1, at - _SHOWN)
        end = self._text.find("\n", at)
        end = len(self._text) if end < 0 else end
        return without_controls(self._text[begin : min(end, at + _SHOWN)])

    def _place(self, at: int) -> Place:
        start = self._text.rfind("\n", 0, at) + 1
        line = self._line + self._text.count("\n", 0, at)
        return Place(self.file, line, at - start + 1 + (0 if start else self._before))

    def _fill(self) -> bool:
        """Read on, at least as much as is kept; False at the end of the file."""
        if self._ended:
            return False
        kept = self._text[self._at :]
        last = self._text.rfind("\n", 0, self._at)
        self._line += self._text.count("\n", 0, self._at)
        self._before = self._at - last - 1 if last >= 0 else self._before + self._at
        piece = self._read(max(_PIECE_BYTES, len(kept)))
        self._singly = max(self._singly - self._at, 0)
        self._text, self._at = kept + piece, 0
        return True

    def _read(self, size: int) -> str:
        try:
            piece = self._stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(Problem(Place(self.file), f"it cannot be read: {reason}")) from None
        self._read_bytes += len(piece)
        if self._read_bytes > self._limit_bytes:
            limit = format_binary_bytes(self._limit_bytes)
            raise InputError(Problem(Place(self.file), f"the trace is over {limit} unpacked"))
        self._ended = not piece
        try:
            return self._decode.decode(piece, final=self._ended)
        except UnicodeDecodeError as error:
            where = self._read_bytes - len(piece) + error.start
            message = f"near byte {where:,}: no UTF-8 text, so this is no trace in JSON"
            remedy = "a trace of Perfetto's own format is exported with: traceconv json FILE"
            raise InputError(Problem(Place(self.file), message, remedy=remedy)) from None


@contextmanager
def open_trace(
    path: str, *, strict: bool = False, limit_bytes: int = MAX_TEXT_BYTES
) -> Iterator[TraceText]:
    """Open a trace file, plain or gzip by its content; raises ``InputError``."""
    try:
        # A pipe or device might never end; only what is a file is opened.
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "a pipe or device"
            raise InputError(Problem(Place(path), f"this is {kind}, not a file"))
        file = Path(path).open("rb")  # noqa: SIM115 - closed below, whatever wraps it
    except FileNotFoundError:
        raise InputError(Problem(Place(path), "no such file")) from None
    except OSError as error:
        message = f"the file cannot be read: {error.strerror or error}"
        raise InputError(Problem(Place(path), message)) from None
    except ValueError:
        raise InputError(Problem(Place(path), "no file can have this name")) from None
    with file:
        packed = file.read(2) == _GZIP
        file.seek(0, os.SEEK_SET)
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file
        yield TraceText(path, stream, strict=strict, limit_bytes=limit_bytes)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = ""
        for key, _ in pairs:
            if key in seen:
                twice = key
                break
            seen.add(key)
        raise ValueError(f"the key {without_controls(twice[:_SHOWN])!r} stands twice")
    return found
