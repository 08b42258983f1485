"""A job's hosts on the network: the order in which Slurm numbers them, and where segments sit.

Slurm numbers the nodes of a job in the order of its node table: by name (``natural_order``), or by
leaf switch with ``TopologyParam=SwitchAsNodeRank``, by block with ``BlockAsNodeRank``: the groups in
the order of the topology file, nodes in none first (SchedMD/slurm ``topology_tree.c``,
``topology_block.c``, ``generate_node_ranking``). Inside a group the order is that of the node table,
taken here as name order.

``--segment=S`` asks for N hosts in segments of S, each within one block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from meshwright.cluster.allocations.allocation_groups import (
    HostGroups,
    best_groups,
    block_groups,
    group_of,
    leaf_groups,
)
from meshwright.cluster.facts import Facts
from meshwright.cluster.natural_order import in_name_order
from meshwright.errors import UsageError

MAX_HOSTS = 300_000
"""Hosts of one allocation: what one file may name, and more than any cluster has."""


class Segments(msgspec.Struct, frozen=True):
    """Whether an allocation satisfies ``--segment``; hosts counted by block."""

    segment: int
    segments_ok: bool
    """Every host is in a known block, and every block holds whole segments."""
    expected: dict[str, int] | None
    """A distribution of whole segments over the blocks; ``None`` where they cannot hold them."""
    actual: dict[str, int]
    groups_crossing: tuple[int, ...]
    """Groups of ``segment`` hosts, in name order, that are in more than one block."""
    divides: bool
    """The number of hosts is a multiple of the segment."""


class Allocation(msgspec.Struct, frozen=True):
    """Hosts of a job; see the module docstring. ``None`` where no source says it."""

    hosts: tuple[str, ...]
    """As given."""
    name_order: tuple[str, ...]
    switch_order: tuple[str, ...] | None
    leaves: HostGroups | None
    leaf_of: Mapping[str, str]
    blocks: HostGroups | None
    block_of: Mapping[str, str]
    unknown: tuple[str, ...]
    """Hosts that no source puts under a leaf or in a block."""
    crossings: dict[str, int] | None
    """Ring edges that leave a leaf (without leaves: a block), by order: given, name, switch."""
    segments: Segments | None

    @property
    def by(self) -> str:
        """What orders and crossings go by: leaves, else blocks."""
        return "leaf" if self.leaves is not None else "block"


def allocation_of(
    sources: Sequence[Facts], hosts: Sequence[str], segment: int | None = None
) -> Allocation:
    """Return what the sources say of a job's hosts.

    Parameters
    ----------
    sources
        Facts with a tree, cables, places or blocks.
    hosts
        Names, in the order given.
    segment
        Hosts a segment, where the job asked for segments.

    Raises
    ------
    UsageError
        No host, a host twice, a segment below 1, or a segment where no source names blocks.
    """
    _check(hosts, segment)
    candidates = list(block_groups(sources))
    if segment is not None and not candidates:
        raise UsageError("no source names a block of hosts, so segments cannot be checked")
    leaves = best_groups(leaf_groups(sources), hosts)
    blocks = best_groups(iter(candidates), hosts)
    leaf_of = group_of(leaves, hosts) if leaves else {}
    block_of = group_of(blocks, hosts) if blocks else {}
    names = in_name_order(hosts)
    groups, of = (leaves, leaf_of) if leaves is not None else (blocks, block_of)
    ordered = _by_group(names, groups, of) if groups is not None else None
    crossings = None
    if ordered is not None:
        orders = {"given": hosts, "name": names, "switch": ordered}
        crossings = {key: ring_crossings(order, of) for key, order in orders.items()}
    return Allocation(
        hosts=tuple(hosts),
        name_order=tuple(names),
        switch_order=None if ordered is None else tuple(ordered),
        leaves=leaves,
        leaf_of=leaf_of,
        blocks=blocks,
        block_of=block_of,
        unknown=tuple(one for one in hosts if one not in leaf_of and one not in block_of),
        crossings=crossings,
        segments=_segments(names, blocks, block_of, segment) if segment and blocks else None,
    )


def _check(hosts: Sequence[str], segment: int | None) -> None:
    if not hosts:
        raise UsageError("the allocation names no host")
    twice = [name for name, count in Counter(hosts).items() if count > 1]
    if twice:
        raise UsageError(f"hosts named twice in the allocation: {', '.join(twice[:5])}")
    if segment is not None and segment < 1:
        raise UsageError("a segment has at least one host")


def _by_group(names: Sequence[str], groups: HostGroups, of: Mapping[str, str]) -> list[str]:
    """Return hosts group by group in the source's order; a host in no group has rank 0."""
    rank = {name: number for number, name in enumerate(groups.members, 1)}
    return sorted(names, key=lambda host: rank[of[host]] if host in of else 0)


def ring_crossings(order: Sequence[str], group: Mapping[str, str]) -> int:
    """Return the edges of a closed ring over the hosts, in this order, that leave a group.

    Hosts of no known group are left out of the ring.
    """
    groups = [group[host] for host in order if host in group]
    if len(groups) < 2:
        return 0
    return sum(a != b for a, b in zip(groups, [*groups[1:], groups[0]], strict=True))


def _segments(
    names: Sequence[str], blocks: HostGroups, of: Mapping[str, str], segment: int
) -> Segments:
    count = Counter(of[host] for host in names if host in of)
    actual = {name: count[name] for name in blocks.members if count[name]}
    groups = [names[start : start + segment] for start in range(0, len(names), segment)]
    crossing = tuple(
        number
        for number, group in enumerate(groups)
        if len({of.get(host, host) for host in group}) > 1
    )
    divides = len(names) % segment == 0
    return Segments(
        segment=segment,
        segments_ok=divides
        and len(of) == len(names)
        and all(hosts % segment == 0 for hosts in actual.values()),
        expected=_expected(len(names), blocks, actual, segment) if divides else None,
        actual=actual,
        groups_crossing=crossing,
        divides=divides,
    )


def _expected(
    total: int, blocks: HostGroups, actual: Mapping[str, int], segment: int
) -> dict[str, int] | None:
    """Fill blocks with whole segments, those of the allocation first, in the source's order."""
    left = total // segment
    expected: dict[str, int] = {}
    for name in sorted(blocks.members, key=lambda block: block not in actual):
        whole = min(left, len(blocks.members[name]) // segment)
        if whole:
            expected[name] = whole * segment
            left -= whole
    return None if left else expected
