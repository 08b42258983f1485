"""What one source says of hosts, by key."""

from __future__ import annotations

import msgspec


class HostsSaid(msgspec.Struct, frozen=True):
    """What one source says of hosts; every map is by host key. Empty where it says nothing."""

    path: str
    format: str
    kind: str
    """``fabric``, ``hosts`` (captures), ``tree``, ``blocks`` or ``domains``."""
    hosts: dict[str, str]
    """Key to the name in this source."""
    leaf: dict[str, str] = {}
    """The leaf; of a fabric the unit."""
    domain: dict[str, str] = {}
    block: dict[str, str] = {}
    leaves: dict[str, tuple[str, ...]] = {}
    """Of a fabric: the names of the switches where the host's adapters end."""
