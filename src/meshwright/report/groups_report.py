"""Membership of groups as JSON, CSV and text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from meshwright.chain.outline import Outline
from meshwright.errors import UsageError
from meshwright.findings import Severity, by_severity
from meshwright.groups.kinds import GroupKind
from meshwright.groups.table import coordinates
from meshwright.origin import Origin
from meshwright.placement.place import Placement
from meshwright.report.groups_mesh import mesh_json, mesh_text
from meshwright.report.map_text import degrees_text
from meshwright.report.text import counted, findings_text, paragraph, table
from meshwright.units import format_count

SCHEMA = "meshwright/groups/1"
LISTED_GROUPS = 64


def chosen_kinds(outline: Outline, axis: str | None) -> list[GroupKind]:
    """Return the kinds of an axis, or of the framework's own name; all without one.

    Raises ``UsageError`` when the layout has no such groups.
    """
    if axis is None:
        return outline.kinds
    wanted = axis.lower()
    kinds = [kind for kind in outline.kinds if wanted in (kind.axis.lower(), kind.name.lower())]
    if not kinds and outline.kinds:
        known = ", ".join(dict.fromkeys(kind.axis for kind in outline.kinds))
        raise UsageError(f"no groups along {axis!r}; this layout has: {known}")
    return kinds


def groups_json(
    outline: Outline, kinds: Sequence[GroupKind], rank: int | None, placement: Placement | None
) -> dict[str, Any]:
    """Return the document of ``groups --json``; with ``rank`` only the groups that hold it."""
    layout = outline.layout
    groups: list[dict[str, Any]] = []
    for kind in kinds:
        if rank is None:
            head = {"axis": kind.axis, "name": kind.name}
            groups += [
                {**head, "index": index, "ranks": ranks}
                for index, ranks in enumerate(kind.members().tolist())
            ]
        else:
            groups += _groups_with(outline, kind, rank, placement)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "job": outline.job.name,
        "world_size": layout.world_size,
        "framework": layout.framework,
        "framework_version": layout.framework_version,
        "order": "-".join(layout.order),
        "mesh": mesh_json(layout),
        "axes": [_axis_json(kind) for kind in kinds],
        "groups": groups,
    }
    if rank is not None and outline.kinds:
        document["rank"] = {
            "rank": rank,
            "coordinates": coordinates(layout, rank),
            "slot": _slot(outline, placement, rank),
        }
    document["findings"] = [finding.to_json() for finding in by_severity(outline.findings)]
    document["origin"] = {"groups": Origin.MODELLED.value, "rank": Origin.MODELLED.value}
    return document


def _axis_json(kind: GroupKind) -> dict[str, Any]:
    return {
        "axis": kind.axis,
        "name": kind.name,
        "degree": kind.degree,
        "num_groups": kind.num_groups,
        "also_called": list(kind.also),
        "twins": list(kind.twins),
        "verified": kind.oracle is not None,
        "oracle": kind.oracle,
    }


def _groups_with(
    outline: Outline, kind: GroupKind, rank: int, placement: Placement | None
) -> Iterator[dict[str, Any]]:
    members = kind.members()
    for index, position in np.argwhere(members == rank).tolist():
        ranks = members[index].tolist()
        row: dict[str, Any] = {
            "axis": kind.axis,
            "name": kind.name,
            "index": index,
            "ranks": ranks,
            "group_rank": position,
        }
        if placement is not None:
            row["hosts"] = _hosts(outline, placement, ranks)
        yield row


def _hosts(outline: Outline, placement: Placement, ranks: list[int]) -> list[str] | None:
    fabric = outline.fabric
    if fabric is None:
        return None
    slots = placement.slot_by_rank[ranks]
    return list(dict.fromkeys(fabric.host_names[int(host)] for host in fabric.host_of_slot[slots]))


def _slot(outline: Outline, placement: Placement | None, rank: int) -> list[object] | None:
    if placement is None or outline.fabric is None:
        return None
    return list(outline.fabric.slot_name(int(placement.slot_by_rank[rank])))


def groups_csv(kinds: Sequence[GroupKind], rank: int | None) -> Iterator[str]:
    """Yield CSV lines: axis, name, index, ranks separated by blanks."""
    yield "axis,name,index,ranks\n"
    for kind in kinds:
        members = kind.members()
        rows = (
            range(kind.num_groups) if rank is None else np.argwhere(members == rank)[:, 0].tolist()
        )
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows(
            (kind.axis, kind.name, row, " ".join(map(str, members[row].tolist()))) for row in rows
        )
        yield buffer.getvalue()


def groups_text(
    outline: Outline, kinds: Sequence[GroupKind], document: dict[str, Any], *, list_all: bool
) -> str:
    """Return the page: one row a kind, or the groups themselves when one axis or rank is asked."""
    layout = outline.layout
    title = (
        f"{outline.job.name}: {format_count(layout.world_size)} ranks, {degrees_text(layout)}, "
        + (f"order {'-'.join(layout.order)}, " if layout.jax_mesh is None else "")
        + layout.framework_version
    )
    parts = [paragraph(title), f"{counted(outline.findings)}."]
    loud = findings_text(outline.findings, Severity.ERROR, Severity.WARNING)
    parts += [loud] if loud else []
    if described := mesh_text(layout):
        parts.append(paragraph(described))
    if "rank" in document:
        parts.append(_rank_text(document))
    if kinds and list_all:
        parts.append(_listed(document))
    elif kinds:
        rows = [
            (kind.axis, format_count(kind.num_groups), format_count(kind.degree), kind.name)
            for kind in kinds
        ]
        parts.append(table(("axis", "groups", "ranks", "name"), rows))
        parts.append("List one axis: --axis NAME; all as a table: --format csv")
    if kinds:
        parts.append(paragraph(_verified_text(kinds)))
    quiet = findings_text(outline.findings, Severity.NOTE)
    parts += [quiet] if quiet else []
    return "\n\n".join(parts)


def _verified_text(kinds: Sequence[GroupKind]) -> str:
    """Return what the lists were compared with, and which were not."""
    oracles = list(dict.fromkeys(kind.oracle for kind in kinds if kind.oracle is not None))
    open_kinds = [kind.name for kind in kinds if kind.oracle is None]
    parts = [f"Lists compared with: {'; '.join(oracles)}."] if oracles else []
    if open_kinds:
        parts.append(
            f"Not verified (from reading the code, compared with nothing): {', '.join(open_kinds)}."
        )
    return " ".join(parts)


def _rank_text(document: dict[str, Any]) -> str:
    rank = document["rank"]
    where = f" on {rank['slot'][0]} GPU {rank['slot'][1]}" if rank["slot"] else ""
    placed = ", ".join(f"{axis} {value}" for axis, value in rank["coordinates"].items())
    return f"rank {rank['rank']}{where}: {placed}"


def _listed(document: dict[str, Any]) -> str:
    groups = document["groups"]
    lines = []
    for group in groups[:LISTED_GROUPS]:
        mine = f" (position {group['group_rank']})" if "group_rank" in group else ""
        hosts = (
            f" on {' '.join(group['hosts'][:8])}{' …' if len(group['hosts']) > 8 else ''}"
            if group.get("hosts")
            else ""
        )
        ranks = group["ranks"]
        shown = " ".join(map(str, ranks[:16])) + (
            f" … {ranks[-1]} ({len(ranks)})" if len(ranks) > 16 else ""
        )
        lines.append(paragraph(f"{group['axis']} {group['index']}{mine}{hosts}: {shown}"))
    if len(groups) > LISTED_GROUPS:
        lines.append(
            f"… {format_count(len(groups) - LISTED_GROUPS)} more: --format csv or --json lists all"
        )
    return "\n".join(lines)
