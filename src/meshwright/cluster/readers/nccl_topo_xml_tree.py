"""NCCL topology XML, first step: the PCIe tree and the devices in it.

Element and attribute meaning: NVIDIA/nccl ``src/graph/xml.cc`` and ``topo.cc``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from meshwright.cluster.readers.safe_xml import Element
from meshwright.errors import InputError, Problem
from meshwright.units import gb_per_s

MAX_DEVICES = 1024
"""GPUs or network ports of one file: matrices of their pairs are made."""

_KIND_BY_CLASS = (
    ("0x068000", "nvswitch"),
    ("0x0680", "cpulink"),
    ("0x0604", "bridge"),
    ("0x03", "gpu"),
    ("0x12", "gpu"),
    ("0x02", "nic"),
)
_LINK_SPEED = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*GT/s(?:\s+PCIe)?\s*\Z")
_LANE_RATE = {2.5: 15, 5.0: 30, 8.0: 60, 16.0: 120, 32.0: 240, 64.0: 480}
"""GT/s -> NCCL's figure for one lane in 100 Mb/s (net of encoding and protocol), ``topo.cc``."""
_DEFAULT_WIDTH = 16
_BUSID = re.compile(r"\s*(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])\s*\Z")
_INTEGER = re.compile(r"\s*-?[0-9]{1,18}\s*\Z")


class Cpu(msgspec.Struct, frozen=True):
    """One ``cpu`` element: a NUMA node of one host."""

    numaid: int | None
    host: str | None
    """``host_hash`` where the file holds several hosts, else ``None``."""

    @property
    def name(self) -> str:
        """Return ``cpu<numaid>``."""
        return "cpu" if self.numaid is None else f"cpu{self.numaid}"


class Seat(msgspec.Struct, frozen=True):
    """Where a device sits: numbers in ``Tree.cpus`` and ``Tree.pcis``."""

    cpu: int
    pci: int | None = None
    """The device's own ``pci`` element; ``None`` for a ``nic`` directly under its CPU."""
    bridges: tuple[int, ...] = ()
    """``pci`` elements above it, nearest first."""


class Pci(msgspec.Struct, frozen=True):
    """One ``pci`` element; ``rate_bytes_per_s`` is that of the link above it, one direction."""

    busid: str
    kind: str | None
    """``gpu``, ``nic``, ``bridge``, ``nvswitch``, ``cpulink``, ``other``; ``None``: no class."""
    rate_bytes_per_s: float | None
    seat: Seat
    element: Element


class Leaf(msgspec.Struct, frozen=True):
    """A ``gpu`` or ``net`` element and its seat."""

    seat: Seat
    element: Element


class Tree(msgspec.Struct):
    """What the file holds, in file order."""

    path: str
    cpus: list[Cpu] = msgspec.field(default_factory=list)
    pcis: list[Pci] = msgspec.field(default_factory=list)
    gpus: list[Leaf] = msgspec.field(default_factory=list)
    nets: list[Leaf] = msgspec.field(default_factory=list)

    def host(self, seat: Seat) -> str | None:
        """Return the host of the seat's CPU, ``None`` in a file of one host."""
        return self.cpus[seat.cpu].host

    def numa(self, seat: Seat) -> tuple[int, ...]:
        """Return the NUMA id of the seat's CPU, if it has one."""
        numaid = self.cpus[seat.cpu].numaid
        return () if numaid is None else (numaid,)

    def busid(self, seat: Seat) -> str | None:
        """Return the PCI address of the device in a seat."""
        return None if seat.pci is None else self.pcis[seat.pci].busid


def build_tree(root: Element, path: str) -> Tree:
    """Return the tree of a parsed file.

    Raises
    ------
    InputError
        The root is not ``system``, there is no ``cpu``, a ``numaid`` is no integer, or the file
        holds more than ``MAX_DEVICES`` GPUs or network ports.
    """
    if root.tag != "system":
        raise bad_element(root, path, f"the root element is {root.tag}, not system")
    tree = Tree(path)
    elements = [element for element in root.children if element.tag == "cpu"]
    several = len({element.attributes.get("host_hash") for element in elements}) > 1
    for element in elements:
        numaid = integer_attribute(element, "numaid", path)
        host = element.attributes.get("host_hash") or None
        known = numaid is not None and numaid >= 0
        tree.cpus.append(Cpu(numaid if known else None, host if several else None))
        _walk(element, tree, Seat(len(tree.cpus) - 1))
    if not tree.cpus:
        raise bad_element(root, path, "system holds no cpu element")
    for leaves in (tree.gpus, tree.nets):
        if len(leaves) > MAX_DEVICES:
            element = leaves[MAX_DEVICES].element
            raise bad_element(element, path, f"more than {MAX_DEVICES} {element.tag} elements")
    return tree


