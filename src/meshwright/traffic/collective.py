"""A collective: who says what, how often, in which phase of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.origin import Origin

Floats = NDArray[np.float64]
RING_OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of collective on one axis.

    ``bytes_by_stage`` and ``count_by_stage`` have one entry a pipeline stage, since ends hold more
    than the middle: S as NCCL counts it (all-reduce: buffer; all-gather: output; reduce-scatter:
    input; all-to-all: a rank's send buffer; send: message), and how often a step. ``None``: not
    modelled yet or not known, which is not zero. For ``send`` the stage is the sender's.
    """

    axis: str
    op: str
    phase: str
    what: str
    bytes_by_stage: Floats | None
    count_by_stage: Floats | None
    origin: Origin = Origin.MODELLED
    reverse: bool = False
    """A send to the previous stage."""
    hides_behind: str | None = None

    @property
    def is_known(self) -> bool:
        """Tell whether bytes and count are known."""
        return self.bytes_by_stage is not None and self.count_by_stage is not None

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


def unknown(axis: str, op: str, phase: str, what: str) -> Collective:
    """Return a collective that runs but whose bytes are not modelled: a null, never a zero."""
    return Collective(axis, op, phase, what, None, None)
