"""Groups that a layout alone does not make: a schedule's or FSDP's settings do.

- two opposed pipelines (DualPipe, Chimera): ranks of the stages r and p-1-r hold copies of both and add
  up their gradients;
- FSDP2 with ``reshard_after_forward`` an int n: after forward parameters stay spread over n consecutive
  ranks of the shard group (torch 2.13 ``_fsdp_init.py _get_post_forward_mesh_info``: ``mesh.view(-1, n)``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from meshwright.groups.grid import Ranks
from meshwright.groups.kinds import GroupKind, listed_kind

MIRROR_AXIS = "pp_mirror"
SHARDED = ("dp_shard", "dp_shard-cp", "edp")
"""Axes over which FSDP shards."""


def spread_axis(axis: str, ranks: int) -> str:
    """Return the axis of the groups of ``ranks`` consecutive ranks along a shard axis."""
    return f"{axis}/{ranks}"


def mirror_kind(kinds: Sequence[GroupKind]) -> GroupKind | None:
    """Return the pairs of ranks on mirrored stages, pipeline by pipeline; ``None`` without pipelines.

    A middle stage of an odd number has no other copy.
    """
    pipelines = next((kind for kind in kinds if kind.axis == "pp" and kind.degree > 1), None)
    if pipelines is None:
        return None
    half = pipelines.degree // 2

    def pairs() -> Ranks:
        ranks = pipelines.members()
        return np.stack([ranks[:, :half], ranks[:, ::-1][:, :half]], axis=-1).reshape(-1, 2)

    return listed_kind(MIRROR_AXIS, MIRROR_AXIS, pairs, (pipelines.num_groups * half, 2))


def spread_kinds(kinds: Sequence[GroupKind], ranks: int) -> list[GroupKind]:
    """Return the shard groups cut into ``ranks`` consecutive ranks, where that cuts them evenly."""
    return [
        listed_kind(
            spread_axis(kind.axis, ranks),
            spread_axis(kind.axis, ranks),
            partial(_cut, kind, ranks),
            (kind.num_groups * (kind.degree // ranks), ranks),
        )
        for kind in kinds
        if kind.axis in SHARDED and 1 < ranks < kind.degree and kind.degree % ranks == 0
    ]


def _cut(kind: GroupKind, ranks: int) -> Ranks:
    return np.ascontiguousarray(kind.members()).reshape(-1, ranks)
