"""The PCI tree of sysfs: GPUs, accelerators, network adapters, NVSwitches, bridges above them."""

from __future__ import annotations

import re
from pathlib import Path

from meshwright.capture.document import PciDevice
from meshwright.capture.sysfs import (
    entries,
    is_link,
    is_pci_address,
    pci_order,
    read_number,
    read_value,
    real_parts,
)

NVIDIA = "10de"
AMD = "1002"
_KEPT_CLASSES = ("02", "03", "12")
_BRIDGE_OTHER = "0680"
"""NVSwitch, with NVIDIA as the vendor; other makers' host bridges have this class too."""
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")
_MAX_LANES = 32


def read_pci(root: Path) -> tuple[PciDevice, ...] | None:
    """Return the devices in the order of their addresses; ``None`` where sysfs shows no bus.

    Virtual functions that no driver made a network device of are left out: there may be hundreds.
    """
    bus = root / "sys/bus/pci/devices"
    names = entries(bus)
    if names is None:
        return None
    chains = {name: _way_up(bus / name) for name in names if is_pci_address(name)}
    wanted: set[str] = set()
    for name, way_up in chains.items():
        if _is_kept(bus / name):
            wanted.update((name, *(part for part in way_up if part in chains)))
    return tuple(_device(bus / name, chains[name]) for name in sorted(wanted, key=pci_order))


def _way_up(folder: Path) -> tuple[str, ...]:
    """Return the bridges above a device, nearest first, and its host bridge last."""
    way: list[str] = []
    for part in reversed(real_parts(folder)[:-1]):
        if is_pci_address(part):
            way.append(part)
        elif _HOST_BRIDGE.match(part):
            return (*way, part)
    return tuple(way)


def _is_kept(folder: Path) -> bool:
    code = _code(folder)
    if is_link(folder / "physfn"):
        return any(entries(folder / kind) for kind in ("net", "infiniband"))
    if code.startswith(_BRIDGE_OTHER):
        return _id(folder / "vendor") == NVIDIA
    return code.startswith(_KEPT_CLASSES)


def _code(folder: Path) -> str:
    number = read_number(folder / "class", 16)
    return "" if number is None else f"{number:06x}"


def _id(path: Path) -> str | None:
    number = read_number(path, 16)
    return None if number is None else f"{number:04x}"


def _device(folder: Path, way_up: tuple[str, ...]) -> PciDevice:
    numa = read_number(folder / "numa_node")
    return PciDevice(
        address=folder.name,
        code=_code(folder) or "000000",
        vendor=_id(folder / "vendor") or "0000",
        device=_id(folder / "device") or "0000",
        subsystem_vendor=_id(folder / "subsystem_vendor"),
        subsystem_device=_id(folder / "subsystem_device"),
        speed=read_value(folder / "current_link_speed"),
        width=_lanes(folder / "current_link_width"),
        max_speed=read_value(folder / "max_link_speed"),
        max_width=_lanes(folder / "max_link_width"),
        numa_node=None if numa is None or numa < 0 else numa,
        parent=way_up[0] if way_up else None,
        physical_function=_physical_function(folder / "physfn"),
    )


def _lanes(path: Path) -> int | None:
    """Return a link's lanes; the kernel writes 0 for no link and 255 (or 63) for unknown."""
    lanes = read_number(path)
    return lanes if lanes is not None and 1 <= lanes <= _MAX_LANES else None


def _physical_function(path: Path) -> str | None:
    if not is_link(path):
        return None
    name = real_parts(path)[-1]
    return name if is_pci_address(name) else None
