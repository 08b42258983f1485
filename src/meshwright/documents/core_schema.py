"""YAML 1.2 core schema: which value a plain scalar has.

Source: YAML 1.2.2, section 10.3.2 (tag resolution). In it ``yes``, ``no``, ``on``, ``off``,
``12:30:00`` and ``1_000`` are text, ``0o14`` is 12, and ``014`` is the decimal integer 14.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from meshwright.documents.nodes import ScalarValue

_WORDS: Final[Mapping[str, ScalarValue]] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    ".nan": float("nan"),
    ".NaN": float("nan"),
    ".NAN": float("nan"),
} | {
    f"{sign}.{word}": float(f"{sign}inf")
    for sign in ("", "+", "-")
    for word in ("inf", "Inf", "INF")
}
DECIMAL: Final = re.compile(r"[-+]?[0-9]++\Z")
_BASED = re.compile(r"0(?:o[0-7]++|x[0-9a-fA-F]++)\Z")
NUMBER: Final = re.compile(r"[-+]?(?:\.[0-9]++|[0-9]++(?:\.[0-9]*+)?)(?:[eE][-+]?[0-9]++)?\Z")
_MAX_DIGITS = 64


def resolve(text: str) -> ScalarValue:
    """Return the value of a plain (unquoted) scalar by the core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if DECIMAL.match(text):
        return integer(text)
    if _BASED.match(text):
        return integer(text[2:], 8 if text[1] == "o" else 16)
    if NUMBER.match(text):
        return float(text)
    return text


def integer(text: str, base: int = 10) -> int:
    """Return the integer that digits stand for, in time linear in their number.

    Above 64 digits it saturates: ``decode`` and ``to_builtins`` refuse either value, and Python
    would need quadratic time, or refuse, to read the digits.
    """
    negative = text.startswith("-")
    digits = text.lstrip("+-").lstrip("0") or "0"
    value = int(digits, base) if len(digits) <= _MAX_DIGITS else 2**256
    return -value if negative else value
