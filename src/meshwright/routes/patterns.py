"""Patterns: which links a ring, an all-to-all or a point-to-point exchange loads.

Sources: ring and PXN forms as in real NCCL logs; node order NVIDIA/nccl ``src/graph/connect.cc``;
all-to-all through the rail of the destination: NCCL 2.12 PXN. Every function adds to a
``LoadCollector``; the flow-by-flow walk of the tests gives the same loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.errors import UsageError
from meshwright.routes.cells import Cells, find_cells
from meshwright.routes.loads import LoadCollector, sum_at

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
RingForm = Literal["pxn-exit", "alternating"]
"""In-host part of a ring over NVLink. ``pxn-exit``: the last member hands over to the member whose
NIC sends, every member sends E. ``alternating``: the ring leaves by the last member's own NIC,
every member sends E(k-1)/k. NIC loads are equal; both occur in real logs."""
_CHUNK = 1 << 21
"""Flows made at once for an all-to-all."""
MOST_FLOWS = 1 << 28
"""Flows of one all-to-all that are routed at all: minutes of work."""


@dataclass(frozen=True, slots=True)
class GroupSlots:
    """The groups of one axis on their slots: ``slots[num_groups, degree]``, and their cells."""

    slots: Longs
    cells: Cells

    @staticmethod
    def of(ranks: NDArray[np.integer], slot_by_rank: Longs, fabric: Fabric) -> GroupSlots:
        """Place the groups of an axis."""
        slots = slot_by_rank[ranks]
        nic = fabric.nic_of_slot
        return GroupSlots(slots, find_cells(slots, fabric.island_of_slot, nic))


def _has_switch(fabric: Fabric, cells: Cells) -> NDArray[np.bool_]:
    """Tell for each cell whether an NVLink switch joins all its members.

    A GPU may have fallen off the switch; its cell is then passed edge by edge (``transfer``).
    """
    return cells.all_members(fabric.nvlink_domain_of_slot[cells.slot] >= 0)


def ring(
    groups: GroupSlots, edge_bytes: Floats, into: LoadCollector, form: RingForm = "pxn-exit"
) -> None:
    """Add rings: ``edge_bytes[num_groups]`` crosses every edge of the group's ring in total.

    Between cells there are as many channels as the least number of distinct NICs in a cell; channel
    c joins the c-th NIC of each cell with the c-th of the next and carries 1/channels.
    """
    cells, fabric = groups.cells, into.fabric
    if groups.slots.shape[1] < 2:
        return
    switched = _has_switch(fabric, cells)
    many = cells.cells_of_group[cells.group] > 1
    _ring_over_nvlink(cells, edge_bytes, into, switched & (cells.size > 1), form)
    closed = ~switched & ~many
    _ring_inside_host(cells, edge_bytes, into, closed)
    if many.any():
        _ring_between_cells(cells, edge_bytes, into, switched)


def _ring_over_nvlink(
    cells: Cells, edge_bytes: Floats, into: LoadCollector, picked: NDArray[np.bool_], form: RingForm
) -> None:
    member = picked[cells.cell_of_member]
    cell = cells.cell_of_member[member]
    size = edge_bytes[cells.group[cell]]
    if form == "alternating":
        leaves = cells.cells_of_group[cells.group[cell]] > 1
        count = cells.size[cell]
        size = np.where(leaves, size * (count - 1) / count, size)
    into.nvlink(cells.slot[member], cells.slot[member], size)


def _ring_inside_host(
    cells: Cells, edge_bytes: Floats, into: LoadCollector, picked: NDArray[np.bool_]
) -> None:
    """Add a whole ring inside one host that no NVLink switch joins: each member to the next."""
    member = np.flatnonzero(picked[cells.cell_of_member])
    if not len(member):
        return
    cell = cells.cell_of_member[member]
    follower = np.where(member + 1 < cells.start[cell + 1], member + 1, cells.start[cell])
    transfer(cells.slot[member], cells.slot[follower], edge_bytes[cells.group[cell]], into)


@dataclass(frozen=True, slots=True)
class _Exits:
    """The distinct NICs of every cell, in order, with the first member that owns each."""

    start: Longs
    nic: Longs
    member: Longs

    @property
    def count(self) -> Longs:
        return np.diff(self.start)


def _exits(fabric: Fabric, cells: Cells) -> _Exits:
    nic = fabric.nic_of_slot[cells.slot].astype(np.int64)
    cell = cells.cell_of_member
    new = nic >= 0
    # Members of a cell stand by NIC, so equal NICs are neighbours.
    new[1:] &= (nic[1:] != nic[:-1]) | (cell[1:] != cell[:-1])
    member = np.flatnonzero(new)
    start = np.concatenate([[0], np.cumsum(np.bincount(cell[member], minlength=len(cells.group)))])
    return _Exits(start, nic[member], member)


def _ring_between_cells(
    cells: Cells, edge_bytes: Floats, into: LoadCollector, switched: NDArray[np.bool_]
) -> None:
    exits = _exits(into.fabric, cells)
    channels = np.full(len(cells.cells_of_group), np.iinfo(np.int64).max)
    np.minimum.at(channels, cells.group, exits.count)
    leaving = (cells.cells_of_group > 1)[cells.group]
    # A cell without NIC has no way out: its group's bytes reach nobody.
    stuck = leaving & (channels[cells.group] == 0)
    into.lost_bytes += float(edge_bytes[cells.group[stuck]].sum())
    from_cell = np.flatnonzero(leaving & ~stuck)
    ways = channels[cells.group[from_cell]]
    cell = np.repeat(from_cell, ways)
    channel = np.arange(len(cell)) - np.repeat(np.cumsum(ways) - ways, ways)
    out, back = exits.start[cell] + channel, exits.start[cells.next_cell[cell]] + channel
    share = edge_bytes[cells.group[cell]] / np.repeat(ways, ways)
    arriving = into.nic_to_nic(exits.nic[out], exits.nic[back], share)
    into.gpu_to_nic(cells.slot[exits.member[back]], exits.nic[back], arriving, reverse=True)
    by_nvlink = switched[cell]
    owner = out[by_nvlink]
    into.gpu_to_nic(cells.slot[exits.member[owner]], exits.nic[owner], arriving[by_nvlink])
    rest = ~by_nvlink
    if rest.any():
        _cross_host(cells, exits, (cell[rest], out[rest]), (share[rest], arriving[rest]), into)


def _cross_host(
    cells: Cells,
    exits: _Exits,
    ways: tuple[Longs, Longs],
    carried: tuple[Floats, Floats],
    into: LoadCollector,
) -> None:
    """Where no switch joins all, a channel enters at its NIC's member and passes all others.

    The last one hands over to the first where a switch joins these two (both ring forms: the
    chain has one end), else it reaches the NIC by PCIe. ``carried``: bytes of the channel, and
    those that arrive in the next cell.
    """
    (cell, way), (share, arriving) = ways, carried
    first = exits.member[way] - cells.start[cell]
    size = cells.size[cell]
    last = cells.slot[cells.start[cell] + (first + size - 1) % size]
    owner = cells.slot[exits.member[way]]
    back = _by_switch(into.fabric, last, owner) & (last != owner)
    into.nvlink(last[back], owner[back], share[back])
    into.gpu_to_nic(np.where(back, owner, last), exits.nic[way], arriving)
    hops = size - 1
    step = np.arange(int(hops.sum())) - np.repeat(np.cumsum(hops) - hops, hops)
    base, begin, count = (np.repeat(one, hops) for one in (cells.start[cell], first, size))
    a = base + (begin + step) % count
    b = base + (begin + step + 1) % count
    transfer(cells.slot[a], cells.slot[b], np.repeat(share, hops), into)


def _by_switch(fabric: Fabric, a: Longs, b: Longs) -> NDArray[np.bool_]:
    """Tell for each pair of slots whether an NVLink switch joins the two."""
    domain = fabric.nvlink_domain_of_slot
    joined: NDArray[np.bool_] = (domain[a] == domain[b]) & (domain[a] >= 0)
    return joined


def transfer(a: Longs, b: Longs, size_bytes: Floats, into: LoadCollector) -> None:
    """Add point-to-point flows between slots: NVLink, else inside the host, else own NIC to own NIC."""
    fabric = into.fabric
    moves = a != b
    a, b, size_bytes = a[moves], b[moves], size_bytes[moves]
    by_switch = _by_switch(fabric, a, b)
    into.nvlink(a[by_switch], b[by_switch], size_bytes[by_switch])
    inside = ~by_switch & (fabric.host_of_slot[a] == fabric.host_of_slot[b])
    into.gpu_to_gpu(a[inside], b[inside], size_bytes[inside])
    away = ~by_switch & ~inside
    nic_a, nic_b = fabric.nic_of_slot[a].astype(np.int64), fabric.nic_of_slot[b].astype(np.int64)
    has = away & (nic_a >= 0) & (nic_b >= 0)
    into.lost_bytes += float(size_bytes[away & ~has].sum())
    arriving = into.nic_to_nic(nic_a[has], nic_b[has], size_bytes[has])
    into.gpu_to_nic(a[has], nic_a[has], arriving)
    into.gpu_to_nic(b[has], nic_b[has], arriving, reverse=True)


def all_to_all(groups: GroupSlots, send_bytes: Floats, into: LoadCollector) -> None:
    """Add pairwise all-to-alls: every member sends ``send_bytes[g] / degree`` to every member.

    Off the island a flow goes by the member (of the group, in the sender's host, else in its
    NVLink island) whose NIC is on the receiver's rail (PXN), over NVLink to it first; where there
    is none, or no NVLink switch, by the sender's own NIC, across rails.
    """
    cells = groups.cells
    degree = groups.slots.shape[1]
    if degree < 2:
        return
    _exchange_inside(cells, send_bytes / degree, into)
    senders = _Senders.of(into.fabric, cells)
    if (cells.cells_of_group == 1).all():
        return
    blocks = len(senders.cell)
    if blocks * degree > MOST_FLOWS:
        raise _too_many(len(groups.slots), degree)
    step = max(1, _CHUNK // degree)
    for begin in range(0, blocks, step):
        span = (begin, min(begin + step, blocks))
        _exchange_outside(groups, span, send_bytes / degree, senders, into)


def direct_all_to_all(groups: GroupSlots, send_bytes: Floats, into: LoadCollector) -> None:
    """Add pairwise all-to-alls in which each pair of ranks uses its own NICs: pure RDMA.

    ``send_bytes[g]`` as for ``all_to_all``. Inside an island NVLink carries the pair.
    """
    slots = groups.slots.astype(np.int64)
    count, degree = slots.shape
    if count * degree * degree > MOST_FLOWS:
        raise _too_many(count, degree)
    share = np.repeat(send_bytes / degree, degree)
    for step in range(1, degree):
        transfer(slots.ravel(), np.roll(slots, -step, axis=1).ravel(), share, into)


def _too_many(groups: int, degree: int) -> UsageError:
    return UsageError(
        f"an all-to-all over {groups:,} groups of {degree:,} ranks makes over "
        f"{MOST_FLOWS:,} flows between hosts: too many to route"
    )


@dataclass(frozen=True, slots=True)
class _Senders:
    """Members of one cell in one host, which all send by the same relays: ``B`` blocks.

    ``cell[B]`` in ascending order; members of block b are ``member[start[b] : start[b + 1]]``;
    ``relay[b, rail]`` is the member that sends for the block on a rail, -1 for none. Members
    that hang on no NVLink switch reach no relay: they are a block of their own.
    """

    cell: Longs
    host: Longs
    start: Longs
    member: Longs
    block_of_member: Longs
    relay: Longs

    @staticmethod
    def of(fabric: Fabric, cells: Cells) -> _Senders:
        hosts = fabric.num_hosts
        switched = fabric.nvlink_domain_of_slot[cells.slot] >= 0
        key = (cells.cell_of_member * hosts + fabric.host_of_slot[cells.slot]) * 2 + switched
        known, block, count = np.unique(key, return_inverse=True, return_counts=True)
        cell = known // (2 * hosts)
        # An NVLink domain of many hosts has many NICs on a rail: a host's own comes first.
        near = _proxies(fabric, cells, block, len(cell))
        far = _proxies(fabric, cells, cells.cell_of_member, len(cells.group))
        return _Senders(
            cell=cell,
            host=known // 2 % hosts,
            start=np.concatenate([[0], np.cumsum(count)]),
            member=np.argsort(block, kind="stable"),
            block_of_member=block,
            relay=np.where((known % 2 == 1)[:, None], np.where(near >= 0, near, far[cell]), -1),
        )


def _exchange_inside(cells: Cells, pair_bytes: Floats, into: LoadCollector) -> None:
    """Add all ordered pairs of members inside each cell."""
    switched = _has_switch(into.fabric, cells)[cells.cell_of_member]
    cell = cells.cell_of_member
    others = (cells.size - 1)[cell] * pair_bytes[cells.group[cell]]
    into.nvlink(cells.slot[switched], cells.slot[switched], others[switched])
    member = np.flatnonzero(~switched)
    if len(member):
        count = cells.size[cell[member]]
        a = np.repeat(member, count)
        step = np.arange(len(a)) - np.repeat(np.cumsum(count) - count, count)
        b = cells.start[cell[a]] + step
        transfer(cells.slot[a], cells.slot[b], pair_bytes[cells.group[cell[a]]], into)


def _proxies(fabric: Fabric, cells: Cells, owner: Longs, count: int) -> Longs:
    """Return ``member[count, rail]``: the first member of each owner on a rail; -1 for none."""
    rail = _rail_of_member(fabric, cells)
    rails = int(rail.max(initial=0)) + 1
    proxy = np.full((count, rails), -1, dtype=np.int64)
    known = np.flatnonzero((rail >= 0) & (fabric.nvlink_domain_of_slot[cells.slot] >= 0))[::-1]
    proxy[owner[known], rail[known]] = known  # reversed: the first member wins
    return proxy


def _rail_of_member(fabric: Fabric, cells: Cells) -> Longs:
    """Return the rail of each member's NIC; -1 without NIC, or where the rail is unknown."""
    nic = fabric.nic_of_slot[cells.slot].astype(np.int64)
    rail = np.full(len(nic), -1, dtype=np.int64)
    rail[nic >= 0] = fabric.rail_of_nic[nic[nic >= 0]]
    return rail


