"""Fabrics with forwarding tables for the tests: a fat tree, random graphs, and a walk hop by hop."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from meshwright.cluster.facts import NO_PORT, Cable, Facts, ForwardingTable, Nic, Switch

Ports = dict[tuple[str, int], tuple[str, int]]
"""Other end (node and port) of each end."""


def guid(kind: int, number: int) -> str:
    return f"{0x0C0A_0000_0000_0000 + (kind << 32) + number:016x}"


def other_ends(facts: Facts) -> Ports:
    ends: Ports = {}
    for cable in facts.cables or ():
        ends[cable.a, cable.a_port or 0] = (cable.b, cable.b_port or 0)
        ends[cable.b, cable.b_port or 0] = (cable.a, cable.a_port or 0)
    return ends


def with_tables(facts: Facts, choose: Callable[[str, Nic, list[int]], int]) -> Facts:
    """Add shortest-path tables; ``choose`` picks one of the ports that lead nearer to an adapter."""
    ends = other_ends(facts)
    switches = [one.id for one in facts.switches or ()]
    tables = {switch: bytearray(b"\xff" * 64) for switch in switches}
    for nic in facts.nics or ():
        if nic.lid is None or (str(nic.guid), 1) not in ends:
            continue
        home, port = ends[str(nic.guid), 1]
        distance = {home: 0}
        queue = deque([home])
        while queue:
            at = queue.popleft()
            for (here, _), (there, _) in ends.items():
                if there == at and here in tables and here not in distance:
                    distance[here] = distance[at] + 1
                    queue.append(here)
        for switch, far in distance.items():
            nearer = sorted(
                out for (here, out), (there, _) in ends.items()
                if here == switch and distance.get(there, far) == far - 1
            )  # fmt: skip
            tables[switch][nic.lid] = choose(switch, nic, nearer) if far else port
    return set_tables(facts, {switch: bytes(ports) for switch, ports in tables.items()})


def set_tables(facts: Facts, ports: dict[str, bytes]) -> Facts:
    tables = tuple(ForwardingTable(switch, switch, own) for switch, own in ports.items())
    return msgspec.structs.replace(facts, tables=tables)


def table_of(facts: Facts, switch: str) -> bytes:
    return next(one.ports for one in facts.tables or () if one.guid == switch)


def edited(facts: Facts, switch: str, lid: int, port: int) -> Facts:
    """Change one entry."""
    ports = {one.guid: one.ports for one in facts.tables or ()}
    own = bytearray(ports[switch])
    own[lid] = port
    return set_tables(facts, ports | {switch: bytes(own)})


def fat_tree(spines: int, leaves: int, hosts: int, cables: int = 1) -> Facts:
    """Hosts on ports from 1 of each leaf, then cables to the spines; LIDs from 10, no tables yet."""
    nics, between = [], []
    for number in range(leaves * hosts):
        own = guid(1, number)
        nics.append(Nic(number, "mlx5_0", host=f"n{number}", guid=own, port=1, lid=10 + number))
        between.append(Cable(own, guid(2, number // hosts), 1, number % hosts + 1, 50e9))
    for leaf in range(leaves):
        for up in range(spines * cables):
            spine, way = divmod(up, cables)
            down = leaf * cables + way + 1
            between.append(Cable(guid(3, spine), guid(2, leaf), down, hosts + up + 1, 50e9))
    switches = [Switch(guid(2, one), f"leaf{one}", guid(2, one)) for one in range(leaves)]
    switches += [Switch(guid(3, one), f"spine{one}", guid(3, one)) for one in range(spines)]
    return Facts(
        format="ibnetdiscover",
        path="net.txt",
        hosts=tuple(f"n{one}" for one in range(leaves * hosts)),
        nics=tuple(nics),
        switches=tuple(switches),
        cables=tuple(between),
    )


def by_destination(_switch: str, nic: Nic, ports: list[int]) -> int:
    """Spread destinations over the ports in turn (D-mod-k)."""
    return ports[nic.index % len(ports)]


def first_port(_switch: str, _nic: Nic, ports: list[int]) -> int:
    return ports[0]


def random_fabric(dice: random.Random, *, broken: bool = False) -> Facts:
    """Random switches, cables (parallel ones too), adapters, LIDs and shortest-path tables.

    ``broken``: some entries of the tables name any port, or none.
    """
    switches = [guid(2, one) for one in range(dice.randint(1, 7))]
    free = {switch: dice.sample(range(1, 40), 39) for switch in switches}
    nics, cables = [], []
    lids = dice.sample(range(1, 64), 16)
    for number in range(dice.randint(1, 9)):
        leaf, own = dice.choice(switches), guid(1, number)
        lid = lids.pop() if dice.random() < 0.95 else None
        nics.append(Nic(number, "mlx5_0", host=f"n{number}", guid=own, port=1, lid=lid))
        ends = [(own, 1), (leaf, free[leaf].pop())]
        cables.append(_cable(dice, ends))
    for _ in range(dice.randint(0, 14) if len(switches) > 1 else 0):
        one, other = dice.sample(switches, 2)
        cables += [
            _cable(dice, [(one, free[one].pop()), (other, free[other].pop())])
            for _ in range(dice.choice([1, 1, 2]))
        ]
    dice.shuffle(cables)
    facts = Facts(
        format="ibnetdiscover",
        path="net.txt",
        hosts=tuple(str(nic.host) for nic in nics),
        nics=tuple(nics),
        switches=tuple(Switch(one, f"s{index}", one) for index, one in enumerate(switches)),
        cables=tuple(cables),
    )
    facts = with_tables(facts, lambda _switch, _nic, ports: dice.choice(ports))
    used = [end for end in other_ends(facts) if end[0] in free]
    known = [nic.lid for nic in nics if nic.lid is not None]
    for _ in range(dice.randint(1, 12) if broken and known else 0):
        switch, port = dice.choice(used)
        port = dice.choice([port] * 6 + [NO_PORT, 0, 254, dice.randrange(1, 40)])
        facts = edited(facts, switch, dice.choice(known), port)
    return facts


def _cable(dice: random.Random, ends: list[tuple[str, int]]) -> Cable:
    dice.shuffle(ends)
    return Cable(ends[0][0], ends[1][0], ends[0][1], ends[1][1], 50e9)


def hand_walk(facts: Facts, src: Nic, dst: Nic) -> tuple[list[tuple[str, int]], bool]:
    """Return (switch, port) hop by hop, as far as a packet comes, and whether it arrives."""
    ends = other_ends(facts)
    tables = {one.guid: one.ports for one in facts.tables or ()}
    at = ends[str(src.guid), 1][0]
    steps: list[tuple[str, int]] = []
    while dst.lid is not None and at in tables and len(steps) <= len(tables):
        port = tables[at][dst.lid] if dst.lid < len(tables[at]) else NO_PORT
        steps.append((at, port))
        if (at, port) not in ends or port in (0, NO_PORT):
            return steps, False
        at, entered = ends[at, port]
        if at == dst.guid:
            return steps, entered == 1
    return steps, False


def walked_loads(facts: Facts, flows: list[tuple[Nic, Nic, float]]) -> Counter[tuple[str, int]]:
    """Return what flows put on the cables between switches, by switch and port they leave from."""
    switches = {one.id for one in facts.switches or ()}
    ends = other_ends(facts)
    loads: Counter[tuple[str, int]] = Counter()
    for src, dst, size in flows:
        steps, arrives = hand_walk(facts, src, dst)
        for step in steps if arrives else []:
            if ends[step][0] in switches:
                loads[step] += size
    return loads


def by_end(cables: list[Cable], up: list[float], down: list[float]) -> Counter[tuple[str, int]]:
    """Return loads of cables (``a`` the lower end) in the form of ``walked_loads``."""
    loads: Counter[tuple[str, int]] = Counter()
    for cable, rising, falling in zip(cables, up, down, strict=True):
        loads[cable.a, cable.a_port or 0] += rising
        loads[cable.b, cable.b_port or 0] += falling
    return +loads
