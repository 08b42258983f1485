"""Arithmetic of remedies: the legal values near a wrong one."""

from __future__ import annotations

import math
from collections.abc import Sequence

_LARGEST_TRIED = 1 << 16


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, in order.

    All of them up to 2**32; above, those that are small or have a small cofactor.
    """
    most = min(math.isqrt(number), _LARGEST_TRIED)  # untrusted numbers: remedies need no more
    small = [value for value in range(1, most + 1) if number % value == 0]
    return small + [number // value for value in reversed(small) if value * value != number]


def nearest_divisors(number: int, target: int, count: int = 4) -> str:
    """Return the divisors of ``number`` nearest to ``target``, as text."""
    near = sorted(divisors(number), key=lambda value: abs(value - target))[:count]
    return ", ".join(str(value) for value in sorted(near))


def shown_list(values: Sequence[int], most: int = 64) -> str:
    """Return a list as text, a long one cut."""
    text = ", ".join(map(str, values[:most]))
    return f"[{text}{', …' if len(values) > most else ''}]"
