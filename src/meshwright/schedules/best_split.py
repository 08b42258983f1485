"""The best division of a chain of layers over stages, exact.

A pipeline in its steady state takes as long a microbatch as its slowest stage, so the split wanted
is the one whose slowest stage is fastest; of several, the most even one. Both by dynamic
programming over where each stage ends (Bellman's recursion for chain partition; the balanced stages
of PipeDream, arXiv 1806.03377, section 3.1, without replication).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_SLACK = 1e-9
"""Sums of the same layers in another order differ by rounding only."""
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Split:
    """``layers[stages]``: how many layers each stage holds; ``stage_s[stages]``: what each takes."""

    layers: tuple[int, ...]
    stage_s: Floats

    @property
    def slowest_s(self) -> float:
        """The slowest stage's time, which every microbatch pays in the steady state."""
        return float(self.stage_s.max())


def stage_costs(
    layers: Sequence[int], layer_s: Floats, first_s: float = 0.0, last_s: float = 0.0
) -> Floats:
    """Return what each stage of a given split takes; see ``best_split``."""
    ends = np.cumsum(layers)
    total = np.concatenate([[0.0], np.cumsum(layer_s)])
    cost = total[ends] - total[ends - np.asarray(layers)]
    cost[0] += first_s
    cost[-1] += last_s
    return np.asarray(cost, dtype=np.float64)


def best_split(
    layer_s: Floats, stages: int, first_s: float = 0.0, last_s: float = 0.0, least: int = 1
) -> Split:
    """Divide layers over stages so that the slowest stage is as fast as can be.

    Parameters
    ----------
    layer_s[layers]
        Time of each layer, in order.
    first_s, last_s
        What the first stage has besides (embedding) and the last (output layer, loss).
    least
        Layers every stage holds at least.

    Raises ``ValueError`` when there are fewer layers than the stages must hold.
    """
    count = len(layer_s)
    if stages < 1 or count < stages * least:
        raise ValueError(f"{count} layers cannot give {stages} stages {least} each")
    total = np.concatenate([[0.0], np.cumsum(layer_s)])
    cap = _least_maximum(total, stages, (first_s, last_s), least)
    ends = _most_even(total, stages, (first_s, last_s), least, cap * (1 + _SLACK))
    layers = tuple(int(size) for size in np.diff([0, *ends]))
    return Split(layers, stage_costs(layers, np.asarray(layer_s), first_s, last_s))


def _stage_cost(
    total: Floats, at: int, stages: int, ends: tuple[float, float], least: int
) -> Floats:
    """Return ``cost[begin, end]`` of stage ``at``; infinite where it holds too few layers."""
    cost = total[None, :] - total[:, None]
    cost = cost + (ends[0] if at == 0 else 0.0) + (ends[1] if at == stages - 1 else 0.0)
    size = np.arange(len(total))
    return np.where(size[None, :] - size[:, None] >= least, cost, np.inf)


def _least_maximum(total: Floats, stages: int, ends: tuple[float, float], least: int) -> float:
    best = np.where(np.arange(len(total)) == 0, -np.inf, np.inf)
    for at in range(stages):
        cost = _stage_cost(total, at, stages, ends, least)
        best = np.maximum(best[:, None], cost).min(axis=0)
    return float(best[-1])


def _most_even(
    total: Floats, stages: int, ends: tuple[float, float], least: int, cap: float
) -> list[int]:
    """Return where the stages end, least sum of squares under the cap."""
    best = np.where(np.arange(len(total)) == 0, 0.0, np.inf)
    chosen = []
    for at in range(stages):
        cost = _stage_cost(total, at, stages, ends, least)
        whole = best[:, None] + np.where(cost <= cap, cost**2, np.inf)
        # of splits that differ by rounding alone the same one always: that whose stages end first
        chosen.append((whole <= whole.min(axis=0) * (1 + _ROUNDING)).argmax(axis=0))
        best = whole.min(axis=0)
    end, found = len(total) - 1, []
    for begin in reversed(chosen):
        found.append(end)
        end = int(begin[end])
    return found[::-1]
