"""A timeline as text: a row a rank, a column a slice of time, readable without colour.

A microbatch is a letter, small in its forward and large in its backward, so that ``aB`` is the forward
of microbatch 0 and then the backward of 1. Where operations are shorter than a column, a column shows
what most of its time goes to, large where the rank is never idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.report.text import WIDTH, paragraph
from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import Kind
from meshwright.timeline.columns import column_count, drawn, operation_at, ranks_shown, shares
from meshwright.timeline.record import Timeline
from meshwright.units import format_count, format_seconds, plural, time_unit

_ROWS = 32
"""Ranks shown; of more, the first and the last."""
_LETTERS = 26
_WEIGHT = "+"
_MIXED = "x"
_BUSY_ALL = 0.98
_BUSY_LITTLE = 0.02
_SEEN = 0.75
"""Columns that an operation must fill: with less, too many would fall between the columns."""
_MOST_OF = 0.9
"""Share of a column's work that is of one kind, for the column to show that kind."""
_TICKS = 6


def gantt_text(
    timeline: Timeline, width: int = WIDTH, *, ascii_only: bool = False, rows: int = _ROWS
) -> str:
    """Return the picture with its axis and legend.

    Parameters
    ----------
    width
        Characters of a line, the rank's label included; at least 24 are used.
    ascii_only
        No other characters than ASCII.
    rows
        Ranks shown; of more, the first and the last of them.
    """
    idle, edge, gap = (".", "|", "...") if ascii_only else ("·", "│", "…")
    label = len(f"rank {timeline.ranks - 1}")
    most = max(width, 24) - label - 3
    columns = column_count(timeline, most)
    names = not _is_dense(timeline, columns)
    columns = columns if names else most
    shown = ranks_shown(timeline.ranks, rows)
    cells, legend = (_named if names else _dense)(timeline, columns, shown, idle)
    lines = [
        f"{f'rank {rank}':<{label}} {edge}{row}{edge}"
        for rank, row in zip(shown, cells, strict=True)
    ]
    if len(shown) < timeline.ranks:
        between = f"{plural(timeline.ranks - len(shown), 'rank')} not shown"
        lines.insert(len(shown) // 2, f"{gap:<{label}} {edge} {between}")
    indent = " " * (label + 2)
    lines += [f"{indent}{line}" for line in _axis(timeline, columns)]
    lines.append(paragraph(legend))
    return "\n".join(lines)


def _is_dense(timeline: Timeline, columns: int) -> bool:
    """Tell whether half of the operations or more are too short to be seen one by one."""
    shown = drawn(timeline)
    length_s = shown.end_s - shown.start_s
    length_s = length_s[length_s > 0.0]
    column_s = timeline.makespan_s / columns
    return len(length_s) > 0 and float(np.median(length_s)) < column_s * _SEEN


def _named(
    timeline: Timeline, columns: int, ranks: Sequence[int], idle: str
) -> tuple[list[str], str]:
    """Return rows of letters, and what they mean."""
    number = timeline.number % _LETTERS
    kind = timeline.kind
    code = np.where(kind == Kind.FORWARD, ord("a"), ord("A")) + number
    code[kind == Kind.WEIGHT] = ord(_WEIGHT)
    at = operation_at(timeline, columns, ranks)
    letters = np.where(at == NOTHING, ord(idle), code[at] if len(code) else 0)
    lengths_s = timeline.end_s - timeline.start_s
    lasting = sum(np.count_nonzero(lengths_s[timeline.of_rank(rank)]) for rank in ranks)
    pairs = sum(np.count_nonzero(timeline.overlapped[timeline.of_rank(rank)]) for rank in ranks)
    hidden = int(lasting + pairs - len(np.unique(at[at != NOTHING])))
    legend = _names_legend(timeline, columns, idle, hidden)
    return ["".join(map(chr, row)) for row in letters.tolist()], legend


def _dense(
    timeline: Timeline, columns: int, ranks: Sequence[int], idle: str
) -> tuple[list[str], str]:
    """Return rows of what each column's time goes to, and what they mean."""
    share = shares(timeline, columns, ranks)
    busy = share.sum(axis=2)
    mixed = ord(_MIXED)
    code = np.full(busy.shape, mixed, dtype=np.int64)
    parts = {
        "f": share[..., Kind.FORWARD],
        "b": share[..., Kind.BACKWARD] + share[..., Kind.INPUT],
        "w": share[..., Kind.WEIGHT],
    }
    for letter, part in parts.items():
        code[part >= _MOST_OF * busy] = ord(letter)
    code[busy >= _BUSY_ALL] -= ord("a") - ord("A")
    code[busy <= _BUSY_LITTLE] = ord(idle)
    legend = _dense_legend(timeline, columns, idle)
    return ["".join(map(chr, row)) for row in code.tolist()], legend


def _axis(timeline: Timeline, columns: int) -> Iterator[str]:
    """Return a line of marks and one of times; the right edge is the makespan."""
    unit_s, sign = time_unit(timeline.makespan_s)
    whole = timeline.makespan_s / unit_s
    if whole <= 0.0:
        return
    last = f"{whole:.4g} {sign}"
    marks, times = [" "] * (columns + 1), [" "] * (columns + len(last))
    step = tick_step(whole, min(_TICKS, columns // 9 + 1))
    free = 0
    for tick in range(int(whole / step) + 1):
        at = round(tick * step / whole * columns)
        text = f"{tick * step:.4g}"
        marks[at] = "'"
        if at >= free and at + len(text) < columns + 1 - len(last):
            times[at : at + len(text)] = text
            free = at + len(text) + 1
    begin = columns + 1 - len(last)
    marks[columns] = "'"
    times[begin : begin + len(last)] = last
    yield "".join(marks).rstrip()
    yield "".join(times).rstrip()


def tick_step(whole: float, most: int) -> float:
    """Return the step of at most ``most`` round ticks: 1, 2 or 5 times a power of ten."""
    least = whole / max(most, 1)
    power = 10.0 ** np.floor(np.log10(least))
    return next(float(factor * power) for factor in (1, 2, 5, 10) if factor * power >= least)


def _names_legend(timeline: Timeline, columns: int, idle: str, hidden: int) -> str:
    column_s = timeline.makespan_s / columns
    kinds = set(timeline.kind.tolist())
    back = {Kind.BACKWARD: "backward", Kind.INPUT: "input gradient"}
    capital = " or ".join(text for kind, text in back.items() if kind in kinds)
    text = f"a column is {format_seconds(column_s)}; a: forward of microbatch 0"
    text += f", A: its {capital}" if capital else ""
    text += f", {_WEIGHT}: a weight gradient" if Kind.WEIGHT in kinds else ""
    text += f"; b, c …: microbatches 1, 2 …; {idle}: idle"
    if timeline.microbatches > _LETTERS:
        text += f"; after z (25) the letters begin again at a ({_LETTERS})"
    if timeline.overlapped.any():
        text += "; a forward and a backward that run together share their time"
    if hidden > 0:
        text += f"; {plural(hidden, 'short operation')} fell between the columns"
    return (text if idle != "." else text.replace("…", "...")) + "."


def _dense_legend(timeline: Timeline, columns: int, idle: str) -> str:
    kinds = set(timeline.kind.tolist())
    weight = ", W: weight gradients" if Kind.WEIGHT in kinds else ""
    count = format_count(len(timeline.kind))
    return (
        f"a column is {format_seconds(timeline.makespan_s / columns)} ({count} operations in all); what "
        f"most of it goes to: F: forwards, B: backwards{weight}, X: both; small (f, b, x): idle for a "
        f"part of it; {idle}: idle."
    )
