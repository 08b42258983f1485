"""How many microbatch-chunks each pipeline rank keeps activations of at most.

By the schedule's closed form where it has one (``schedules/closed_forms.py``), else by its order. A
chunk is a v-th of a rank's layers. Counted until the weight gradient where a schedule splits the
backward: it needs the inputs until then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import UsageError
from meshwright.schedules.closed_forms import Sizes, peak_until_weight
from meshwright.schedules.make import make_orders
from meshwright.schedules.names import TWO_CHUNKS
from meshwright.schedules.peaks import peaks

Floats = NDArray[np.float64]
MOST_OPERATIONS = 200_000
"""An order of more operations is not made for its peaks: the schedule's cap stands for them."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """``peak[pp]``: chunks kept at most; ``chunks`` a rank's layers are cut into."""

    schedule: str
    peak: Floats
    chunks: int
    exact: bool

    @property
    def microbatches(self) -> Floats:
        """Peak as whole microbatches of a rank's layers."""
        return self.peak / self.chunks


def in_flight(
    schedule: str,
    pp: int,
    microbatches: int,
    vp: int = 1,
    group: int = 0,
    convention: str = "megatron",
) -> InFlight:
    """Return the peak by rank; not ``exact`` where it is the most that the schedule may keep.

    Parameters
    ----------
    schedule
        One of ours (``schedules/names.py``); ``dualpipe`` and ``chimera`` count both directions.
    group
        Microbatches of a group of the interleaved schedule (0: pp, Megatron's default).
    convention
        ``megatron`` or ``torch``, which has a zb-v of its own.
    """
    chunks = 2 if schedule in TWO_CHUNKS else vp
    sizes = Sizes(pp, microbatches, chunks, group or pp)
    closed = peak_until_weight(schedule, sizes, np.arange(pp))
    if closed is not None and np.isfinite(closed).all():
        whole: Floats = np.broadcast_to(closed, pp).copy()
        return InFlight(schedule, whole, chunks, exact=True)
    made = None
    if 3 * pp * microbatches * chunks <= MOST_OPERATIONS:
        made = _of_order(schedule, pp, microbatches, chunks, convention)
    if made is not None:
        return InFlight(schedule, made, chunks, exact=True)
    most = float(microbatches * chunks)
    cap = float(_CAPS[schedule](pp)) if schedule in _CAPS else most
    return InFlight(schedule, np.full(pp, min(most, cap)), chunks, exact=False)


_CAPS: dict[str, Callable[[int], int]] = {
    "zb-h1": lambda pp: pp,
    "zb-h2": lambda pp: 4 * pp - 1,  # the cap of 2p counts half of a microbatch from I to W
    "zb-v": lambda pp: 2 * pp,
    "v-half": lambda pp: 2 * (pp // 2 + 1),
    "v-min": lambda pp: 2 * (-(-(pp - 1) // 3) + 1),
    "chimera": lambda pp: pp,
}
"""The most that any number of microbatches makes a rank keep (tests hold the orders to it)."""


@lru_cache(maxsize=256)
def _of_order(
    schedule: str, pp: int, microbatches: int, chunks: int, convention: str
) -> Floats | None:
    """Return the peaks of the order; ``None`` where a rule forbids it (it says so itself)."""
    try:
        orders = make_orders(schedule, pp, microbatches, chunks=chunks, convention=convention)
    except UsageError:
        return None
    return peaks(orders)[1].astype(np.float64)


def interleaved_group(framework: str, pp: int, microbatches: int) -> int:
    """Return the microbatches of a group: pp in Megatron; torch divides m into m // p rounds."""
    if framework == "megatron":
        return pp
    return max(microbatches // max(1, microbatches // pp), 1)
