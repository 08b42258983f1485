"""Healthy hosts and fabrics in which a test injects one fault; printed as the tools print them."""

from __future__ import annotations

from itertools import combinations

import msgspec

from meshwright.cluster.degraded import degradations
from meshwright.cluster.facts import Cable, Facts, Nic, Switch
from meshwright.cluster.readers import ibnetdiscover
from meshwright.findings import Finding, Severity

FAST, SLOW = 50e9, 25e9


class Port(msgspec.Struct):
    """One cable of a host: adapter and its port, leaf and its port."""

    host: str
    adapter: str
    port: int
    leaf: str
    leaf_port: int
    rate: float = FAST
    guid: str = ""


class Site(msgspec.Struct):
    """A fabric of units: a host has a cable to each leaf of its unit, leaves to all spines."""

    ports: list[Port]
    trunks: list[tuple[str, int, str, int, float]]
    named: bool = True

    def hosts(self) -> list[str]:
        return list(dict.fromkeys(port.host for port in self.ports))

    def rename(self, prefix: str) -> Site:
        ports = [
            msgspec.structs.replace(port, host=f"{prefix}{at:04}")
            for port, at in zip(
                self.ports, [self.hosts().index(one.host) for one in self.ports], strict=True
            )
        ]
        return Site(ports, list(self.trunks))

    def facts(self) -> Facts:
        switches = dict.fromkeys(
            [port.leaf for port in self.ports]
            + [name for trunk in self.trunks for name in (trunk[0], trunk[2])]
        )
        nics: dict[str, Nic] = {}
        for port in self.ports:
            nics.setdefault(
                port.guid, Nic(len(nics), port.adapter, host=port.host or None, guid=port.guid)
            )
        down = [
            Cable(port.leaf, port.guid, port.leaf_port, port.port, port.rate) for port in self.ports
        ]
        up = [Cable(a, b, p, q, rate) for a, p, b, q, rate in self.trunks]
        return Facts(
            format="made",
            path="made.txt",
            nics=tuple(nics.values()),
            switches=tuple(Switch(name, name, guid=name) for name in switches),
            cables=(*down, *up),
        )

    def listing(self) -> str:
        """Return the fabric as ``ibnetdiscover`` prints it."""
        facts = self.facts()
        ids = {one.id: f"S-{0xA000 + at:016x}" for at, one in enumerate(facts.switches or ())}
        names = {one.id: one.name for one in facts.switches or ()}
        for nic in facts.nics or ():
            ids[str(nic.guid)] = f"H-{nic.guid:0>16}"
            names[str(nic.guid)] = f"{nic.host} {nic.name}" if nic.host else "MT4129 ConnectX7"
        lines: list[str] = []
        for key, ident in ids.items():
            switch = ident[0] == "S"
            lines += ["vendid=0x2c9", f"{'switch' if switch else 'ca'}guid=0x{ident[2:]}"]
            head = 'Switch\t64 "{}"\t\t# "{}" enhanced port 0 lid 1 lmc 0'
            lines.append((head if switch else 'Ca\t2 "{}"\t\t# "{}"').format(ident, names[key]))
            for cable in facts.cables or ():
                for near, far in (
                    ((cable.a, cable.a_port), (cable.b, cable.b_port)),
                    ((cable.b, cable.b_port), (cable.a, cable.a_port)),
                ):
                    if near[0] == key:
                        speed = "4xNDR" if cable.rate_bytes_per_s == FAST else "4xHDR"
                        own = "" if switch else f"({ident[2:]}) "
                        lines.append(
                            f'[{near[1]}]{own}\t"{ids[far[0]]}"[{far[1]}]\t\t# "{names[far[0]]}" lid 2 {speed}'
                        )
            lines.append("")
        return "\n".join(lines) + "\n"


def site(
    units: int = 2, rails: int = 4, hosts: int = 6, spines: int = 2, cables: int = 2, ports: int = 1
) -> Site:
    """Return a healthy fabric; with ``ports`` 2 each adapter has a cable to two planes of leaves."""
    made: list[Port] = []
    for unit in range(units):
        for host in range(hosts):
            for rail in range(rails):
                for port in range(1, ports + 1):
                    plane = "" if ports == 1 else f"-p{port}"
                    name = f"u{unit}-n{host}"
                    guid = f"{unit + 1:02x}{host:02x}{rail:02x}00"
                    leaf = f"leaf-{unit}-{rail}{plane}"
                    made.append(Port(name, f"mlx5_{rail}", port, leaf, host + 1, FAST, guid))
    leaves = list(dict.fromkeys(port.leaf for port in made))
    up = [
        (leaf, 33 + spine * cables + cable, f"spine-{spine}", at * cables + cable + 1, FAST)
        for at, leaf in enumerate(leaves)
        for spine in range(spines)
        for cable in range(cables)
    ]
    return Site(made, up)


def loud(facts: Facts) -> list[Finding]:
    """Return all findings on a source but the notes."""
    return [
        one for one in (*facts.findings, *degradations(facts)) if one.severity is not Severity.NOTE
    ]


def of_listing(made: Site) -> Facts:
    """Print a fabric and read it."""
    return ibnetdiscover.read(made.listing(), "made.txt")


Cells = dict[tuple[int, int], str]


def box(gpus: int = 8, links: dict[int, int] | None = None, off: tuple[int, ...] = ()) -> Cells:
    """Return the pairs of a switch box: ``links`` of single GPUs (else 18), ``off`` have none."""
    own = {gpu: (links or {}).get(gpu, 18) for gpu in range(gpus)}
    return {
        (a, b): "SYS" if a in off or b in off else f"NV{min(own[a], own[b])}"
        for a, b in combinations(range(gpus), 2)
    }


def matrix(cells: Cells, gpus: int = 8, nics: list[list[str]] | None = None) -> str:
    """Return a ``topo -m`` matrix; ``nics[g]`` are the cells of GPU g; (b, a) overrules (a, b)."""
    columns = len(nics[0]) if nics else 0
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(columns)]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    for row in range(gpus):
        line = [
            " X " if row == at else cells.get((row, at), cells.get((at, row), "SYS"))
            for at in range(gpus)
        ]
        line += nics[row] if nics else []
        rows.append("\t".join([names[row], *line, f"{row}-{row}", "0"]))
    for at in range(columns):
        mine = [nics[row][at] for row in range(gpus)] if nics else []
        mine += [" X " if at == other else "SYS" for other in range(columns)]
        rows.append("\t".join([names[gpus + at], *mine]))
    return "\n".join(rows) + "\n\nLegend:\n"


def each_its_own(gpus: int = 8) -> list[list[str]]:
    """Return the NIC cells of a box with a NIC beside each GPU."""
    half = gpus // 2
    return [
        [
            "PIX" if nic == gpu else "NODE" if nic // half == gpu // half else "SYS"
            for nic in range(gpus)
        ]
        for gpu in range(gpus)
    ]
