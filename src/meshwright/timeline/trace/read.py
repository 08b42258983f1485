"""Read a trace file that ``trace_write.py`` wrote back into a timeline.

Only our own files so far: kind, stage and microbatch of an operation are taken from the arguments we
write, its rank from its thread, its messages from the flows. The file is untrusted: it is read piece by piece,
and what is kept grows with its operations alone.
"""

from __future__ import annotations

from array import array
from typing import Any, Final, NoReturn, TypeGuard

import msgspec
import numpy as np

from meshwright.errors import InputError, Problem
from meshwright.findings import Place
from meshwright.origin import Origin
from meshwright.schedules.needs import NOTHING
from meshwright.schedules.orders import LETTERS, Ints
from meshwright.timeline.record import Timeline
from meshwright.timeline.trace.fields import is_number
from meshwright.timeline.trace.items import EVENTS, Item, trace_items
from meshwright.timeline.trace.text import TraceText, open_trace
from meshwright.timeline.trace.write import PROCESS, TRACE_SCHEMA
from meshwright.units import microseconds

MAX_RANKS: Final = 1 << 16
_MAX_STAGES: Final = 1 << 20
_MAX_MICROBATCH: Final = 1 << 31
_MAX_S: Final = 1e9
"""Times of over thirty years are no times of a step."""
_ROUNDED_S: Final = 2e-9
"""How far ``ts`` and ``dur`` may be from the exact times in the arguments."""
_TOLERANCE: Final = 1e-9
"""Of the makespan: what rounding may change."""
_KINDS: Final = {letter: kind for kind, letter in enumerate(LETTERS)}
_NOT_OURS = (
    "only traces that meshwright wrote can be read so far (meshwright pipeline --trace FILE): an "
    "operation's kind, stage and microbatch and its rank are taken from what stands there"
)


class _Header(msgspec.Struct, frozen=True):
    """``otherData`` of our files."""

    origin: Origin
    schedule: str
    ranks: int
    stages: int
    chains: int
    operations: int
    messages: int
    makespan_s: float
    blocking: bool = False


def read_trace(path: str) -> Timeline:
    """Return the timeline of a trace file.

    Raises ``InputError`` with the place for a file that cannot be read, that is no trace event file,
    that meshwright did not write, or that was changed or cut.
    """
    with open_trace(path) as text:
        return read_text(text)


def read_text(text: TraceText) -> Timeline:
    """Return the timeline of the text of a trace; raises ``InputError``."""
    reader: _Reader | None = None
    for item in trace_items(text):
        if item.key == "otherData" and item.position < 0:
            reader = _Reader(text, _header(text, item.value))
        elif item.key == EVENTS and item.position >= 0:
            if reader is None:
                _refuse_foreign(text, "otherData.schema is missing")
            reader.take(item)
    if reader is None:
        _refuse_foreign(text, "otherData.schema is missing")
    return reader.timeline()


def _refuse_foreign(text: TraceText, what: str) -> NoReturn:
    message = f"this is a trace event file, but not one of meshwright: {what}"
    raise InputError(Problem(Place(text.file), message, remedy=_NOT_OURS))


def _header(text: TraceText, value: Any) -> _Header:
    found = value.get("schema") if isinstance(value, dict) else None
    if found != TRACE_SCHEMA:
        what = "missing" if found is None else f"not {TRACE_SCHEMA!r}"
        _refuse_foreign(text, f"otherData.schema is {what}")
    place = text.place_of_value()
    try:
        header = msgspec.convert(value, _Header)
    except msgspec.ValidationError as error:
        message = f"otherData: {str(error)[:200].replace('$.', '')}"
        raise InputError(Problem(place, message)) from None
    bounds = {"ranks": MAX_RANKS, "stages": _MAX_STAGES, "chains": 2}
    for name, most in bounds.items():
        if not 1 <= getattr(header, name) <= most:
            message = f"otherData.{name} is {getattr(header, name)}: it must be 1 to {most:,}"
            raise InputError(Problem(place, message))
    return header


