"""A collective: who says what, how often, in which phase of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshwright.origin import Origin
from meshwright.traffic.copies import Copies

Floats = NDArray[np.float64]
RING_OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
MINOR_PHASES = ("step", "input")

Per = Literal[
    "layer and microbatch",
    "unit and microbatch",
    "chunk and microbatch",
    "microbatch",
    "unit",
    "bucket",
    "bucket and microbatch",
    "layer",
    "step",
]
"""What a collective is repeated for."""


@dataclass(frozen=True, slots=True)
class Run:
    """One row of a strategy's table: what runs, when, how often for each ``per``.

    ``phase``: forward, backward, recompute, optimizer, input (data) or step (once, at its end).
    ``hides_behind``: the compute it can run beside; ``None``: none, it is exposed.
    """

    op: str
    phase: str
    what: str
    each: float = 1.0
    hides_behind: str | None = None
    reverse: bool = False
    remark: str | None = None


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of collective on one axis.

    ``bytes_by_stage`` and ``count_by_stage`` have one entry a pipeline stage, since ends hold more
    than the middle: S as NCCL counts it (all-reduce: buffer; all-gather: output; reduce-scatter:
    input; all-to-all: a rank's send buffer; send: message), and how often a step. ``None``: not
    known, which is not zero; ``reason`` says why. For ``send`` the stage is the sender's.
    """

    axis: str
    op: str
    phase: str
    what: str
    bytes_by_stage: Floats | None
    count_by_stage: Floats | None
    origin: Origin = Origin.MODELLED
    reverse: bool = False
    """A send to the previous stage or rank."""
    hides_behind: str | None = None
    each: float = 1.0
    """How often it runs for each ``per``: the count of the whole step is in ``count_by_stage``."""
    per: Per = "step"
    remark: str | None = None
    """What a reader of logs or traces must know of it."""
    reason: str | None = None
    """Why bytes or count are not known."""
    copies: Copies | None = None
    """Of an all-to-all that sends a token once to a rank, or once to a host: how many copies."""
    is_direct: bool = False
    """Of an all-to-all: every pair by the sender's own NIC, no rank passes anything on."""

    @property
    def is_known(self) -> bool:
        """Tell whether bytes and count are known."""
        return self.bytes_by_stage is not None and self.count_by_stage is not None

    @property
    def is_minor(self) -> bool:
        """Tell whether it is one of those at a step's end or on its input: waited for, seldom large."""
        return self.phase in MINOR_PHASES

    def sent_bytes_by_stage(self, degree: int) -> Floats | None:
        """Return what one rank sends a step (ring algorithms; ``None`` when unknown)."""
        if self.bytes_by_stage is None or self.count_by_stage is None:
            return None
        return self.bytes_by_stage * self.count_by_stage * ring_factor(self.op, degree)


def ring_factor(op: str, degree: int) -> float:
    """Return bytes over every ring edge per byte of S (``send``: 1; all-to-all: what leaves a rank)."""
    if op == "all_reduce":
        return 2 * (degree - 1) / degree
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (degree - 1) / degree
    return 1.0


def unknown(axis: str, op: str, phase: str, what: str, reason: str | None = None) -> Collective:
    """Return a collective that runs but whose bytes are not known: a null, never a zero."""
    return Collective(axis, op, phase, what, None, None, reason=reason)


def unknown_run(axis: str, run: Run, reason: str) -> Collective:
    """Return a table's row whose bytes are not known."""
    return Collective(
        axis,
        run.op,
        run.phase,
        run.what,
        None,
        None,
        reverse=run.reverse,
        hides_behind=run.hides_behind,
        each=run.each,
        remark=run.remark,
        reason=reason,
    )


def known_run(
    axis: str, run: Run, per: Per, size_bytes: float | Floats, times_by_stage: Floats
) -> Collective:
    """Return a table's row with its bytes.

    ``size_bytes``: S, one for all stages or one a stage; ``times_by_stage``: how many ``per`` a
    stage has in a step.
    """
    return Collective(
        axis,
        run.op,
        run.phase,
        run.what,
        np.broadcast_to(np.asarray(size_bytes, dtype=np.float64), times_by_stage.shape).copy(),
        run.each * times_by_stage,
        reverse=run.reverse,
        hides_behind=run.hides_behind,
        each=run.each,
        per=per,
        remark=run.remark,
    )
