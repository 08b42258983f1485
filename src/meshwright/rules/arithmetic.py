"""Arithmetic of remedies: the legal values near a wrong one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

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
    return nearest_values(divisors(number), target, count)


def nearest_values(values: Iterable[int], target: int, count: int = 4) -> str:
    """Return the values nearest to ``target``, in order, as text."""
    near = sorted(values, key=lambda value: abs(value - target))[:count]
    return ", ".join(str(value) for value in sorted(near))


def nearest_multiples(number: int, factor: int) -> str:
    """Return the multiples of ``factor`` below and above ``number`` (never 0), as text."""
    below = number // factor * factor
    return " or ".join(str(value) for value in (below, below + factor) if value > 0)


def padded(number: int, factor: int) -> int:
    """Return the smallest multiple of ``factor`` that is not below ``number``."""
    return -(-number // factor) * factor


def shown_list(values: Sequence[int], most: int = 64) -> str:
    """Return a list as text, a long one cut."""
    text = ", ".join(map(str, values[:most]))
    return f"[{text}{', …' if len(values) > most else ''}]"
