"""The answer of ``timeline``: where the time of every rank went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.errors import without_controls
from meshwright.findings import Finding, Severity, by_severity
from meshwright.origin import Origin, weakest
from meshwright.report.gantt_text import gantt_text
from meshwright.report.text import WIDTH, counted, findings_text, paragraph, table
from meshwright.schedules.needs import NOTHING
from meshwright.timeline.rank_times import RankTimes, rank_times
from meshwright.timeline.record import Timeline
from meshwright.units import format_count, format_seconds, plural

SCHEMA = "meshwright/timeline/1"
_GROUP = "pp"
"""The axis whose messages a modelled pipeline has."""
_LISTED = 32


@dataclass(frozen=True, slots=True)
class TimelineFile:
    """One trace file and what it says."""

    path: str
    timeline: Timeline
    times: RankTimes

    @staticmethod
    def of(path: str, timeline: Timeline) -> TimelineFile:
        """Return a file's record with its times."""
        return TimelineFile(path, timeline, rank_times(timeline))


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """What is shown: trace files, findings, and how the rows of text are drawn."""

    files: Sequence[TimelineFile]
    findings: Sequence[Finding] = field(default_factory=tuple)
    width: int = WIDTH
    ascii_only: bool = False


def timeline_json(page: TimelinePage) -> dict[str, Any]:
    """Return the document of ``timeline --json``."""
    origin = weakest([one.timeline.origin for one in page.files] or [Origin.PARSED]).value
    return {
        "schema": SCHEMA,
        "files": [_file_json(one) for one in page.files],
        "ranks": [
            {**rank, "file": number}
            for number, one in enumerate(page.files)
            for rank in ranks_json(one.timeline, one.times)
        ],
        "findings": [one.to_json() for one in by_severity(page.findings)],
        "origin": {"files": origin, "ranks": origin},
    }


def _file_json(file: TimelineFile) -> dict[str, Any]:
    timeline, times = file.timeline, file.times
    return {
        "path": file.path,
        "origin": timeline.origin.value,
        "schedule": timeline.schedule,
        "ranks": timeline.ranks,
        "stages": timeline.stages,
        "microbatches": timeline.microbatches,
        "operations": len(timeline.kind),
        "messages": int(np.count_nonzero(timeline.sender != NOTHING)),
        "makespan_s": timeline.makespan_s,
        "bubble_fraction": times.bubble_fraction,
        "span_bubble_fraction": times.span_bubble_fraction,
    }


def ranks_json(timeline: Timeline, times: RankTimes) -> list[dict[str, Any]]:
    """Return an entry a rank: where its time went, and the part of messages in it."""
    has_messages = bool(np.any(timeline.sender != NOTHING))
    columns = (
        times.span_s,
        times.compute_s,
        times.exposed_s,
        times.overlapped_s,
        times.idle_s,
        times.start_s,
        times.end_s,
        np.diff(timeline.first),
    )
    entries = []
    for rank, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        span_s, compute_s, exposed_s, overlapped_s, idle_s, start_s, end_s, operations = row
        group = {"exposed_s": exposed_s, "overlapped_s": overlapped_s}
        entries.append(
            {
                "rank": rank,
                "span_s": span_s,
                "compute_s": compute_s,
                "exposed_s": exposed_s,
                "overlapped_s": overlapped_s,
                "idle_s": idle_s,
                "total_idle_s": exposed_s + idle_s,
                "by_group": {_GROUP: group} if has_messages else {},
                "start_s": start_s,
                "end_s": end_s,
                "operations": operations,
            }
        )
    return entries


def timeline_text(page: TimelinePage) -> str:
    """Return the page of ``timeline``."""
    parts = [counted(page.findings) + "."] if page.findings else []
    loud = findings_text(page.findings, Severity.ERROR, Severity.WARNING)
    parts += [loud] if loud else []
    for one in page.files:
        parts += [_head(one), ranks_table(one.times)]
        if len(one.timeline.kind):
            parts.append(gantt_text(one.timeline, page.width, ascii_only=page.ascii_only))
    quiet = findings_text(page.findings, Severity.NOTE)
    parts += [quiet] if quiet else []
    return "\n\n".join(parts)


def _head(file: TimelineFile) -> str:
    timeline, times = file.timeline, file.times
    return paragraph(
        f"{without_controls(file.path)}: {without_controls(timeline.schedule)}, "
        f"{plural(timeline.ranks, 'rank')}, "
        f"{plural(timeline.microbatches, 'microbatch', 'microbatches')}, "
        f"{plural(len(timeline.kind), 'operation')} ({timeline.origin.value}). Makespan "
        f"{format_seconds(timeline.makespan_s)}, bubble {100 * times.bubble_fraction:.1f} % of it; "
        f"at most {100 * times.span_bubble_fraction:.1f} % of a rank's own span."
    )


def ranks_table(times: RankTimes) -> str:
    """Return a table of where the time of every rank went; of many, the first and the last."""
    count = len(times.span_s)
    half = _LISTED // 2
    shown = range(count) if count <= _LISTED else [*range(half), *range(count - half, count)]
    rows = []
    for rank in shown:
        span_s, idle_s = float(times.span_s[rank]), float(times.idle_s[rank])
        columns = (times.compute_s, times.exposed_s, times.overlapped_s)
        rows.append(
            (
                f"{rank}",
                format_seconds(span_s),
                *(format_seconds(float(column[rank])) for column in columns),
                format_seconds(idle_s),
                f"{100 * idle_s / span_s:.1f} %" if span_s > 0.0 else "-",
            )
        )
    header = ("rank", "span", "compute", "exposed", "overlapped", "idle", "idle share")
    text = table(header, rows)
    meaning = paragraph(
        "span = compute + exposed + idle. Exposed: the rank waits while a message that holds it is on the way; "
        "overlapped: a message to it is on the way while it computes; idle: it waits for what was not on "
        "the way yet, or has nothing left to do."
    )
    hidden = count - len(rows)
    more = (
        f"\n{format_count(hidden)} ranks between are not shown; --json lists all" if hidden else ""
    )
    return f"{text}{more}\n{meaning}"
