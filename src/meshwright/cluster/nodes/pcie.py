"""Inside one host: devices, bridges, sockets, and the path between any two devices.

A PCIe hierarchy is a forest whose roots are CPUs (NUMA nodes), joined to each other. A path goes
up from one device to the lowest common ancestor, over the CPU-CPU link when there is none, and
down again. Everything here is per host *type*: a few dozen objects, whatever the cluster's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from meshwright.cluster.facts import PATH_CLASSES, Facts, PcieChain


class LocalLink(msgspec.Struct, frozen=True):
    """One direction of a link inside a host; ends are names of devices, bridges or CPUs."""

    tail: str
    head: str
    kind: str
    """``pcie``, ``cpu`` (between sockets), ``nvlink`` or ``xgmi`` (direct GPU-GPU links)."""
    rate_bytes_per_s: float


class LocalGraph(msgspec.Struct, frozen=True):
    """Links of a host type and, for each ordered pair of devices, the links of its path.

    ``devices`` lists GPUs first, NICs after. ``paths[a * len(devices) + b]`` are indices into
    ``links``; empty where nothing is known (``paths`` itself where there is no link at all).
    """

    devices: tuple[str, ...]
    links: tuple[LocalLink, ...]
    paths: tuple[tuple[int, ...], ...]

    def path(self, a: int, b: int) -> tuple[int, ...]:
        """Return the link indices from device a to device b."""
        return self.paths[a * len(self.devices) + b] if self.links else ()


def local_graph(
    devices: Sequence[str],
    chains: Sequence[PcieChain],
    mesh: Sequence[LocalLink],
    cpu_rate_bytes_per_s: float,
    default_rate_bytes_per_s: float,
) -> LocalGraph:
    """Build links and paths from the chains of bridges above each device.

    ``mesh`` holds direct GPU-GPU links (both directions); where two GPUs have one, their path is
    that link; where they share a GPU with links to both, the path goes through it (NCCL's ``NVB``)
    ; otherwise it takes PCIe.
    """
    links: list[LocalLink] = []
    index: dict[tuple[str, str], int] = {}

    def add(tail: str, head: str, kind: str, rate: float | None) -> None:
        if (tail, head) not in index:
            index[tail, head] = len(links)
            links.append(LocalLink(tail, head, kind, rate or default_rate_bytes_per_s))

    ways = {chain.device: (chain.device, *chain.nodes) for chain in chains}
    for chain in chains:
        way = ways[chain.device]
        for low, high, rate in zip(way, way[1:], chain.rates_bytes_per_s, strict=False):
            add(low, high, "pcie", rate)
            add(high, low, "pcie", rate)
    roots = list(dict.fromkeys(way[-1] for way in ways.values()))
    for one in roots:
        for other in roots:
            if one != other:
                add(one, other, "cpu", cpu_rate_bytes_per_s)
    direct: dict[str, dict[str, float]] = {}
    for link in mesh:
        direct.setdefault(link.tail, {})[link.head] = link.rate_bytes_per_s
        add(link.tail, link.head, link.kind, link.rate_bytes_per_s)
    # A host of which only the number of GPUs is known may have very many.
    pairs = [(a, b) for a in devices for b in devices] if links else []
    paths = [tuple(index[hop] for hop in _hops(a, b, ways, direct)) for a, b in pairs]
    return LocalGraph(tuple(devices), tuple(links), tuple(paths))


def _hops(
    a: str, b: str, ways: dict[str, tuple[str, ...]], direct: dict[str, dict[str, float]]
) -> list[tuple[str, str]]:
    """Return the links from a to b; ``direct[tail][head]`` is the rate of a GPU-GPU link."""
    if a == b:
        return []
    if b in direct.get(a, ()):
        return [(a, b)]
    through = [
        (min(rate, direct[middle][b]), middle)
        for middle, rate in direct.get(a, {}).items()
        if b in direct.get(middle, ())
    ]
    if through:
        middle = max(through)[1]
        return [(a, middle), (middle, b)]
    if a not in ways or b not in ways:
        return []
    up, down = ways[a], ways[b]
    meet = next((node for node in up if node in down), None)
    first = up[: up.index(meet) + 1] if meet else up
    last = down[: down.index(meet) + 1] if meet else down
    way = [*first, *reversed(last)] if meet is None else [*first, *reversed(last[:-1])]
    return list(pairwise(way))


def guess_chains(facts: Facts) -> tuple[PcieChain, ...]:
    """Return a PCIe forest consistent with a ``topo -m`` matrix.

    Devices that see each other as PIX share a switch, as PXB an upper switch, as PHB or NODE a
    CPU; a pair shown as ``NV#`` tells nothing about PCIe. It is a guess (one of many forests that
    print the same matrix) and marked so by the caller.
    """
    gpus, nics = facts.gpus or (), facts.nics or ()
    names = [f"gpu{gpu.index}" for gpu in gpus] + [nic.name for nic in nics]
    pairs = _classes(facts, len(gpus))
    pix = _components(len(names), pairs, ("PIX",))
    pxb = _components(len(names), pairs, ("PIX", "PXB"))
    numa = _same_numa(facts, len(names))
    cpu = _components(len(names), pairs + numa, ("PIX", "PXB", "PHB", "NODE"))
    chains = []
    for device, name in enumerate(names):
        nodes = []
        if pix.count(pix[device]) > 1 or pxb.count(pxb[device]) > 1:
            nodes.append(f"pcie{pix[device]}")
        if len({pix[other] for other in range(len(names)) if pxb[other] == pxb[device]}) > 1:
            nodes.append(f"root{pxb[device]}")
        nodes.append(f"cpu{cpu[device]}")
        chains.append(PcieChain(name, tuple(nodes), (None,) * len(nodes)))
    return tuple(chains)


def _classes(facts: Facts, num_gpus: int) -> list[tuple[int, int, str]]:
    pairs = []
    for row, cells in enumerate(facts.gpu_gpu_class or ()):
        pairs += [(row, column, cell) for column, cell in enumerate(cells)]
    for row, cells in enumerate(facts.gpu_nic_class or ()):
        pairs += [(row, num_gpus + column, cell) for column, cell in enumerate(cells)]
    for row, cells in enumerate(facts.nic_nic_class or ()):
        pairs += [(num_gpus + row, num_gpus + column, cell) for column, cell in enumerate(cells)]
    return pairs


def _same_numa(facts: Facts, count: int) -> list[tuple[int, int, str]]:
    """Join GPUs of equal NUMA affinity where NVLink hides their PCIe relation in the matrix."""
    first: dict[tuple[int, ...], int] = {}
    cells = facts.gpu_gpu_class
    pairs = []
    for device, gpu in enumerate(facts.gpus or ()):
        if not gpu.numa or device >= count:
            continue
        other = first.setdefault(gpu.numa, device)
        if cells is None or cells[other][device] not in PATH_CLASSES:
            pairs.append((other, device, "NODE"))
    return pairs


def _components(count: int, pairs: list[tuple[int, int, str]], near: tuple[str, ...]) -> list[int]:
    """Return for each device the smallest device it is joined to over pairs of these classes."""
    root = list(range(count))

    def find(device: int) -> int:
        while root[device] != device:
            root[device] = root[root[device]]
            device = root[device]
        return device

    for a, b, name in pairs:
        if name in near:
            low, high = sorted((find(a), find(b)))
            root[high] = low
    return [find(device) for device in range(count)]
