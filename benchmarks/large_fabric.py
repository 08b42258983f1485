"""Write the ``ibnetdiscover`` text of a large rail-optimised fabric of three tiers.

    python benchmarks/large_fabric.py 131072 fabric.txt

Hosts of 8 adapters; 32 hosts hang on 8 leaves (one a rail) of 32 ports down and 32 up; 8 such units
are a pod of 64 leaves and 32 spines of 64 ports down and 64 up; cores have 128 ports. Nothing is
oversubscribed. Each cable stands in the stanzas of both its ends.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

RAILS = 8
HOSTS_OF_UNIT = 32
UNITS_OF_POD = 8
SPINES_OF_POD = 32
LEAVES_OF_POD = UNITS_OF_POD * RAILS
SPINE_PORTS = 64
"""Down, and as many up."""
CORE_PORTS = 128
GPUS_OF_POD = UNITS_OF_POD * HOSTS_OF_UNIT * RAILS

_HOST, _LEAF, _SPINE, _CORE = (
    0xA088C20300000000,
    0xFC6A1C0300000000,
    0xFC6A1C0400000000,
    0xFC6A1C05 << 32,
)
_Stanza = Iterator[str]


class Shape:
    """Sizes of the fabric for a number of GPUs (a multiple of two pods, at most 64 pods)."""

    def __init__(self, gpus: int) -> None:
        self.pods = gpus // GPUS_OF_POD
        if gpus % (2 * GPUS_OF_POD) or not self.pods or SPINE_PORTS % (self.pods // 2):
            raise SystemExit(f"{gpus} GPUs: give 4,096 times a power of two, up to 131,072")
        self.hosts = gpus // RAILS
        self.leaves = self.pods * LEAVES_OF_POD
        self.spines = self.pods * SPINES_OF_POD
        self.cores_of_group = self.pods * SPINE_PORTS // CORE_PORTS
        self.cores = SPINES_OF_POD * self.cores_of_group
        self.cables = 3 * gpus
        """As many at the adapters, between leaves and spines, and between spines and cores."""


def write_fabric(gpus: int, path: Path) -> None:
    """Write the listing of a fabric of so many GPUs."""
    shape = Shape(gpus)
    with path.open("w") as file:
        file.write("#\n# Topology file: generated for a benchmark\n#\n")
        for stanzas in (_leaves(shape), _spines(shape), _cores(shape), _adapters(shape)):
            file.writelines(stanzas)


def _leaf_name(leaf: int) -> str:
    unit, rail = divmod(leaf, RAILS)
    return f"MF0;leaf-{unit:04}-{rail + 1}:MQM9700/U1"


def _spine_name(spine: int) -> str:
    pod, number = divmod(spine, SPINES_OF_POD)
    return f"MF0;spine-{pod:02}-{number:02}:MQM9700/U1"


def _core_name(core: int) -> str:
    return f"MF0;core-{core:04}:MQM9700/U1"


def _adapter_name(adapter: int) -> str:
    host, rail = divmod(adapter, RAILS)
    return f"gpu{host:05} mlx5_{rail}"


def _switch(guid: int, ports: int, name: str, lid: int) -> str:
    return (
        f"\nvendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{guid:x}\nswitchguid=0x{guid:x}({guid:x})\n"
        f'Switch\t{ports} "S-{guid:016x}"\t\t# "{name}" enhanced port 0 lid {lid % 49_151} lmc 0\n'
    )


def _to_switch(port: int, guid: int, far_port: int, name: str, lid: int) -> str:
    return f'[{port}]\t"S-{guid:016x}"[{far_port}]\t\t# "{name}" lid {lid % 49_151} 4xNDR\n'


def _leaves(shape: Shape) -> _Stanza:
    for leaf in range(shape.leaves):
        yield _switch(_LEAF + leaf, 65, _leaf_name(leaf), leaf + 1)
        unit, rail = divmod(leaf, RAILS)
        for place in range(HOSTS_OF_UNIT):
            adapter = (unit * HOSTS_OF_UNIT + place) * RAILS + rail
            guid = _HOST + 16 * adapter
            yield (
                f'[{place + 1}]\t"H-{guid:016x}"[1]({guid:x}) \t\t# "{_adapter_name(adapter)}" '
                f"lid {adapter % 49_151} 4xNDR\n"
            )
        pod, own = divmod(leaf, LEAVES_OF_POD)
        for place in range(SPINES_OF_POD):
            spine = pod * SPINES_OF_POD + place
            port = HOSTS_OF_UNIT + 1 + place
            yield _to_switch(
                port, _SPINE + spine, own + 1, _spine_name(spine), shape.leaves + spine
            )


def _core_port(shape: Shape, spine: int, up: int) -> tuple[int, int]:
    """Return core and its port for an uplink of a spine (both from 0)."""
    pod, group = divmod(spine, SPINES_OF_POD)
    number, turn = up % shape.cores_of_group, up // shape.cores_of_group
    cables = SPINE_PORTS // shape.cores_of_group
    return group * shape.cores_of_group + number, pod * cables + turn


def _spines(shape: Shape) -> _Stanza:
    for spine in range(shape.spines):
        yield _switch(_SPINE + spine, 129, _spine_name(spine), shape.leaves + spine)
        pod, own = divmod(spine, SPINES_OF_POD)
        for place in range(LEAVES_OF_POD):
            leaf = pod * LEAVES_OF_POD + place
            port = HOSTS_OF_UNIT + 1 + own
            yield _to_switch(place + 1, _LEAF + leaf, port, _leaf_name(leaf), leaf + 1)
        for up in range(SPINE_PORTS):
            core, port = _core_port(shape, spine, up)
            name, lid = _core_name(core), shape.leaves + shape.spines + core
            yield _to_switch(SPINE_PORTS + up + 1, _CORE + core, port + 1, name, lid)


def _cores(shape: Shape) -> _Stanza:
    cables = SPINE_PORTS // shape.cores_of_group
    for core in range(shape.cores):
        yield _switch(_CORE + core, 129, _core_name(core), shape.leaves + shape.spines + core)
        group, number = divmod(core, shape.cores_of_group)
        for port in range(CORE_PORTS):
            pod, turn = divmod(port, cables)
            spine, up = pod * SPINES_OF_POD + group, turn * shape.cores_of_group + number
            far = SPINE_PORTS + up + 1
            yield _to_switch(
                port + 1, _SPINE + spine, far, _spine_name(spine), shape.leaves + spine
            )


def _adapters(shape: Shape) -> _Stanza:
    for adapter in range(shape.hosts * RAILS):
        host, rail = divmod(adapter, RAILS)
        unit, place = divmod(host, HOSTS_OF_UNIT)
        leaf, guid = unit * RAILS + rail, _HOST + 16 * adapter
        yield (
            f"\nvendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid:x}\ncaguid=0x{guid:x}\n"
            f'Ca\t1 "H-{guid:016x}"\t\t# "{_adapter_name(adapter)}"\n'
            f'[1]({guid:x}) \t"S-{_LEAF + leaf:016x}"[{place + 1}]\t\t# lid {adapter % 49_151} lmc 0 '
            f'"{_leaf_name(leaf)}" lid {leaf + 1} 4xNDR\n'
        )


def main() -> None:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gpus", type=int)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    write_fabric(options.gpus, options.file)


if __name__ == "__main__":
    main()
