"""Write a timeline as a trace event file, which ui.perfetto.dev and chrome://tracing show.

The format: "Trace Event Format" of the Chromium project (catapult-project/catapult
docs/trace-event-format.md); how Perfetto reads it: google/perfetto
src/trace_processor/importers/json/json_trace_parser_impl.cc. Perfetto knows threads by their number
alone, so each rank is a thread with a number of its own and its counters name that thread too.

An operation is a complete event (X), a message between ranks a flow from the middle of the operation
that sends (s) to the start of the one that waits for it (f); a figure over time is a counter (C).

Times stand in whole nanoseconds, though the format's unit is the microsecond: Perfetto rounds start
and length apart, and drops a slice that then begins before the one before it ends.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import LETTERS
from meshwright.timeline.program import Floats
from meshwright.timeline.record import Curve, Timeline
from meshwright.units import NANOSECONDS_PER_MICROSECOND, to_nanoseconds

TRACE_SCHEMA: Final = "meshwright/trace/1"
"""``otherData.schema`` of the files written here."""
PROCESS: Final = 1
"""Process number of the pipeline; rank r is its thread r + 1, since thread 0 is the idle one."""
COLOURS: Final = (
    "thread_state_runnable",
    "thread_state_iowait",
    "thread_state_unknown",
    "thread_state_running",
)
"""Chrome's reserved colour name of each kind: blue, orange, tan, green."""
CATEGORIES: Final = ("forward", "backward", "input_gradient", "weight_gradient")
"""Category of each kind."""
MESSAGE: Final = "message"
"""Name and category of flows."""
_PIECE = 8192
"""Operations or changes encoded at once."""
_COMPRESSION = 3
"""gzip level: twice as fast as the usual 6, a sixth more bytes."""


class _Operation(msgspec.Struct, omit_defaults=True):
    """The times are exact; ``ts`` and ``dur`` of the slice are whole nanoseconds."""

    kind: str
    stage: int
    microbatch: int
    start_s: float
    end_s: float
    overlapped: bool = False


class _Slice(msgspec.Struct, tag_field="ph", tag="X"):
    name: str
    cat: str
    pid: int
    tid: int
    ts: float
    dur: float
    cname: str
    args: _Operation


class _Sent(msgspec.Struct, tag_field="ph", tag="s"):
    id: int
    pid: int
    tid: int
    ts: float
    name: str = MESSAGE
    cat: str = MESSAGE


class _Way(msgspec.Struct):
    """When a message set out and when it was there."""

    sent_s: float
    arrived_s: float


class _Received(msgspec.Struct, tag_field="ph", tag="f"):
    id: int
    pid: int
    tid: int
    ts: float
    args: _Way
    name: str = MESSAGE
    cat: str = MESSAGE
    bp: str = "e"


class _Count(msgspec.Struct, tag_field="ph", tag="C"):
    name: str
    pid: int
    tid: int
    ts: float
    args: dict[str, float]


class _About(msgspec.Struct, tag_field="ph", tag="M"):
    name: str
    pid: int
    tid: int
    args: dict[str, str | int]


def write_trace(
    file: BinaryIO, timeline: Timeline, curves: Sequence[Curve] = (), *, compressed: bool = False
) -> None:
    """Write a trace file; the same timeline gives the same bytes.

    Parameters
    ----------
    curves
        Figures over time, each a counter of every rank.
    compressed
        Through gzip, without a name or a date.
    """
    if not compressed:
        file.writelines(trace_pieces(timeline, curves))
        return
    with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as packed:
        for piece in trace_pieces(timeline, curves):
            packed.write(piece)


def trace_pieces(timeline: Timeline, curves: Sequence[Curve] = ()) -> Iterator[bytes]:
    """Return the bytes of a trace file, piece by piece; an event a line."""
    encoder = msgspec.json.Encoder()
    yield b'{"displayTimeUnit":"ms","otherData":'
    yield encoder.encode(_other_data(timeline))
    yield b',\n"traceEvents":[\n'
    separator = b""
    for events in _events(timeline, curves):
        # a line's end stands in no JSON text, so each one here is the end of an event
        yield separator + encoder.encode_lines(events)[:-1].replace(b"\n", b",\n")
        separator = b",\n"
    yield b"\n]}\n"


def _other_data(timeline: Timeline) -> dict[str, str | int | float]:
    return {
        "schema": TRACE_SCHEMA,
        "origin": timeline.origin.value,
        "schedule": timeline.schedule,
        "ranks": timeline.ranks,
        "stages": timeline.stages,
        "chains": timeline.chains,
        "blocking": timeline.blocking,
        "operations": len(timeline.kind),
        "messages": int(np.count_nonzero(timeline.sender != NOTHING)),
        "makespan_s": timeline.makespan_s,
    }


