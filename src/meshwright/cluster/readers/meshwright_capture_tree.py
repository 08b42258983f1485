"""A capture's PCI tree: where each device sits, and the rate of the links above it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from meshwright.capture.document import Capture, PciDevice
from meshwright.cluster.facts import PcieChain
from meshwright.cluster.readers.hwloc_xml_tree import Seat
from meshwright.cluster.readers.nccl_topo_xml_tree import link_rate
from meshwright.documents import Decoded
from meshwright.errors import InputError, Problem

NVIDIA = "10de"
MAX_DEPTH = 64
"""Bridges above one device."""
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*GT/s")


class Seated(msgspec.Struct, frozen=True):
    """A device of the facts with its PCI address; ``None`` where that is not known."""

    name: str
    pci: str | None
    is_gpu: bool = False


class PciTree(msgspec.Struct, frozen=True):
    """Seats by PCI address; ``Seat.bridges`` are numbers in ``addresses``."""

    devices: dict[str, PciDevice]
    addresses: tuple[str, ...]
    seats: dict[str, Seat]
    hides_links: bool
    """A virtual machine, whose bridges and their rates are made up."""

    def seat(self, address: str | None) -> Seat | None:
        """Return where a device sits, ``None`` where the capture does not show it."""
        return None if address is None else self.seats.get(address)

    def port_above(self, address: str) -> PciDevice | None:
        """Return the bridge right above a device, unless it is made up."""
        parent = self.devices[address].parent
        return None if self.hides_links or parent is None else self.devices.get(parent)

    def upstream_ports(self, seat: Seat) -> tuple[str, ...]:
        """Return the upstream ports of the switches above a device, nearest first.

        Below the root port a switch's upstream and downstream port stand in turn.
        """
        ports = seat.bridges[len(seat.bridges) % 2 :: 2]
        return tuple(self.addresses[port] for port in ports)

    def chains(self, *groups: Iterable[Seated]) -> tuple[PcieChain, ...] | None:
        """Return the way up of every device whose seat is known; ``None`` without any."""
        found = []
        for one in (one for group in groups for one in group):
            seat = self.seat(one.pci)
            if seat is None or one.pci is None:
                continue
            ports = self.upstream_ports(seat)
            own = self.full_rate(one.pci) if one.is_gpu else self.rate(one.pci)
            above = (None if self.hides_links else self.rate(port) for port in ports)
            found.append(PcieChain(one.name, (*ports, seat.cpu), (own, *above)))
        return tuple(found) or None

    def rate(self, address: str) -> float | None:
        """Return the rate of the link above a device as it runs now, one direction."""
        device = self.devices[address]
        return None if device.width is None else link_rate(device.speed, str(device.width))

    def full_rate(self, address: str) -> float | None:
        """Return the rate of a device's own link at its full speed and its width of now.

        A GPU without work slows its link down: the speed of that moment tells nothing.
        """
        device, port = self.devices[address], self.port_above(address)
        speeds = [device.max_speed, port.max_speed if port else None]
        known = {gt: text for text in speeds if text and (gt := gt_per_s(text)) is not None}
        speed = known[min(known)] if known else device.speed
        width = device.width or device.max_width
        return None if width is None else link_rate(speed, str(width))


def gt_per_s(text: str | None) -> float | None:
    """Return GT/s of a lane from the kernel's words, ``None`` for ``Unknown``."""
    match = _SPEED.match(text or "")
    return float(match[1]) if match else None


def build_tree(captured: Decoded[Capture], capture: Capture) -> PciTree:
    """Return the tree of a capture, empty where it has none.

    Raises ``InputError`` for an address that stands twice, and for a device that is above itself.
    """
    listed = capture.pci or ()
    devices: dict[str, PciDevice] = {}
    for place, device in enumerate(listed):
        if devices.setdefault(device.address, device) is not device:
            at = captured.place(f"pci[{place}].address")
            raise InputError(Problem(at, f"PCI address {device.address[:40]} stands twice"))
    number = {address: place for place, address in enumerate(devices)}
    seats: dict[str, Seat] = {}
    nodes = capture.cpus.numa_nodes or ()
    only = nodes[0].id if len(nodes) == 1 else None
    roots: dict[str, int] = {}
    for place, device in enumerate(listed):
        if device.parent is None:
            continue
        above, root = _way_up(device, devices)
        if root is None:
            at = captured.place(f"pci[{place}].parent")
            message = f"over {MAX_DEPTH} bridges above {device.address[:40]}, or it is above itself"
            raise InputError(Problem(at, message))
        known = (one.numa_node for one in (device, *above))
        numa = next((node for node in known if node is not None), only)
        seats[device.address] = Seat(
            numa=() if numa is None else (numa,),
            cpu="machine" if numa is None else f"cpu{numa}",
            root=roots.setdefault(root, len(roots)),
            bridges=tuple(number[one.address] for one in above),
        )
    return PciTree(devices, tuple(devices), seats, capture.host.virtual_machine is True)


def _way_up(device: PciDevice, devices: dict[str, PciDevice]) -> tuple[list[PciDevice], str | None]:
    """Return the bridges above, nearest first, and what the last of them hangs on."""
    above: list[PciDevice] = []
    parent = device.parent
    while parent in devices:
        above.append(devices[parent])
        if len(above) > MAX_DEPTH:
            return above, None
        if above[-1].parent is None:
            return above, parent
        parent = above[-1].parent
    return above, parent
