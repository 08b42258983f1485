"""Keys by which sources are joined, in one spelling each.

PCI address, GUID, short host name and NVLink domain (cluster UUID and clique). A text that is no
key gives ``None``: nothing is joined on a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PCI = re.compile(
    r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})"
    r"(?:\.(?P<function>[0-9a-f]))?"
)
_GUID = re.compile(r"[0-9a-f]{1,16}")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_NOTHING = re.compile(r"|unknown|none|null|n/?a|not supported|\(null\)|\(none\)|-", re.IGNORECASE)
_ZERO = re.compile(r"[0-]*\Z")
_CLIQUE = re.compile(r"[0-9]{1,10}")
_LONGEST = 1000
_GUID_CHARACTERS = 12


def pci_key(text: str | None) -> str | None:
    """Return ``dddd:bb:dd.f`` in lower case; a domain of eight digits is cut to four where it fits.

    A missing domain and a missing function are 0. ``None`` for what is no PCI address.
    """
    match = _PCI.fullmatch((text or "")[:_LONGEST].strip().lower())
    if match is None:
        return None
    domain = (match["domain"] or "").lstrip("0").zfill(4)
    function = match["function"] or "0"
    return f"{domain}:{match['bus'].zfill(2)}:{match['device'].zfill(2)}.{function}"


def guid_key(text: str | None) -> str | None:
    """Return a GUID as 16 hexadecimal digits, without ``0x`` and colons; zero is none."""
    digits = (text or "")[:_LONGEST].strip().lower().removeprefix("0x").replace(":", "")
    if _GUID.fullmatch(digits) is None or not digits.strip("0"):
        return None
    return digits.zfill(16)


def is_guid(text: str) -> bool:
    """Tell whether a text is a GUID; a short name may be hexadecimal by chance (``fe0``)."""
    return len(text) >= _GUID_CHARACTERS and guid_key(text) is not None


def host_key(text: str | None) -> str | None:
    """Return the short host name: first word, lower case, without domain; an IP address is whole."""
    words = (text or "")[:_LONGEST].split(None, 1)
    if not words:
        return None
    name = words[0].lower()
    if _ADDRESS.fullmatch(name) or name.count(":") > 1:
        return name
    return name.partition(".")[0] or None


def domain_key(cluster_uuid: str | None, clique: str | int | None) -> str | None:
    """Return ``uuid.clique``, the key of an NVLink domain; ``None`` without a real cluster UUID.

    The clique alone is no key: unrelated racks report the same one (NVIDIA/nccl issue 1301).
    """
    uuid = _said(cluster_uuid)
    number = _said("" if clique is None else str(clique))
    if uuid is None or number is None or _ZERO.match(uuid):
        return None
    return f"{uuid.lower()}.{number.lower()}"


def named_domain(text: str | None) -> str | None:
    """Return the NVLink domain that a source names, in one spelling; ``None`` where it is none.

    ``uuid.clique`` is a pair as in ``domain_key``; any other text is a name that stands for itself.
    """
    name = _said(text)
    if name is None:
        return None
    uuid, dot, clique = name.rpartition(".")
    if dot and (_CLIQUE.fullmatch(clique) or _said(clique) is None):
        return domain_key(uuid, clique)
    return None if _ZERO.match(name) else name


def _said(text: str | None) -> str | None:
    word = (text or "")[:_LONGEST].strip()
    return None if _NOTHING.fullmatch(word) else word


class HostNames:
    """The key and the one spelling of every host named by several sources.

    Two names of one source that differ only in their domain are two hosts: their short name is
    then no key, and each goes by its whole name.
    """

    def __init__(self, sources: Iterable[Iterable[str]]) -> None:
        self.ambiguous: list[str] = []
        spellings: dict[str, set[str]] = {}
        twice: dict[str, None] = {}
        for names in sources:
            seen: dict[str, str] = {}
            for name in names:
                short = host_key(name) or name
                spellings.setdefault(short, set()).add(name)
                if seen.setdefault(short, name.lower()) != name.lower():
                    twice[short] = None
        self.ambiguous = sorted(twice)
        self._whole = twice
        self._spelled = {
            short: min(names, key=lambda name: (len(name), name))
            for short, names in spellings.items()
        }

    def key(self, name: str) -> str:
        """Return the key of a host: its short name, or the whole one where that is not unique."""
        short = host_key(name) or name
        return name.lower() if short in self._whole else short

    def spelled(self, name: str) -> str:
        """Return the shortest spelling any source has for this host."""
        short = host_key(name) or name
        return name if short in self._whole else self._spelled.get(short, name)
