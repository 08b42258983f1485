"""NCCL topology XML, second step: its GPUs and network ports, listed or counted by PCI class."""

from __future__ import annotations

import re
from collections import Counter
from typing import Generic, TypeVar

import msgspec

from meshwright.cluster.facts import Gpu, Nic
from meshwright.cluster.readers.nccl_topo_xml_tree import (
    MAX_DEVICES,
    Leaf,
    Pci,
    Seat,
    Tree,
    bad_element,
    integer_attribute,
    is_integer,
)
from meshwright.cluster.readers.safe_xml import Element
from meshwright.findings import Finding, Severity
from meshwright.units import mbit_per_s

_AMD_VENDOR = "0x1002"
_LEAST_MBIT_PER_S = 10_000
_MOST_MBIT_PER_S = 800_000
_USUAL_MBIT_PER_S = frozenset(1000 * step for step in (10, 20, 25, 40, 50, 56, 100, 200, 400, 800))
_SHOWN = 20

DeviceT = TypeVar("DeviceT", Gpu, Nic)


class Devices(msgspec.Struct, Generic[DeviceT], frozen=True):
    """Devices of one sort; ``leaves[i]`` is the element and seat of ``items[i]``."""

    items: tuple[DeviceT, ...] | None
    """``None``: elements without a class could be such devices."""
    leaves: tuple[Leaf, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Return where the devices sit."""
        return tuple(leaf.seat for leaf in self.leaves)


def read_gpus(tree: Tree) -> Devices[Gpu]:
    """Return the GPUs: ``gpu`` elements in the order of ``dev``, else by class in file order.

    Raises ``InputError`` for a ``dev`` or ``sm`` that is no integer, or too many devices.
    """
    if tree.gpus:
        return _listed_gpus(tree)
    pcis = _of_class(tree, "gpu")
    if pcis is None:
        return Devices(None)
    items = tuple(
        Gpu(
            index=index,
            name=_qualified(pci.busid, tree.host(pci.seat)),
            host=tree.host(pci.seat),
            pci=pci.busid,
            numa=tree.numa(pci.seat),
        )
        for index, pci in enumerate(pcis)
    )
    return Devices(items, tuple(Leaf(pci.seat, pci.element) for pci in pcis))


def read_nics(tree: Tree) -> Devices[Nic]:
    """Return the network ports: ``net`` elements, else adapters by class, in file order.

    Rates are bytes per second in one direction. Raises ``InputError`` for a ``port`` that is no
    integer, or too many devices.
    """
    if tree.nets:
        rates, findings = _net_rates([leaf.element for leaf in tree.nets], tree.path)
        listed = tuple(
            _listed_nic(tree, leaf, position, rate)
            for position, (leaf, rate) in enumerate(zip(tree.nets, rates, strict=True))
        )
        return Devices(listed, tuple(tree.nets), tuple(findings))
    pcis = _of_class(tree, "nic")
    if pcis is None:
        return Devices(None)
    items = tuple(
        Nic(
            index=index,
            name=_qualified(pci.busid, tree.host(pci.seat)),
            host=tree.host(pci.seat),
            pci=pci.busid,
        )
        for index, pci in enumerate(pcis)
    )
    return Devices(items, tuple(Leaf(pci.seat, pci.element) for pci in pcis))


def _of_class(tree: Tree, kind: str) -> list[Pci] | None:
    """Return ``pci`` elements of a kind; ``None`` when there is none but some have no class."""
    found = [pci for pci in tree.pcis if pci.kind == kind]
    if len(found) > MAX_DEVICES:
        message = f"more than {MAX_DEVICES} pci elements of one device class"
        raise bad_element(found[MAX_DEVICES].element, tree.path, message)
    unknown = any(pci.kind is None for pci in tree.pcis)
    return found if found or not unknown else None


def _qualified(name: str, host: str | None) -> str:
    """Return a device name that is unique in a file of several hosts."""
    return name if host is None else f"{host}/{name}"


def _listed_gpus(tree: Tree) -> Devices[Gpu]:
    devs = [integer_attribute(leaf.element, "dev", tree.path) for leaf in tree.gpus]
    hosts = [tree.host(leaf.seat) for leaf in tree.gpus]
    known = all(dev is not None and dev >= 0 for dev in devs)
    named = known and max(Counter(zip(hosts, devs, strict=True)).values()) == 1
    numbered = named and len(set(devs)) == len(devs)
    entries = list(zip(devs, tree.gpus, strict=True))
    if numbered:
        entries.sort(key=lambda entry: entry[0] or 0)
    items = []
    for position, (dev, leaf) in enumerate(entries):
        busid = tree.busid(leaf.seat)
        name = str(dev) if named else busid or f"gpu{position}"
        items.append(
            Gpu(
                index=dev if numbered and dev is not None else position,
                name=_qualified(name, tree.host(leaf.seat)),
                host=tree.host(leaf.seat),
                pci=busid,
                numa=tree.numa(leaf.seat),
                compute_capability=_compute_capability(tree, leaf),
            )
        )
    findings = () if named else (_unclear_dev(tree),)
    return Devices(tuple(items), tuple(leaf for _, leaf in entries), findings)


def _compute_capability(tree: Tree, leaf: Leaf) -> int | None:
    """Return ``sm``; RCCL writes the number of compute units there."""
    amd = "gcn" in leaf.element.attributes
    if leaf.seat.pci is not None:
        vendor = tree.pcis[leaf.seat.pci].element.attributes.get("vendor", "")
        amd = amd or vendor.strip().lower() == _AMD_VENDOR
    return None if amd else integer_attribute(leaf.element, "sm", tree.path)


def _unclear_dev(tree: Tree) -> Finding:
    return Finding(
        rule="topology/gpu-dev-unclear",
        severity=Severity.NOTE,
        place=tree.gpus[0].element.place(tree.path),
        message="dev is missing or repeated: GPUs are numbered in file order",
        numbers={"gpus": len(tree.gpus)},
    )


def _listed_nic(tree: Tree, leaf: Leaf, position: int, rate: float | None) -> Nic:
    busid = tree.busid(leaf.seat)
    name = leaf.element.attributes.get("name", "").strip() or busid or f"net{position}"
    host = tree.host(leaf.seat)
    return Nic(
        index=position,
        name=_qualified(name, host),
        host=host,
        pci=busid,
        guid=_guid(leaf.element),
        port=integer_attribute(leaf.element, "port", tree.path),
        rate_bytes_per_s=rate,
    )


def _guid(element: Element) -> str | None:
    """Return the GUID as printed, 16 hexadecimal digits; ``0x0`` means that none is known."""
    digits = element.attributes.get("guid", "").strip().lower().removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{1,16}", digits) or not digits.strip("0"):
        return None
    return digits.zfill(16)


def _net_rates(elements: list[Element], path: str) -> tuple[list[float | None], list[Finding]]:
    """Return the rate of each ``net`` element in bytes per second, and what is odd about them.

    ``speed`` is in Mbit/s (NCCL ``topo.cc``) and often hand-made. One outside 10 to 800 Gbit/s is
    not taken (``None``); one between that is no usual step is taken with a note.
    """
    rates: list[float | None] = []
    doubtful: dict[str, list[Element]] = {}
    for element in elements:
        text = element.attributes.get("speed")
        rate = _rate(text)
        rates.append(rate)
        if text is not None and (rate is None or int(text) not in _USUAL_MBIT_PER_S):
            doubtful.setdefault(text, []).append(element)
    return rates, [_speed_finding(speed, group, path) for speed, group in doubtful.items()]


def _rate(text: str | None) -> float | None:
    if text is None or not is_integer(text):
        return None
    speed = int(text)
    return mbit_per_s(speed) if _LEAST_MBIT_PER_S <= speed <= _MOST_MBIT_PER_S else None


def _speed_finding(speed: str, group: list[Element], path: str) -> Finding:
    taken = _rate(speed) is not None
    names = [element.attributes.get("name", "") for element in group[:_SHOWN]]
    reason = "is no usual step" if taken else "is not within 10 to 800 Gbit/s and not taken"
    return Finding(
        rule="topology/net-speed-doubtful",
        severity=Severity.NOTE if taken else Severity.WARNING,
        place=group[0].place(path),
        message=f"net speed {speed[:40]!r} (Mbit/s) of {', '.join(names)} {reason}",
        numbers={"speed": speed[:40], "count": len(group), "names": [*names]},
        remedy="write the speed of one port in Mbit/s: 400000 for 400 Gbit/s",
    )
