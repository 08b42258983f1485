"""The name of an XML document's root element, found without parsing the document."""

from __future__ import annotations

import re

_BLANK = re.compile(r"[\ufeff\s]*")
_ROOT = re.compile(r"<([A-Za-z_][\w.-]{0,63})(?=[\s/>])")
_PROLOGUE = {"<?": "?>", "<!--": "-->", "<!DOCTYPE": ">"}
"""What may stand before the root, and how it ends (a DOCTYPE with a subset is not followed)."""


def root_tag(text: str) -> str | None:
    """Return the root element's name, ``None`` when the text does not begin like XML.

    Blank lines, a byte order mark, the declaration, comments and a DOCTYPE without a subset may
    stand before the root.
    """
    start = 0
    while True:
        blank = _BLANK.match(text, start)
        start = blank.end() if blank else start
        opening = next((part for part in _PROLOGUE if text.startswith(part, start)), None)
        if opening is None:
            match = _ROOT.match(text, start)
            return match[1] if match else None
        end = text.find(_PROLOGUE[opening], start)
        if end < 0:
            return None
        start = end + len(_PROLOGUE[opening])
