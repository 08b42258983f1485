"""Network interfaces of sysfs that have a PCI device behind them. No address is read."""

from __future__ import annotations

from pathlib import Path

from meshwright.capture.document import NetworkDevice
from meshwright.capture.sysfs import (
    entries,
    is_there,
    link_name,
    pci_behind,
    printable,
    read_number,
    read_value,
)

_FASTEST_MBIT = 10_000_000


def read_network(root: Path) -> tuple[NetworkDevice, ...] | None:
    """Return the interfaces by name; ``None`` where sysfs shows none at all."""
    folder = root / "sys/class/net"
    names = entries(folder)
    if names is None:
        return None
    found = ((name, pci_behind(folder / name / "device")) for name in names)
    return tuple(_interface(folder / name, pci) for name, pci in found if pci is not None)


def _interface(folder: Path, pci: str) -> NetworkDevice:
    speed = read_number(folder / "speed")
    master = folder / "master"
    is_bond = is_there(master / "bonding")
    return NetworkDevice(
        name=printable(folder.name),
        pci=pci,
        driver=link_name(folder / "device/driver"),
        speed_mbit=speed if speed is not None and _is_speed(speed) else None,
        state=read_value(folder / "operstate"),
        bond=link_name(master) if is_bond else None,
    )


def _is_speed(mbit: int) -> bool:
    """Tell a speed from -1, 65535 and 4294967295, which drivers write where the link is down."""
    return 0 < mbit <= _FASTEST_MBIT and mbit != 65_535
