"""Two groupings of the same hosts (leaves, units, NVLink domains): where they disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Split(msgspec.Struct, frozen=True):
    """One group of one source whose hosts the other source puts into several groups."""

    group: str
    hosts: tuple[str, ...]
    """Those that both sources place."""
    parts: tuple[tuple[str, int], ...]
    """Groups of the other source with their number of hosts, the largest first."""


def splits(groups: Mapping[str, str], others: Mapping[str, str]) -> list[Split]:
    """Return the groups of the first grouping that the second one divides. Linear.

    Both map a host to the name of its group; hosts of one grouping alone are passed over.
    """
    hosts: dict[str, list[str]] = {}
    parts: dict[str, dict[str, int]] = {}
    for host, group in groups.items():
        other = others.get(host)
        if other is None:
            continue
        hosts.setdefault(group, []).append(host)
        counts = parts.setdefault(group, {})
        counts[other] = counts.get(other, 0) + 1
    return [
        Split(
            group,
            tuple(hosts[group]),
            tuple(sorted(counts.items(), key=lambda part: (-part[1], part[0]))),
        )
        for group, counts in parts.items()
        if len(counts) > 1
    ]


def shown(found: Sequence[Split], kind: str) -> str:
    """Return the first split in words: ``leaf-1 (32 hosts) is in 2 units: 0 with 30, 1 with 2``."""
    first = found[0]
    parts = ", ".join(f"{name} with {count}" for name, count in first.parts[:4])
    more = ", …" if len(first.parts) > 4 else ""
    return (
        f"{first.group} ({len(first.hosts)} hosts) is in {len(first.parts)} {kind}: {parts}{more}"
    )
