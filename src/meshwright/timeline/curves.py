"""Activations over time as curves, for the counters of a trace and for pictures."""

from __future__ import annotations

import numpy as np

from meshwright.timeline.memory_over_time import MemoryOverTime
from meshwright.timeline.record import Curve

ACTIVATIONS = "activations in flight"


def chunk_curve(memory: MemoryOverTime, unit: str = "chunks") -> Curve:
    """Return how many stage chunks of activations every rank keeps, from F to the end of B or W.

    ``unit``: ``microbatches`` where a rank holds one stage.
    """
    values = memory.chunks_until_weight.astype(np.float64)
    return Curve(ACTIVATIONS, unit, memory.first, memory.time_s, values)


def bytes_curve(memory: MemoryOverTime) -> Curve:
    """Return the bytes of activations that every rank keeps."""
    return Curve("activations", "bytes", memory.first, memory.time_s, memory.kept_bytes)
