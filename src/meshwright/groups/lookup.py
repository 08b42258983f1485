"""From what a log calls a process group to the groups of a layout.

Accepted: a framework's name (``TENSOR_MODEL_PARALLEL_GROUP``), an axis, a description as torch's
flight recorder and watchdog print it (``mesh_tp``, ``default_pg``, ``undefined``), a number, a
flight recorder's pair (``["41", "mesh_tp"]``) and a watchdog's line with ``PG GUID 41(name) Rank 5``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import numpy as np

from meshwright.groups.creation import Numbered, groups_numbered, has_numbers
from meshwright.groups.kinds import WORLD_GROUP, GroupKind, listed_kind
from meshwright.job.layout import Layout

MOST_SUGGESTED = 4
_MOST_COMPARED = 64
MOST_CHARACTERS = 4096
"""A longer text is no name and no line of a log."""
_WATCHDOG = re.compile(r"PG GUID ([^\s(]{1,128})\(([^()]{0,256})\)(?: Rank (\d{1,9}))?")
_PAIR = re.compile(
    r"^[\[(]\s*[\"']?([^\"',\s]{1,128})[\"']?\s*,\s*[\"']([^\"']{0,256})[\"']\s*[\])]$"
)
_RANK = re.compile(r"\[rank(\d{1,9})\]")
UNDEFINED = "undefined"
"""What torch prints for a group without a description."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a text says: a name or description, a number, a rank in the group, a global rank."""

    text: str
    name: str | None = None
    number: int | None = None
    group_rank: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A kind that bears the name; ``index`` where one group of it is meant."""

    kind: GroupKind
    index: int | None = None
    twin: str | None = None
    condition: str | None = None


def read_name(text: str) -> Asked:
    """Return what a name or a line of a log says. Raises ``ValueError`` where it says nothing."""
    text = text.strip()
    if not text or len(text) > MOST_CHARACTERS:
        raise ValueError(f"a name of 1 to {MOST_CHARACTERS} characters is looked up")
    if line := _WATCHDOG.search(text):
        number, name, group_rank = line.groups()
        rank = _RANK.search(text)
        return Asked(
            text,
            name or None,
            _number(number),
            _number(group_rank),
            _number(rank.group(1)) if rank else None,
        )
    if pair := _PAIR.match(text):
        return Asked(text, pair.group(2) or None, _number(pair.group(1)))
    number_only = _number(text)
    return Asked(text, None if number_only is not None else text, number_only)


def _number(text: str | None) -> int | None:
    return (
        int(text)
        if text is not None and text.isascii() and text.isdigit() and len(text) < 10
        else None
    )


def find_groups(layout: Layout, kinds: Sequence[GroupKind], asked: Asked) -> list[Match]:
    """Return what bears the name; by its number where there is no name that says more."""
    if asked.name is not None and asked.name.lower() != UNDEFINED:
        return _by_name(layout, kinds, asked.name)
    if asked.number == 0:
        return _world(layout, kinds)
    if asked.number is not None:
        return [_match(one) for one in groups_numbered(layout, kinds, asked.number)]
    return [Match(kind) for kind in kinds if not _is_described(layout)]


def _match(one: Numbered) -> Match:
    return Match(one.kind, one.index, one.twin, one.condition)


def why_nothing(layout: Layout, kinds: Sequence[GroupKind], asked: Asked) -> str:
    """Return why nothing was found, for people."""
    if asked.name is not None and asked.name.lower() != UNDEFINED:
        return (
            f"no group is called {asked.name!r} in this layout; nearest: {nearest_names(kinds, asked.name)}; "
            "groups without --name lists all"
        )
    if asked.number is not None and not has_numbers(layout):
        return (
            f"group {asked.number}: in {layout.framework} the order in which groups are made is not known "
            "here, so a number says nothing; give the description beside it, or the ranks"
        )
    if asked.number is not None:
        return f"no group has the number {asked.number} in this layout"
    return f"{layout.framework} gives every group a description; {UNDEFINED!r} is a group that something else made"


def nearest_names(kinds: Sequence[GroupKind], wanted: str) -> str:
    """Return the few kinds whose name, axis or initials are most like a word, for people."""
    word = wanted[:_MOST_COMPARED].lower()

    def likeness(kind: GroupKind) -> float:
        words = kind.name.lower().removesuffix("_group").split("_")
        initials = "".join(one[0] for one in words if one)
        names = (kind.name.lower(), kind.axis.lower(), *words, initials, *map(str.lower, kind.also))
        # the whole name breaks ties between kinds that share a word
        whole = SequenceMatcher(None, word, kind.name.lower()).ratio()
        return max(SequenceMatcher(None, word, name).ratio() for name in names) + whole / 100

    best = sorted(kinds, key=likeness, reverse=True)[:MOST_SUGGESTED]
    return ", ".join(f"{kind.name} ({kind.axis})" for kind in best)


def _is_described(layout: Layout) -> bool:
    return layout.framework in ("megatron", "torchtitan") or (
        layout.framework == "torch" and layout.fsdp1 is None
    )


def _by_name(layout: Layout, kinds: Sequence[GroupKind], name: str) -> list[Match]:
    wanted = name.lower()
    if wanted in (WORLD_GROUP, "world", "world_pg"):
        return _world(layout, kinds)
    exact = [kind for kind in kinds if kind.name.lower() == wanted]
    if exact:
        return [Match(kind) for kind in exact]
    found = []
    for kind in kinds:
        twin = next((other for other in kind.twins if other.lower() == wanted), None)
        names = (kind.axis.lower(), _code_name(layout, kind), *map(str.lower, kind.also))
        if twin is not None or wanted in names:
            found.append(Match(kind, twin=twin))
    return found


def _world(layout: Layout, kinds: Sequence[GroupKind]) -> list[Match]:
    """Return the group of the world, and the kinds that have no other."""
    shared = [kind for kind in kinds if WORLD_GROUP in kind.also]
    return [Match(kind) for kind in (world_kind(layout), *shared)]


def _code_name(layout: Layout, kind: GroupKind) -> str | None:
    """Return what the framework's code calls the handle, in small letters."""
    if layout.framework == "nanotron":
        return f"{kind.name}_pg"
    if layout.framework == "deepspeed":
        return f"_{kind.name}_group"
    return None


def world_kind(layout: Layout) -> GroupKind:
    """Return the group of all ranks, which torch makes first."""
    world = layout.world_size
    kind = listed_kind(
        WORLD_GROUP, "world", lambda: np.arange(world, dtype=np.int32).reshape(1, -1), (1, world)
    )
    return replace(kind, oracle="torch 2.13.0 init_process_group")
