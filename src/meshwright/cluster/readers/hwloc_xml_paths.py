"""hwloc XML: PCIe path classes and chains, from where devices sit.

hwloc lists the ports of a PCIe switch as bridges: below the root port stand an upstream port, a
downstream port and so on in turn. A switch is named here by its upstream port, as NCCL does.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.cluster.facts import PcieChain
from meshwright.cluster.readers.hwloc_xml_tree import Seat, Tree


def path_class(a: Seat, b: Seat) -> str:
    """Return the class of two devices as ``nvidia-smi topo -m`` would print it.

    The same bridge or the same switch right above both PIX, more switches PXB, one host bridge
    PHB, one NUMA node NODE, else SYS (also where the file does not say which NUMA node).
    """
    if a.bridges and a.bridges[:1] == b.bridges[:1]:
        return "PIX"
    if not set(a.bridges).isdisjoint(b.bridges):
        one, other = _upstream_ports(a), _upstream_ports(b)
        return "PIX" if one and one[:1] == other[:1] else "PXB"
    if a.root is not None and a.root == b.root:
        return "PHB"
    return "NODE" if not set(a.numa).isdisjoint(b.numa) else "SYS"


def class_matrix(rows: Sequence[Seat], columns: Sequence[Seat]) -> tuple[tuple[str, ...], ...]:
    """Return ``[row][column]`` path classes."""
    return tuple(tuple(path_class(row, column) for column in columns) for row in rows)


def chain(tree: Tree, device: str, rate: float | None, seat: Seat) -> PcieChain:
    """Return the way from a device up to its CPU; ``rate`` is what its own link states.

    Both ends of a link state its rate and may differ, as idle links train down: the higher counts.
    """
    ports = {port: place for place, port in enumerate(seat.bridges)}
    rates = [_higher(rate, _downstream_rate(tree, seat, 0))]
    nodes = []
    for port in _upstream_ports(seat):
        nodes.append(tree.bridges[port].busid)
        above = _downstream_rate(tree, seat, ports[port] + 1)
        rates.append(_higher(tree.bridges[port].rate_bytes_per_s, above))
    return PcieChain(device, (*nodes, seat.cpu), tuple(rates))


def _upstream_ports(seat: Seat) -> tuple[int, ...]:
    """Return the upstream ports of the switches above a device, nearest first."""
    return seat.bridges[len(seat.bridges) % 2 :: 2]


def _downstream_rate(tree: Tree, seat: Seat, place: int) -> float | None:
    """Return the rate of the root or downstream port at a place above a device, if it is one."""
    if place >= len(seat.bridges) or (len(seat.bridges) - place) % 2 == 0:
        return None
    return tree.bridges[seat.bridges[place]].rate_bytes_per_s


def _higher(one: float | None, other: float | None) -> float | None:
    return max(one or 0.0, other or 0.0) or None
