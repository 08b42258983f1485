"""hwloc XML, second step: its GPUs, NVSwitches and network adapters."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import Gpu, Nic
from meshwright.cluster.readers.hwloc_xml_tree import OsDevice, Pci, Seat, Tree, bad_element
from meshwright.cluster.readers.safe_xml import Element
from meshwright.findings import Finding, Severity

MAX_DEVICES = 1024
"""GPUs or adapters of one file: matrices of their pairs are made."""

_COMPUTE = re.compile(r"(nvml|rsmi|cuda|ze|opencl)(?:[0-9]{1,4}d)?([0-9]{1,6})\Z")
_BACKENDS = ("nvml", "rsmi", "cuda", "ze", "opencl")
"""Libraries that name GPUs, the one that numbers as the driver does first."""
_DISPLAY = "0300"
_COMPUTE_CLASSES = ("0302", "12")
_GPU_VENDORS = ("10de", "1002")
_SHOWN = 20


class Unit(msgspec.Struct, frozen=True):
    """A GPU before it has its number: one PCI device, or one device of a library without."""

    pci: int | None
    osdevs: tuple[OsDevice, ...]
    seat: Seat
    element: Element

    def named_by(self, backend: str) -> OsDevice | None:
        """Return this GPU's device of a library."""
        return next((one for one in self.osdevs if _backend(one) == backend), None)


class Gpus(msgspec.Struct, frozen=True):
    """GPUs; ``units[i]`` is where ``items[i]`` comes from."""

    items: tuple[Gpu, ...]
    units: tuple[Unit, ...]
    findings: tuple[Finding, ...]


class Nics(msgspec.Struct, frozen=True):
    """Adapters; ``pcis[i]`` is the PCI device of ``items[i]``, ``seats[i]`` where it sits."""

    items: tuple[Nic, ...]
    pcis: tuple[Pci | None, ...]
    seats: tuple[Seat, ...]
    findings: tuple[Finding, ...]


def _backend(device: OsDevice) -> str | None:
    match = _COMPUTE.match(device.name)
    return match[1] if match else None


def _number(device: OsDevice) -> int:
    match = _COMPUTE.match(device.name)
    return int(match[2]) if match else -1


def read_gpus(tree: Tree) -> Gpus:
    """Return the GPUs, numbered as the first library that numbers all of them does.

    The devices that several libraries show for one card are joined by their PCI device. A PCI
    device counts as a GPU when a library names it, or by class: 3D controller, accelerator, or
    display of NVIDIA or AMD. Raises ``InputError`` for more than ``MAX_DEVICES``.
    """
    units = _units(tree)
    if len(units) > MAX_DEVICES:
        message = f"more than {MAX_DEVICES} GPUs"
        raise bad_element(units[MAX_DEVICES].element, tree.path, message)
    backend = next((name for name in _BACKENDS if _numbers_all(units, name)), None)
    order = list(range(len(units)))
    if backend is not None:
        numbers = [_number_by(unit, backend) for unit in units]
        order.sort(key=numbers.__getitem__)
    items = []
    for position, at in enumerate(order):
        unit = units[at]
        named = unit.named_by(backend) if backend else None
        pci = None if unit.pci is None else tree.pcis[unit.pci].busid
        items.append(
            Gpu(
                index=position if named is None else _number(named),
                name=named.name if named else pci or f"gpu{position}",
                pci=pci,
                model=_model(tree, unit),
                numa=unit.seat.numa,
            )
        )
    return Gpus(tuple(items), tuple(units[at] for at in order), _gpu_findings(tree, units))


def _units(tree: Tree) -> list[Unit]:
    """Return the GPUs in file order, those without a PCI device last."""
    osdevs: dict[int | None, list[OsDevice]] = {}
    for device in tree.osdevs:
        if _backend(device) is not None:
            osdevs.setdefault(device.pci, []).append(device)
    units = [
        Unit(number, tuple(osdevs.get(number, ())), pci.seat, pci.element)
        for number, pci in enumerate(tree.pcis)
        if number in osdevs or _is_gpu(pci)
    ]
    loose: dict[int, list[OsDevice]] = {}
    for device in osdevs.get(None, ()):
        loose.setdefault(_number(device), []).append(device)
    units += [Unit(None, tuple(one), one[0].seat, one[0].element) for one in loose.values()]
    return units


def _is_gpu(pci: Pci) -> bool:
    display = pci.code == _DISPLAY and pci.vendor in _GPU_VENDORS
    return display or pci.code.startswith(_COMPUTE_CLASSES)


def _numbers_all(units: Sequence[Unit], backend: str) -> bool:
    numbers = [_number_by(unit, backend) for unit in units]
    return bool(units) and -1 not in numbers and len(set(numbers)) == len(numbers)


def _number_by(unit: Unit, backend: str) -> int:
    device = unit.named_by(backend)
    return -1 if device is None else _number(device)


