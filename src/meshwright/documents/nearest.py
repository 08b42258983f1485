"""What somebody may have meant: near misses among allowed words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_LONGEST = 64
"""A longer word is no typing error, and comparing it would take long."""
_CUTOFF = 0.7
"""difflib ratio; at its usual 0.6 ``tensor_parallel`` would suggest ``sequence_parallel``."""


def nearest(
    word: str, choices: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """Return the choice nearest to ``word``, or ``None`` when none is near.

    Parameters
    ----------
    word
        What was written.
    choices
        The words allowed.
    aliases
        Other names of allowed words (``tensor_parallel`` for ``tp``); a near miss of such a name
        gives the allowed word. Those of words that are not allowed here are ignored.
    """
    if len(word) > _LONGEST:
        return None
    allowed = list(choices)
    known = {alias: right for alias, right in (aliases or {}).items() if right in allowed}
    meaning = {_plain(alias): right for alias, right in known.items()}
    meaning |= {_plain(choice): choice for choice in allowed}
    match = get_close_matches(_plain(word), meaning, n=1, cutoff=_CUTOFF)
    return meaning[match[0]] if match else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
