"""What a name in a log stands for: which groups, whose ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshwright.chain.outlined import Outline
from meshwright.errors import UsageError
from meshwright.groups.kinds import GroupKind
from meshwright.groups.lookup import Asked, Match, find_groups, read_name, why_nothing
from meshwright.report.text import paragraph
from meshwright.units import format_count

_LISTED_MATCHES = 24


def looked_up(outline: Outline, text: str) -> tuple[Asked, list[Match]]:
    """Return what a text asks for and what bears the name. Raises ``UsageError`` for nothing."""
    try:
        asked = read_name(text)
    except ValueError as error:
        raise UsageError(f"--name: {error}") from None
    matches = find_groups(outline.layout, outline.kinds, asked)
    if not matches and outline.kinds:
        raise UsageError(why_nothing(outline.layout, outline.kinds, asked))
    return asked, matches


def kinds_of(matches: Sequence[Match]) -> list[GroupKind]:
    """Return the kinds of matches, each once."""
    return list({match.kind.name: match.kind for match in matches}.values())


def lookup_json(asked: Asked, matches: Sequence[Match], rank: int | None) -> dict[str, Any]:
    """Return the ``lookup`` key: what was asked, and every group or kind that it may be."""
    rank = asked.rank if rank is None else rank
    return {
        "asked": asked.text,
        "name": asked.name,
        "number": asked.number,
        "group_rank": asked.group_rank,
        "rank": rank,
        "matches": [_match_json(match, asked, rank) for match in matches],
    }


def _match_json(match: Match, asked: Asked, rank: int | None) -> dict[str, Any]:
    kind = match.kind
    row: dict[str, Any] = {
        "axis": kind.axis,
        "name": match.twin or kind.name,
        "same_ranks_as": kind.name if match.twin else None,
        "degree": kind.degree,
        "num_groups": kind.num_groups,
        "verified": kind.oracle is not None,
        "oracle": kind.oracle,
        "condition": match.condition,
    }
    index = match.index
    if index is None and rank is not None:
        holds = (kind.members() == rank).any(axis=1).nonzero()[0]
        index = int(holds[0]) if len(holds) == 1 else None
    if index is None and kind.num_groups == 1:
        index = 0
    if index is not None:
        ranks = kind.members()[index].tolist()
        row |= {"index": index, "ranks": ranks}
        if asked.group_rank is not None:
            ordered = kind.by_group_rank(index)
            known = asked.group_rank < len(ordered)
            row["rank_of_group_rank"] = ordered[asked.group_rank] if known else None
    return row


def lookup_text(document: dict[str, Any]) -> str:
    """Return a line for each match."""
    lookup = document["lookup"]
    lines = [paragraph(_line(row, lookup)) for row in lookup["matches"][:_LISTED_MATCHES]]
    return "\n".join(lines)


def _line(row: dict[str, Any], lookup: dict[str, Any]) -> str:
    text = f"{row['name']}: axis {row['axis']}, "
    if row["same_ranks_as"]:
        text += f"another communicator with the ranks of {row['same_ranks_as']}, "
    text += f"{format_count(row['num_groups'])} group{'s' if row['num_groups'] > 1 else ''} of {format_count(row['degree'])}"
    if "index" in row:
        text += f"; group {row['index']}"
        if row.get("rank_of_group_rank") is not None:
            text += f", whose group rank {lookup['group_rank']} is rank {row['rank_of_group_rank']}"
        elif lookup["group_rank"] is not None:
            text += f", which has no group rank {lookup['group_rank']}"
    if row["condition"]:
        text += f" (if {row['condition']}, and nothing else made groups before)"
    return text + ("" if row["verified"] else "; not verified")
