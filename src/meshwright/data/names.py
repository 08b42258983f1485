"""Names as people spell them: ``Llama-3-8B`` and ``llama3-8b`` are one name.

A name is cut into runs of letters and runs of digits, everything else only separates. Digits are
never joined, so ``qwen2.5-7b`` and ``qwen2-57b`` stay two names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

Key = tuple[str, ...]

_PART = re.compile(r"[a-z]+|[0-9]+")
_LONGEST = 200


def name_key(name: str, *, drop: Collection[str] = ()) -> Key:
    """Return the parts of a name in lower case, without the parts in ``drop``.

    A name beyond 200 characters has the empty key, which matches nothing.
    """
    if len(name) > _LONGEST:
        return ()
    return tuple(part for part in _PART.findall(name.lower()) if part not in drop)


def near_names(name: str, known: Iterable[str], *, most: int = 5) -> list[str]:
    """Return known names that look like ``name``, nearest first."""
    by_spelling: dict[str, str] = {}
    for candidate in known:
        by_spelling.setdefault("-".join(name_key(candidate)), candidate)
    found = difflib.get_close_matches("-".join(name_key(name)), by_spelling, n=most, cutoff=0.5)
    return [by_spelling[spelling] for spelling in found]
