"""A capture's network adapters: RDMA ports, else Ethernet interfaces, else what the bus shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from meshwright.capture.document import Capture, InfinibandDevice, InfinibandPort
from meshwright.cluster.facts import Nic
from meshwright.cluster.readers.meshwright_capture_texts import Texts
from meshwright.cluster.readers.meshwright_capture_tree import PciTree, Seated
from meshwright.documents import Decoded
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Severity
from meshwright.units import gbit_per_s, mbit_per_s

MAX_NICS = 1024
"""Adapters of one host: matrices of their pairs are made."""
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)\s*Gb/sec")
_GUID_WORDS = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}\Z")
_LID = re.compile(r"0x[0-9a-fA-F]{1,4}\Z")
_SHOWN = 8


class Port(msgspec.Struct, frozen=True):
    """One RDMA port with its device, and where it stands in the capture."""

    name: str
    device: InfinibandDevice
    port: InfinibandPort | None
    path: str

    @property
    def is_active(self) -> bool:
        """Tell whether the port carries traffic."""
        return self.port is not None and "ACTIVE" in (self.port.state or "").upper().split()

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Return the rate of an active port; one that is down shows some default."""
        match = _RATE.match(self.port.rate or "") if self.port and self.is_active else None
        return gbit_per_s(float(match[1])) if match else None


class Nics(msgspec.Struct, frozen=True):
    """Adapters; ``ports[i]`` is what ``items[i]`` is made of where it is an RDMA port."""

    items: tuple[Nic, ...] | None
    ports: tuple[Port, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def seated(self) -> tuple[Seated, ...]:
        """Return the adapters with their PCI addresses."""
        return tuple(Seated(nic.name, nic.pci) for nic in self.items or ())


def read_nics(captured: Decoded[Capture], capture: Capture, tree: PciTree, texts: Texts) -> Nics:
    """Return the adapters, RDMA ports where there is any.

    A virtual function is left out where its physical function is an adapter here as well. Raises
    ``InputError`` for two of one name, and for more than ``MAX_NICS``.
    """
    labels = {nic.name: nic.label for nic in (texts.topo.nics or () if texts.topo else ())}
    ports = list(_ports(capture))
    physical = {port.device.pci for port in ports}
    kept = [
        one
        for one in ports
        if one.device.pci is not None and _physical(tree, one.device.pci) not in physical
    ]
    if kept:
        nics = [_of_port(capture, at, one, labels) for at, one in enumerate(kept)]
        findings = tuple(_left_out(captured, ports, kept))
        _check(captured, nics, "infiniband")
        return Nics(tuple(nics), tuple(kept), findings)
    nics, key = _ethernet(capture, tree)
    _check(captured, nics, key)
    known = capture.infiniband is not None or capture.network is not None
    if not nics:
        return Nics(() if known or capture.pci is not None else None)
    return Nics(tuple(nics), (), (_no_rdma(captured, nics, key),))


def _ports(capture: Capture) -> Iterator[Port]:
    for at, device in enumerate(capture.infiniband or ()):
        path = f"infiniband[{at}]"
        if not device.ports:
            yield Port(device.name, device, None, path)
        for place, port in enumerate(device.ports):
            several = f":{port.number}" if len(device.ports) > 1 else ""
            yield Port(f"{device.name}{several}", device, port, f"{path}.ports[{place}]")


def _physical(tree: PciTree, address: str) -> str | None:
    device = tree.devices.get(address)
    # "" is the address of no device.
    return (device.physical_function if device else None) or ""


def _of_port(capture: Capture, at: int, one: Port, labels: dict[str, str | None]) -> Nic:
    lid = one.port.lid if one.port else None
    return Nic(
        index=at,
        name=one.name,
        label=labels.get(one.device.name),
        host=capture.host.name,
        pci=one.device.pci,
        guid=_guid(one.device.node_guid),
        port=one.port.number if one.port else None,
        rate_bytes_per_s=one.rate_bytes_per_s,
        lid=int(lid, 16) or None if lid and _LID.match(lid) else None,
    )


def _guid(text: str | None) -> str | None:
    """Return ``b83f:d203:00b5:1c2e`` as 16 digits; zeros are none."""
    if text is None or not _GUID_WORDS.match(text.lower()):
        return None
    digits = text.lower().replace(":", "")
    return digits if digits.strip("0") else None


def _ethernet(capture: Capture, tree: PciTree) -> tuple[list[Nic], str]:
    """Return interfaces by PCI, else adapters on the bus, and the key they stand under."""
    host = capture.host.name
    nets = capture.network or ()
    own = {one.pci for one in nets}
    nics = [
        (one.name, one.pci, None if one.speed_mbit is None else mbit_per_s(one.speed_mbit))
        for one in nets
        if _physical(tree, one.pci) not in own
    ]
    key = "network"
    if not nics:
        key = "pci"
        nics = [
            (one.address, one.address, None)
            for one in capture.pci or ()
            if one.code.startswith("02") and one.physical_function is None
        ]
    return [
        Nic(index=at, name=name, host=host, pci=pci, rate_bytes_per_s=rate)
        for at, (name, pci, rate) in enumerate(nics)
    ], key


def _check(captured: Decoded[Capture], nics: list[Nic], key: str) -> None:
    message = None
    if len(nics) > MAX_NICS:
        message = f"more than {MAX_NICS} network adapters"
    elif len({nic.name for nic in nics}) < len(nics):
        message = "two network adapters have one name"
    if message is not None:
        raise InputError(Problem(captured.place(key), message))


def _left_out(captured: Decoded[Capture], ports: list[Port], kept: list[Port]) -> Iterator[Finding]:
    names = {one.name for one in kept}
    others = [one.name for one in ports if one.name not in names]
    if others:
        yield Finding(
            rule="topology/nic-left-out",
            severity=Severity.NOTE,
            place=captured.place("infiniband"),
            message=f"{len(others)} RDMA ports are left out, of virtual functions whose adapter is "
            f"listed, or without a PCI device: {_some(others)}",
            numbers={"count": len(others), "names": [*others[:_SHOWN]]},
        )


def _no_rdma(captured: Decoded[Capture], nics: list[Nic], key: str) -> Finding:
    kind = "Ethernet interfaces" if key == "network" else "network adapters on the PCI bus"
    return Finding(
        rule="topology/no-rdma-device",
        severity=Severity.NOTE,
        place=captured.place(key),
        message=f"the host shows no RDMA device; its {kind} stand for NICs: "
        f"{_some([nic.name for nic in nics])}",
        numbers={"nics": len(nics)},
        remedy="for InfiniBand or RoCE load the adapter's RDMA driver (mlx5_ib)",
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
