"""Tell a cluster file from a topology source, by its keys."""

from __future__ import annotations

import re
from pathlib import Path

from meshwright.cluster.readers import readers

_HEAD_BYTES = 1 << 20
_KEYS = re.compile(
    r"^(?:\{\s*)?[\"']?(?:node|nodes|fabric|preset|nvlink_domains)[\"']?[ \t]*[:=]|^\[(?:node|fabric)\]",
    re.M,
)


def is_cluster_file(path: str) -> bool:
    """Tell whether the text has a key of a cluster file and is of no topology format.

    A file that cannot be read is none: its reader says what is wrong.
    """
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            text = file.read(_HEAD_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return False
    return _KEYS.search(text) is not None and not any(one.looks_like(text) for one in readers())
