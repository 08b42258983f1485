"""Idle time and activations in flight in closed form, over arrays of sizes, wherever they are exact.

Exact means: equal to the simulation of the order (``timeline/core.py``) where all stages take the same
times and messages take none; the tests hold it so. Where a form is not exact the result is not a
number (NaN): simulate. There is no form for zb-h2, zb-v, v-half and v-min, whose orders are greedy.

Sources: GPipe, 1F1B, interleaved arXiv 2104.04473 section 2.2; ZB-H1 arXiv 2401.10241 table 1;
DualPipe, DualPipeV deepseek-ai/DualPipe README.md; Chimera arXiv 2107.06925 table 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that no rule forbids (``make_refusals.refusals``); arrays that broadcast.

    ``microbatches`` of both directions for dualpipe and chimera; ``chunks`` stages a rank of one
    direction; ``group`` microbatches that pass one chunk before the next begins (interleaved ones).
    """

    pp: ArrayLike
    microbatches: ArrayLike
    chunks: ArrayLike = 1
    group: ArrayLike = 0


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """Seconds of one microbatch in one stage chunk; recompute belongs to ``input_s``."""

    forward_s: ArrayLike = 1.0
    input_s: ArrayLike = 1.0
    weight_s: ArrayLike = 1.0


@dataclass(frozen=True, slots=True)
class _Of:
    """The same as arrays of floats, all of one shape."""

    p: Floats
    m: Floats
    v: Floats
    g: Floats
    f: Floats
    i: Floats
    w: Floats

    @property
    def all_work(self) -> Floats:
        return self.f + self.i + self.w


def _arrays(sizes: Sizes, times: ChunkTimes) -> _Of:
    given = (sizes.pp, sizes.microbatches, sizes.chunks, sizes.group)
    taken = (times.forward_s, times.input_s, times.weight_s)
    wide = np.broadcast_arrays(*(np.asarray(one, dtype=np.float64) for one in (*given, *taken)))
    return _Of(*wide)


def idle_s(schedule: str, sizes: Sizes, times: ChunkTimes) -> Floats | None:
    """Return makespan less busy time of a rank, the same for all ranks.

    ``None`` where the schedule has no closed form, NaN where it is not exact for the sizes or times.
    """
    form = _IDLE.get(schedule)
    return None if form is None else form(_arrays(sizes, times))


def makespan_s(schedule: str, sizes: Sizes, times: ChunkTimes) -> Floats | None:
    """Return the time of all microbatches; ``None`` and NaN as in ``idle_s``."""
    idle, of = idle_s(schedule, sizes, times), _arrays(sizes, times)
    return None if idle is None else of.v * of.m * of.all_work + idle


def bubble_fraction(schedule: str, sizes: Sizes, times: ChunkTimes) -> Floats | None:
    """Return the idle share of the makespan; ``None`` and NaN as in ``idle_s``."""
    idle, whole = idle_s(schedule, sizes, times), makespan_s(schedule, sizes, times)
    return None if idle is None or whole is None else idle / whole


def _where(exact: NDArray[np.bool_], value: Floats) -> Floats:
    return np.where(exact, value, np.nan)


def _one_by_one(of: _Of) -> Floats:
    """GPipe, 1F1B, interleaved and looped breadth-first; fewer microbatches than ranks add waits."""
    few = np.maximum(of.p - of.m, 0.0) * (of.v - 1.0)
    return (of.p - 1.0 + few) * of.all_work


def _zero_bubble(of: _Of) -> Floats:
    """ZB-H1 and torch's interleaved zero bubble: weight gradients fill waits they fit into."""
    exact = (of.m >= of.p) & (of.w <= of.f) & (of.w <= of.i)
    return _where(exact, (of.p - 1.0) * (of.f + of.i - of.w))


def _dual(half: Floats, of: _Of) -> Floats:
    """(half - 1)(F&B + B - 3W), exact only for F = I = W."""
    exact = (of.f == of.i) & (of.i == of.w)
    return _where(exact, (half - 1.0) * (of.all_work + of.i - 2.0 * of.w))


def _chimera(of: _Of) -> Floats:
    exact = (of.m % of.p == 0.0) & (of.f == of.i + of.w)
    return _where(exact, (of.p - 2.0) * of.f)


_IDLE: dict[str, Callable[[_Of], Floats]] = {
    "gpipe": _one_by_one,
    "1f1b": _one_by_one,
    "interleaved": _one_by_one,
    "looped-bfs": _one_by_one,
    "zb-h1": _zero_bubble,
    "interleaved-zb": _zero_bubble,
    "dualpipe": lambda of: _dual(of.p / 2.0, of),
    "dualpipev": lambda of: _dual(of.p, of),
    "chimera": _chimera,
}


def peak_until_input(schedule: str, sizes: Sizes, rank: ArrayLike) -> Floats | None:
    """Return the most chunks a rank keeps from F to the end of B or I; as ``idle_s``.

    ``rank`` broadcasts with the sizes.
    """
    return _peak(_PEAK_INPUT, schedule, sizes, rank)


def peak_until_weight(schedule: str, sizes: Sizes, rank: ArrayLike) -> Floats | None:
    """Return the most chunks a rank keeps from F to the end of B or W; as ``idle_s``."""
    return _peak(_PEAK_WEIGHT, schedule, sizes, rank)


_Form = Callable[[_Of, Floats], Floats]
_PEAK_BOTH: dict[str, _Form] = {
    "gpipe": lambda of, _: of.v * of.m,
    "looped-bfs": lambda of, _: of.v * of.m,
    "1f1b": lambda of, r: of.p - r,
    "interleaved": lambda of, r: (of.v - 1.0) * of.g + 2.0 * (of.p - 1.0 - r) + 1.0,
    "dualpipe": lambda of, _: of.p + 1.0,
    "dualpipev": lambda of, _: 2.0 * of.p + 1.0,
    "chimera": lambda of, r: _where(
        of.m >= of.p, np.minimum(of.p / 2.0 + 1.0 + np.minimum(r, of.p - 1.0 - r), of.p)
    ),
}
_PEAK_INPUT: dict[str, _Form] = _PEAK_BOTH | {
    "zb-h1": lambda of, r: _where(of.m > of.p, of.p - r),
    "interleaved-zb": lambda of, r: (of.v - 1.0) * of.g + of.p - r,
}
_PEAK_WEIGHT: dict[str, _Form] = _PEAK_BOTH | {
    "zb-h1": lambda of, _: of.p,
    "interleaved-zb": lambda of, _: (of.v - 1.0) * of.g + of.p,
}


def _peak(forms: dict[str, _Form], schedule: str, sizes: Sizes, rank: ArrayLike) -> Floats | None:
    if schedule not in forms:
        return None
    of, at = _arrays(sizes, ChunkTimes()), np.asarray(rank, dtype=np.float64)
    return np.minimum(of.v * of.m, forms[schedule](of, at))
