"""What equal hosts have in common, and what a host has otherwise than another one.

Hosts are of one type when their devices, links, path classes and rates are equal. PCI addresses,
GUIDs, UUIDs and names of places differ between any two hosts and count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.host_devices import device_name
from meshwright.cluster.join.said import Difference, some
from meshwright.units import format_rate

_CLASSES = ("gpu_gpu_class", "gpu_nic_class", "nic_nic_class")
_SHAPE = (*_CLASSES, "nvlink_pairs", "numa_ids")

_Link = tuple[str, float | None]
"""Where a PCIe link is, in words, and its rate."""


def shape_of(facts: Facts) -> tuple[object, ...]:
    """Return what equal hosts have in common: everything but addresses, ids and names of places."""
    gpus = tuple((gpu.model, gpu.numa, gpu.nvlinks) for gpu in facts.gpus or ())
    nics = tuple((device_name(nic), nic.port, nic.rate_bytes_per_s) for nic in facts.nics or ())
    return (gpus, nics, _chain_rates(facts), *(getattr(facts, name) for name in _SHAPE))


def _chain_rates(facts: Facts) -> tuple[tuple[float | None, ...] | None, ...] | None:
    """Return the rates from each GPU and NIC up to its CPU, by the device's place in the lists."""
    if facts.pcie_chains is None:
        return None
    rates = {chain.device: chain.rates_bytes_per_s for chain in facts.pcie_chains}
    names = [gpu.name for gpu in facts.gpus or ()] + [nic.name for nic in facts.nics or ()]
    return tuple(rates.get(name) for name in names)


def differences(usual: Facts, other: Facts) -> list[Difference]:
    """Return what ``other`` has (left) and what the usual host has (right); empty: nothing found.

    One entry a kind of thing, with the first device that differs and how many more do.
    """
    return [one for of in _KINDS for one in of(usual, other)]


def words(one: Difference) -> str:
    """Return ``NVLinks up of GPU3 17 against 18``."""
    return f"{one.what} {one.left} against {one.right}"


def _gpus(usual: Facts, other: Facts) -> Iterator[Difference]:
    mine, theirs = other.gpus or (), usual.gpus or ()
    if len(mine) != len(theirs):
        yield _counted("GPUs", [gpu.name for gpu in mine], [gpu.name for gpu in theirs])
        return
    yield from _by_device("the model of", _each(mine, theirs, lambda gpu: gpu.model))
    yield from _by_device("NVLinks up of", _each(mine, theirs, lambda gpu: gpu.nvlinks))
    yield from _by_device("the NUMA node of", _each(mine, theirs, lambda gpu: gpu.numa))


def _nvlink(usual: Facts, other: Facts) -> Iterator[Difference]:
    if len(other.gpus or ()) != len(usual.gpus or ()):
        return
    mine, theirs = (
        {(pair.a, pair.b): pair.count for pair in facts.nvlink_pairs or ()}
        for facts in (other, usual)
    )
    if len(mine) != len(theirs):
        lost = [f"GPU{a}-GPU{b}" for a, b in sorted(theirs.keys() - mine.keys())]
        more = f" (none for {some(lost, 2)})" if lost else ""
        yield Difference("pairs with NVLink", str(len(mine)), f"{len(theirs)}{more}")
        return
    counts = [{str(count) for count in table.values()} for table in (mine, theirs)]
    if counts[0] != counts[1]:
        yield Difference("links a pair", *(some(sorted(one), 4) or "unknown" for one in counts))
        return
    odd = [
        (f"GPU{a} and GPU{b}", mine[a, b], theirs[a, b])
        for a, b in sorted(mine.keys() & theirs.keys())
        if mine[a, b] != theirs[a, b]
    ]
    yield from _by_device("links between", odd)


def _nics(usual: Facts, other: Facts) -> Iterator[Difference]:
    mine, theirs = other.nics or (), usual.nics or ()
    if len(mine) != len(theirs):
        yield _counted("NICs", [nic.name for nic in mine], [nic.name for nic in theirs])
        return
    names = _each(mine, theirs, device_name)
    yield from _by_device("the name of", [(f"NIC{at}", *one[1:]) for at, one in enumerate(names)])
    yield from _by_device("the port of", _each(mine, theirs, lambda nic: nic.port))
    yield from _by_device("the rate of", _each(mine, theirs, lambda nic: nic.rate_bytes_per_s))


