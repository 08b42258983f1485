"""The document and the page of ``timeline``."""

from __future__ import annotations

import msgspec
import pytest

from meshwright.findings import Finding, Place, Severity
from meshwright.report.timeline_report import (
    TimelineFile,
    TimelinePage,
    timeline_json,
    timeline_text,
)
from meshwright.schedules.loops import one_forward_one_backward
from meshwright.timeline.program import StageTimes, program_of
from meshwright.timeline.record import timeline_of
from meshwright.timeline.simulate import simulate
from timeline.trace_samples import timeline_named, uneven


def page_of(*timelines, **more):
    files = [
        TimelineFile.of(f"trace{number}.json", timeline)
        for number, timeline in enumerate(timelines)
    ]
    return TimelinePage(files, **more)


def test_the_document():
    document = timeline_json(page_of(timeline_named("1f1b"), uneven()))
    msgspec.json.encode(document)
    assert document["schema"] == "meshwright/timeline/1"
    assert document["findings"] == []
    assert document["origin"] == {"files": "modelled", "ranks": "modelled"}
    first, second = document["files"]
    assert (first["path"], first["makespan_s"], first["microbatches"]) == ("trace0.json", 45.0, 12)
    assert first["bubble_fraction"] == pytest.approx(0.2)
    assert (first["messages"], first["operations"]) == (72, 96)
    assert second["makespan_s"] == pytest.approx(63.6)
    assert [(one["file"], one["rank"]) for one in document["ranks"]] == [
        (file, rank) for file in (0, 1) for rank in range(4)
    ]
    last = document["ranks"][-1]
    assert last["compute_s"] == pytest.approx(54.0)
    assert last["exposed_s"] == pytest.approx(0.1)
    assert last["by_group"] == {
        "pp": {"exposed_s": last["exposed_s"], "overlapped_s": last["overlapped_s"]}
    }
    for one in document["ranks"]:
        assert one["span_s"] == pytest.approx(one["compute_s"] + one["exposed_s"] + one["idle_s"])
        assert one["total_idle_s"] == pytest.approx(one["span_s"] - one["compute_s"])


def test_a_pipeline_of_one_rank_has_no_group():
    program = program_of(one_forward_one_backward(1, 3), StageTimes.equal(1))
    document = timeline_json(page_of(timeline_of(program, simulate(program))))
    assert document["ranks"][0]["by_group"] == {}
    assert document["ranks"][0]["idle_s"] == 0.0


def test_the_page():
    text = timeline_text(page_of(uneven()))
    assert "trace0.json: 1f1b, 4 ranks, 12 microbatches, 96 operations (modelled)." in text
    assert "Makespan 63.6 s, bubble 36.3 % of it" in " ".join(text.split())
    assert "3     63.6 s  54.0 s   0.100 s  1.10 s      9.50 s  14.9 %" in text
    assert "rank 3 │" in text
    assert max(map(len, text.splitlines())) <= 80


def test_every_number_of_the_page_is_in_the_document():
    page = page_of(timeline_named("zb-h2", send_s=0.25, seed=4))
    document, text = timeline_json(page), timeline_text(page)
    rows = [line.split() for line in text.splitlines() if line[:1].isdigit()]
    assert len(rows) == 4
    for entry, row in zip(document["ranks"], rows, strict=True):
        shown = [float(cell) for cell in row if cell.replace(".", "").isdigit()][1:-1]
        names = ("span_s", "compute_s", "exposed_s", "overlapped_s", "idle_s")
        assert shown == pytest.approx([entry[name] for name in names], rel=5e-3)


def test_many_ranks_are_summed_up():
    program = program_of(one_forward_one_backward(50, 2), StageTimes.equal(50))
    text = timeline_text(page_of(timeline_of(program, simulate(program))))
    assert "18 ranks between are not shown; --json lists all" in text


def test_findings_and_ascii():
    finding = Finding("timeline/test", Severity.NOTE, Place(subject="x"), "a note", {}, None)
    page = page_of(uneven(), findings=[finding], ascii_only=True, width=60)
    text = timeline_text(page)
    assert text.startswith("1 note.")
    assert "rank 0 |" in text
    assert timeline_json(page)["findings"][0]["rule"] == "timeline/test"


def test_names_from_a_file_cannot_steer_the_terminal():
    timeline = uneven()
    evil = type(timeline)(
        **{name: getattr(timeline, name) for name in timeline.__slots__ if name != "schedule"},
        schedule="\x1b[31m1f1b\n",
    )
    assert "\x1b" not in timeline_text(TimelinePage([TimelineFile.of("a\x1bb", evil)]))
