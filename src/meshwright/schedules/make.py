"""Makes any schedule known here from its name and sizes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, Unpack

from meshwright.errors import UsageError
from meshwright.schedules.make_asked import Asked, Options, asked
from meshwright.schedules.make_refusals import refusals_of
from meshwright.schedules.orders import Orders

MAX_OPERATIONS: Final = 20_000_000
"""More are not made: they take some gigabytes and minutes."""

_PLACES: Final = {
    "gpipe": "loops:gpipe",
    "1f1b": "loops:one_forward_one_backward",
    "interleaved": "loops:interleaved",
    "looped-bfs": "loops:looped_bfs",
    "interleaved-zb": "interleaved_zb:interleaved_zb",
    "zb-h1": "greedy.zero_bubble:zb_h1",
    "zb-h2": "greedy.zero_bubble:zb_h2",
    "zb-v": "greedy.v_shaped_greedy:zb_v",
    "v-half": "greedy.v_shaped_pattern:v_half",
    "v-min": "greedy.v_shaped_pattern:v_min",
    "dualpipe": "dualpipe:dualpipe",
    "dualpipev": "dualpipe:dualpipev",
    "chimera": "chimera:chimera",
}
"""Module of this room and its function, imported when asked for."""

BY_COSTS: Final = ("zb-h1", "zb-h2", "zb-v")
"""Schedules made for certain costs: their order may be another for others (torch's zb-v is one)."""


def make_orders(schedule: str, pp: int, microbatches: int, **options: Unpack[Options]) -> Orders:
    """Return a schedule.

    Parameters
    ----------
    schedule
        One of ``names.SCHEDULES`` or another spelling; 1F1B of several chunks is interleaved.
    microbatches
        Of both directions together for dualpipe and chimera.
    options
        See ``Options``: ``chunks`` (1; 2 for the V-shapes), ``group`` (interleaved: pp, or torch's
        rounds), ``convention`` (megatron; torch has its own zb-v and groups), ``costs``.

    Raises
    ------
    UsageError
        Nothing is known by that name, a number is below 1, a rule forbids it (``refusals`` tells
        all), or it is over ``MAX_OPERATIONS``.
    """
    ask = asked(schedule, pp, microbatches, options)
    if refused := refusals_of(ask):
        first = refused[0]
        raise UsageError(f"{first.message} ({first.rule}; {first.remedy})")
    if ask.operations > MAX_OPERATIONS:
        raise UsageError(
            f"{ask.schedule} over pp {pp} with {microbatches} microbatches has up to {ask.operations:,} "
            f"operations; at most {MAX_OPERATIONS:,} are made"
        )
    return _made(ask)


def _made(ask: Asked) -> Orders:
    name, sizes = ask.schedule, (ask.pp, ask.microbatches)
    if name == "zb-v" and ask.convention == "torch":
        return _function("greedy.v_shaped_closed:zb_v_closed")(*sizes)
    make = _function(_PLACES[name])
    if name in ("interleaved", "interleaved-zb"):
        return make(*sizes, ask.chunks, ask.group)
    if name == "looped-bfs":
        return make(*sizes, ask.chunks)
    if name in BY_COSTS:
        return make(*sizes, ask.costs)
    return make(*sizes)


def _function(place: str) -> Callable[..., Orders]:
    module, name = place.split(":")
    found: Callable[..., Orders] = getattr(import_module(f"meshwright.schedules.{module}"), name)
    return found
