"""Reading a trace back gives the simulation's times; what is no trace of ours is refused with its place."""

from __future__ import annotations

import copy
import json
import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.timeline.core import DeadlockError, run
from meshwright.timeline.idle import idle_by_cause
from meshwright.timeline.measure import measure
from meshwright.timeline.program import program_of
from meshwright.timeline.rank_times import rank_times
from meshwright.timeline.record import timeline_of
from meshwright.timeline.simulate import simulate
from meshwright.timeline.trace.read import read_trace
from timeline.samples import some_messages, some_orders, some_times
from timeline.trace_samples import (
    SCHEDULES,
    document_of,
    program_named,
    read_back,
    same,
    timeline_named,
    uneven,
    written,
)


def figures_equal(program, times, found, *, blocking=False):
    """Compare what was read with the simulation's own measure, to 1e-9 of the makespan."""
    measured, idle = measure(program, times), idle_by_cause(program, times, blocking=blocking)
    read = rank_times(found)
    close = {"rtol": 1e-9, "atol": 1e-9 * measured.makespan_s}
    assert found.makespan_s == pytest.approx(measured.makespan_s, rel=1e-9)
    np.testing.assert_allclose(read.compute_s, measured.busy_s, **close)
    np.testing.assert_allclose(read.end_s - read.start_s, measured.span_s, **close)
    np.testing.assert_allclose(read.idle_s + read.exposed_s, idle.total_s, **close)
    np.testing.assert_allclose(
        read.compute_s + read.exposed_s + read.idle_s, measured.makespan_s, **close
    )
    assert read.bubble_fraction == pytest.approx(measured.bubble_fraction, abs=1e-9)
    assert read.span_bubble_fraction == pytest.approx(measured.span_bubble_fraction, abs=1e-9)
    np.testing.assert_allclose(read.exposed_s, idle.communication_s, **close)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("send_s", "scale_s"), [(0.0, 1.0), (0.37, 1.0), (1e-5, 1.7e-4)])
def test_busy_and_idle_times_are_the_simulations(schedule, send_s, scale_s):
    program = program_named(schedule, send_s, seed=7, scale_s=scale_s)
    times = run(program)
    timeline = timeline_of(program, times)
    found = read_back(written(timeline))
    same(found, timeline)
    figures_equal(program, times, found)


@given(st.data())
def test_random_programs_are_read_back(data):
    orders = data.draw(some_orders())
    times = data.draw(some_times(orders.chain_length))
    messages = data.draw(some_messages(orders.ranks))
    blocking = data.draw(st.booleans())
    program = program_of(orders, times, messages)
    try:
        ran = simulate(program, blocking=blocking)
    except DeadlockError:
        assume(False)
    timeline = timeline_of(program, ran, blocking=blocking)
    found = read_back(written(timeline))
    same(found, timeline)
    figures_equal(program, ran, found, blocking=blocking)


def test_the_textbook_case():
    times = rank_times(read_back(written(timeline_named("1f1b"))))
    np.testing.assert_allclose(times.compute_s, 36.0)
    np.testing.assert_allclose(times.idle_s, 9.0)
    np.testing.assert_array_equal(times.exposed_s, 0.0)
    assert times.bubble_fraction == pytest.approx(0.2, abs=1e-12)
    assert times.end_s.tolist() == pytest.approx([45.0, 43.0, 41.0, 39.0])


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace"])
def test_plain_and_compressed_files(tmp_path, name):
    import gzip

    content = written(uneven())
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    same(read_trace(str(tmp_path / name)), uneven())


@pytest.mark.parametrize("indent", [None, 1])
def test_another_layout_of_the_same_json(indent):
    text = json.dumps(document_of(uneven()), indent=indent)
    same(read_back(text.encode()), uneven())


def refused(content, message):
    with pytest.raises(InputError) as error:
        read_back(content)
    assert message in str(error.value)
    assert "trace.json" in str(error.value)
    return error.value.problems[0]


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"traceEvents": []}',
        b'{"traceEvents": [{"ph": "X", "name": "ncclKernel", "ts": 1, "dur": 2, "pid": 0, "tid": 7}]}',
        b'{"traceEvents": [], "otherData": {"version": "x"}}',
        b'{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": []}',
    ],
)
def test_a_trace_of_another_program_is_told_apart(content):
    problem = refused(content, "not one of meshwright: otherData.schema is missing")
    assert "meshwright pipeline --trace" in problem.remedy


def test_a_trace_of_a_later_version():
    document = document_of(uneven())
    document["otherData"]["schema"] = "meshwright/trace/2"
    refused(document, "otherData.schema is not 'meshwright/trace/1'")


def changed(phase, number, **fields):
    """Return our trace with one event of a phase changed; ``args_…`` is an argument, ``None`` drops."""
    document = document_of(uneven())
    events = [one for one in document["traceEvents"] if one["ph"] == phase]
    for name, value in fields.items():
        target = events[number]["args"] if name.startswith("args_") else events[number]
        target[name.removeprefix("args_")] = value
        if value is None:
            del target[name.removeprefix("args_")]
    return document


