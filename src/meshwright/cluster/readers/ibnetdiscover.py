"""``ibnetdiscover``: the switches, adapters and cables of an InfiniBand fabric.

Only the plain listing is read (its grammar stands in ``ibnetdiscover_listing``);
``ibnetdiscover -p`` is another format.
"""

from __future__ import annotations

import re

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.ib_fabric import fabric_facts
from meshwright.cluster.readers.ibnetdiscover_listing import read_listing

FORMAT = "ibnetdiscover"

_LOOKS = re.compile(
    r"^(?:(?:Switch|Ca|Rt)[ \t]+[0-9]+[ \t]+\"[SHR]-[0-9a-fA-F]{1,16}\"|(?:switch|ca)guid=0x)", re.M
)
_IBSIM = re.compile(r"^Hca[ \t]", re.M)


def looks_like(text: str) -> bool:
    """Tell by content whether the text is a plain ``ibnetdiscover`` listing."""
    return _LOOKS.search(text) is not None and ("Hca" not in text or _IBSIM.search(text) is None)


def read(text: str, path: str) -> Facts:
    """Return the switches, adapters, other devices, hosts and cables of a fabric.

    Ids are GUIDs of 16 hexadecimal digits, also in ``Cable.a`` and ``Cable.b``. A node without a
    stanza of its own counts, and its cables have ``listed_twice`` false.

    Raises ``InputError`` for lines of no known form (up to 20 are named) and for a file that is
    empty, binary or cut off within a line or a stanza.
    """
    return fabric_facts(read_listing(text, path), FORMAT, {})
