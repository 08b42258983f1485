"""How many microbatch-chunks each pipeline rank keeps activations of at most.

Closed forms, equal to the orders of the original code (Megatron-Core, torch, zero-bubble, DualPipe)
where ``exact``; the others bound them from above. A chunk is a v-th of a rank's layers. Counted
until the weight gradient where a schedule splits the backward: it needs the inputs until then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NAMES = {
    "": "1f1b",
    "1f1b": "1f1b",
    "pipedream-flush": "1f1b",
    "gpipe": "gpipe",
    "interleaved": "interleaved",
    "interleaved1f1b": "interleaved",
    "interleaved 1f1b": "interleaved",
    "interleaved-1f1b": "interleaved",
    "looped-bfs": "looped-bfs",
    "loopedbfs": "looped-bfs",
    "zb-h1": "zb-h1",
    "zb1p": "zb-h1",
    "zb-h2": "zb-h2",
    "zb2p": "zb-h2",
    "zb-v": "zb-v",
    "zbv": "zb-v",
    "zbvzerobubble": "zb-v",
    "v-half": "v-half",
    "v-min": "v-min",
    "interleaved-zb": "interleaved-zb",
    "interleavedzerobubble": "interleaved-zb",
    "dualpipe": "dualpipe",
    "dualpipev": "dualpipev",
    "chimera": "chimera",
}
"""Names of schedules as people write them, and ours."""
TWO_CHUNKS = ("zb-v", "v-half", "v-min", "dualpipev")
"""Schedules of two chunks a rank whatever ``vp`` says."""


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


def schedule_name(given: str | None, vp: int) -> str | None:
    """Return our name of a schedule; ``None`` when it is unknown. 1F1B of chunks is interleaved."""
    name = NAMES.get((given or "").strip().lower())
    return "interleaved" if name == "1f1b" and vp > 1 else name


def in_flight(schedule: str, pp: int, microbatches: int, vp: int = 1, group: int = 0) -> InFlight:
    """Return the peak by rank.

    Parameters
    ----------
    schedule
        One of ours (values of ``NAMES``); ``dualpipe`` and ``chimera`` count both directions.
    group
        Microbatches of a group of the interleaved schedule (0: pp, Megatron's default).
    """
    rank = np.arange(pp, dtype=np.float64)
    chunks = 2 if schedule in TWO_CHUNKS else vp
    most = np.full(pp, float(microbatches * chunks))
    forms = {
        "gpipe": most,
        "looped-bfs": most,
        "1f1b": pp - rank,
        "interleaved": (vp - 1) * (group or pp) + 2 * (pp - 1 - rank) + 1,
        "zb-h1": np.full(pp, float(pp)),
        "zb-h2": np.full(pp, 3.0 * pp),  # capped at 2p until I, W comes later still
        "zb-v": np.full(pp, 2.0 * pp),
        "v-half": np.full(pp, pp + 2.0),
        "v-min": np.full(pp, max(pp, 4.0)),
        "interleaved-zb": np.full(pp, float((vp - 1) * (group or pp) + pp)),
        "dualpipe": np.full(pp, pp + 1.0),
        "dualpipev": np.full(pp, 2.0 * pp + 1),
        "chimera": np.full(pp, float(pp)),
    }
    bounds = ("zb-h2", "zb-v", "v-half", "v-min", "chimera")
    return InFlight(
        schedule, np.minimum(most, forms[schedule]), chunks, exact=schedule not in bounds
    )


def interleaved_group(framework: str, pp: int, microbatches: int) -> int:
    """Return the microbatches of a group: pp in Megatron; torch divides m into m // p rounds."""
    if framework == "megatron":
        return pp
    return max(microbatches // max(1, microbatches // pp), 1)