@pytest.mark.parametrize(
    ("phase", "fields", "message"),
    [
        ("X", {"ts": "0"}, "ts is '0': it must be a time in microseconds"),
        ("X", {"ts": None}, "ts is missing"),
        ("X", {"ts": 1e300}, "ts is 1e+300"),
        ("X", {"ts": [1]}, "ts is a list"),
        ("X", {"dur": "1"}, "dur is '1': it must be a time"),
        ("X", {"dur": -1.0}, "ts and dur are not the times of args"),
        ("X", {"ts": 1.0}, "ts and dur are not the times of args"),
        ("X", {"args_end_s": 1.0}, "ts and dur are not the times of args"),
        ("X", {"args_start_s": None}, "args.start_s is missing"),
        (
            "X",
            {"args_start_s": 13.0, "ts": 13e6, "dur": 2.1e6},
            "starts before the operation before",
        ),
        ("X", {"args_end_s": 12.0, "ts": 14.1e6, "dur": -2.1e6}, "it ends before it starts"),
        ("X", {"tid": 9}, "pid and tid are no rank of 0 to 3"),
        ("X", {"tid": 0}, "pid and tid are no rank"),
        ("X", {"pid": 2}, "pid and tid are no rank"),
        ("X", {"args": None}, "args is missing"),
        ("X", {"args_kind": "G"}, "args.kind is 'G': it must be F, B, I or W"),
        ("X", {"args_kind": None}, "args.kind is missing"),
        ("X", {"args_stage": 4}, "args.stage is 4: it must be 0 to 3"),
        ("X", {"args_stage": True}, "args.stage is a bool"),
        ("X", {"args_microbatch": -1}, "args.microbatch is -1"),
        ("X", {"args_overlapped": True}, "should start with the operation that it overlaps"),
        ("X", {"ph": "B"}, "ph is 'B': meshwright writes no such event"),
        ("s", {"id": "5"}, "id is '5'"),
        ("s", {"id": 5000}, "not one each for every message"),
        ("f", {"args": None}, "args is missing"),
        ("f", {"args_arrived_s": "x"}, "args.arrived_s is 'x': it must be a time in seconds"),
        ("f", {"args_arrived_s": -5.0}, "a message is there before it was sent"),
        ("f", {"args_sent_s": -5.0}, "sets out before the operation that sends it ends"),
        ("f", {"tid": 4}, "a message without an operation before it"),
    ],
)
def test_changed_events_are_refused(phase, fields, message):
    problem = refused(changed(phase, 5, **fields), message)
    assert problem.place.file == "trace.json"


def test_ranks_stand_one_after_the_other():
    document = document_of(uneven())
    document["traceEvents"] = [one for one in document["traceEvents"] if one["ph"] == "X"]
    document["traceEvents"].insert(0, document["traceEvents"].pop(30))
    refused(document, "traceEvents[1]: an operation of rank 0 stands after those of rank 1")


def test_the_place_of_an_event_is_its_line():
    lines = written(uneven()).split(b"\n")
    at = next(at for at, line in enumerate(lines) if line.startswith(b'{"ph":"X","name":"B4"'))
    lines[at] = lines[at].replace(b'"kind":"B"', b'"kind":"?"')
    problem = refused(b"\n".join(lines), "traceEvents[")
    assert (problem.place.line, problem.place.column) == (at + 1, 1)
    lines[at] = lines[at][:-3]
    problem = refused(b"\n".join(lines), "no JSON value")
    assert problem.place.line == at + 2


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("operations", 95, "it says 95 operations and holds 96: it was cut or changed"),
        ("messages", 7, "it says 7 messages and holds 72"),
        ("ranks", 0, "otherData.ranks is 0: it must be 1 to 65,536"),
        ("ranks", 10**9, "otherData.ranks is 1000000000"),
        ("stages", -1, "otherData.stages is -1"),
        ("chains", 3, "otherData.chains is 3: it must be 1 to 2"),
        ("ranks", "4", "otherData: Expected `int`, got `str` - at `ranks`"),
        ("origin", "guessed", "otherData: Invalid enum value 'guessed'"),
    ],
)
def test_a_wrong_head_is_refused(name, value, message):
    document = document_of(uneven())
    document["otherData"][name] = value
    refused(document, message)


def test_events_left_out_are_noticed():
    document = document_of(uneven())
    for phase in ("X", "s", "f"):
        cut = copy.deepcopy(document)
        event = next(one for one in cut["traceEvents"] if one["ph"] == phase)
        cut["traceEvents"].remove(event)
        with pytest.raises(InputError):
            read_back(cut)
    messages = {"s", "f"}
    document["traceEvents"] = [one for one in document["traceEvents"] if one["ph"] not in messages]
    refused(document, "it says 72 messages and holds 0")


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_any_change_is_read_or_refused(seed):
    """Bytes dropped, doubled, exchanged: a timeline or an ``InputError``, and nothing else."""
    chance = random.Random(seed)
    content = bytearray(written(timeline_named("1f1b", send_s=0.1)))
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(content)), chance.randint(1, 40)
        piece = content[at : at + length]
        other = chance.randrange(len(content))
        new = chance.choice(
            [b"", piece * 2, bytes([chance.randrange(256)]), content[other : other + length], b"-1", b"1e999", b"null", b"{}", b"\n"]
        )  # fmt: skip
        content[at : at + length] = new
    try:
        found = read_back(bytes(content))
    except InputError:
        pass
    else:
        times = rank_times(found)
        assert np.all(np.isfinite(times.idle_s))
        assert len(times.idle_s) == found.ranks
