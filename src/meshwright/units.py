"""Quantities: parse what people write, print what people read; SI base inside.

Inside the program there are only bytes, seconds, bytes per second, FLOPs and FLOPs per second.
This is the only module that knows a prefix (a test holds it).
"""

from __future__ import annotations

import re

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
NANOSECONDS_PER_MICROSECOND = 1000

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": 1 << 40, "Pi": 1 << 50}
_PREFIX = _DECIMAL | _BINARY
_FLOP_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_NUMBER = r"(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_BYTES = re.compile(rf"\s*{_NUMBER}\s*(?P<prefix>[KMGTP]i?|k|)B?\s*\Z")
_RATE = re.compile(
    rf"\s*{_NUMBER}\s*(?P<prefix>[KMGTP]i?|k|)"
    r"(?P<unit>B/s|Bps|bit/s|bits/s|bps|b/s)\s*\Z"
)


def parse_bytes(text: str | int | float) -> int:
    """Return a number of bytes from ``1e9``, ``"64 MiB"`` or ``"4.5 GB"`` (GB is 10**9, GiB 2**30).

    Raises ``ValueError`` when the text is no size.
    """
    if isinstance(text, bool) or not isinstance(text, str):
        return _whole(float(text), str(text))
    match = _BYTES.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no size: write bytes, or a unit as in 64 MiB or 4.5 GB")
    return _whole(float(match["number"]) * _PREFIX[match["prefix"]], text)


def _whole(value: float, text: str) -> int:
    if not 0 <= value < 2**63:
        raise ValueError(f"{text!r} is no size: it must lie between 0 and 2**63 bytes")
    return round(value)


def parse_rate(text: str | int | float) -> float:
    """Return bytes per second from ``"400 Gbit/s"`` or ``"50 GB/s"``.

    A bare number is refused: nobody can know whether bits or bytes were meant.
    Raises ``ValueError``.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is a rate without a unit: write 400 Gbit/s or 50 GB/s")  # noqa: TRY004
    match = _RATE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no rate: write it with its unit, 400 Gbit/s or 50 GB/s")
    factor = 1.0 if match["unit"] in ("B/s", "Bps") else 0.125
    value = float(match["number"]) * _PREFIX[match["prefix"]] * factor
    if not 0 < value < 1e18:
        raise ValueError(f"{text!r} is no rate that a link can have")
    return value


def mbit_per_s(value: float) -> float:
    """Return bytes per second for a figure in Mbit/s (NCCL's ``net speed``)."""
    return value * 1e6 / 8


def gbit_per_s(value: float) -> float:
    """Return bytes per second for a figure in Gbit/s."""
    return value * 1e9 / 8


def gb_per_s(value: float) -> float:
    """Return bytes per second for a figure in GB/s (10**9)."""
    return value * 1e9


def tera(value: float) -> float:
    """Return the SI base figure for a figure in tera-units (TFLOP/s, TB/s)."""
    return value * 1e12


def giga(value: float) -> float:
    """Return the SI base figure for a figure in giga-units (GB, billions of parameters)."""
    return value * 1e9


def microseconds(value: float) -> float:
    """Return seconds for a figure in microseconds."""
    return value * 1e-6


def to_nanoseconds(value_s: float) -> float:
    """Return the figure in nanoseconds for seconds."""
    return value_s * 1e9


def _significant(value: float) -> str:
    """Return three significant digits, and one decimal from 100 on (``257.7``, ``4.52``)."""
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.1f}"
    digits = 2 if value >= 10 else 3
    for decimals in range(int(value >= 10), 8):  # 99.5 is not 100
        text = f"{value:.{decimals}f}"
        if len(text.lstrip("0.").replace(".", "")) >= min(digits + (value >= 10), 3):
            return text
    return f"{value:.2e}"


def format_bytes(value: float) -> str:
    """Return a size in decimal units, ``257.7 GB``."""
    for prefix, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{_significant(value / factor)} {prefix}"
    return f"{value:.0f} B"


def format_binary_bytes(value: float) -> str:
    """Return a size in binary units, ``64 MiB``: tensors and memory."""
    for prefix, factor in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if value >= factor:
            scaled = value / factor
            return f"{scaled:.0f} {prefix}" if scaled == int(scaled) else f"{scaled:.2f} {prefix}"
    return f"{value:.0f} B"


def format_rate(value: float) -> str:
    """Return a rate in GB/s (10**9 bytes)."""
    return f"{_significant(value / 1e9)} GB/s"


def format_seconds(value: float) -> str:
    """Return a time with three significant digits: ``0.573 s``, ``9.2 ms``, ``3.4 us``."""
    if value == 0 or value >= 0.01:
        return f"{_significant(value)} s"
    if value >= 1e-5:
        return f"{_significant(value * 1e3)} ms"
    return f"{_significant(value * 1e6)} us"


def format_flops(value: float, unit: str = "FLOP") -> str:
    """Return a number of FLOPs (or FLOP/s) with a decimal prefix and four digits: ``48.2 GFLOP``."""
    power = 0
    while value >= 1000 and power + 1 < len(_FLOP_PREFIXES):
        value, power = value / 1000, power + 1
    return f"{value:.4g} {_FLOP_PREFIXES[power]}{unit}"


def time_unit(value_s: float) -> tuple[float, str]:
    """Return the unit a time reads best in, as seconds and its sign: ``(0.001, "ms")``."""
    for unit_s, sign in ((1.0, "s"), (1e-3, "ms")):
        if value_s >= unit_s:
            return unit_s, sign
    return 1e-6, "us"


def format_count(value: float) -> str:
    """Return a count with thousands separated: ``16,384``."""
    return f"{value:,.0f}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """Return ``1 host``, ``2 hosts``; ``many`` where it is not the noun with an s (leaves)."""
    return f"{format_count(count)} {noun if count == 1 else many or noun + 's'}"


def verb(count: int) -> str:
    """Return ``is`` for one, ``are`` for all other counts."""
    return "is" if count == 1 else "are"
