"""The checker of the trace event format: good traces pass, each kind of fault is named."""

from __future__ import annotations

import json

import pytest

from meshwright.timeline.trace.check import check_bytes, check_trace
from meshwright.timeline.trace.problems import MAX_PROBLEMS
from timeline.trace_samples import document_of, timeline_named, written


def event(ph, ts=0, **more):
    return {"ph": ph, "name": "a", "ts": ts, "pid": 1, "tid": 1, **more}


def slice_(ts, dur, **more):
    return event("X", ts, dur=dur, **more)


def flow(ph, ts, **more):
    return event(ph, ts, cat="c", id=7, **more)


def async_(ph, ts, **more):
    return {"ph": ph, "name": "a", "cat": "c", "id": "0x1", "ts": ts, "pid": 1, **more}


GOOD = {
    "slices apart": [slice_(0, 2), slice_(2, 1), slice_(5, 0)],
    "slices inside": [slice_(0, 10), slice_(0, 10), slice_(0, 4), slice_(4, 6), slice_(5, 1)],
    "begin and end": [event("B", 0), event("B", 1), event("E", 2), event("E", 2), event("B", 3), event("E", 9)],
    "end without a name": [event("B"), {"ph": "E", "ts": 1, "pid": 1, "tid": 1}],
    "slice in a begun one": [event("B", 0), slice_(1, 3), event("E", 4)],
    "tracks apart": [slice_(5, 2), slice_(0, 9, tid=2), slice_(0, 1, pid=2)],
    "instants": [event("i", 0), event("i", 0, s="g"), event("I", 1, s="p"), {"ph": "i", "name": "x", "ts": 0, "pid": 1}],
    "counters": [event("C", 0, args={"a": 1, "b": 0.5}), event("C", 1, args={"a": 2, "b": 0})],
    "counters of two names": [event("C", 5, args={"a": 1}), event("C", 1, name="b", args={"a": 1})],
    "flow": [slice_(0, 2), flow("s", 1), slice_(3, 2), flow("f", 3, bp="e")],
    "flow whose end stands first": [slice_(3, 2), flow("f", 3, bp="e"), slice_(0, 2, tid=2), flow("s", 1, tid=2)],
    "flow with a step": [slice_(0, 9), flow("s", 1), flow("t", 2), flow("f", 3, bp="e")],
    "flow to the next slice": [slice_(0, 2), flow("s", 1), flow("f", 2), slice_(4, 1)],
    "flow at the edges": [slice_(0, 2), flow("s", 2), slice_(2, 2), flow("f", 2, bp="e")],
    "flow in a begun slice": [event("B", 0), flow("s", 1), flow("f", 1, bp="e"), event("E", 2)],
    "asynchronous": [async_("b", 0), async_("b", 1, name="in"), async_("n", 2), async_("e", 3, name="in"), async_("e", 4)],
    "asynchronous with id2": [
        {"ph": ph, "name": "a", "cat": "c", "id2": {"local": "1"}, "ts": 0, "pid": 1} for ph in "be"
    ],
    "older asynchronous": [async_("S", 0), async_("T", 1), async_("p", 2), async_("F", 3)],
    "names": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
        {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 1, "args": {"sort_index": -3}},
        {"ph": "M", "name": "something_else", "pid": 1, "args": {}},
    ],
    "others": [
        event("P", 0),
        event("N", 0, id=1),
        event("O", 1, id=1, args={"snapshot": {}}),
        event("D", 2, id=1),
        event("V", 0, id=1, args={"dumps": {}}),
        event("v", 0, id=1, args={"dumps": {}}),
        event("R", 0),
        event("c", 0, args={"sync_id": "x"}),
        event("(", 0, args={}),
        event(")", 1, args={}),
    ],
    "names for numbers": [slice_(0, 1, pid="Spans", tid="PyTorch Profiler", cat="", cname="good")],
}  # fmt: skip