def _exchange_outside(
    groups: GroupSlots,
    span: tuple[int, int],
    pair_bytes: Floats,
    senders: _Senders,
    into: LoadCollector,
) -> None:
    """Add the flows from a run of blocks to every member outside the block's cell."""
    cells = groups.cells
    degree = groups.slots.shape[1]
    block = np.repeat(np.arange(*span), degree)
    first_member = cells.group[senders.cell[block]] * degree  # members stand group by group
    target = first_member + np.arange(len(block)) % degree
    away = cells.cell_of_member[target] != senders.cell[block]
    block, target = block[away], target[away]
    rail = _rail_of_member(into.fabric, cells)[target]
    relay = np.where(rail >= 0, senders.relay[block, np.maximum(rail, 0)], -1)
    size = pair_bytes[cells.group[senders.cell[block]]]
    # A GPU off the switch of its host's domain is another cell, and still next door by PCIe.
    same_host = senders.host[block] == into.fabric.host_of_slot[cells.slot[target]]
    by_relay = (relay >= 0) & ~same_host
    flows = (block[by_relay], relay[by_relay], target[by_relay], size[by_relay])
    _send_by_relay(cells, senders, flows, into)
    _send_directly(cells, senders, (block[~by_relay], target[~by_relay], size[~by_relay]), into)