def _events(timeline: Timeline, curves: Sequence[Curve]) -> Iterator[list[msgspec.Struct]]:
    """Return lists of events, none empty: names, then rank after rank slices and counters."""
    yield list(_names(timeline))
    slices = _Slices(timeline)
    for rank in range(timeline.ranks):
        at = timeline.of_rank(rank)
        for begin in range(at.start, at.stop, _PIECE):
            yield slices.events(rank, begin, min(begin + _PIECE, at.stop))
        for curve in curves:
            changes = curve.of_rank(rank)
            for begin in range(changes.start, changes.stop, _PIECE):
                yield _counts(curve, rank, begin, min(begin + _PIECE, changes.stop))


def _names(timeline: Timeline) -> Iterable[msgspec.Struct]:
    title = f"pipeline {timeline.schedule} ({timeline.origin.value})"
    yield _About("process_name", PROCESS, PROCESS, {"name": title})
    for rank in range(timeline.ranks):
        yield _About("thread_name", PROCESS, rank + 1, {"name": f"rank {rank}"})
        yield _About("thread_sort_index", PROCESS, rank + 1, {"sort_index": rank})


class _Slices:
    """Makes the slices and flows of a range of operations."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._several = timeline.chains * timeline.stages > timeline.ranks
        self._ends_s = timeline.end_s.copy()
        pair = np.flatnonzero(timeline.overlapped)
        self._ends_s[pair] = timeline.end_s[pair + 1]
        received = np.flatnonzero(timeline.sender != NOTHING)
        order = received[np.argsort(timeline.sender[received], kind="stable")]
        self._sent = order
        """Operations that wait for a message, in the order of those that send."""
        self._sent_by = timeline.sender[order]

    def events(self, rank: int, begin: int, end: int) -> list[msgspec.Struct]:
        """Return the events of the operations ``begin`` to ``end - 1`` of a rank, by time."""
        one, piece, place = self._timeline, slice(begin, end), (PROCESS, rank + 1)
        sent = self._sent_of(begin, end)
        found: list[msgspec.Struct] = []
        for index, kind, sender, ts, middle, dur, args in zip(
            range(begin, end),
            one.kind[piece].tolist(),
            one.sender[piece].tolist(),
            *(values.tolist() for values in _slice_times(one.start_s[piece], self._ends_s[piece])),
            self._arguments(piece),
            strict=True,
        ):
            name = f"{args.kind}{args.microbatch}"
            name = f"{name} s{args.stage}" if self._several else name
            found.append(_Slice(name, CATEGORIES[kind], *place, ts, dur, COLOURS[kind], args))
            if sender != NOTHING:
                way = _Way(float(one.sent_s[index]), float(one.arrival_s[index]))
                found.append(_Received(index, *place, ts, way))
            if index in sent:
                found += [_Sent(target, *place, middle) for target in sent[index]]
        return found

    def _arguments(self, piece: slice) -> Iterator[_Operation]:
        one = self._timeline
        return map(
            _Operation,
            [LETTERS[kind] for kind in one.kind[piece].tolist()],
            one.stage[piece].tolist(),
            one.microbatch[piece].tolist(),
            one.start_s[piece].tolist(),
            self._ends_s[piece].tolist(),
            one.overlapped[piece].tolist(),
        )

    def _sent_of(self, begin: int, end: int) -> dict[int, list[int]]:
        """Return the operations that wait for messages of ``begin`` to ``end - 1``, by the sender."""
        first, last = np.searchsorted(self._sent_by, [begin, end])
        found: dict[int, list[int]] = {}
        for sender, target in zip(
            self._sent_by[first:last].tolist(), self._sent[first:last].tolist(), strict=True
        ):
            found.setdefault(sender, []).append(target)
        return found


def _slice_times(start_s: Floats, end_s: Floats) -> tuple[Floats, Floats, Floats]:
    """Return start, middle and length in microseconds; start + length is never past the end."""
    start_ns, end_ns = _nanoseconds(start_s), _nanoseconds(end_s)
    length_ns = end_ns - start_ns
    start, end, length = (_as_written(one) for one in (start_ns, end_ns, length_ns))
    for _ in range(2):
        over = start + length > end
        length[over] -= np.spacing(end[over])
    return start, _as_written(start_ns + np.floor(length_ns / 2)), length


def _nanoseconds(time_s: Floats) -> Floats:
    return np.asarray(np.round(time_s * to_nanoseconds(1.0)))


def _as_written(time_ns: Floats) -> Floats:
    """Return microseconds, the unit of the format."""
    return np.asarray(time_ns / NANOSECONDS_PER_MICROSECOND)


def _counts(curve: Curve, rank: int, begin: int, end: int) -> list[msgspec.Struct]:
    name = f"rank {rank} {curve.name}"
    return [
        _Count(name, PROCESS, rank + 1, time_us, {curve.unit: value})
        for time_us, value in zip(
            _as_written(_nanoseconds(curve.time_s[begin:end])).tolist(),
            _plain(curve.value[begin:end]),
            strict=True,
        )
    ]


def _plain(values: Floats) -> list[float]:
    """Return whole numbers as such: counts are written ``3``."""
    whole: NDArray[np.int64] = values.astype(np.int64)
    found: list[float] = (whole if bool(np.all(whole == values)) else values).tolist()
    return found
