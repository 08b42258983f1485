"""RDMA devices of sysfs (InfiniBand and RoCE adapters), with their ports."""

from __future__ import annotations

from pathlib import Path

from meshwright.capture.document import InfinibandDevice, InfinibandPort
from meshwright.capture.sysfs import entries, pci_behind, printable, read_value

_MAX_PORT = 255


def read_infiniband(root: Path) -> tuple[InfinibandDevice, ...] | None:
    """Return the devices by name; ``None`` where no RDMA driver is loaded or sysfs hides them."""
    folder = root / "sys/class/infiniband"
    names = entries(folder)
    return None if names is None else tuple(_device(folder / name) for name in names)


def _device(folder: Path) -> InfinibandDevice:
    ports = entries(folder / "ports") or []
    nets = entries(folder / "device/net") or []
    return InfinibandDevice(
        name=printable(folder.name),
        pci=pci_behind(folder / "device"),
        node_guid=read_value(folder / "node_guid"),
        node_description=read_value(folder / "node_desc"),
        board=read_value(folder / "board_id"),
        type=read_value(folder / "hca_type"),
        firmware=read_value(folder / "fw_ver"),
        netdevs=tuple(map(printable, nets)),
        ports=tuple(
            _port(folder / "ports" / name)
            for name in ports
            if name.isascii() and name.isdecimal() and len(name) <= 3 and int(name) <= _MAX_PORT
        ),
    )


def _port(folder: Path) -> InfinibandPort:
    layer = read_value(folder / "link_layer")
    return InfinibandPort(
        number=int(folder.name),
        rate=read_value(folder / "rate"),
        state=read_value(folder / "state"),
        physical_state=read_value(folder / "phys_state"),
        lid=read_value(folder / "lid"),
        link_layer=layer,
        gid=read_value(folder / "gids/0") if layer == "InfiniBand" else None,
    )