def _walk(parent: Element, tree: Tree, seat: Seat) -> None:
    """Add what stands under ``parent``, whose seat is given; depth is bounded by the parser."""
    for element in parent.children:
        if element.tag == "pci":
            bridges = seat.bridges if seat.pci is None else (seat.pci, *seat.bridges)
            own = Seat(seat.cpu, len(tree.pcis), bridges)
            tree.pcis.append(_pci(element, own))
            _walk(element, tree, own)
        elif element.tag == "nic":
            _walk(element, tree, seat)
        elif element.tag == "gpu":
            tree.gpus.append(Leaf(seat, element))
        elif element.tag == "net":
            tree.nets.append(Leaf(seat, element))


def _pci(element: Element, seat: Seat) -> Pci:
    attributes = element.attributes
    code = attributes.get("class", "").strip().lower()
    return Pci(
        busid=normal_busid(attributes.get("busid", "")),
        kind=class_kind(code),
        rate_bytes_per_s=link_rate(attributes.get("link_speed"), attributes.get("link_width")),
        seat=seat,
        element=element,
    )


def class_kind(code: str) -> str | None:
    """Return what a PCI class code means; ``None`` without a code, ``other`` when not listed."""
    if not code:
        return None
    for prefix, kind in _KIND_BY_CLASS:
        if code.startswith(prefix):
            return kind
    return "other"


def link_rate(speed: str | None, width: str | None) -> float | None:
    """Return bytes per second in one direction of a PCIe link, ``None`` when not stated.

    ``width`` lanes x lane rate / 80 GB/s (NCCL ``topo.cc``); a width of 0 means 16 there. NCCL
    takes gen 3 for an unknown speed; here unknown stays unknown.
    """
    match = _LINK_SPEED.match(speed or "")
    lane = _LANE_RATE.get(float(match[1])) if match else None
    if lane is None or width is None or not is_integer(width):
        return None
    lanes = int(width) or _DEFAULT_WIDTH
    return gb_per_s(lanes * lane / 80) if 1 <= lanes <= 32 else None


def normal_busid(text: str) -> str:
    """Return a PCI address as ``0000:18:00.0``; what is none is returned as it stands."""
    match = _BUSID.match(text)
    if match is None:
        return text.strip()
    domain = (match[1] or "").lstrip("0").lower()
    return f"{domain:0>4}:{match[2].lower()}"


def is_integer(text: str) -> bool:
    """Tell whether ``int(text)`` gives a number of at most 18 digits."""
    return _INTEGER.match(text) is not None


def integer_attribute(element: Element, name: str, path: str) -> int | None:
    """Return an integer attribute, ``None`` when absent; raises ``InputError`` when it is none."""
    text = element.attributes.get(name)
    if text is None or not text.strip():
        return None
    if not is_integer(text):
        raise bad_element(element, path, f"{name}={text[:40]!r} of {element.tag} is no integer")
    return int(text)


def bad_element(element: Element, path: str, message: str) -> InputError:
    """Return the error for an element that cannot be read."""
    return InputError(
        Problem(
            element.place(path),
            message,
            remedy="give the file that NCCL_TOPO_DUMP_FILE writes, or the cloud image's own",
        )
    )


def path_class(a: Seat, b: Seat) -> str:
    """Return the PCIe class of two devices from the tree alone.

    One bridge between them (or one card) PIX, more bridges and no CPU PXB, the same ``cpu``
    element PHB, else SYS. NCCL may collapse the bridges of one card first and print PIX for PXB.
    """
    if a.cpu != b.cpu:
        return "SYS"
    if a.pci is not None and a.pci == b.pci:
        return "PIX"
    depth = {bridge: steps for steps, bridge in enumerate(a.bridges)}
    for steps, bridge in enumerate(b.bridges):
        if bridge in depth:
            return "PIX" if steps + depth[bridge] == 0 else "PXB"
    return "PHB"


def class_matrix(rows: Sequence[Seat], columns: Sequence[Seat]) -> tuple[tuple[str, ...], ...]:
    """Return ``[row][column]`` path classes."""
    return tuple(tuple(path_class(row, column) for column in columns) for row in rows)