def _numa(usual: Facts, other: Facts) -> Iterator[Difference]:
    mine, theirs = other.numa_ids, usual.numa_ids
    if mine != theirs:
        yield Difference("NUMA nodes", _value(mine), _value(theirs))


def _pcie(usual: Facts, other: Facts) -> Iterator[Difference]:
    """Yield the links of devices to their CPU; those of a switch once, whatever hangs below."""
    if (other.pcie_chains is None) != (usual.pcie_chains is None):
        known = ["unknown" if one.pcie_chains is None else "known" for one in (other, usual)]
        yield Difference("the PCIe tree", *known)
        return
    mine, theirs = (dict(_links(one)) for one in (other, usual))
    odd: dict[str, tuple[str, object, object]] = {}  # by lower end: a link of a switch once
    for device, links in mine.items():
        for (where, rate), (_, their) in zip(links, theirs.get(device, ()), strict=False):
            if rate != their:
                odd.setdefault(where.partition(" (above")[0], (where, rate, their))
    yield from _by_device("the PCIe link", list(odd.values()))


def _links(facts: Facts) -> Iterator[tuple[str, list[_Link]]]:
    """Yield each device with its links upwards."""
    for chain in facts.pcie_chains or ():
        ends = [chain.device, *chain.nodes]
        links: list[_Link] = []
        for at, rate in enumerate(chain.rates_bytes_per_s):
            near = f"of {chain.device}" if at == 0 else f"of {ends[at]} (above {chain.device})"
            links.append((f"{near} to {ends[at + 1]}", rate))
        yield chain.device, links


def _classes(usual: Facts, other: Facts) -> Iterator[Difference]:
    for name in _CLASSES:
        mine, theirs = getattr(other, name), getattr(usual, name)
        if mine == theirs:
            continue
        if mine is None or theirs is None:
            known = ["unknown" if one is None else "known" for one in (mine, theirs)]
            yield Difference(f"path classes {name[:7].replace('_', '-').upper()}", *known)
            continue
        if [len(row) for row in mine] != [len(row) for row in theirs]:
            continue  # another number of devices, which is said
        rows, columns = name.split("_")[0].upper(), name.split("_")[1].upper()
        odd = [
            (f"{rows}{y} and {columns}{x}", cell, theirs[y][x])
            for y, row in enumerate(mine)
            for x, cell in enumerate(row)
            if cell != theirs[y][x] and (rows != columns or x > y)
        ]
        yield from _by_device("the path class of", odd)


_KINDS: tuple[Callable[[Facts, Facts], Iterable[Difference]], ...] = (
    _gpus,
    _nvlink,
    _nics,
    _pcie,
    _numa,
    _classes,
)


def _each(
    mine: Sequence[object], theirs: Sequence[object], of: Callable[..., object]
) -> list[tuple[str, object, object]]:
    """Return name and both values of each two devices at the same place of the lists."""
    return [
        (str(getattr(one, "name", "?")), of(one), of(other))
        for one, other in zip(mine, theirs, strict=True)
    ]


def _by_device(what: str, values: Sequence[tuple[str, object, object]]) -> Iterator[Difference]:
    """Yield the first device whose values differ, and how many more do so."""
    odd = [one for one in values if one[1] != one[2]]
    if odd:
        name, mine, theirs = odd[0]
        more = f" ({len(odd) - 1} more)" if len(odd) > 1 else ""
        yield Difference(f"{what} {name}", _value(mine), _value(theirs) + more)


def _counted(what: str, mine: Sequence[str], theirs: Sequence[str]) -> Difference:
    lost = [name for name in theirs if name not in set(mine)]
    more = f" (no {some(lost, 4)})" if lost and mine else ""
    return Difference(what, str(len(mine)), f"{len(theirs)}{more}")


def _value(value: object) -> str:
    if isinstance(value, float):
        return format_rate(value)
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "unknown"
    return "unknown" if value is None else str(value)[:80]
