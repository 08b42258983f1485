"""Forwarding tables as arrays: where each switch sends what goes to a LID, and who is there.

A route depends on the destination's LID alone, so all routes to one LID make a tree (or run into
loops and dead ends). Everything here costs switches times LIDs, never pairs of adapters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.facts import NO_PORT, Cable, Facts, Nic
from meshwright.cluster.networks.trunks import trunk_cables
from meshwright.cluster.switches.switch_levels import derive_levels
from meshwright.errors import UsageError

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

ARRIVES = -1
NO_ENTRY = -2
"""The table has no port for the LID (or the switch has no table)."""
NO_CABLE = -3
"""The listing shows no cable at the port (or it is port 0, the switch itself)."""
OTHER_END = -4
"""The cable leads to another adapter, or to another port of the right one."""
LOOP = -5
_PORTS = 256
_CHUNK_ENTRIES = 1 << 22
MAX_ENTRIES = 1 << 28
"""Switches times adapters; 27,648 adapters under 3,456 switches (three tiers of 48 ports) are a third."""


@dataclass(frozen=True, slots=True)
class Target:
    """An adapter's port that traffic goes to: its LID, and the switch and port it hangs on."""

    nic: Nic
    lid: int
    switch: int
    port: int


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees of next hops to some targets: arrays ``[switches, targets]``."""

    next_switch: Ints
    """Where the switch sends it: a switch, or one of the ends above (negative)."""
    edge: Ints
    """Directed cable (see ``TableGraph.edge``) to that switch; -1 where there is none."""
    end: Ints
    """How the way from this switch ends: ``ARRIVES`` or what stops it."""
    hops: Ints
    """Cables to the end; of no meaning in a loop."""


@dataclass(frozen=True, slots=True)
class TableGraph:
    """Tables and cables of one fabric; switches are numbered as in ``Facts.switches``."""

    switch_names: Sequence[str]
    switch_guids: Sequence[str]
    table: NDArray[np.uint8]
    """All switches' ports by LID (``NO_PORT``: none), one switch after the other."""
    table_start: Longs
    """``[switches + 1]``: the table of switch s is ``start[s] … start[s + 1]``."""
    peer: Ints
    """``[switches, 256]``: the switch at a port's other end, ``NO_CABLE`` or ``OTHER_END``."""
    edge: Ints
    """``[switches, 256]``: c for the c-th of ``cables`` from its lower end, c + their number from
    its upper end; -1."""
    cables: Sequence[Cable]
    """Between switches, ``a`` the lower end."""
    rises: NDArray[np.bool_]
    """``[cables]``: whether the upper end is of a higher level (else both are alike)."""
    targets: Sequence[Target]
    """Adapters with a LID and a cable to a switch, in the order of the file."""
    bare: Sequence[Nic]
    """Adapters with a cable to a switch and no LID."""
    plug_by_nic: Mapping[str, tuple[int, int]]
    """Switch and its port, by adapter GUID."""

    @staticmethod
    def of(facts: Facts, level_by_switch: Mapping[str, int] | None = None) -> TableGraph:
        """Return the arrays of one fabric's facts, which hold cables and tables.

        ``level_by_switch`` as of ``derive_levels``, where it is known already.
        """
        switches = facts.switches or ()
        number = {switch.id: index for index, switch in enumerate(switches)}
        if level_by_switch is None:
            level_by_switch = derive_levels(facts).level_by_switch
        cables = trunk_cables(facts, level_by_switch)
        peer = np.full((len(switches), _PORTS), NO_CABLE, dtype=np.int32)
        edge = np.full((len(switches), _PORTS), -1, dtype=np.int32)
        plugs = _end_points(facts, number, peer)
        for index, cable in enumerate(cables):
            ends = ((cable.a, cable.a_port), (cable.b, cable.b_port))
            for way, ((here, port), (there, _)) in enumerate((ends, ends[::-1])):
                # Port 0 is the switch itself; where a listing shows a port twice, the first counts.
                if port and port < NO_PORT and peer[number[here], port] == NO_CABLE:
                    peer[number[here], port] = number[there]
                    edge[number[here], port] = index + way * len(cables)
        table, table_start = _table_array(facts)
        targets, bare = _targets(facts, plugs)
        return TableGraph(
            switch_names=[switch.name for switch in switches],
            switch_guids=[switch.guid or switch.id for switch in switches],
            table=table,
            table_start=table_start,
            peer=peer,
            edge=edge,
            cables=cables,
            rises=np.array([_rises(level_by_switch, one) for one in cables], dtype=np.bool_),
            targets=targets,
            bare=bare,
            plug_by_nic=plugs,
        )

    @property
    def is_routed(self) -> bool:
        """Tell whether tables say how to reach any adapter, and are not too many to follow."""
        return len(self.table) > 0 and len(self.targets) > 0 and not self.is_too_large

    @property
    def is_too_large(self) -> bool:
        """Tell whether following all ways would take too long: switches times adapters."""
        return len(self.switch_names) * len(self.targets) > MAX_ENTRIES

    def port_to(self, switch: int | Ints, lid: int | Ints) -> NDArray[np.uint8]:
        """Return the port by which switches send to LIDs (arrays of one shape, or one of each)."""
        spot = self.table_start[switch] + lid
        inside = spot < self.table_start[np.add(switch, 1)]
        # The last entry of all stands for what is outside.
        found = self.table[np.where(inside, spot, -1)] if len(self.table) else np.uint8(NO_PORT)
        return np.where(inside, found, np.uint8(NO_PORT))

    def trees(self, targets: Sequence[Target]) -> Trees:
        """Return where every switch sends to each target, and how each way ends.

        Ways are followed by doubling: log2(switches) steps at most, whatever the tables say.
        """
        count = len(self.switch_names)
        rows = np.arange(count, dtype=np.int32)[:, None]
        lid = np.array([one.lid for one in targets], dtype=np.int32)
        port = self.port_to(np.broadcast_to(rows, (count, len(lid))), lid[None, :])
        next_switch = self.peer[rows, port]
        next_switch[port == NO_PORT] = NO_ENTRY
        columns = np.arange(len(lid))
        home = np.array([one.switch for one in targets], dtype=np.int32)
        last = port[home, columns] == np.array([one.port for one in targets], dtype=np.int32)
        next_switch[home[last], columns[last]] = ARRIVES
        edge = np.where(next_switch >= 0, self.edge[rows, port], -1)
        end = next_switch.copy()
        hops = (end >= 0).astype(np.int32)
        for _ in range(count.bit_length() + 1):
            moving = end >= 0
            if not moving.any():
                break
            jump = np.where(moving, end, 0)
            hops = hops + np.where(moving, np.take_along_axis(hops, jump, axis=0), 0)
            end = np.where(moving, np.take_along_axis(end, jump, axis=0), end)
        end[end >= 0] = LOOP
        return Trees(next_switch, edge, end, hops)

    def chunks(self, targets: Sequence[Target]) -> Iterator[tuple[slice, Trees]]:
        """Yield the trees of all targets, some at a time, so that memory stays bounded."""
        step = max(1, _CHUNK_ENTRIES // max(len(self.switch_names), 1))
        for begin in range(0, len(targets), step):
            part = slice(begin, min(begin + step, len(targets)))
            yield part, self.trees(targets[part])

    def walk(self, switch: int, target: Target) -> tuple[list[tuple[int, int]], int]:
        """Return (switch, port) hop by hop from a switch, and how the way ends.

        In a loop every switch stands once, and the first one that comes again closes it.
        """
        steps: list[tuple[int, int]] = []
        seen: set[int] = set()
        while True:
            port = int(self.port_to(switch, target.lid))
            steps.append((switch, port))
            if port == NO_PORT:
                return steps, NO_ENTRY
            if (switch, port) == (target.switch, target.port):
                return steps, ARRIVES
            seen.add(switch)
            switch = int(self.peer[switch, port])
            if switch < 0:
                return steps, switch
            if switch in seen:
                return [*steps, (switch, steps[[one for one, _ in steps].index(switch)][1])], LOOP


def route(facts: Facts, src_guid: str, dst_guid: str) -> list[tuple[str, int]] | None:
    """Return the way from one adapter to another: each switch's GUID and the port it sends by.

    Both adapters by node GUID (``Nic.guid``), by their lowest port with a cable. ``None`` where
    the tables do not bring a packet there. Raises ``UsageError`` for an adapter that the facts do
    not list with a cable (for the destination: and with a LID).
    """
    graph = TableGraph.of(facts)
    target = next((one for one in graph.targets if one.nic.guid == dst_guid), None)
    plug = graph.plug_by_nic.get(src_guid)
    if target is None or plug is None:
        missing = src_guid if plug is None else dst_guid
        raise UsageError(f"no adapter {missing} with a cable (and a LID) is in {facts.path}")
    steps, end = graph.walk(plug[0], target)
    if end != ARRIVES:
        return None
    return [(graph.switch_guids[switch], port) for switch, port in steps]


def _end_points(
    facts: Facts, number: Mapping[str, int], peer: NDArray[np.int32]
) -> dict[str, tuple[int, int]]:
    """Mark the ports that lead to adapters and other devices; return where each adapter hangs."""
    nics = {nic.guid for nic in facts.nics or () if nic.guid is not None}
    lowest: dict[str, int] = {}
    plugs: dict[str, tuple[int, int]] = {}
    for cable in facts.cables or ():
        ends = ((cable.a, cable.a_port), (cable.b, cable.b_port))
        for (here, port), (far, far_port) in (ends, ends[::-1]):
            if here not in number or far in number or port is None or not 0 < port < NO_PORT:
                continue
            peer[number[here], port] = OTHER_END
            own = far_port or 0
            if far in nics and own < lowest.get(far, own + 1):
                lowest[far] = own
                plugs[far] = (number[here], port)
    return plugs


def _rises(level_by_switch: Mapping[str, int], cable: Cable) -> bool:
    return level_by_switch.get(cable.a) != level_by_switch.get(cable.b)


def _table_array(facts: Facts) -> tuple[NDArray[np.uint8], Longs]:
    by_guid = {one.guid: one.ports for one in facts.tables or ()}
    own = [by_guid.get(switch.guid or switch.id, b"") for switch in facts.switches or ()]
    start = np.cumsum([0, *(len(ports) for ports in own)], dtype=np.int64)
    return np.frombuffer(b"".join(own), dtype=np.uint8), start


def _targets(facts: Facts, plugs: Mapping[str, tuple[int, int]]) -> tuple[list[Target], list[Nic]]:
    targets: list[Target] = []
    bare: list[Nic] = []
    for nic in facts.nics or ():
        plug = plugs.get(nic.guid or "")
        if plug is None:
            continue
        if nic.lid is None:
            bare.append(nic)
        else:
            targets.append(Target(nic, nic.lid, *plug))
    return targets, bare