def _model(tree: Tree, unit: Unit) -> str | None:
    for device in filter(None, map(unit.named_by, _BACKENDS)):
        if device.infos.get("GPUModel"):
            return device.infos["GPUModel"]
    if unit.pci is None:
        return None
    for info in tree.pcis[unit.pci].element.children:
        if info.tag == "info" and info.attributes.get("name") == "PCIDevice":
            return info.attributes.get("value") or None
    return None


def _gpu_findings(tree: Tree, units: Sequence[Unit]) -> tuple[Finding, ...]:
    found = []
    unnamed = [unit for unit in units if not unit.osdevs]
    if unnamed:
        found.append(
            Finding(
                rule="topology/gpu-by-class-only",
                severity=Severity.NOTE,
                place=unnamed[0].element.place(tree.path),
                message=f"{len(unnamed)} GPUs are seen by their PCI class only: no GPU library "
                "was loaded, so the file does not tell their numbers and NVLinks",
                numbers={"count": len(unnamed)},
                remedy="run lstopo where hwloc has its NVML or RSMI plug-in",
            )
        )
    used = {unit.pci for unit in units}
    others = [
        pci
        for number, pci in enumerate(tree.pcis)
        if pci.code.startswith("03") and number not in used
    ]
    if others:
        found.append(
            Finding(
                rule="topology/display-not-gpu",
                severity=Severity.NOTE,
                place=others[0].element.place(tree.path),
                message=f"{len(others)} display adapters are not taken as GPUs: "
                + ", ".join(pci.busid for pci in others[:_SHOWN]),
                numbers={"count": len(others)},
            )
        )
    return tuple(found)


def read_nvswitches(tree: Tree) -> tuple[str, ...]:
    """Return the PCI addresses of NVSwitches: by subtype, else by class and vendor."""
    return tuple(
        pci.busid
        for pci in tree.pcis
        if pci.subtype == "NVSwitch" or (pci.code == "0680" and pci.vendor == "10de")
    )


def read_nics(tree: Tree) -> Nics:
    """Return the network adapters in file order.

    A PCI device gives its OpenFabrics devices (``mlx5_0``), else its network devices (``eth0``),
    else itself by class. Raises ``InputError`` for more than ``MAX_DEVICES``.
    """
    of_pci: dict[int | None, list[OsDevice]] = {}
    for device in tree.osdevs:
        if device.kinds:
            of_pci.setdefault(device.pci, []).append(device)
    found: list[tuple[str, OsDevice | None, Pci | None, Seat]] = []
    for number, pci in enumerate(tree.pcis):
        devices = _preferred(of_pci.get(number, ()))
        found += [(one.name, one, pci, pci.seat) for one in devices]
        if not devices and pci.code.startswith("02"):
            found.append((pci.busid, None, pci, pci.seat))
    loose = of_pci.get(None, [])
    fabrics = [one for one in loose if "openfabrics" in one.kinds]
    found += [(one.name, one, None, one.seat) for one in fabrics]
    if len(found) > MAX_DEVICES:
        last = found[MAX_DEVICES][2]
        element = loose[0].element if last is None else last.element
        raise bad_element(element, tree.path, f"more than {MAX_DEVICES} network adapters")
    items = tuple(
        Nic(
            index=index,
            name=name or f"net{index}",
            pci=None if pci is None else pci.busid,
            guid=None if device is None else _guid(device),
            port=None if device is None else _only_port(device),
        )
        for index, (name, device, pci, _) in enumerate(found)
    )
    virtual = [one for one in loose if one not in fabrics]
    findings = (_without_pci(tree, virtual),) if virtual else ()
    return Nics(items, tuple(one[2] for one in found), tuple(one[3] for one in found), findings)


def _preferred(devices: Sequence[OsDevice]) -> list[OsDevice]:
    return [one for one in devices if "openfabrics" in one.kinds] or list(devices)


def _guid(device: OsDevice) -> str | None:
    """Return ``NodeGUID`` (``506b:4b03:00c1:0e02``) as 16 digits."""
    digits = device.infos.get("NodeGUID", "").replace(":", "").lower()
    return digits if re.fullmatch(r"[0-9a-f]{16}", digits) and digits.strip("0") else None


def _only_port(device: OsDevice) -> int | None:
    """Return the number of the device's port when it has one."""
    ports = [re.fullmatch(r"Port([0-9]{1,3})State", name) for name in device.infos]
    numbers = {int(match[1]) for match in ports if match}
    return numbers.pop() if len(numbers) == 1 else None


def _without_pci(tree: Tree, devices: Sequence[OsDevice]) -> Finding:
    return Finding(
        rule="topology/nic-without-pci",
        severity=Severity.NOTE,
        place=devices[0].element.place(tree.path),
        message=f"{len(devices)} network devices belong to no PCI device and are left out: "
        + ", ".join(one.name for one in devices[:_SHOWN]),
        numbers={"count": len(devices), "names": [one.name for one in devices[:_SHOWN]]},
    )
