"""Read packaged data files when first asked for."""

from __future__ import annotations

import functools
import pkgutil
from typing import Any, TypeVar

import msgspec

_Record = TypeVar("_Record")


@functools.cache
def load_json(name: str) -> Any:
    """Return the decoded content of the data file ``name``; callers must not change it.

    Raises ``FileNotFoundError`` when no such file ships with the program.
    """
    return msgspec.json.decode(_read(name))


def load_records(name: str, kind: type[_Record]) -> _Record:
    """Return the data file ``name`` decoded and checked as ``kind``; the caller keeps it.

    Raises ``FileNotFoundError``, or ``msgspec.ValidationError`` when the file does not fit.
    """
    return msgspec.json.decode(_read(name), type=kind)


def _read(name: str) -> bytes:
    # pkgutil reads from zipped packages too and imports in a fraction of importlib.resources' time.
    content = pkgutil.get_data("meshwright.data", name)
    if content is None:
        raise FileNotFoundError(name)
    return content
