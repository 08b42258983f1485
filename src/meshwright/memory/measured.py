"""What measured sizes say: which part dominates, what one change gives, how peaks move with m."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from meshwright.memory.in_flight import in_flight, interleaved_group

SCALES_WITH_MICRO_BATCH = ("activations", "logits")
_ENOUGH_RANKS = 8
"""Pipeline ranks taken where no job says: the trend is the same for all above one."""


@dataclass(frozen=True, slots=True)
class LiveMemory:
    """A measured live size by part, bytes; ``rest`` is what no part names."""

    live: float
    parts: Mapping[str, float]
    capacity: float
    micro_batch: int

    @property
    def rest(self) -> float:
        """Live bytes that no part names."""
        return self.live - sum(self.parts.values())

    @property
    def dominant(self) -> str:
        """The largest named part."""
        return max(self.parts, key=self.parts.__getitem__)


@dataclass(frozen=True, slots=True)
class Halved:
    """What is left when the micro-batch is halved and activations with it, bytes."""

    micro_batch: int
    activations: float
    live: float
    margin: float


def halve_micro_batch(memory: LiveMemory) -> Halved | None:
    """Return the effect of half the micro-batch; ``None`` when it is 1 or odd.

    Activations scale with the micro-batch, states do not; the rest is taken to stay.
    """
    if memory.micro_batch < 2 or memory.micro_batch % 2:
        return None
    before = sum(memory.parts.get(name, 0.0) for name in SCALES_WITH_MICRO_BATCH)
    live = memory.live - before / 2
    return Halved(memory.micro_batch // 2, before / 2, live, memory.capacity - live)


@dataclass(frozen=True, slots=True)
class Cause:
    """A class of cause for peaks that do not follow the schedule, the likeliest first."""

    cause_class: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trend:
    """How measured peaks move with the number of microbatches, the global batch fixed.

    ``slope`` is bytes a microbatch over the measured ends, ``None`` with one measured peak.
    """

    expected: str
    observed: str
    slope: float | None
    causes: tuple[Cause, ...]


def peak_trend(peaks: Sequence[tuple[int, float | None]], schedule: str, vp: int = 1) -> Trend:
    """Compare peaks with the schedule. ``peaks``: (microbatches, bytes, or ``None`` out of memory).

    At a fixed global batch a microbatch shrinks as 1/m, so a rank's activations go as
    in-flight(m)/m.
    """
    rows = sorted(peaks)
    known = [(count, size) for count, size in rows if size is not None]
    expected = _direction([_kept_share(schedule, vp, count) for count, _ in rows])
    observed = _direction([size if size is not None else float("inf") for _, size in rows])
    slope = None
    if len(known) > 1 and known[-1][0] != known[0][0]:
        slope = (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
    causes = _causes() if observed == "increasing" and expected == "non_increasing" else ()
    return Trend(expected, observed, slope, causes)


def _kept_share(schedule: str, vp: int, count: int) -> float:
    group = interleaved_group("megatron", _ENOUGH_RANKS, count)
    flight = in_flight(schedule, _ENOUGH_RANKS, count, vp, group)
    return float(flight.microbatches.max()) / count


def kept_words(schedule: str) -> str:
    """Return how many microbatches a rank keeps activations of under a schedule, and what follows."""
    if schedule in ("gpipe", "looped-bfs"):
        return (
            f"{schedule} keeps activations of all microbatches, which at a fixed global batch are as many "
            "bytes whatever their number"
        )
    most = "at most one a stage of the pipeline" if schedule == "1f1b" else "which pp and vp bound"
    return (
        f"{schedule} keeps activations of a bounded number of microbatches ({most}), and at a fixed global "
        "batch each shrinks as their number grows"
    )


def _direction(values: Sequence[float]) -> str:
    """Return ``increasing``, ``non_increasing`` or ``mixed``."""
    pairs = list(pairwise(values))
    if all(after <= before for before, after in pairs):
        return "non_increasing"
    return "increasing" if all(after >= before for before, after in pairs) else "mixed"


def _causes() -> tuple[Cause, ...]:
    return (
        Cause(
            "buffers_per_microbatch",
            "something of fixed size is kept for every microbatch, such as weight gradients that are "
            "stored per microbatch and summed at the end: accumulate them in place",
        ),
        Cause(
            "forwards_ahead_of_schedule",
            "more forwards run before the first backward than the schedule allows: look at the order "
            "of forwards and backwards in a trace",
        ),
        Cause(
            "fragmentation",
            "many small microbatches leave holes: compare reserved with allocated; if only reserved "
            "grows, it is this",
        ),
    )
