"""A timeline as a picture: a row a rank, a box an operation, idle time hatched, time below.

Colours are near those of Okabe and Ito's set, which all kinds of colour vision tell apart. Where
operations are too many for boxes, a row shows how much of each slice of time goes to each kind. The picture
has a ground of its own, so it looks the same on a light and on a dark page.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.report.svg_parts import box, number, path, picture, text_at
from meshwright.report.timeline_svg_curve import CURVE_HEIGHT, curve_panel
from meshwright.report.timeline_svg_rows import (
    Rows,
    boxes,
    has_shades,
    kinds_named,
    messages,
    share_areas,
    style,
)
from meshwright.report.timeline_svg_scale import FAINT, INK, PAPER, SOFT, Scale, axis
from meshwright.schedules.needs import NOTHING
from meshwright.timeline.columns import ranks_shown
from meshwright.timeline.rank_times import rank_times
from meshwright.timeline.record import Curve, Timeline
from meshwright.units import format_count, format_seconds, plural

_LEFT, _RIGHT, _TOP = 74.0, 20.0, 76.0
_ROW, _GAP = 26.0, 5.0
_ROWS_HEIGHT = 900.0
_ROWS = 128
"""Ranks shown; of more, the first and the last."""
_BOXES = 8000
"""With more operations, rows show shares of time."""
_MESSAGES = 600
"""With more messages, none is drawn."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a picture shows beside the boxes.

    Parameters
    ----------
    title
        Made from the schedule where left out.
    width
        Of the picture in pixels.
    messages
        A line for every message (left out where there are over 600).
    curve
        A figure over time, below the rows.
    """

    title: str | None = None
    width: float = 960.0
    messages: bool = False
    curve: Curve | None = None


def timeline_svg(timeline: Timeline, look: Look | None = None) -> str:
    """Return the picture as the text of an SVG file; the same timeline gives the same text."""
    look = look or Look()
    scale = Scale(
        timeline.begin_s, timeline.makespan_s, _LEFT, max(look.width, 300.0) - _LEFT - _RIGHT
    )
    rows = _rows(timeline)
    width = scale.right + _RIGHT
    height = rows.bottom + 32.0 + (CURVE_HEIGHT if look.curve is not None else 0.0)
    count = int(np.count_nonzero(timeline.sender != NOTHING))
    draws = look.messages and 0 < count <= _MESSAGES
    title, about = look.title or _title(timeline), _about(timeline)
    if look.messages and count > _MESSAGES:
        about += f"; {format_count(count)} messages are not drawn"
    body = [
        style(),
        box(0.5, 0.5, width - 1, height - 1, rx=6, fill=PAPER, stroke=FAINT),
        text_at(16, 26, title, font_size=15, font_weight="600", fill=INK),
        text_at(16, 44, about, font_size=11.5, fill=SOFT),
        *_legend(timeline, has_messages=draws),
        *_labels(timeline, rows, scale),
    ]
    if draws:
        # below the boxes: a message may pass other ranks' rows
        body += messages(timeline, scale, rows)
    if len(timeline.kind) <= _BOXES:
        body += boxes(timeline, scale, rows)
    else:
        body += share_areas(timeline, scale, rows)
    body += axis(scale, rows.bottom + 1.0)
    if look.curve is not None:
        body += curve_panel(look.curve, scale, rows.bottom + 36.0)
    return picture(width, height, f"{title}. {about}", body)


def _rows(timeline: Timeline) -> Rows:
    ranks = ranks_shown(timeline.ranks, _ROWS)
    step = min(_ROW + _GAP, _ROWS_HEIGHT / max(len(ranks), 1))
    return Rows(ranks, _TOP, step, step * _ROW / (_ROW + _GAP))


def _title(timeline: Timeline) -> str:
    microbatches = plural(timeline.microbatches, "microbatch", "microbatches")
    return f"{timeline.schedule}: {plural(timeline.ranks, 'rank')}, {microbatches}"


def _about(timeline: Timeline) -> str:
    idle = 100 * rank_times(timeline).bubble_fraction
    return (
        f"{timeline.origin.value} makespan {format_seconds(timeline.makespan_s)}; the ranks compute "
        f"for {100 - idle:.1f} % of it, {idle:.1f} % is the bubble"
    )


def _legend(timeline: Timeline, *, has_messages: bool) -> list[str]:
    found: list[str] = []
    x, y = 16.0, 54.0
    for fill, name in [*kinds_named(timeline), ("url(#mw-idle)", "idle")]:
        found.append(box(x, y, 12, 12, fill=fill, stroke=FAINT, stroke_width=0.6))
        found.append(text_at(x + 17, y + 10, name, font_size=11.5, fill=INK))
        x += 36 + 6.3 * len(name)
    if has_messages:
        found.append(f'<path class="mw-msg" d="M{number(x)} {number(y + 1)}l10 10"/>')
        found.append(text_at(x + 17, y + 10, "message", font_size=11.5, fill=INK))
        x += 80.0
    if len(timeline.kind) > _BOXES:
        what = "height of a colour: its share of the time there"
        found.append(text_at(x, y + 10, what, font_size=11.5, fill=SOFT))
    elif has_shades(timeline):
        what = "the other direction" if timeline.chains > 1 else "later stages of a rank"
        found.append(text_at(x, y + 10, f"paler: {what}", font_size=11.5, fill=SOFT))
    return found


def _labels(timeline: Timeline, rows: Rows, scale: Scale) -> list[str]:
    """Return the ground of every row and its label, as many labels as fit."""
    found = []
    every = max(1, int(np.ceil(11.0 / rows.step)))
    for at, rank in enumerate(rows.ranks):
        y = rows.top_of[rank]
        found.append(box(scale.left, y, scale.width, rows.height, fill="url(#mw-idle)"))
        if at % every == 0:
            look: dict[str, str | float] = {"font_size": min(12.0, rows.step * every), "fill": INK}
            base = y + rows.height / 2 + 4
            found.append(text_at(_LEFT - 8, base, f"rank {rank}", text_anchor="end", **look))
    hidden = timeline.ranks - len(rows.ranks)
    if hidden:
        y = rows.top_of[rows.ranks[len(rows.ranks) // 2]] - (rows.step - rows.height) / 2
        line = f"M4 {number(y)}H{number(scale.right)}"
        found.append(path(line, stroke=INK, stroke_dasharray="4 2"))
        what = f"{format_count(hidden)} ranks between are not shown"
        found.append(
            text_at(scale.right, _TOP - 10, what, font_size=11, text_anchor="end", fill=SOFT)
        )
    return found
