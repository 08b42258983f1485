"""Membership of groups as JSON, CSV and text."""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from meshwright.chain.outlined import Outline
from meshwright.errors import UsageError, without_controls
from meshwright.findings import Severity, by_severity
from meshwright.groups.grid import Ranks
from meshwright.groups.kinds import GroupKind
from meshwright.groups.lookup import nearest_names
from meshwright.groups.table import coordinates
from meshwright.origin import Origin
from meshwright.placement.place import Placement
from meshwright.report.groups_mesh import mesh_json, mesh_text
from meshwright.report.map_text import degrees_text
from meshwright.report.text import counted, findings_text, if_sensible, paragraph, table
from meshwright.units import format_count

SCHEMA = "meshwright/groups/1"
LISTED_GROUPS = 64
MOST_LISTED = 1 << 22
"""Ranks whose groups of all kinds are listed in one document."""
PART_RANKS = 1 << 18
"""Ranks listed at a time: what stands in memory as text."""


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
        near = nearest_names(outline.kinds, axis)
        raise UsageError(f"no groups along {axis!r}; nearest: {near}; axes of this layout: {known}")
    return kinds


def check_size(outline: Outline, kinds: Sequence[GroupKind]) -> None:
    """Refuse to list the groups of several kinds of very many ranks. Raises ``UsageError``."""
    world = outline.layout.world_size
    if world > MOST_LISTED and len(kinds) > 1:
        raise UsageError(
            f"{world:,} ranks in {len(kinds)} kinds of groups are too much for one document (at most "
            f"{MOST_LISTED:,} ranks): choose with --axis or --rank, or take --format csv"
        )


def listed_groups(
    kinds: Sequence[GroupKind], chosen: Container[tuple[str, int]] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Yield the groups of some kinds, a bounded part at a time; ``chosen``: only (name, index)."""
    for kind in kinds:
        head = {"axis": kind.axis, "name": kind.name}
        for start, members in _parts(kind):
            yield [
                {**head, "index": index, "ranks": ranks}
                for index, ranks in enumerate(members.tolist(), start)
                if chosen is None or (kind.name, index) in chosen
            ]


def _parts(kind: GroupKind) -> Iterator[tuple[int, Ranks]]:
    """Yield (index of the first group, some groups), ``PART_RANKS`` ranks or one group at a time."""
    members = kind.members()
    rows = max(PART_RANKS // max(kind.degree, 1), 1)
    for start in range(0, len(members), rows):
        yield start, members[start : start + rows]


def groups_json(
    outline: Outline,
    kinds: Sequence[GroupKind],
    rank: int | None,
    placement: Placement | None,
    groups: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the document of ``groups --json``; ``groups`` is empty where they are streamed."""
    layout = outline.layout
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "job": outline.job.name,
        "world_size": if_sensible(layout.world_size),
        "framework": layout.framework,
        "framework_version": layout.framework_version,
        "order": "-".join(layout.order),
        "mesh": mesh_json(layout),
        "axes": [_axis_json(kind) for kind in kinds],
        "groups": list(groups),
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


def groups_with(
    outline: Outline,
    kinds: Sequence[GroupKind],
    asked: tuple[int, Placement | None],
    chosen: Container[tuple[str, int]] | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the groups that hold a rank, kind by kind; ``asked``: the rank, and where ranks sit."""
    for kind in kinds:
        rows = _rows_with(outline, kind, *asked)
        yield [one for one in rows if chosen is None or (kind.name, one["index"]) in chosen]


def _rows_with(
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
            "position": position,
            "group_rank": kind.by_group_rank(index).index(rank),
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
    """Yield CSV lines: axis, name, index, ranks separated by blanks.

    In a name a blank stands for what a terminal would obey.
    """
    yield "axis,name,index,ranks\n"
    for kind in kinds:
        names = without_controls(kind.axis), without_controls(kind.name)
        for start, members in _parts(kind):
            rows: Sequence[int] = range(len(members))
            if rank is not None:
                rows = np.flatnonzero((members == rank).any(axis=1)).tolist()
            buffer = io.StringIO()
            writer = csv.writer(buffer, lineterminator="\n")
            writer.writerows(
                (*names, start + row, " ".join(map(str, members[row].tolist()))) for row in rows
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
        parts.append(_listed(document, _total(kinds, document)))
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


def _total(kinds: Sequence[GroupKind], document: dict[str, Any]) -> int:
    """Return how many groups there are, of which a page shows the first."""
    shown = len(document["groups"])
    if "rank" in document or shown < LISTED_GROUPS:
        return shown
    return sum(kind.num_groups for kind in kinds)


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


def first_groups(parts: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the groups that a page shows: as many of the first as it has room for."""
    return list(islice(chain.from_iterable(parts), LISTED_GROUPS))


def _listed(document: dict[str, Any], total: int) -> str:
    groups = document["groups"]
    lines = []
    for group in groups[:LISTED_GROUPS]:
        mine = f" (group rank {group['group_rank']})" if "group_rank" in group else ""
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
    if total > LISTED_GROUPS:
        lines.append(
            f"… {format_count(total - LISTED_GROUPS)} more: --format csv or --json lists all"
        )
    return "\n".join(lines)
