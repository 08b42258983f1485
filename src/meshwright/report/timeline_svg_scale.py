"""Time along a picture's width, and its axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.report.gantt_text import tick_step
from meshwright.report.svg_parts import number, path, text_at
from meshwright.timeline.program import Floats
from meshwright.units import time_unit

INK, SOFT, FAINT, PAPER = "#1f2328", "#57606a", "#d0d7de", "#ffffff"
"""Colours of text, of lesser text, of lines and of the ground."""
_TICK_WIDTH = 80.0
_DIGIT_WIDTH = 6.3


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a time stands: ``left`` at ``begin_s``, ``width`` for ``makespan_s``."""

    begin_s: float
    makespan_s: float
    left: float
    width: float

    @property
    def right(self) -> float:
        """Where the last time stands."""
        return self.left + self.width

    def x(self, times_s: Floats) -> Floats:
        """Return where times stand."""
        per_s = self.width / self.makespan_s if self.makespan_s > 0.0 else 0.0
        return np.asarray(self.left + (times_s - self.begin_s) * per_s)


def axis(scale: Scale, y: float) -> list[str]:
    """Return a time axis at ``y``: a line, round ticks, the makespan at the end."""
    found = [path(f"M{number(scale.left)} {number(y)}H{number(scale.right)}", stroke=SOFT)]
    unit_s, sign = time_unit(scale.makespan_s)
    whole = scale.makespan_s / unit_s
    if whole <= 0.0:
        return found
    last = f"{whole:.4g} {sign}"
    step = tick_step(whole, max(int(scale.width / _TICK_WIDTH), 1))
    for tick in range(int(whole / step) + 1):
        x = scale.left + scale.width * tick * step / whole
        label = f"{tick * step:.4g}"
        taken = _DIGIT_WIDTH * (
            len(last) + len(label) / 2 + 0.5
        )  # by the last label and half of this
        found += _tick(x, y, label if scale.right - x > taken else "", anchor="middle")
    return found + _tick(scale.right, y, last, anchor="end")


def _tick(x: float, y: float, text: str, anchor: str) -> list[str]:
    label = [text_at(x, y + 18, text, font_size=11, text_anchor=anchor, fill=SOFT)] if text else []
    return [path(f"M{number(x)} {number(y)}v5", stroke=SOFT), *label]
