"""``ibnetdiscover``: what the description of a channel adapter tells (host, device, other kind)."""

from __future__ import annotations

import re

_DEFAULT_HOST = re.compile(
    r"localhost(?:\..*)?|ubuntu|debian|centos|rocky|linux|unknown|\(none\)", re.IGNORECASE
)
"""First words of a description that are an installer's default and name no host."""
_MODEL = re.compile(
    r"MT[0-9]{3,6}|mellanox|nvidia|infiniband|connect-?(?:x|ib).*|bluefield.*|HCA-[0-9]+|"
    r"(?:mlx[0-9]*|hfi1?|qib|ibp?|bnxt_re|irdma)[0-9]*_[0-9]+",
    re.IGNORECASE,
)
"""First words of a description that is a bare model or device name."""
_MANAGER = re.compile(r"(?:.*[-_.])?ufm(?:[-_.0-9].*)?", re.IGNORECASE)


def other_kind(description: str) -> str | None:
    """Return the kind of a channel adapter that belongs to no host."""
    if "Aggregation Node" in description:
        return "sharp"
    first = description.split(None, 1)[0] if description else ""
    return "manager" if _MANAGER.fullmatch(first) else None


def host_and_device(description: str) -> tuple[str | None, str]:
    """Return host (if a real one is named) and device name of a node description."""
    first, _, rest = description.partition(" ")
    if not first or _MODEL.fullmatch(first):
        return None, description
    if _DEFAULT_HOST.fullmatch(first):
        return None, rest.strip()
    return first, rest.strip()