BAD = {
    "no object": ([3], 0, "it is no object"),
    "no phase": ([{"name": "a"}], 0, "ph is missing"),
    "unknown phase": ([event("Q")], 0, "ph is no phase"),
    "phase no text": ([event(["X"])], 0, "ph is no phase"),
    "no name": ([{"ph": "X", "ts": 0, "dur": 1, "pid": 1, "tid": 1}], 0, "name is missing"),
    "name no text": ([slice_(0, 1, name=5)], 0, "name is not a text"),
    "no time": ([{"ph": "X", "name": "a", "dur": 1, "pid": 1, "tid": 1}], 0, "ts is missing"),
    "time as text": ([slice_("0", 1)], 0, "ts is not a finite number"),
    "time beyond all": ([slice_(10**400, 1)], 0, "ts is not a finite number"),
    "time true": ([slice_(True, 1)], 0, "ts is not a finite number"),
    "no length": ([event("X")], 0, "dur is missing"),
    "length below 0": ([slice_(0, -1)], 0, "dur is not a finite number from 0"),
    "thread time": ([slice_(0, 1, tts="x")], 0, "tts is not"),
    "no process": ([{"ph": "X", "name": "a", "ts": 0, "dur": 1, "tid": 1}], 0, "pid is missing"),
    "no thread": ([{"ph": "X", "name": "a", "ts": 0, "dur": 1, "pid": 1}], 0, "tid is missing"),
    "thread a fraction": ([slice_(0, 1, tid=1.5)], 0, "tid is not a whole number"),
    "arguments a list": ([slice_(0, 1, args=[])], 0, "args is not an object"),
    "category a number": ([slice_(0, 1, cat=3)], 0, "cat is not a text"),
    "unknown colour": ([slice_(0, 1, cname="mauve")], 0, "cname is not a reserved colour"),
    "overlap": ([slice_(0, 2), slice_(1, 2)], 1, "begins inside event 0, which ends at 2"),
    "overlap inside": ([slice_(0, 9), slice_(1, 2), slice_(2, 2)], 2, "begins inside event 1"),
    "longer than the one around": ([slice_(0, 2), slice_(0, 3)], 1, "begins inside event 0"),
    "back in time": ([slice_(5, 1), slice_(4, 1)], 1, "ts 4 is before 5"),
    "begin without end": ([event("B")], 0, "B without E"),
    "end without begin": ([slice_(0, 1), event("E", 2)], 1, "E without B"),
    "two ends": ([event("B"), event("E", 1), event("E", 2)], 2, "E without B"),
    "end on another track": ([event("B"), event("E", 1, tid=2)], 1, "E without B"),
    "slice over an end": ([event("B"), slice_(1, 5), event("E", 3)], 2, "event 1 inside it runs to 6"),
    "instant's scope": ([event("i", s="x")], 0, "s is none of"),
    "counter without series": ([event("C", args={})], 0, "no series"),
    "counter as text": ([event("C", args={"a": "1"})], 0, "args.a is not a finite number"),
    "counter without arguments": ([event("C")], 0, "args is missing"),
    "counter back in time": ([event("C", 2, args={"a": 1}), event("C", 1, args={"a": 1})], 1, "before that of the counter"),
    "flow without id": ([slice_(0, 1), event("s", cat="c")], 1, "id is missing"),
    "flow without category": ([slice_(0, 1), event("s", id=1)], 1, "cat is missing"),
    "flow without end": ([slice_(0, 1), flow("s", 0)], 1, "flow 7 has no end"),
    "flow without start": ([slice_(0, 1), flow("f", 0, bp="e")], 1, "flow 7 has no start"),
    "step without start": ([slice_(0, 9), flow("t", 1)], 1, "has no start"),
    "flow starts twice": ([slice_(0, 9), flow("s", 1), flow("s", 1), flow("f", 2, bp="e")], 2, "starts twice"),
    "flow ends twice": ([slice_(0, 9), flow("s", 1), flow("f", 2, bp="e"), flow("f", 2, bp="e")], 3, "ends twice"),
    "flow of two names": ([slice_(0, 9), flow("s", 1), flow("f", 2, bp="e", name="b")], 1, "has no end"),
    "flow ends before": ([slice_(0, 1), flow("f", 0, bp="e"), slice_(5, 1), flow("s", 5)], 1, "ends before it starts"),
    "step outside": ([slice_(0, 9), flow("s", 1), flow("f", 2, bp="e"), flow("t", 3)], 3, "step outside"),
    "flow starts in nothing": ([flow("s", 0), slice_(1, 1), flow("f", 1, bp="e")], 0, "lies in no slice"),
    "flow ends in nothing": ([slice_(0, 1), flow("s", 0), flow("f", 2, bp="e")], 2, "lies in no slice"),
    "flow ends on an empty track": ([slice_(0, 1), flow("s", 0), flow("f", 0, bp="e", tid=2)], 2, "lies in no slice"),
    "no slice follows": ([slice_(0, 1), flow("s", 0), flow("f", 1)], 2, "no slice follows"),
    "binding": ([slice_(0, 9), flow("s", 1), flow("f", 2, bp="x")], 2, "bp is not 'e'"),
    "asynchronous without end": ([async_("b", 0)], 0, "b without e"),
    "asynchronous without begin": ([async_("e", 0)], 0, "e without b"),
    "asynchronous name": ([async_("b", 0), async_("e", 1, name="z")], 1, "another name"),
    "asynchronous time": ([async_("b", 5), async_("e", 1)], 1, "before that of the id's last"),
    "asynchronous id": ([{"ph": "b", "name": "a", "cat": "c", "ts": 0, "pid": 1}], 0, "id is missing"),
    "local to another process": (
        [{"ph": ph, "name": "a", "cat": "c", "id2": {"local": 1}, "ts": 0, "pid": pid} for ph, pid in (("b", 1), ("e", 2))],
        1,
        "e without b",
    ),
    "older without end": ([async_("S", 0)], 0, "S without F"),
    "older step alone": ([async_("T", 0)], 0, "T without S"),
    "older twice": ([async_("S", 0), async_("S", 1), async_("F", 2)], 1, "S while the same is open"),
    "thread's name": ([{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": 3}}], 0, "args.name is no text"),
    "name of no thread": ([{"ph": "M", "name": "thread_name", "pid": 1, "args": {"name": "x"}}], 0, "tid is missing"),
    "sort index": ([{"ph": "M", "name": "process_sort_index", "pid": 1, "args": {"sort_index": True}}], 0, "no whole number"),
    "snapshot": ([event("O", id=1, args={})], 0, "args.snapshot is missing"),
    "clock": ([event("c", args={})], 0, "args.sync_id is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_traces_pass(name):
    assert check_bytes(json.dumps(GOOD[name]).encode()) == []
    assert check_bytes(json.dumps({"traceEvents": GOOD[name]}).encode()) == []


@pytest.mark.parametrize("name", BAD)
def test_each_fault_is_named_with_its_event(name):
    events, index, message = BAD[name]
    problems = check_bytes(json.dumps({"traceEvents": events}).encode())
    assert [one.event for one in problems if message in one.message] == [index], problems
    assert str(problems[0]).startswith("event ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"traceEvents": [{"ph": "X", "ts": NaN}]}', "NaN is no number of JSON"),
        ('{"traceEvents": [{"ph": "X", "ts": Infinity}]}', "Infinity is no number"),
        ('{"traceEvents": [{"ts": 1, "ts": 2}]}', "'ts' stands twice"),
        ('{"traceEvents": [], "traceEvents": []}', "'traceEvents' stands twice"),
        ('{"traceEvents": []', "end of the file"),
        ('{"traceEvents": [{}', "end of the file"),
        ('{"traceEvents": [{"a": 1]}', "this is no JSON value"),
        ('{"traceEvents": {}}', "'[' is expected"),
        ('{"events": []}', "the key traceEvents is missing"),
        ("{}", "the key traceEvents is missing"),
        ('{"traceEvents": []} 5', "more text after the end"),
        ('"trace"', "begins no trace event file"),
        ("", "the file is empty"),
        ('{"displayTimeUnit": "s", "traceEvents": []}', "neither 'ms' nor 'ns'"),
        ('{"otherData": [], "traceEvents": []}', "otherData is no dict"),
        ('{"traceEvents": [], "stackFrames": 3}', "stackFrames is no dict"),
        ('{"traceEvents": [], "samples": {}}', "samples is no list"),
    ],
)
def test_faults_of_the_file(text, message):
    problems = check_bytes(text.encode())
    assert len([one for one in problems if message in one.message]) == 1, problems


def test_a_list_may_end_early_and_an_object_may_not():
    assert check_bytes(b'[{"ph":"P","name":"a","ts":0,"pid":1,"tid":1},\n') == []
    assert check_bytes(b'[{"ph":"P","name":"a","ts":0,"pid":1,"tid":1}') == []
    assert check_bytes(b"[]") == []
    assert check_bytes(b'{"traceEvents":[{"ph":"P","name":"a","ts":0,"pid":1,"tid":1},') != []


def test_problems_are_bounded():
    problems = check_bytes(json.dumps([3] * 1000).encode())
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].message == "900 further problems"


def test_a_file_is_checked(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(written(timeline_named("1f1b")))
    assert check_trace(str(path)) == []
    path.write_bytes(written(timeline_named("1f1b"))[:-4])
    assert "end of the file" in check_trace(str(path))[0].message
    assert "no such file" in check_trace(str(tmp_path / "none"))[0].message


@pytest.mark.parametrize("field", ["ph", "name", "ts", "dur", "pid", "tid", "id", "cat"])
def test_no_field_of_ours_may_be_dropped(field):
    """Each field of each phase, but for what the format leaves open (a slice's category)."""
    document = document_of(timeline_named("1f1b", send_s=0.1))
    seen = set()
    for index, one in enumerate(document["traceEvents"]):
        free = {("X", "cat"), ("M", "tid")} if one["name"] != "thread_name" else {("X", "cat")}
        if field not in one or (one["ph"], one["name"]) in seen or (one["ph"], field) in free:
            continue
        seen.add((one["ph"], one["name"]))
        events = [*document["traceEvents"]]
        events[index] = {key: value for key, value in one.items() if key != field}
        problems = check_bytes(json.dumps({"traceEvents": events}).encode())
        assert index in [problem.event for problem in problems], one
    assert seen


def test_a_slice_moved_in_time_is_found():
    document = document_of(timeline_named("zb-h1", send_s=0.1))
    events = document["traceEvents"]
    for index, one in enumerate(events):
        if one["ph"] == "X":
            moved = [*events]
            moved[index] = {**one, "dur": one["dur"] + 1.5e6, "ts": one["ts"] - 0.7e6}
            assert check_bytes(json.dumps(moved).encode()), one
