"""The sections of a job file that describe the job itself, as typed structs.

Units: bytes, seconds, counts. ``None`` means that the user left the key out.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from meshwright.documents import AsWritten, Check, Convert, Maximum, Minimum
from meshwright.units import parse_bytes

Framework = Literal["megatron", "torch", "torchtitan", "deepspeed", "nanotron", "maxtext"]
Sharding = Literal[
    "none",
    "zero1",
    "zero2",
    "zero3",
    "fsdp",
    "hsdp",
    # torch FSDP1's words (``ShardingStrategy``); job/layout.py says what each means
    "NO_SHARD",
    "SHARD_GRAD_OP",
    "FULL_SHARD",
    "HYBRID_SHARD",
    "_HYBRID_SHARD_ZERO2",
]
Op = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]
MOST_STAGES = 65_536
MOST_DEVICES = 1 << 20
"""Devices whose order may be listed in a job file."""
MOST_RUNS = 1_000_000_000
"""Times a collective given by hand may run in a step."""
MOST_IMBALANCE = 1_000_000
MOST_MTP = 64
MOST_NAME = 256
MOST_COUNT = 2**31 - 1
"""No batch or length is larger; products of two of them still fit 64 bits."""
PositiveInt = Annotated[int, Minimum(1), Maximum(MOST_COUNT)]
MOST_BYTES = 1 << 50
"""Bytes of one collective given by hand."""
Size = Annotated[int, Convert(parse_bytes), Maximum(MOST_BYTES)]


def short(values: tuple[int, ...]) -> None:
    """Refuse a list longer than any pipeline: raises ``ValueError``."""
    if len(values) > MOST_STAGES:
        raise ValueError(f"a list of {len(values):,} values is too long: at most {MOST_STAGES:,}")


def listed(values: tuple[int, ...]) -> None:
    """Refuse a list of more devices than are listed in a file: raises ``ValueError``."""
    if len(values) > MOST_DEVICES:
        raise ValueError(f"a list of {len(values):,} devices is too long: at most {MOST_DEVICES:,}")


def short_name(text: str) -> None:
    """Refuse a name that no table can show: raises ``ValueError``."""
    if len(text) > MOST_NAME:
        raise ValueError(f"a name of {len(text):,} characters is too long: at most {MOST_NAME}")


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
    vocab_divisible_by: PositiveInt | None = None
    """What the vocabulary is padded to a multiple of, times tp (Megatron: 128)."""
    order: str | None = None
    framework: Framework | None = None
    framework_version: Annotated[str, AsWritten()] | None = None
    world_size: int | None = None
    # Megatron-Core
    hybrid_context_parallel: bool | None = None
    # DeepSpeed
    zero_hpz_partition_size: int | None = None
    use_data_before_expert_parallel: bool | None = None
    mp_mode: Literal["tp", "sp"] | None = None
    # MaxText: sizes by mesh axis inside a slice and across slices, one of each may be -1
    ici: dict[str, int] | None = None
    dcn: dict[str, int] | None = None
    num_slices: int | None = None
    device_order: Annotated[tuple[int, ...], Check(listed)] | None = None


class MoeSection(msgspec.Struct, frozen=True, kw_only=True):
    """``moe``: how tokens reach experts."""

    dispatcher: Literal["alltoall", "allgather", "deepep", "hybridep"] | None = None
    imbalance: Annotated[float, Minimum(1), Maximum(MOST_IMBALANCE)] | None = None
    """Tokens of the rank that gets most over the mean: 1 is balanced."""
    capacity_factor: Annotated[float, Minimum(0.01), Maximum(MOST_IMBALANCE)] | None = None
    """Tokens an expert takes at most, over the mean (Megatron ``--moe-expert-capacity-factor``)."""
    pad_to_capacity: bool | None = None
    """Send full capacity whatever came (``--moe-pad-expert-input-to-capacity``)."""
    dispatch_dtype: Literal["bf16", "fp8"] | None = None
    """What tokens travel as to experts (results come back as activations are)."""
    deepep_mode: Literal["normal", "low_latency"] | None = None
    """DeepEP's kernels: those of training, or pure RDMA."""
    deepep_buffer: Literal["legacy", "elastic"] | None = None
    overlap: Literal["none", "shared_expert", "microbatch"] | None = None
    """What dispatch runs beside (``--moe-shared-expert-overlap``, ``--overlap-moe-expert-parallel-comm``)."""


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

    precision: Literal["bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"] | None = None
    gradient_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    optimizer: str | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    schedule: str | None = None
    microbatch_group: PositiveInt | None = None
    """Microbatches that pass one chunk before the next begins
    (``--microbatch-group-size-per-virtual-pipeline-stage``)."""
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None
    overlap_p2p: bool | None = None
    tp_comm_overlap: bool | None = None
    fp8_param_gather: bool | None = None
    """Gather parameters in one byte (Megatron ``--fp8-param-gather``)."""
    reshard_after_forward: bool | Annotated[int, Minimum(2)] | None = None
    """FSDP2: true, false, or the ranks over which parameters stay spread (an int)."""
    gradient_sync: Literal["every", "last"] | None = None
    """Reduce gradients after every microbatch, or after the last (``set_requires_gradient_sync``)."""
    replica_sync: Literal["every", "last"] | None = None
    """The same for the all-reduce between copies of HSDP (``set_requires_all_reduce``)."""
    use_multi_rank_bucket_allreduce: bool | None = None
    """DeepSpeed: all-reduce a bucket (default), or reduce each part to its owner."""
    bucket_size: PositiveInt | None = None
    """Elements of a gradient bucket (``--ddp-bucket-size``, ``reduce_bucket_size``)."""
    mtp_layers: Annotated[int, Minimum(0), Maximum(MOST_MTP)] | None = None
    """Multi-token prediction layers that are trained (``--mtp-num-layers``)."""
    per_token_loss: bool | None = None
    """Divide the loss by the tokens of all ranks (``--calculate-per-token-loss``)."""
    variable_seq_lengths: bool | None = None
    """Shapes of pipeline messages change, so each is announced (``--variable-seq-lengths``)."""
    compile: bool | None = None
    """torch compiles the loss with the model: logits are not copied in fp32."""
    fp32_residual: bool | None = None
    """Hidden states between layers in fp32 (``--fp32-residual-connection``)."""


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

    name: Annotated[str, Check(short_name)]
    members: tuple[tuple[str | int, int], ...]
