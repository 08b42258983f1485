"""What the stages of a pipeline have to do: durations given by hand, or from a job's model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.costs.stage_flops import StageFlops, chain_layers, stage_flops
from meshwright.errors import UsageError
from meshwright.job.model import moe_layers
from meshwright.memory.peak import layers_of, recompute_of
from meshwright.origin import Origin
from meshwright.schedules.best_split import Split, best_split
from meshwright.schedules.orders import Ints, Orders, loop_ranks
from meshwright.timeline.program import StageTimes
from meshwright.traffic.workload import Workload

Floats = NDArray[np.float64]


class StageWork(Protocol):
    """Durations and activations of the stages, whatever chunks a schedule cuts a rank's layers into."""

    @property
    def origin(self) -> Origin:
        """Where the durations come from."""

    def times(self, orders: Orders) -> StageTimes:
        """Return the durations of one microbatch on every stage of a schedule's chain."""

    def kept_bytes(self, orders: Orders) -> Floats | None:
        """Return the bytes kept of one microbatch on every stage of the chain; ``None``: not known."""

    def stage_layers(self, orders: Orders) -> tuple[int, ...] | None:
        """Return the layers of every stage of the chain; ``None`` without a model."""

    def rank_layers(self) -> tuple[int, ...] | None:
        """Return the layers of every rank; ``None`` without a model."""


@dataclass(frozen=True, slots=True)
class GivenWork:
    """Durations of one stage chunk, and a factor for each stage.

    Parameters
    ----------
    forward_s, input_s, weight_s
        Of one chunk where the model is cut into ``stages`` of them.
    factors
        Of each stage in the order a microbatch passes them; of each rank with ``by_rank``.
    model
        The job's model, where there is one: what its stages hold.
    """

    forward_s: float
    input_s: float
    weight_s: float
    stages: int
    factors: tuple[float, ...]
    by_rank: bool
    origin: Origin
    model: JobWork | None = None

    def times(self, orders: Orders) -> StageTimes:
        """Return the durations; where the model is cut into other stages, their share of the work."""
        length = orders.chain_length
        share = self.stages / length
        equal = StageTimes.equal(
            length, self.forward_s * share, self.input_s * share, self.weight_s * share
        )
        return equal.scaled(self._factors(orders)) if self.factors else equal

    def _factors(self, orders: Orders) -> Floats:
        given, length = np.array(self.factors), orders.chain_length
        if self.by_rank:
            return given[orders.rank_of_stage[:length]]
        if len(given) == length:
            return given
        # The model cut into other stages: each has the mean of what it covers.
        ends = np.arange(len(given) + 1) / len(given)
        whole = np.concatenate([[0.0], np.cumsum(given)]) / len(given)
        cuts = np.interp(np.arange(length + 1) / length, ends, whole)
        return np.maximum(np.asarray(np.diff(cuts) * length, dtype=np.float64), 0.0)

    def kept_bytes(self, orders: Orders) -> Floats | None:
        """Return what the job's model keeps; nothing without one."""
        return None if self.model is None else self.model.kept_bytes(orders)

    def stage_layers(self, orders: Orders) -> tuple[int, ...] | None:
        """Return the layers of the job's model; nothing without one."""
        return None if self.model is None else self.model.stage_layers(orders)

    def rank_layers(self) -> tuple[int, ...] | None:
        """Return the layers of the job's model; nothing without one."""
        return None if self.model is None else self.model.rank_layers()


def given_work(
    durations_s: tuple[float, float, float],
    pp: int,
    stages: int,
    factors: Sequence[float],
    model: JobWork | None = None,
) -> GivenWork:
    """Return the work given by hand; ``stages``: of the model; ``model``: the job's, where there is one.

    Raises ``UsageError`` for a number of factors that fits neither ranks nor stages.
    """
    if factors and len(factors) not in (pp, stages):
        several = f", or {stages}, one for each stage" if stages != pp else ""
        raise UsageError(
            f"--stage-times has {len(factors)} factors: write {pp}, one for each rank{several}"
        )
    return GivenWork(
        *durations_s,
        stages=stages,
        factors=tuple(factors),
        by_rank=bool(factors) and len(factors) != stages,
        origin=Origin.STATED,
        model=model,
    )


@dataclass(frozen=True, slots=True)
class JobWork:
    """Durations from the FLOPs of a job's stages at an assumed rate.

    Parameters
    ----------
    flops_per_s
        What a GPU is assumed to reach; where no GPU is known, the FLOPs that count as one.
    wide_cost
        See ``stage_flops``.
    """

    work: Workload
    flops_per_s: float
    origin: Origin = Origin.ASSUMED
    wide_cost: float = 1.0

    def flops(self, orders: Orders) -> StageFlops:
        """Return the FLOPs of one microbatch on every stage of a schedule's chain, wide ones weighed."""
        recompute = recompute_of(self.work)
        return stage_flops(self._as_run(orders), _chain(orders), recompute, self.wide_cost)

    def times(self, orders: Orders) -> StageTimes:
        """Return FLOPs over the assumed rate."""
        found = self.flops(orders)
        return StageTimes(
            *(
                one / self.flops_per_s
                for one in (found.forward, found.input, found.weight, found.recompute)
            )
        )

    def kept_bytes(self, orders: Orders) -> Floats | None:
        """Return what one microbatch keeps on every stage: its layers' activations (``memory/``)."""
        work = self._as_run(orders)
        if work.tokens is None or work.model.unmodelled_layers:
            return None
        plain, moe = layers_of(work)
        layer = np.array(
            [
                moe.kept if moe is not None and kind else plain.kept
                for kind in moe_layers(work.model)
            ],
            dtype=np.float64,
        )
        kept = np.array(
            [float(layer[list(one)].sum()) for one in chain_layers(work, _chain(orders))]
        )
        kept[-1] += (work.training.mtp_layers or 0) * layer[-1]
        return kept

    def stage_layers(self, orders: Orders) -> tuple[int, ...] | None:
        """Return the layers of every stage of the chain."""
        return tuple(len(one) for one in chain_layers(self.work, _chain(orders)))

    def rank_layers(self) -> tuple[int, ...] | None:
        """Return the layers of every rank, as the job divides them."""
        return tuple(self.work.stage_layers)

    def best_split(self) -> Split | None:
        """Return the most even division of the layers over the ranks; ``None`` where it is not sought.

        Chunks of one rank hold layers of different parts of the model, so the split of a chain says
        nothing of them.
        """
        layout = self.work.layout
        if layout.pp < 2 or layout.vp > 1 or self.work.is_folded or self.work.is_opposed:
            return None
        ranks, recompute = loop_ranks(layout.pp), recompute_of(self.work)
        found = stage_flops(self.work, ranks, recompute, self.wide_cost)
        if len(found.layer) < layout.pp:
            return None
        split = best_split(found.layer, layout.pp, 0.0, found.output)
        return Split(split.layers, split.stage_s / self.flops_per_s)

    def _as_run(self, orders: Orders) -> Workload:
        """Return the workload as another schedule would run it."""
        training = msgspec.structs.replace(self.work.training, schedule=orders.schedule)
        return dataclasses.replace(self.work, training=training)


def _chain(orders: Orders) -> Ints:
    return orders.rank_of_stage[: orders.chain_length]
