"""A job's allocation on the network, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.cluster.allocations.allocation import Allocation, Segments
from meshwright.cluster.allocations.allocation_findings import allocation_findings
from meshwright.cluster.allocations.allocation_groups import HostGroups
from meshwright.cluster.hostlist import compress_hostlist
from meshwright.report.text import paragraph, table
from meshwright.units import format_count, plural

__all__ = ["allocation_findings", "allocation_json", "allocation_text"]

_GROUPS_SHOWN = 40


def allocation_json(allocation: Allocation) -> dict[str, Any]:
    """Return the ``allocation`` object of ``topo --json``; null where no source says it."""
    crossings = allocation.crossings or {}
    return {
        "hosts": list(allocation.hosts),
        "ordered_by": allocation.by if allocation.switch_order is not None else None,
        "name_order": list(allocation.name_order),
        "switch_order": None if allocation.switch_order is None else list(allocation.switch_order),
        "given_order_crossings": crossings.get("given"),
        "ring_crossings_name_order": crossings.get("name"),
        "ring_crossings_switch_order": crossings.get("switch"),
        "by_leaf": _grouped(allocation, allocation.leaves, allocation.leaf_of),
        "by_block": _grouped(allocation, allocation.blocks, allocation.block_of),
        "unknown_hosts": list(allocation.unknown),
        "segments": None if allocation.segments is None else _segments(allocation.segments),
    }


def _segments(segments: Segments) -> dict[str, Any]:
    return {
        "segment": segments.segment,
        "segments_ok": segments.segments_ok,
        "expected": segments.expected,
        "actual": segments.actual,
        "groups_crossing": list(segments.groups_crossing),
    }


def _grouped(
    allocation: Allocation, groups: HostGroups | None, of: Mapping[str, str]
) -> dict[str, list[str]] | None:
    """Return the allocated hosts of each group that has any, in the source's order of groups."""
    if groups is None:
        return None
    found: dict[str, list[str]] = {name: [] for name in groups.members}
    for host in allocation.name_order:
        if host in of:
            found[of[host]].append(host)
    return {name: hosts for name, hosts in found.items() if hosts}


def allocation_text(allocation: Allocation) -> str:
    """Return the allocation for a terminal: hosts by leaf and block, order, segments."""
    parts = [f"Allocation: {plural(len(allocation.hosts), 'host')}"]
    for groups, of in (
        (allocation.leaves, allocation.leaf_of),
        (allocation.blocks, allocation.block_of),
    ):
        grouped = _grouped(allocation, groups, of)
        if groups is not None and grouped:
            parts.append(_group_table(groups.kind.replace("_", " "), grouped))
    parts.append(_orders(allocation))
    if allocation.segments is not None:
        parts.append(_segments_text(allocation.segments))
    return "\n\n".join(part for part in parts if part)


def _group_table(kind: str, grouped: Mapping[str, Sequence[str]]) -> str:
    rows = [
        (name, format_count(len(hosts)), _short(compress_hostlist(hosts)))
        for name, hosts in [*grouped.items()][:_GROUPS_SHOWN]
    ]
    text = table((kind, "hosts", "which"), rows)
    more = len(grouped) - _GROUPS_SHOWN
    return text + (f"\n… and {format_count(more)} more" if more > 0 else "")


def _orders(allocation: Allocation) -> str:
    crossings = allocation.crossings
    if crossings is None or allocation.switch_order is None:
        return paragraph("No source says which leaf or block these hosts are in.")
    by = allocation.by
    plural = {"leaf": "leaves", "block": "blocks"}[by]
    rows = [
        ("by name (Slurm's)", crossings["name"], allocation.name_order),
        (f"{by} by {by}", crossings["switch"], allocation.switch_order),
        ("as given", crossings["given"], allocation.hosts),
    ]
    return table(
        ("order", f"ring edges between {plural}", "hosts"),
        [
            (name, format_count(count), _short(compress_hostlist(order)))
            for name, count, order in rows
        ],
    )


def _segments_text(segments: Segments) -> str:
    answer = "yes" if segments.segments_ok else "no"
    actual = ", ".join(f"{name} {count}" for name, count in segments.actual.items())
    expected = "none possible with these blocks"
    if segments.expected is not None:
        expected = ", ".join(f"{name} {count}" for name, count in segments.expected.items())
    crossing = "none"
    if segments.groups_crossing:
        which = ", ".join(map(str, segments.groups_crossing))
        crossing = f"{len(segments.groups_crossing)}: number {which} (from 0)"
    rows = [
        ("each in one block", answer),
        ("hosts by block", _short(actual)),
        ("expected", _short(expected)),
        ("groups across blocks", _short(crossing)),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name.ljust(width)}  {value}" for name, value in rows]
    return "\n".join([f"Segments of {plural(segments.segment, 'host')}", *lines])


def _short(text: str, limit: int = 48) -> str:
    return text if len(text) <= limit else text[: limit - 2] + " …"
