"""Constants of the memory model: named, with source and origin, each one settable by the user."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from meshwright.data.load import load_records
from meshwright.documents import nearest
from meshwright.errors import UsageError
from meshwright.origin import Origin
from meshwright.units import parse_bytes

_FILE = "memory_constants.json"
_LARGEST = 2.0**50


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One constant: bytes where the name ends so, else a count, a share or a switch (0 or 1)."""

    name: str
    value: float
    origin: Origin
    source: str
    what: str


class _Constants(msgspec.Struct, frozen=True):
    constants: tuple[Constant, ...]


class Constants(msgspec.Struct, frozen=True):
    """All constants by name; ``changed`` holds the names the user set."""

    by_name: Mapping[str, Constant]
    changed: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        return self.by_name[name].value


@functools.cache
def default_constants() -> Constants:
    """Return the constants as they ship."""
    return Constants({one.name: one for one in load_records(_FILE, _Constants).constants})


def constants_with(changes: Mapping[str, str]) -> Constants:
    """Return the constants with some set by the user (a number, or a size as ``600 MB``).

    Raises ``UsageError`` for an unknown name or a value that is none.
    """
    constants = dict(default_constants().by_name)
    for name, text in changes.items():
        if name not in constants:
            near = nearest(name, constants)
            hint = f"did you mean {near}?" if near else f"constants: {', '.join(constants)}"
            raise UsageError(f"no constant {name!r}: {hint}")
        constants[name] = msgspec.structs.replace(
            constants[name], value=_value(name, text), origin=Origin.PARSED, source="set by you"
        )
    return Constants(constants, tuple(changes))


def _value(name: str, text: str) -> float:
    try:
        value = float(parse_bytes(text)) if name.endswith("_bytes") else float(text)
    except ValueError:
        raise UsageError(f"{name}: {text!r} is no number") from None
    if not 0 <= value < _LARGEST:
        raise UsageError(f"{name}: {text!r} lies outside 0 … 2**50")
    return value
