"""A figure of some ranks over time, drawn as steps below a timeline's rows."""

from __future__ import annotations

import numpy as np

from meshwright.report.gantt_text import tick_step
from meshwright.report.svg_parts import number, path, text_at
from meshwright.report.timeline_svg_scale import FAINT, INK, SOFT, Scale, axis
from meshwright.timeline.record import Curve
from meshwright.units import format_binary_bytes

CURVE_HEIGHT = 168.0
"""Height of the whole panel."""
_PLOT = 100.0
_LINES = (
    ("#0072b2", "none"),
    ("#d55e00", "7 2"),
    ("#009e73", "4 2"),
    ("#cc79a7", "2 2"),
    ("#1f2328", "8 2 2 2"),
    ("#8a6d00", "1 2"),
)
"""Colour and dashes of each line: Okabe and Ito's, and never colour alone."""


def curve_panel(curve: Curve, scale: Scale, top: float) -> list[str]:
    """Return the panel: a title, a line each for up to six ranks, both axes."""
    ranks = _ranks(curve)
    most = float(curve.value.max(initial=0.0))
    step = _step(most, is_bytes=curve.unit == "bytes")
    whole = float(max(np.ceil(most / step) * step, step))
    bottom = top + 26.0 + _PLOT
    unit = "" if curve.unit == "bytes" else f" ({curve.unit})"
    found = [text_at(16, top + 12, f"{curve.name}{unit}", font_size=12, fill=INK)]
    for tick in range(int(whole / step) + 1):
        y = bottom - _PLOT * tick * step / whole
        text = format_binary_bytes(tick * step) if curve.unit == "bytes" else f"{tick * step:g}"
        line = f"M{number(scale.left)} {number(y)}H{number(scale.right)}"
        found.append(path(line, stroke=FAINT, stroke_width=0.8))
        found.append(
            text_at(scale.left - 8, y + 4, text, font_size=11, text_anchor="end", fill=SOFT)
        )
    x = 40.0 + 6.8 * len(f"{curve.name}{unit}")
    for rank, (colour, dashes) in zip(ranks, _LINES, strict=False):
        look: dict[str, str | float] = {
            "stroke": colour,
            "stroke_width": 1.8,
            "stroke_dasharray": dashes,
            "fill": "none",
        }
        found.append(path(_steps(curve, rank, scale, (bottom, _PLOT / whole)), **look))
        found.append(path(f"M{number(x)} {number(top + 8)}h24", **look))
        found.append(text_at(x + 29, top + 12, f"rank {rank}", font_size=11, fill=INK))
        x += 90.0
    return found + axis(scale, bottom)


def _step(most: float, *, is_bytes: bool) -> float:
    """Return the step of two to four ticks: round in bytes' powers of two, else at least 1."""
    if most <= 0.0:
        return 1.0
    return float(2.0 ** np.ceil(np.log2(most / 4))) if is_bytes else max(tick_step(most, 3), 1.0)


def _ranks(curve: Curve) -> list[int]:
    """Return the ranks drawn: all up to six, else the first, the last and the highest between."""
    count = len(curve.first) - 1
    if count <= len(_LINES):
        return list(range(count))
    peaks = [float(curve.value[curve.of_rank(rank)].max(initial=0.0)) for rank in range(count)]
    middle = [0, count // 4, count // 2, 3 * count // 4, count - 1, int(np.argmax(peaks))]
    return sorted(set(middle))


def _steps(curve: Curve, rank: int, scale: Scale, y: tuple[float, float]) -> str:
    """Return the path of a rank's steps; ``y``: the base line, and pixels of one unit."""
    at = curve.of_rank(rank)
    base, per_unit = y
    # of changes at one time only what they come to is drawn
    x = np.round(scale.x(curve.time_s[at]), 2)
    last = np.append(x[1:] != x[:-1], True)
    value = curve.value[at][last]
    turns = np.diff(value, prepend=0.0) != 0.0
    x, heights = x[last][turns], base - value[turns] * per_unit
    line = f"M{number(scale.left)} {number(base)}"
    line += "".join(
        f"H{number(a)}V{number(b)}" for a, b in zip(x.tolist(), heights.tolist(), strict=True)
    )
    return f"{line}H{number(scale.right)}"
