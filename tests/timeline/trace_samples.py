"""Timelines of many schedules for tests of traces and pictures."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from meshwright.schedules.make import make_orders
from meshwright.schedules.orders import Orders
from meshwright.timeline.program import Messages, Program, StageTimes, program_of
from meshwright.timeline.record import Timeline, timeline_of
from meshwright.timeline.simulate import simulate
from meshwright.timeline.trace.read import read_text
from meshwright.timeline.trace.text import TraceText
from meshwright.timeline.trace.write import trace_pieces

SCHEDULES = {
    "gpipe": {},
    "1f1b": {},
    "interleaved": {"chunks": 2},
    "looped-bfs": {"chunks": 2},
    "zb-h1": {},
    "zb-h2": {},
    "zb-v": {"chunks": 2},
    "interleaved-zb": {"chunks": 2},
    "dualpipe": {},
    "dualpipev": {"chunks": 2},
    "chimera": {},
}


def orders_named(schedule: str, pp: int = 4, microbatches: int = 12) -> Orders:
    return make_orders(schedule, pp, microbatches, **SCHEDULES[schedule])


def program_named(
    schedule: str, send_s: float = 0.0, seed: int | None = None, scale_s: float = 1.0
) -> Program:
    """Return a program of 4 ranks and 12 microbatches, with random times where a seed is given."""
    orders = orders_named(schedule)
    times = StageTimes.equal(orders.chain_length, scale_s, scale_s, scale_s)
    if seed is not None:
        random = np.random.default_rng(seed)
        times = StageTimes(*(scale_s * random.uniform(0.2, 3.0, (4, orders.chain_length))))
    return program_of(orders, times, Messages.uniform(orders.ranks, send_s))


def timeline_named(schedule: str, send_s: float = 0.0, seed: int | None = None) -> Timeline:
    program = program_named(schedule, send_s, seed)
    return timeline_of(program, simulate(program))


def uneven() -> Timeline:
    """Return 1F1B with stage times 1, 1, 1, 1.5 and messages of 0.1 s."""
    orders = orders_named("1f1b")
    times = StageTimes.equal(4).scaled(np.array([1.0, 1.0, 1.0, 1.5]))
    program = program_of(orders, times, Messages.uniform(4, 0.1))
    return timeline_of(program, simulate(program))


def written(timeline: Timeline, *curves: Any) -> bytes:
    return b"".join(trace_pieces(timeline, curves))


def document_of(timeline: Timeline, *curves: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(written(timeline, *curves))
    return document


def read_back(content: bytes | dict[str, Any]) -> Timeline:
    if isinstance(content, dict):
        content = json.dumps(content).encode()
    return read_text(TraceText("trace.json", io.BytesIO(content)))


def same(left: Timeline, right: Timeline) -> None:
    """Fail where two timelines differ by more than rounding."""
    for name in ("schedule", "stages", "chains", "origin"):
        assert getattr(left, name) == getattr(right, name)
    for name in ("first", "kind", "stage", "microbatch", "overlapped", "sender"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    for name in ("start_s", "end_s", "sent_s", "arrival_s"):
        np.testing.assert_allclose(
            getattr(left, name),
            getattr(right, name),
            rtol=1e-12,
            atol=1e-14 * right.makespan_s,
            err_msg=name,
        )
