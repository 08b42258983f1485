"""The record of a pipeline schedule: which operation each rank runs after which.

Stages are numbered over the whole pipeline. Schedules that run two pipelines against each other
(DualPipe, Chimera) have two chains of ``p`` stages: entries 0 to p-1 go down the ranks, entries p to
2p-1 go up, and entry p + s is the second copy of the model's stage s. Microbatches are numbered
from 0 within their chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Kind(IntEnum):
    """What an operation computes."""

    FORWARD = 0
    BACKWARD = 1
    """Gradients of inputs and of weights in one."""
    INPUT = 2
    """Gradient of the inputs."""
    WEIGHT = 3
    """Gradient of the weights."""


LETTERS = "FBIW"
"""Letter of each kind, as torch's CSV form writes it."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Operations of every rank in program order, rank after rank.

    Parameters
    ----------
    schedule
        Our name of the schedule, or the name of the file it was read from.
    first[ranks + 1]
        Rank r runs the operations ``first[r]`` to ``first[r + 1] - 1``.
    kind[ops], stage[ops], microbatch[ops]
        What each operation computes: a ``Kind``, a chain entry, a microbatch of its chain.
    overlapped[ops]
        The operation runs together with the next one (a forward with a backward).
    rank_of_stage[entries]
        Rank that holds each chain entry.
    chains
        1, or 2 where two pipelines run against each other.
    """

    schedule: str
    first: Ints
    kind: Ints
    stage: Ints
    microbatch: Ints
    overlapped: NDArray[np.bool_]
    rank_of_stage: Ints
    chains: int = 1

    @property
    def ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.first) - 1

    @property
    def chain_length(self) -> int:
        """Stages of the model."""
        return len(self.rank_of_stage) // self.chains

    @property
    def chunks(self) -> int:
        """Stages a rank holds of one chain."""
        return self.chain_length // max(self.ranks, 1)

    @property
    def microbatches(self) -> int:
        """Microbatches of all chains together."""
        return self.chains * (int(self.microbatch.max()) + 1 if len(self.microbatch) else 0)

    @property
    def rank(self) -> Ints:
        """Return the rank of every operation, ``[ops]``."""
        return np.repeat(np.arange(self.ranks), np.diff(self.first))

    def of_rank(self, rank: int) -> slice:
        """Return where the operations of a rank stand."""
        return slice(int(self.first[rank]), int(self.first[rank + 1]))


def orders_of(
    schedule: str,
    by_rank: Sequence[NDArray[np.int64]],
    rank_of_stage: Sequence[int] | Ints,
    chains: int = 1,
) -> Orders:
    """Put the orders of the ranks together.

    Parameters
    ----------
    by_rank
        For each rank an array ``[ops, 3]`` of kind, stage, microbatch; a fourth column, if there,
        is 1 where the operation is overlapped with the next.
    """
    table = np.concatenate([np.asarray(rows, dtype=np.int64) for rows in by_rank])
    lengths = [len(rows) for rows in by_rank]
    together = table[:, 3] if table.shape[1] > 3 else np.zeros(len(table))
    return Orders(
        schedule=schedule,
        first=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        kind=np.ascontiguousarray(table[:, 0]),
        stage=np.ascontiguousarray(table[:, 1]),
        microbatch=np.ascontiguousarray(table[:, 2]),
        overlapped=together.astype(bool),
        rank_of_stage=np.asarray(rank_of_stage, dtype=np.int64),
        chains=chains,
    )


def rows_of(operations: Iterable[tuple[int, ...]], width: int = 3) -> NDArray[np.int64]:
    """Return the operations of one rank as an array for ``orders_of``."""
    return np.array(list(operations), dtype=np.int64).reshape(-1, width)


def loop_ranks(pp: int, chunks: int = 1) -> Ints:
    """Return the rank of each stage where chunk c of rank r is stage c·p + r."""
    return np.tile(np.arange(pp, dtype=np.int64), chunks)


def v_ranks(pp: int) -> Ints:
    """Return the rank of each stage where rank r holds the stages r and 2p-1-r."""
    return np.concatenate([np.arange(pp), np.arange(pp)[::-1]]).astype(np.int64)
