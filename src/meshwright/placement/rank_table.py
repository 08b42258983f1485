"""Rank tables: rank, host and GPU of every process, as a launcher or a user lists them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

MAX_FILE_BYTES = 1 << 28
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_SPLIT = re.compile(r"[\s,;:]+")
_HEADER = {"rank", "host", "hostname", "node", "gpu", "local_rank", "device"}


class RankTable(msgspec.Struct, frozen=True):
    """``hosts[r]`` and ``gpus[r]`` of rank r."""

    hosts: tuple[str, ...]
    gpus: tuple[int, ...]


def read_rank_table(path: Path) -> RankTable:
    """Read lines of ``rank host gpu`` (blanks, commas or colons between), or ``host gpu`` in order.

    A header line and ``#`` comments are allowed. Raises ``InputError`` with the line.
    """
    name = str(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError(Problem(Place(name), "cannot be read: it is no regular file"))
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(Problem(Place(name), "is too large for a rank table"))
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem(Place(name, 1, 1), f"is no text (byte {error.start})")) from None
    except OSError as error:
        raise InputError(Problem(Place(name), f"cannot be read: {error.strerror}")) from None
    rows: list[tuple[Place, Sequence[int | str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = [word for word in _SPLIT.split(line.split("#")[0].strip()) if word]
        if not words or (not rows and {word.lower() for word in words} <= _HEADER):
            continue
        rows.append((Place(name, number, 1), words))
    if not rows:
        raise InputError(Problem(Place(name, 1, 1), "names no rank"))
    return table_of_rows(rows)


def table_of_rows(rows: Sequence[tuple[Place, Sequence[int | str]]]) -> RankTable:
    """Return the table of rows of ``[rank, host, gpu]`` or ``[host, gpu]``.

    Raises ``InputError`` naming every row that has another form, a rank twice, or a rank missing.
    """
    problems: list[Problem] = []
    by_rank: dict[int, tuple[str, int]] = {}
    for position, (place, row) in enumerate(rows):
        words = [str(word) for word in row]
        if len(words) == 2:
            words.insert(0, str(position))
        if len(words) != 3 or not (_NUMBER.match(words[0]) and _NUMBER.match(words[2])):
            problems.append(
                Problem(place, f"is no rank, host and GPU: {' '.join(words)!r}", remedy="0 host0 0")
            )
            continue
        rank = int(words[0])
        if rank in by_rank:
            problems.append(Problem(place, f"rank {rank} is named twice"))
        by_rank[rank] = (words[1], int(words[2]))
    missing = sorted(set(range(len(by_rank))) - set(by_rank))
    if missing and not problems:
        problems.append(
            Problem(rows[0][0], f"ranks are not 0 … {len(by_rank) - 1}: {missing[0]} is missing")
        )
    if problems:
        raise InputError(*problems)
    ordered = [by_rank[rank] for rank in range(len(by_rank))]
    return RankTable(tuple(host for host, _ in ordered), tuple(gpu for _, gpu in ordered))


def check_table(table: RankTable, world_size: int, place: Place) -> list[Finding]:
    """Return an error where the table does not hold every rank of the job."""
    if len(table.hosts) == world_size:
        return []
    return [
        Finding(
            "placement/ranks-count",
            Severity.ERROR,
            place,
            f"the table places {len(table.hosts)} ranks, and the layout has {world_size}.",
            {"ranks": len(table.hosts), "world_size": world_size},
            "one line for every rank, or degrees that multiply to the table's ranks",
        )
    ]