class _Reader:
    """Keeps the operations and the ends of their messages, in the order they stand."""

    def __init__(self, text: TraceText, header: _Header) -> None:
        self._text = text
        self._header = header
        self._rank = 0
        self._now_s = -_MAX_S
        self._paired = False
        self._operations = [0] * header.ranks
        self._start_s, self._end_s = array("d"), array("d")
        self._kind, self._overlapped = array("b"), array("b")
        self._stage, self._microbatch = array("q"), array("q")
        self._sent: tuple[array[int], array[int]] = (array("q"), array("q"))
        """Number of the message, and the operation at whose track it stands."""
        self._received: tuple[array[int], array[int]] = (array("q"), array("q"))
        self._sent_s, self._arrived_s = array("d"), array("d")

    def take(self, item: Item) -> None:
        """Take an event; names and counters say nothing of what ran."""
        event = item.value
        if not isinstance(event, dict):
            self._refuse(item, "it is no object")
        phase = event.get("ph")
        if phase == "X":
            self._slice(item, event)
        elif phase in ("s", "f"):
            self._message(item, event, phase)
        elif phase not in ("M", "C"):
            self._refuse(item, f"ph is {_short(phase)}: meshwright writes no such event")

    def _slice(self, item: Item, event: dict[str, Any]) -> None:
        rank, time_s = self._track(item, event)
        if rank < self._rank:
            self._refuse(
                item, f"an operation of rank {rank} stands after those of rank {self._rank}"
            )
        if rank > self._rank:
            self._rank, self._now_s, self._paired = rank, -_MAX_S, False
        args = event.get("args")
        start_s, end_s = (self._time(item, args, name) for name in ("start_s", "end_s"))
        length_s = microseconds(self._number(item, event, "dur"))
        slack_s = _ROUNDED_S + _TOLERANCE * abs(end_s)
        if abs(time_s - start_s) > slack_s or abs(time_s + length_s - end_s) > slack_s:
            self._refuse(item, "ts and dur are not the times of args")
        if end_s < start_s:
            self._refuse(item, "it ends before it starts")
        if self._paired:
            # the one before runs together with this one, which has the time of both
            if start_s != self._start_s[-1]:
                self._refuse(item, "it should start with the operation that it overlaps")
        elif start_s < self._now_s:
            self._refuse(item, f"it starts before the operation before it ends on rank {rank}")
        self._keep(item, event["args"])
        self._paired = event["args"].get("overlapped") is True
        self._overlapped.append(self._paired)
        self._start_s.append(start_s)
        self._end_s.append(start_s if self._paired else end_s)
        self._now_s = self._end_s[-1]
        self._operations[rank] += 1

    def _keep(self, item: Item, args: dict[str, Any]) -> None:
        kind, stage, microbatch = (args.get(name) for name in ("kind", "stage", "microbatch"))
        if not isinstance(kind, str) or kind not in _KINDS:
            self._refuse(item, f"args.kind is {_short(kind)}: it must be F, B, I or W")
        stages = self._header.stages * self._header.chains
        if not _is_count(stage, stages):
            self._refuse(item, f"args.stage is {_short(stage)}: it must be 0 to {stages - 1}")
        if not _is_count(microbatch, _MAX_MICROBATCH):
            self._refuse(
                item, f"args.microbatch is {_short(microbatch)}: it must be a number from 0"
            )
        self._kind.append(_KINDS[kind])
        self._stage.append(stage)
        self._microbatch.append(microbatch)

    def _message(self, item: Item, event: dict[str, Any], phase: str) -> None:
        rank, _ = self._track(item, event)
        number = event.get("id")
        if not _is_count(number, 1 << 62):
            self._refuse(item, f"id is {_short(number)}: it must be a number from 0")
        if rank != self._rank or not self._operations[rank]:
            self._refuse(item, "a message without an operation before it on its rank")
        ends = self._sent if phase == "s" else self._received
        ends[0].append(number)
        ends[1].append(len(self._kind) - 1)
        if phase == "f":
            args = event.get("args")
            self._sent_s.append(self._time(item, args, "sent_s"))
            self._arrived_s.append(self._time(item, args, "arrived_s"))

    def _track(self, item: Item, event: dict[str, Any]) -> tuple[int, float]:
        """Return an event's rank and time."""
        thread, ranks = event.get("tid"), self._header.ranks
        if event.get("pid") != PROCESS or not _is_count(thread, ranks + 1) or thread == 0:
            self._refuse(item, f"pid and tid are no rank of 0 to {ranks - 1}")
        return thread - 1, microseconds(self._number(item, event, "ts"))

    def _time(self, item: Item, args: Any, name: str) -> float:
        if not isinstance(args, dict):
            self._refuse(item, "args is missing")
        value = args.get(name)
        if not is_number(value) or not abs(value) <= _MAX_S:
            self._refuse(item, f"args.{name} is {_short(value)}: it must be a time in seconds")
        return float(value)

    def _number(self, item: Item, event: dict[str, Any], name: str) -> float:
        value = event.get(name)
        if not is_number(value) or not abs(microseconds(value)) <= _MAX_S:
            self._refuse(item, f"{name} is {_short(value)}: it must be a time in microseconds")
        return float(value)

    def timeline(self) -> Timeline:
        """Return what was read; raises ``InputError`` when the file does not hold what it says."""
        header = self._header
        self._compare("operations", header.operations, len(self._kind))
        self._compare("messages", header.messages, len(self._received[0]))
        self._check_makespan(header.makespan_s)
        if self._paired:
            self._refuse_file("the last operation overlaps one that is missing")
        start_s, end_s = np.array(self._start_s), np.array(self._end_s)
        first = np.concatenate([[0], np.cumsum(self._operations)]).astype(np.int64)
        sender = self._senders(first)
        sent_s, arrival_s = np.zeros((2, len(sender)))
        waits = np.array(self._received[1], dtype=np.int64)
        sent_s[waits] = self._sent_s
        arrival_s[waits] = self._arrived_s
        slack_s = _TOLERANCE * float(np.abs(end_s).max(initial=0.0))
        if np.any(sent_s[waits] < end_s[sender[waits]] - slack_s):
            self._refuse_file("a message sets out before the operation that sends it ends")
        if np.any(arrival_s[waits] < sent_s[waits] - slack_s):
            self._refuse_file("a message is there before it was sent")
        return Timeline(
            schedule=header.schedule,
            first=first,
            kind=np.array(self._kind, dtype=np.int64),
            stage=np.array(self._stage, dtype=np.int64),
            microbatch=np.array(self._microbatch, dtype=np.int64),
            overlapped=np.array(self._overlapped, dtype=bool),
            start_s=start_s,
            end_s=end_s,
            sender=sender,
            sent_s=sent_s,
            arrival_s=arrival_s,
            stages=header.stages,
            chains=header.chains,
            origin=header.origin,
            blocking=header.blocking,
        )

    def _senders(self, first: Ints) -> Ints:
        """Return the sender of each operation's message, ``[ops]``."""
        sent_id, sent_at = (np.array(values, dtype=np.int64) for values in self._sent)
        received_id, received_at = (np.array(values, dtype=np.int64) for values in self._received)
        by_sent, by_received = np.argsort(sent_id), np.argsort(received_id)
        ids = received_id[by_received]
        if not np.array_equal(sent_id[by_sent], ids) or np.any(ids[1:] == ids[:-1]):
            self._refuse_file("the flow events s and f are not one each for every message")
        sender = np.full(len(self._kind), NOTHING, dtype=np.int64)
        if len(np.unique(received_at)) < len(received_at):
            self._refuse_file("an operation waits for two messages")
        sender[received_at[by_received]] = sent_at[by_sent]
        rank = np.repeat(np.arange(len(first) - 1), np.diff(first))
        waits = np.flatnonzero(sender != NOTHING)
        if np.any(rank[sender[waits]] == rank[waits]):
            self._refuse_file("a message goes from a rank to itself")
        return sender

    def _compare(self, what: str, said: int, found: int) -> None:
        if said != found:
            self._refuse_file(f"it says {said:,} {what} and holds {found:,}: it was cut or changed")

    def _check_makespan(self, said_s: float) -> None:
        begin_s, end_s = min(self._start_s, default=0.0), max(self._end_s, default=0.0)
        slack_s = _TOLERANCE * max(abs(begin_s), abs(end_s))
        if not abs(said_s - (end_s - begin_s)) <= slack_s:
            self._refuse_file(
                f"otherData.makespan_s is {said_s:g}, the operations take {end_s - begin_s:g} s: it was changed"
            )

    def _refuse_file(self, message: str) -> NoReturn:
        raise InputError(Problem(Place(self._text.file), message))

    def _refuse(self, item: Item, message: str) -> NoReturn:
        place = self._text.place_of_value(item.number)
        raise InputError(Problem(place, f"{EVENTS}[{item.position}]: {message}"))


def _is_count(value: Any, below: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _short(value: Any) -> str:
    if value is None:
        return "missing"
    text = repr(value[:60]) if isinstance(value, str) else repr(value) if is_number(value) else ""
    return text[:60] or f"a {type(value).__name__}"
