"""The placement section of a job file."""

from __future__ import annotations

from typing import Annotated

import msgspec

from meshwright.documents import AsWritten

RankRow = tuple[int | str, ...]
Text = Annotated[str, AsWritten()]


class PlacementSection(msgspec.Struct, frozen=True, kw_only=True):
    """``placement``: who starts the ranks, and where they sit when that is known."""

    launcher: str | None = None
    command: str | None = None
    env: dict[str, Text] | tuple[dict[str, Text], ...] | None = None
    hosts: str | tuple[str, ...] | None = None
    """Hosts in rank order."""
    ranks: str | tuple[RankRow, ...] | None = None
    """A file, or a list of ``[rank, host, gpu]`` (or ``[host, gpu]`` in rank order)."""
