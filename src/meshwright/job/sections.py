"""The sections of a job file that describe the job itself, as typed structs.

Units: bytes, seconds, counts. ``None`` means that the user left the key out.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from meshwright.documents import AsWritten, Check, Convert, Maximum, Minimum
from meshwright.units import parse_bytes

Framework = Literal["megatron", "torch", "torchtitan", "deepspeed", "nanotron", "maxtext"]
Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp", "hsdp"]
Op = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]
MOST_STAGES = 65_536
MOST_RUNS = 1_000_000_000_000
"""Times a collective given by hand may run in a step."""
PositiveInt = Annotated[int, Minimum(1)]
Size = Annotated[int, Convert(parse_bytes)]


def short(values: tuple[int, ...]) -> None:
    """Refuse a list longer than any pipeline: raises ``ValueError``."""
    if len(values) > MOST_STAGES:
        raise ValueError(f"a list of {len(values):,} values is too long: at most {MOST_STAGES:,}")


class LayoutSection(msgspec.Struct, frozen=True, kw_only=True):
    """``layout``: degrees, order and sharding. Degrees are checked by rules, not here."""

    tp: int | None = None
    sequence_parallel: bool | None = None
    cp: int | None = None
    cp_kind: Literal["p2p", "all_gather", "a2a", "a2a+p2p"] | None = None
    hierarchical_cp: Annotated[tuple[int, ...], Check(short)] | None = None
    pp: int | None = None
    vp: int | None = None
    stages: Annotated[tuple[int, ...], Check(short)] | None = None
    first_stage_layers: PositiveInt | None = None
    last_stage_layers: PositiveInt | None = None
    ep: int | None = None
    etp: int | None = None
    dp: int | None = None
    sharding: Sharding | None = None
    shard_degree: int | None = None
    distributed_optimizer_instances: int | None = None
    kv_replication: PositiveInt | None = None
    order: str | None = None
    framework: Framework | None = None
    framework_version: Annotated[str, AsWritten()] | None = None
    world_size: int | None = None


class MoeSection(msgspec.Struct, frozen=True, kw_only=True):
    """``moe``: how tokens reach experts."""

    dispatcher: Literal["alltoall", "allgather", "deepep", "hybridep"] | None = None
    imbalance: float | None = None


class BatchSection(msgspec.Struct, frozen=True, kw_only=True):
    """``batch``: sequences and tokens of one optimizer step."""

    global_batch: PositiveInt | None = None
    micro_batch: PositiveInt | None = None
    num_microbatches: PositiveInt | None = None
    local_batch: PositiveInt | None = None
    grad_accum: PositiveInt | None = None
    seq_len: PositiveInt | None = None


class TrainingSection(msgspec.Struct, frozen=True, kw_only=True):
    """``training``: precision, recompute, schedule and overlaps."""

    precision: Literal["bf16", "fp16", "fp32", "fp8"] | None = None
    gradient_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    optimizer: str | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    schedule: str | None = None
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None
    overlap_p2p: bool | None = None
    tp_comm_overlap: bool | None = None


class TrafficItem(msgspec.Struct, frozen=True, kw_only=True):
    """One collective given by hand: ``{axis: dp, op: all_reduce, bytes: 1e9, count: 1}``.

    ``bytes`` is S as NCCL counts it; ``count`` is per step.
    """

    axis: str
    op: Op
    bytes: Size
    count: Annotated[float, Minimum(0), Maximum(MOST_RUNS)] = 1


class GroupItem(msgspec.Struct, frozen=True, kw_only=True):
    """One explicit group: a name and its members as ``[host, gpu]``; hosts by name or number."""

    name: str
    members: tuple[tuple[str | int, int], ...]
