"""Which schedule is asked for: our name, sizes, and what follows where nothing was said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

from meshwright.documents.nearest import nearest
from meshwright.documents.source import shown
from meshwright.errors import UsageError
from meshwright.schedules.greedy.zero_bubble_plan import Costs
from meshwright.schedules.names import NAMES, SCHEDULES, TWO_CHUNKS, schedule_name

CONVENTIONS: Final = ("megatron", "torch")
"""Whose order and whose rules, where they differ."""


class Options(TypedDict, total=False):
    """What may be said beside schedule, pp and microbatches.

    ``chunks``: stages a rank (of one direction); ``group``: microbatches that pass one chunk before
    the next begins; ``convention``: one of ``CONVENTIONS``; ``costs``: what a greedy order is made
    for, F = I = W where left out.
    """

    chunks: int | None
    group: int | None
    convention: str
    costs: Costs | None


@dataclass(frozen=True, slots=True)
class Asked:
    """One schedule with its sizes. ``group`` is 0 where the schedule knows none."""

    schedule: str
    pp: int
    microbatches: int
    chunks: int
    group: int
    convention: str
    group_given: bool
    costs: Costs | None

    @property
    def operations(self) -> int:
        """Operations of all ranks at most, each backward counted twice."""
        return 3 * self.pp * self.microbatches * self.chunks


def asked(schedule: str, pp: int, microbatches: int, options: Options) -> Asked:
    """Return what is asked for.

    Raises
    ------
    UsageError
        No schedule has the name, no framework the convention, or a number is below 1.
    """
    chunks, group = options.get("chunks"), options.get("group")
    convention = options.get("convention", "megatron")
    # torch's Schedule1F1B takes one stage a rank; Megatron interleaves where there are more
    several = 1 if convention == "torch" and schedule.strip() else chunks or 1
    name = schedule_name(schedule, several)
    if name is None:
        near = nearest(schedule, NAMES)
        raise UsageError(
            f"{shown(schedule)} is no schedule known here"
            f"{f'; did you mean {near}?' if near else ''} (known: {', '.join(SCHEDULES)})"
        )
    if convention not in CONVENTIONS:
        raise UsageError(f"convention {shown(convention)}: write {' or '.join(CONVENTIONS)}")
    numbers = {"pp": pp, "microbatches": microbatches, "chunks": chunks, "group": group}
    for what, number in numbers.items():
        if number is not None and number < 1:
            raise UsageError(f"{what} {number}: at least 1")
    usual = 2 if name in TWO_CHUNKS else 1
    return Asked(
        schedule=name,
        pp=pp,
        microbatches=microbatches,
        chunks=usual if chunks is None else chunks,
        group=_group(name, convention, pp, microbatches) if group is None else group,
        convention=convention,
        group_given=group is not None,
        costs=options.get("costs"),
    )


def torch_rounds(pp: int, microbatches: int) -> int:
    """Return the rounds that torch makes of the microbatches of an interleaved schedule."""
    return max(1, microbatches // pp)


def torch_group(pp: int, microbatches: int) -> int:
    """Return the microbatches of a round; a rest is refused."""
    return microbatches // torch_rounds(pp, microbatches)


def _group(name: str, convention: str, pp: int, microbatches: int) -> int:
    if name == "interleaved-zb" or (name == "interleaved" and convention == "torch"):
        return torch_group(pp, microbatches)
    return pp if name == "interleaved" else 0
