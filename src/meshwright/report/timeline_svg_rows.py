"""Rows of a timeline's picture: boxes of operations, shares of time, messages between rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from meshwright.report.svg_parts import attributes, box, number, path
from meshwright.report.timeline_svg_scale import PAPER, SOFT, Scale
from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import LETTERS
from meshwright.timeline.columns import shares
from meshwright.timeline.program import Floats
from meshwright.timeline.record import Timeline

FILLS = ("#8cc8f0", "#e69f00", "#f0e442", "#3fb592")
"""Forward, backward, input gradient, weight gradient: told apart by all kinds of colour vision."""
_PALE = 0.55
"""How much of the way to white the boxes of a rank's last stage go."""
_DIGIT = 0.64
"""Width of a digit, of the size of type."""
_LEAST_TYPE, _TYPE = 8.0, 11.0
_POINTS = 150_000
"""Corners of all shares together, were every column unlike the one before."""
_FINE = 1.5
"""Parts of a pixel that heights of shares are rounded to."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the ranks shown stand: the top of each row, ``height`` high."""

    ranks: list[int]
    top: float
    step: float
    height: float
    top_of: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.top_of.update((rank, self.top + self.step * at) for at, rank in enumerate(self.ranks))

    @property
    def bottom(self) -> float:
        """Below the last row."""
        return self.top + self.step * len(self.ranks)


def has_shades(timeline: Timeline) -> bool:
    """Tell whether a rank holds several stages, which are drawn paler one after the other."""
    return timeline.stages * timeline.chains > timeline.ranks


def boxes(timeline: Timeline, scale: Scale, rows: Rows) -> Iterator[str]:
    """Return a box an operation with the number of its microbatch; a pair has half of the height each."""
    shown_s = timeline.end_s.copy()
    pair = np.flatnonzero(timeline.overlapped)
    shown_s[pair] = timeline.end_s[pair + 1]
    begin, end = scale.x(timeline.start_s), scale.x(shown_s)
    part = timeline.overlapped.astype(np.int64)
    part[pair + 1] = 2
    fills = _fills(timeline)
    for rank in rows.ranks:
        at = timeline.of_rank(rank)
        for x, right, half, fill, label in zip(
            begin[at].tolist(),
            end[at].tolist(),
            part[at].tolist(),
            fills[at],
            map(str, timeline.microbatch[at].tolist()),
            strict=True,
        ):
            height = rows.height / 2 if half else rows.height
            y = rows.top_of[rank] + (height if half == 2 else 0.0)
            yield box(x, y, right - x, height, class_="mw-op", fill=fill)
            size = min(_TYPE, height - 1, (right - x - 1) / (_DIGIT * len(label)))
            if size >= _LEAST_TYPE:
                where = attributes(
                    x=(x + right) / 2, y=y + height / 2 + size * 0.36, font_size=size
                )
                yield f'<text class="mw-no"{where}>{label}</text>'


def _fills(timeline: Timeline) -> list[str]:
    """Return the colour of every operation; later stages of a rank are paler."""
    chunk = timeline.stage // timeline.ranks
    last = max(int(chunk.max(initial=0)), 1)
    table = [[_paler(fill, _PALE * level / last) for level in range(last + 1)] for fill in FILLS]
    return [
        table[kind][level]
        for kind, level in zip(timeline.kind.tolist(), chunk.tolist(), strict=True)
    ]


def _paler(colour: str, share: float) -> str:
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def share_areas(timeline: Timeline, scale: Scale, rows: Rows) -> Iterator[str]:
    """Return for each row and kind an area: its height is the kind's share of the time."""
    kinds = sorted(set(timeline.kind.tolist()))
    corners = 4 * max(len(rows.ranks) * len(kinds), 1)
    columns = max(min(int(scale.width / 3), _POINTS // corners), 20)
    share = shares(timeline, columns, rows.ranks)
    edges = np.linspace(scale.left, scale.right, columns + 1)
    for row, rank in enumerate(rows.ranks):
        below = np.zeros(columns)
        base = rows.top_of[rank] + rows.height
        for kind in kinds:
            above = below + share[row, :, kind]
            upper = _steps(edges, base - rows.height * np.minimum(above, 1.0))
            lower = _steps(edges, base - rows.height * np.minimum(below, 1.0))[::-1]
            points = "L".join(f"{number(x)} {number(y)}" for x, y in [*upper, *lower])
            yield path(f"M{points}Z", fill=FILLS[kind])
            below = above


def _steps(edges: Floats, heights: Floats) -> list[tuple[float, float]]:
    """Return the corners of a line of steps; those between equal steps are left out."""
    heights = _calm(np.round(heights * _FINE) / _FINE)
    turns = np.flatnonzero(np.diff(heights) != 0.0) + 1
    begins = np.concatenate([[0], turns])
    ends = np.concatenate([turns, [len(heights)]])
    return [
        (float(edges[at]), float(heights[begin]))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        for at in (begin, end)
    ]


def _calm(heights: Floats) -> Floats:
    """Return heights without steps of one part, which are rounding: the height before stays."""
    found = heights.copy()
    for at in range(1, len(found)):
        if 0.0 < abs(found[at] - found[at - 1]) < 1.5 / _FINE:
            found[at] = found[at - 1]
    return found


def messages(timeline: Timeline, scale: Scale, rows: Rows) -> Iterator[str]:
    """Return a line from where a message sets out to its arrival at the other row."""
    rank = timeline.rank
    for index in np.flatnonzero(timeline.sender != NOTHING).tolist():
        sender = int(timeline.sender[index])
        source, target = int(rank[sender]), int(rank[index])
        if source not in rows.top_of or target not in rows.top_of:
            continue
        down = target > source
        x = scale.x(np.array([timeline.sent_s[index], timeline.arrival_s[index]]))
        begin = rows.top_of[source] + (rows.height if down else 0.0)
        end = rows.top_of[target] + (0.0 if down else rows.height)
        yield (
            f'<path class="mw-msg" d="M{number(x[0])} {number(begin)}L{number(x[1])} {number(end)}"/>'
        )


def style() -> str:
    """Return the rules that boxes, numbers and messages share, and the hatching of idle time."""
    return (
        "<defs><style>"
        f".mw-op{{stroke:{PAPER};stroke-width:.8}}"
        ".mw-no{text-anchor:middle;fill:#1f2328}"
        f".mw-msg{{stroke:{SOFT};stroke-width:.8;fill:none}}"
        "</style>"
        '<pattern id="mw-idle" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6" fill="#f6f8fa"/>'
        '<path d="M0 0V6" stroke="#c6ccd3" stroke-width="1.2"/></pattern></defs>'
    )


def kinds_named(timeline: Timeline) -> list[tuple[str, str]]:
    """Return colour and name of each kind that the timeline has, in the order of the kinds."""
    names = ("forward", "backward", "input gradient", "weight gradient")
    present = set(timeline.kind.tolist())
    return [(FILLS[kind], names[kind]) for kind in range(len(LETTERS)) if kind in present]
