"""Buffers that a dispatcher of tokens keeps for itself, outside the framework's allocator.

DeepEP's legacy buffer, as Megatron-Core sizes it (``transformer/moe/fused_a2a.py get_buffer``: the
larger of the configurations of dispatch and combine, 2 bytes an element at least): deepseek-ai/DeepEP
``csrc/config.hpp get_nvl_buffer_size_hint``, ``get_rdma_buffer_size_hint``, and for the low-latency
kernels ``LowLatencyLayout``; ``deep_ep/buffers/legacy.py get_dispatch_config``, ``get_combine_config``
for the tokens of a chunk. A channel is two SMs; ranks beyond 8 are reached over RDMA.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.memory.constants import Constants
from meshwright.traffic.axes import dispatch_ranks
from meshwright.traffic.expert import dispatcher_of, is_low_latency
from meshwright.traffic.workload import Workload

Floats = NDArray[np.float64]
NVLINK_PEERS = 8
"""``NUM_MAX_NVL_PEERS``."""
_MOST_TOP_K = _MOST_SCALES = 128
_META, _INT4, _INT64, _INT, _FLOAT = 8, 16, 8, 4, 4
_ALIGNMENT = 128
_WORKSPACE = 32 << 20
"""``NUM_WORKSPACE_BYTES`` (``csrc/kernels/configs.cuh``)."""
_RDMA_SPARE = 1 << 20
NVLINK_TOKENS = {2: 256, 4: 256, 8: 256, 16: 288, 24: 288, 32: 288, 48: 288, 64: 288, 96: 480}
NVLINK_TOKENS |= {128: 560, 144: 720, 160: 720}
"""Tokens that a chunk over NVLink receives at most, by ranks; equal for dispatch and combine."""
RDMA_TOKENS = {16: 140, 24: 128, 32: 128, 48: 128, 64: 128, 96: 132, 128: 132, 144: 132, 160: 132}
"""The same over RDMA: 128, rounded up to a multiple of what a chunk sends (20, 8 or 12)."""


@dataclass(frozen=True, slots=True)
class DispatcherBuffers:
    """Bytes of a rank by stage ``[pp]``; ``None`` where no source says the size (``reason``)."""

    bytes: Floats | None
    reason: str | None = None


def dispatcher_buffers(work: Workload, constants: Constants) -> DispatcherBuffers:
    """Return what the dispatcher of a job's experts keeps, on stages that have experts."""
    none = np.zeros(work.layout.pp)
    holds = work.expert_layers_by_stage() > 0
    ranks = dispatch_ranks(work.layout)
    if not holds.any() or ranks < 2:
        return DispatcherBuffers(none, "no tokens are dispatched between ranks")
    dispatcher = dispatcher_of(work)
    if dispatcher == "hybridep":
        return DispatcherBuffers(None, "the size of HybridEP's buffer was not established")
    if dispatcher != "deepep":
        return DispatcherBuffers(
            none, f"{dispatcher} keeps nothing beside activations and the communicators' buffers"
        )
    if work.moe.deepep_buffer == "elastic":
        return DispatcherBuffers(None, "the size of DeepEP's elastic buffer was not established")
    size, reason = _legacy_bytes(work, ranks, constants)
    return DispatcherBuffers(None if size is None else np.where(holds, size, 0.0), reason)


def _legacy_bytes(
    work: Workload, ranks: int, constants: Constants
) -> tuple[float | None, str | None]:
    """Return the bytes of DeepEP's legacy buffer, or why they are not known."""
    hidden = work.model.hidden
    if is_low_latency(work):
        tokens = work.tokens
        if tokens is None:
            return None, "micro_batch or seq_len is not given"
        size = low_latency_bytes(int(tokens / work.layout.tp), hidden, work.model.experts)
        return size + _WORKSPACE, None
    if ranks not in NVLINK_TOKENS:
        return None, f"DeepEP has no configuration for {ranks} ranks"
    wide = hidden * max(work.activation_bytes, 2)
    channels = int(constants["deepep_sms"]) // 2
    return nvlink_bytes(wide, ranks, channels) + rdma_bytes(
        wide, ranks, channels
    ) + _WORKSPACE, None


def nvlink_bytes(hidden_bytes: int, ranks: int, channels: int) -> float:
    """Return the buffer for NVLink. ``ranks``: one of ``NVLINK_TOKENS``."""
    hosts, peers = max(ranks // NVLINK_PEERS, 1), min(ranks, NVLINK_PEERS)
    token = hidden_bytes + _META + _MOST_TOP_K * (_INT64 + _FLOAT) + _MOST_SCALES * _FLOAT
    counters = (2 * hosts + 3) * _INT
    return _aligned(channels * peers * (counters + NVLINK_TOKENS[ranks] * token))


def rdma_bytes(hidden_bytes: int, ranks: int, channels: int) -> float:
    """Return the buffer for RDMA: none up to 8 ranks."""
    if ranks <= NVLINK_PEERS:
        return 0.0
    token = hidden_bytes + _META + _MOST_TOP_K * (_INT64 + _FLOAT) + _MOST_SCALES * _FLOAT + _INT4
    counters = (NVLINK_PEERS * 2 + 2) * _INT
    both = 2 * channels * (ranks // NVLINK_PEERS) * (counters + RDMA_TOKENS[ranks] * token)
    return _aligned(both + _RDMA_SPARE)


def low_latency_bytes(tokens: int, hidden: int, experts: int) -> float:
    """Return the RDMA buffer of the low-latency kernels, for at most so many tokens of a rank.

    Twice (odd and even) what is sent, what is received and signals; receiving has room for all tokens
    of all ranks for every expert of this one.
    """
    scales = hidden // 128
    out = _INT4 + max(hidden * 2, hidden + scales * _FLOAT)
    back = scales * 4 + hidden * 2
    sends = max(tokens * out, experts * tokens * back)
    receives = experts * tokens * max(out, back)
    signals = _aligned(experts * _INT)
    whole = 2 * (sends + receives + signals)
    return (whole + _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT


def _aligned(size: float) -> float:
    return float(-(-int(size) // _ALIGNMENT) * _ALIGNMENT)
