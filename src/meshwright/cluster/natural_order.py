"""The order in which Slurm numbers nodes by name: digits as numbers, ``cn-22`` before ``cn-231``.

Slurm sorts its node table by ``strnatcmp`` (SchedMD/slurm ``src/slurmctld/read_config.c``,
``src/common/strnatcmp.c``): runs of digits compare by length, then by value; a run that begins with
0 compares digit by digit, as a fraction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"([0-9]+)|([^0-9\s])")
_DIGIT = ord("0")
"""What a run of digits counts as beside another character: no other has this code."""

_Part = tuple[int, int, int, str]


def natural_key(name: str) -> tuple[_Part, ...]:
    """Return a sort key that orders names as ``strnatcmp`` does."""
    parts: list[_Part] = []
    for match in _PART.finditer(name):
        digits = match[1]
        if digits is None:
            parts.append((ord(match[2]), 0, 0, ""))
        elif digits[0] == "0":
            parts.append((_DIGIT, 0, 0, digits))
        else:
            parts.append((_DIGIT, 1, len(digits), digits))
    return tuple(parts)


def in_name_order(names: Iterable[str]) -> list[str]:
    """Return names in Slurm's order; names that compare alike keep their order."""
    return sorted(names, key=natural_key)
