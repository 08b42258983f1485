"""NCCL's buffers: what communicators take outside the framework's allocator.

Per channel and peer a receiver holds LL, LL128 and Simple (9.19 MiB, rounded up to whole 2 MiB:
10 MiB, with 2 MiB at the sender); over the network both sides hold them, the sender without LL
(NVIDIA/nccl src/transport/p2p.cc, net.cc; NVIDIA/nccl#1685 shows the allocations). Rings have one
peer each way, an all-reduce over the network trees besides; point-to-point and all-to-all have
every peer in the NVLink domain, and one shared pool for the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.groups.grid import Ranks
from meshwright.groups.kinds import GroupKind
from meshwright.memory.constants import Constants
from meshwright.traffic.collective import Collective

_POOL_CHUNKS = 16
_POINT_TO_POINT = ("send", "all_to_all")


@dataclass(frozen=True, slots=True)
class Communicator:
    """Buffers of one rank for one use of one group; peers are those of its fullest group."""

    axis: str
    name: str
    ranks: int
    use: str
    """``ring``, ``ring and tree`` or ``point-to-point``."""
    channels: int
    peers_inside: int
    peers_outside: int
    receive_buffer_bytes: float
    """One channel and peer inside the domain, at the receiver."""
    send_buffer_bytes: float
    bytes: float


def buffer_bytes(constants: Constants) -> tuple[float, float]:
    """Return what the receiver and the sender allocate a channel and peer inside a domain."""
    three = (
        constants["nccl_simple_bytes"] + constants["nccl_ll_bytes"] + constants["nccl_ll128_bytes"]
    )
    return _rounded(three, constants), max(constants["nccl_granularity_bytes"], 0.0)


def network_bytes(constants: Constants) -> float:
    """Return what a rank allocates a channel and network peer, both directions, with GPUDirect."""
    send = constants["nccl_simple_bytes"] + constants["nccl_ll128_bytes"]
    return _rounded(send, constants) + buffer_bytes(constants)[0]


def communicators(
    kinds: Sequence[GroupKind],
    collectives: Sequence[Collective],
    domain_gpus: int,
    constants: Constants,
) -> list[Communicator]:
    """Return the communicators a rank holds: every group that NCCL runs a collective of the job on.

    A fused dispatcher (DeepEP) has buffers of its own (``memory/dispatcher.py``).

    ``domain_gpus``: GPUs of one NVLink domain, ranks in order. torch makes a communicator when it
    is first used, so late ones fail late.
    """
    found = []
    collectives = [one for one in collectives if one.copies is None and not one.is_direct]
    by_axis = {kind.axis: kind for kind in reversed(kinds)}
    for axis in dict.fromkeys(one.axis for one in collectives):
        kind = by_axis.get(axis)
        if kind is None or kind.degree < 2:
            continue
        ops = {one.op for one in collectives if one.axis == axis}
        inside, outside = _peers(kind.members(), domain_gpus)
        if ops - set(_POINT_TO_POINT):
            found.append(_ring(kind, ops, (inside, outside), constants))
        if "all_to_all" in ops:
            found.append(_point_to_point(kind, (inside, outside), constants))
        elif "send" in ops:  # to the next and the previous rank only
            near = min(inside, 2), min(outside, 2)
            found.append(_point_to_point(kind, near, constants))
    return found


def _peers(ranks: Ranks, domain_gpus: int) -> tuple[int, int]:
    """Return the most peers inside the domain, and outside, that a first member has."""
    domains = ranks // domain_gpus
    inside = (domains == domains[:, :1]).sum(axis=1) - 1
    outside = ranks.shape[1] - 1 - inside
    return int(np.max(inside)), int(np.max(outside))


def _ring(
    kind: GroupKind, ops: set[str], peers: tuple[int, int], constants: Constants
) -> Communicator:
    receive, send = buffer_bytes(constants)
    inside, outside = peers
    channels = constants["nccl_channels_outside" if outside else "nccl_channels_inside"]
    use, size = "ring", receive + send
    if outside:
        # At most one of a member's two neighbours lies in its domain.
        size = network_bytes(constants) + (receive + send if inside else 0.0)
        if "all_reduce" in ops:
            use = "ring and tree"
            size += (constants["nccl_tree_peers"] - 1) * (receive + send) if inside else 0.0
            size += network_bytes(constants)
    return Communicator(
        kind.axis,
        kind.name,
        kind.degree,
        use,
        int(channels),
        min(inside, 2),
        min(outside, 2),
        receive,
        send,
        channels * size,
    )


def _point_to_point(kind: GroupKind, peers: tuple[int, int], constants: Constants) -> Communicator:
    receive, send = buffer_bytes(constants)
    inside, outside = peers
    channels = constants["nccl_p2p_channels"]
    size = channels * inside * (receive + send)
    if outside:  # one pool for all network peers, each direction
        size += channels * 2 * _POOL_CHUNKS * constants["nccl_p2p_chunk_bytes"]
    return Communicator(
        kind.axis,
        kind.name,
        kind.degree,
        "point-to-point",
        int(channels),
        inside,
        outside,
        receive,
        send,
        size,
    )


def _rounded(size: float, constants: Constants) -> float:
    grain = constants["nccl_granularity_bytes"]
    return size if grain <= 0 else float(-(-size // grain) * grain)
