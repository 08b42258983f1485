"""hwloc XML, first step: NUMA nodes, bridges, PCI and OS devices, and where each sits.

Grammar: hwloc ``topology-xml.c`` and ``hwloc2.dtd``.
"""

from __future__ import annotations

import re

import msgspec

from meshwright.cluster.readers.nccl_topo_xml_tree import normal_busid
from meshwright.cluster.readers.safe_xml import Element
from meshwright.errors import InputError, Problem
from meshwright.units import gb_per_s

_INTEGER = re.compile(r"\s*[0-9]{1,18}\s*\Z")
_SPEED = re.compile(r"\s*[0-9]{1,6}(?:\.[0-9]{1,12})?\s*\Z")
_PCI_TYPE = re.compile(r"\s*([0-9a-fA-F]{4})\s+\[([0-9a-fA-F]{4}):[0-9a-fA-F]{4}\]")
_WORD = re.compile(r"0x[0-9a-fA-F]{1,8}\Z")
_ENDLESS = "0xf...f"
_WORD_BITS = 32
_LISTED_KINDS = {2: "network", 3: "openfabrics"}
"""``osdev_type`` up to version 2 of the format."""
_MASKED_KINDS = {16: "network", 32: "openfabrics"}
"""``osdev_type`` from version 3 on, a bit mask."""
_ROOTS = ("Machine", "System")


class Seat(msgspec.Struct, frozen=True):
    """Where a device sits."""

    numa: tuple[int, ...] = ()
    """NUMA nodes near it; empty when the file places it nowhere nearer than the machine."""
    cpu: str = "machine"
    root: int | None = None
    """Number of the host bridge above it, ``None`` when none is listed."""
    bridges: tuple[int, ...] = ()
    """PCI bridges above it (numbers in ``Tree.bridges``), nearest first."""


class Bridge(msgspec.Struct, frozen=True):
    """One PCI bridge; its rate is that of its own link, one direction."""

    busid: str
    rate_bytes_per_s: float | None


class Pci(msgspec.Struct, frozen=True):
    """One PCI device; ``rate_bytes_per_s`` is that of its own link, one direction."""

    busid: str
    code: str
    """Class, four hexadecimal digits; ``0000`` where the tool could not read it."""
    vendor: str
    subtype: str
    rate_bytes_per_s: float | None
    seat: Seat
    element: Element


class OsDevice(msgspec.Struct, frozen=True):
    """One device as the system or a library names it (``eth0``, ``mlx5_0``, ``nvml0``)."""

    name: str
    kinds: frozenset[str]
    """``network`` and ``openfabrics``; empty for what is no network device."""
    infos: dict[str, str]
    pci: int | None
    seat: Seat
    element: Element


class Tree(msgspec.Struct):
    """What the file holds, in file order."""

    path: str
    version: int
    numa_ids: tuple[int, ...] = ()
    """Ids of NUMA nodes, without those that are a GPU's memory."""
    bridges: list[Bridge] = msgspec.field(default_factory=list)
    num_host_bridges: int = 0
    pcis: list[Pci] = msgspec.field(default_factory=list)
    osdevs: list[OsDevice] = msgspec.field(default_factory=list)
    pci_of_gp: dict[int, int] = msgspec.field(default_factory=dict)
    """``gp_index`` of a PCI device, or of an OS device in it -> number of the PCI device."""
    osdev_of_gp: dict[int, int] = msgspec.field(default_factory=dict)
    """``gp_index`` of an OS device that is in no PCI device -> its number."""
    cpu_gps: set[int] = msgspec.field(default_factory=set)
    """``gp_index`` of objects that hold CPUs."""

    @property
    def lists_io(self) -> bool:
        """Tell whether the file lists any I/O object: without, devices are unknown."""
        return bool(self.pcis or self.osdevs or self.bridges or self.num_host_bridges)

    @property
    def lists_bridges(self) -> bool:
        """Tell whether the PCI tree is in the file."""
        return bool(self.bridges or self.num_host_bridges)


def build_tree(root: Element, path: str) -> Tree:
    """Return the tree of a parsed file.

    Raises
    ------
    InputError
        The root is not ``topology``, holds no object, or a number in an object is none.
    """
    if root.tag != "topology":
        raise bad_element(root, path, f"the root element is {root.tag}, not topology")
    machines = objects_of(root)
    if not machines:
        raise bad_element(root, path, "topology holds no object")
    version = root.attributes.get("version", "1").split(".")[0]
    tree = Tree(path, int(version) if _INTEGER.match(version) else 2)
    ids: set[int] = set()
    for machine in machines:
        _collect_numa(machine, path, ids)
    tree.numa_ids = tuple(sorted(ids))
    walk = _Walk(tree)
    for machine in machines:
        walk.enter(machine, Seat(), None)
    return tree


def objects_of(element: Element) -> list[Element]:
    """Return the ``object`` children of an element."""
    return [child for child in element.children if child.tag == "object"]


def _collect_numa(element: Element, path: str, ids: set[int]) -> None:
    if element.attributes.get("type") == "NUMANode":
        os_index = integer(element, "os_index", path)
        if os_index is not None and element.attributes.get("subtype") != "GPUMemory":
            ids.add(os_index)
    for child in objects_of(element):
        _collect_numa(child, path, ids)


