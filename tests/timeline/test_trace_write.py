"""Trace files: what stands in them, the same bytes each time, and nothing that a viewer misreads."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.loops import one_forward_one_backward
from meshwright.timeline.core import run
from meshwright.timeline.curves import bytes_curve, chunk_curve
from meshwright.timeline.memory_over_time import memory_over_time
from meshwright.timeline.program import Messages, StageTimes, program_of
from meshwright.timeline.record import timeline_of
from meshwright.timeline.trace.check import check_bytes
from meshwright.timeline.trace.write import write_trace
from timeline.trace_samples import (
    SCHEDULES,
    document_of,
    program_named,
    timeline_named,
    uneven,
    written,
)


def events_of(document, phase):
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def test_two_ranks_by_hand():
    program = program_of(
        one_forward_one_backward(2, 1),
        StageTimes.equal(2, 1.0, 1.0, 0.5),
        Messages.uniform(2, 0.25),
    )
    document = document_of(timeline_of(program, run(program)))
    assert document["otherData"] == {
        "schema": "meshwright/trace/1",
        "origin": "modelled",
        "schedule": "1f1b",
        "ranks": 2,
        "stages": 2,
        "chains": 1,
        "blocking": False,
        "operations": 4,
        "messages": 2,
        "makespan_s": 5.5,
    }
    slices = [
        (event["name"], event["tid"], event["ts"], event["dur"])
        for event in events_of(document, "X")
    ]
    assert slices == [
        ("F0", 1, 0.0, 1e6),
        ("B0", 1, 4e6, 1.5e6),
        ("F0", 2, 1.25e6, 1e6),
        ("B0", 2, 2.25e6, 1.5e6),
    ]
    assert events_of(document, "X")[1] == {
        "ph": "X",
        "name": "B0",
        "cat": "backward",
        "pid": 1,
        "tid": 1,
        "ts": 4e6,
        "dur": 1.5e6,
        "cname": "thread_state_iowait",
        "args": {"kind": "B", "stage": 0, "microbatch": 0, "start_s": 4.0, "end_s": 5.5},
    }
    starts = [(event["id"], event["tid"], event["ts"]) for event in events_of(document, "s")]
    assert starts == [(2, 1, 0.5e6), (1, 2, 3e6)]
    ends = [
        (event["id"], event["tid"], event["ts"], event["bp"], event["args"])
        for event in events_of(document, "f")
    ]
    assert ends == [
        (1, 1, 4e6, "e", {"sent_s": 3.75, "arrived_s": 4.0}),
        (2, 2, 1.25e6, "e", {"sent_s": 1.0, "arrived_s": 1.25}),
    ]
    names = [(event["name"], event["tid"], event["args"]) for event in events_of(document, "M")]
    assert names == [
        ("process_name", 1, {"name": "pipeline 1f1b (modelled)"}),
        ("thread_name", 1, {"name": "rank 0"}),
        ("thread_sort_index", 1, {"sort_index": 0}),
        ("thread_name", 2, {"name": "rank 1"}),
        ("thread_sort_index", 2, {"sort_index": 1}),
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_passes_the_checker(schedule):
    timeline = timeline_named(schedule, send_s=0.13, seed=3)
    assert check_bytes(written(timeline)) == []
    document = document_of(timeline)
    slices = events_of(document, "X")
    assert len(slices) == len(timeline.kind)
    crossing = np.count_nonzero(timeline.sender >= 0)
    assert len(events_of(document, "s")) == len(events_of(document, "f")) == crossing > 0


def test_an_operation_on_one_of_several_stages_names_it():
    names = {event["name"] for event in events_of(document_of(timeline_named("zb-v")), "X")}
    assert {"F0 s0", "F0 s7", "I11 s3", "W11 s4"} <= names


def test_an_overlapped_pair_is_two_slices_of_one_length():
    timeline = timeline_named("dualpipe", seed=1)
    document = document_of(timeline)
    slices = events_of(document, "X")
    pairs = [at for at, event in enumerate(slices) if event["args"].get("overlapped")]
    assert len(pairs) == int(timeline.overlapped.sum()) > 0
    for at in pairs:
        first, second = slices[at], slices[at + 1]
        assert (first["ts"], first["dur"], first["tid"]) == (
            second["ts"],
            second["dur"],
            second["tid"],
        )
        assert first["name"][0] == "F"
        assert second["name"][0] == "B"


def test_figures_over_time_are_counters():
    program = program_named("1f1b")
    times = run(program)
    memory = memory_over_time(program, times, np.full(4, 0.5), np.full(4, 1.0))
    timeline = timeline_of(program, times)
    content = written(timeline, chunk_curve(memory, "microbatches"), bytes_curve(memory))
    assert check_bytes(content) == []
    counters = events_of(json.loads(content), "C")
    assert len(counters) == 2 * len(timeline.kind)
    first = [event for event in counters if event["name"] == "rank 0 activations in flight"]
    assert [event["args"] for event in first[:3]] == [{"microbatches": one} for one in (1, 2, 3)]
    assert max(event["args"]["microbatches"] for event in first) == 4
    assert b'"microbatches":4}' in content
    stored = [event for event in counters if event["name"] == "rank 3 activations"]
    assert [event["args"]["bytes"] for event in stored[:2]] == [1.5, 0]


@pytest.mark.parametrize("compressed", [False, True])
def test_the_same_timeline_gives_the_same_bytes(compressed):
    files = [io.BytesIO(), io.BytesIO()]
    for file in files:
        write_trace(file, uneven(), compressed=compressed)
    assert files[0].getvalue() == files[1].getvalue()
    if compressed:
        header = files[0].getvalue()[:8]
        assert header[:3] == b"\x1f\x8b\x08"
        assert header[3] == 0  # no name
        assert header[4:8] == bytes(4)  # no date
        assert gzip.decompress(files[0].getvalue()) == written(uneven())


@given(
    schedule=st.sampled_from(["1f1b", "interleaved", "zb-h1", "dualpipe"]),
    seed=st.integers(0, 2**32),
    scale_s=st.sampled_from([1e-6, 0.0123, 1.0, 3e3]),
    send_s=st.sampled_from([0.0, 1e-7, 0.1]),
)
def test_slices_meet_and_never_overlap(schedule, seed, scale_s, send_s):
    program = program_named(schedule, send_s, seed, scale_s)
    content = written(timeline_of(program, run(program)))
    assert check_bytes(content) == []
    last = {}
    for event in events_of(json.loads(content), "X"):
        # Perfetto rounds both to whole nanoseconds and drops a slice that begins inside another
        start_ns, length_ns = round(event["ts"] * 1000), round(event["dur"] * 1000)
        before = last.get(event["tid"])
        if before is not None and before != (start_ns, length_ns):
            assert sum(before) <= start_ns
        last[event["tid"]] = start_ns, length_ns
        assert abs(event["ts"] * 1e-6 - event["args"]["start_s"]) <= 1e-9 * max(1.0, scale_s)


def test_a_pipeline_of_one_rank_and_an_empty_one():
    program = program_of(one_forward_one_backward(1, 2), StageTimes.equal(1))
    document = document_of(timeline_of(program, run(program)))
    assert len(events_of(document, "X")) == 4
    assert events_of(document, "s") == events_of(document, "f") == []
    program = program_of(one_forward_one_backward(2, 0), StageTimes.equal(2))
    content = written(timeline_of(program, run(program)))
    assert check_bytes(content) == []
    assert json.loads(content)["otherData"]["operations"] == 0


def test_many_operations_are_written_in_pieces():
    program = program_of(one_forward_one_backward(1, 9000), StageTimes.equal(1))
    timeline = timeline_of(program, run(program))
    slices = events_of(document_of(timeline), "X")
    assert [event["args"]["microbatch"] for event in slices] == timeline.microbatch.tolist()
