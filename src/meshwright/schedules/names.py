"""Names of schedules: ours, and the spellings people write."""

from __future__ import annotations

from typing import Final

NAMES: Final[dict[str, str]] = {
    "": "1f1b",
    "1f1b": "1f1b",
    "pipedream-flush": "1f1b",
    "dapple": "1f1b",
    "gpipe": "gpipe",
    "afab": "gpipe",
    "all-forward-all-backward": "gpipe",
    "interleaved": "interleaved",
    "interleaved-1f1b": "interleaved",
    "1f1b-interleaved": "interleaved",
    "looped-bfs": "looped-bfs",
    "breadth-first": "looped-bfs",
    "bfs": "looped-bfs",
    "zb-h1": "zb-h1",
    "zb-1p": "zb-h1",
    "zb-h2": "zb-h2",
    "zb-2p": "zb-h2",
    "zb-v": "zb-v",
    "zbv-zero-bubble": "zb-v",
    "v-half": "v-half",
    "v-min": "v-min",
    "interleaved-zb": "interleaved-zb",
    "interleaved-zero-bubble": "interleaved-zb",
    "dualpipe": "dualpipe",
    "dualpipe-v": "dualpipev",
    "chimera": "chimera",
}
"""Spellings, and our names. Case, blanks, hyphens and underscores make no difference; torch's names
(``get_schedule_class`` of torch/distributed/pipelining/schedules.py) are among them."""

SCHEDULES: Final = tuple(dict.fromkeys(NAMES.values()))
"""Our names."""

TWO_CHUNKS: Final = ("zb-v", "v-half", "v-min", "dualpipev")
"""Schedules of two chunks a rank whatever ``vp`` says."""

MANY_CHUNKS: Final = ("interleaved", "interleaved-zb", "looped-bfs")
"""Schedules of two chunks a rank or more."""

TWO_DIRECTIONS: Final = ("dualpipe", "chimera")
"""Schedules that run two pipelines against each other; their microbatches count both."""


def squeezed(text: str) -> str:
    """Return a name without what makes no difference."""
    return "".join(letter for letter in text.lower() if letter not in " -_\t")


_SQUEEZED: Final = {squeezed(name): ours for name, ours in NAMES.items()}


def schedule_name(given: str | None, vp: int = 1) -> str | None:
    """Return our name of a schedule; ``None`` when it is unknown. 1F1B of chunks is interleaved."""
    name = _SQUEEZED.get(squeezed((given or "").strip()))
    return "interleaved" if name == "1f1b" and vp > 1 else name