class _Walk:
    """Goes down the tree; depth is bounded by the parser."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def enter(self, element: Element, seat: Seat, pci: int | None) -> None:
        """Take an object and what is in it."""
        kind = element.attributes.get("type", "")
        if kind == "Bridge":
            seat = self._bridge(element, seat)
        elif kind == "PCIDev":
            pci = self._pci(element, seat)
        elif kind == "OSDev":
            self._osdev(element, seat, pci)
        elif kind != "Misc":
            seat = self._cpus(element, kind, seat)
        for child in objects_of(element):
            self.enter(child, seat, pci)

    def _bridge(self, element: Element, seat: Seat) -> Seat:
        tree = self._tree
        if "pci_busid" not in element.attributes:
            tree.num_host_bridges += 1
            return Seat(seat.numa, seat.cpu, tree.num_host_bridges - 1)
        busid = normal_busid(element.attributes["pci_busid"])
        tree.bridges.append(Bridge(busid, self._rate(element)))
        return Seat(seat.numa, seat.cpu, seat.root, (len(tree.bridges) - 1, *seat.bridges))

    def _pci(self, element: Element, seat: Seat) -> int:
        tree = self._tree
        kind = _PCI_TYPE.match(element.attributes.get("pci_type", ""))
        number = len(tree.pcis)
        tree.pcis.append(
            Pci(
                busid=normal_busid(element.attributes.get("pci_busid", "")),
                code=kind[1].lower() if kind else "0000",
                vendor=kind[2].lower() if kind else "0000",
                subtype=element.attributes.get("subtype", ""),
                rate_bytes_per_s=self._rate(element),
                seat=seat,
                element=element,
            )
        )
        gp = integer(element, "gp_index", tree.path)
        if gp is not None:
            tree.pci_of_gp[gp] = number
        return number

    def _osdev(self, element: Element, seat: Seat, pci: int | None) -> None:
        tree = self._tree
        code = integer(element, "osdev_type", tree.path) or 0
        kinds = [_LISTED_KINDS.get(code, "")]
        if tree.version >= 3:
            kinds = [name for bit, name in _MASKED_KINDS.items() if code & bit]
        infos = {
            info.attributes.get("name", ""): info.attributes.get("value", "")
            for info in element.children
            if info.tag == "info"
        }
        name = element.attributes.get("name", "")
        known = frozenset(kinds) - {""}
        tree.osdevs.append(OsDevice(name, known, infos, pci, seat, element))
        gp = integer(element, "gp_index", tree.path)
        if gp is not None and pci is not None:
            tree.pci_of_gp[gp] = pci
        elif gp is not None:
            tree.osdev_of_gp[gp] = len(tree.osdevs) - 1

    def _cpus(self, element: Element, kind: str, seat: Seat) -> Seat:
        """Return the seat of what hangs on an object that holds CPUs."""
        tree = self._tree
        gp = integer(element, "gp_index", tree.path)
        if gp is not None:
            tree.cpu_gps.add(gp)
        if "nodeset" not in element.attributes:
            return seat
        mask = _bitmap(element, tree.path)
        numa = tuple(one for one in tree.numa_ids if mask >> one & 1)
        if kind in _ROOTS and len(numa) > 1:
            return Seat()
        cpu = seat.cpu
        if len(numa) == 1:
            cpu = f"cpu{numa[0]}"
        elif kind == "Package":
            cpu = f"package{integer(element, 'os_index', tree.path) or 0}"
        return Seat(numa, cpu)

    def _rate(self, element: Element) -> float | None:
        """Return ``pci_link_speed`` (GB/s, one direction) in bytes per second; 0 is unknown."""
        text = element.attributes.get("pci_link_speed")
        if text is None:
            return None
        if _SPEED.match(text) is None:
            message = f"pci_link_speed={text[:40]!r} is no rate in GB/s"
            raise bad_element(element, self._tree.path, message)
        return gb_per_s(float(text)) or None


def _bitmap(element: Element, path: str) -> int:
    """Return ``nodeset`` as a bit mask: words of 32 bits, highest first, empty ones zero."""
    text = element.attributes["nodeset"].strip()
    value = -1 if text.startswith(_ENDLESS) else 0
    rest = text.removeprefix(_ENDLESS).removeprefix(",")
    for word in rest.split(",") if rest else ():
        if word and _WORD.match(word) is None:
            message = f"nodeset={text[:60]!r} is no bit mask"
            raise bad_element(element, path, message)
        value = value << _WORD_BITS | int(word or "0", 16)
    return value


def integer(element: Element, name: str, path: str) -> int | None:
    """Return a non-negative integer attribute, ``None`` when absent; raises ``InputError``."""
    text = element.attributes.get(name)
    if text is None or text.strip() == "-1":
        return None
    if _INTEGER.match(text) is None:
        raise bad_element(element, path, f"{name}={text[:40]!r} of {element.tag} is no integer")
    return int(text)


def bad_element(element: Element, path: str, message: str) -> InputError:
    """Return the error for an element that cannot be read."""
    remedy = "give the file that lstopo --of xml writes"
    return InputError(Problem(element.place(path), message, remedy=remedy))
