"""The table of ``pipeline --compare``: the same work with other microbatches, schedules and splits."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.chain.pipeline_compare import Alternative
from meshwright.report.pipeline_tables import right, share, signed_share
from meshwright.report.text import paragraph
from meshwright.units import format_binary_bytes, format_seconds

_NAME = 34


def compare_text(others: Sequence[Alternative]) -> str:
    """Return the table, what its columns say, and why rows are missing."""
    given = others[0]
    with_bytes = given.peak_bytes is not None
    header = ["schedule", "m", "step", "change", "idle", "kept"]
    header += ["activations"] if with_bytes else []
    with_room = any(one.fits is not None for one in others)
    header += ["fits"] if with_room else []
    ran = [one for one in others if one.makespan_s is not None]
    rows = [_cells(one, given, with_bytes=with_bytes, with_room=with_room) for one in ran]
    lines = [_told(), right(header, rows, left=1)]
    if any(one.copies > 1 for one in ran):
        lines.append("* two pipelines against each other: two copies of the weights")
    if foreign := [one for one in ran if one.framework_runs is False]:
        what = "this schedule" if len(foreign) == 1 else "these schedules"
        lines.append(f"! the job's framework does not run {what}")
    if with_room:
        text = "Fits: all memory of the most loaded rank, as meshwright memory counts it."
        lines.append(paragraph(text))
    refused = [one for one in others if one.makespan_s is None]
    lines += [
        paragraph(f"not {_name(one)}, m {one.microbatches}: {one.refused}", hanging="  ")
        for one in refused
    ]
    return "\n".join(lines)


def _told() -> str:
    return paragraph(
        "The same work in other ways: with half the microbatches each is twice as large, so more of the "
        "step is idle; that larger ones run kernels better is not counted. Kept: most activations on a "
        "rank, as microbatches of the given size."
    )


def _cells(one: Alternative, given: Alternative, *, with_bytes: bool, with_room: bool) -> list[str]:
    makespan_s, before_s = one.makespan_s or 0.0, given.makespan_s or 0.0
    change = "as asked" if one is given else signed_share(makespan_s / before_s - 1)
    marks = f"{'*' if one.copies > 1 else ''}{'!' if one.framework_runs is False else ''}"
    cells = [
        f"{_name(one)}{marks}",
        f"{one.microbatches}",
        format_seconds(makespan_s),
        change,
        share(one.bubble_fraction or 0.0),
        f"{one.peak_microbatches or 0.0:.4g}",
    ]
    if with_bytes:
        cells.append("-" if one.peak_bytes is None else format_binary_bytes(one.peak_bytes))
    if with_room:
        cells.append("-" if one.fits is None else "yes" if one.fits else "no")
    return cells


def _name(one: Alternative) -> str:
    if one.stages is not None:
        return f"{one.schedule}, most even split"
    name = one.schedule if one.chunks < 2 else f"{one.schedule} v{one.chunks}"
    return name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"