def _send_by_relay(
    cells: Cells,
    senders: _Senders,
    flows: tuple[Longs, Longs, Longs, Floats],
    into: LoadCollector,
) -> None:
    block, relay, target, size = flows
    nic = into.fabric.nic_of_slot[cells.slot].astype(np.int64)
    count = np.diff(senders.start)[block]
    total = into.nic_to_nic(nic[relay], nic[target], size * count)
    into.gpu_to_nic(cells.slot[relay], nic[relay], total)
    into.gpu_to_nic(cells.slot[target], nic[target], total, reverse=True)
    # Every other member of the block hops to the relay: the block's hops, less the relay's own.
    size = total / count
    per_block = sum_at(block, size, len(senders.cell))
    kept = np.where(senders.block_of_member[relay] == block, size, 0.0)
    own = sum_at(relay, kept, len(cells.slot))
    received = sum_at(relay, total - kept, len(cells.slot))
    into.nvlink(cells.slot, cells.slot[:0], per_block[senders.block_of_member] - own)
    into.nvlink(cells.slot[:0], cells.slot, received)


def _send_directly(
    cells: Cells, senders: _Senders, flows: tuple[Longs, Longs, Floats], into: LoadCollector
) -> None:
    block, target, size = flows
    if not len(block):
        return
    count = np.diff(senders.start)[block]
    row = np.repeat(np.arange(len(block)), count)
    step = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    sender = senders.member[senders.start[block[row]] + step]
    transfer(cells.slot[sender], cells.slot[target[row]], size[row], into)
