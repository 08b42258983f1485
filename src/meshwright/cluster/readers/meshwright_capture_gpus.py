"""A capture's GPUs: as the driver numbers them, else as the PCI bus shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from meshwright.capture.document import Capture, NvLink, PciDevice
from meshwright.cluster.facts import Gpu
from meshwright.cluster.readers.meshwright_capture_texts import Texts
from meshwright.cluster.readers.meshwright_capture_tree import NVIDIA, PciTree, Seated
from meshwright.cluster.readers.nccl_topo_xml_tree import normal_busid
from meshwright.documents import Decoded
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Severity

MAX_GPUS = 1024
"""GPUs of one host: matrices of their pairs are made."""
_AMD = "1002"
_INTEL = "8086"
_SHOWN = 8


class Gpus(msgspec.Struct, frozen=True):
    """GPUs in the order of their numbers; ``items`` is ``None`` where nothing tells them."""

    items: tuple[Gpu, ...] | None
    links: tuple[tuple[NvLink, ...] | None, ...] = ()
    """NVLinks of each GPU as NVML lists them."""
    findings: tuple[Finding, ...] = ()

    @property
    def seated(self) -> tuple[Seated, ...]:
        """Return the GPUs with their PCI addresses."""
        return tuple(Seated(gpu.name, gpu.pci, is_gpu=True) for gpu in self.items or ())


def is_gpu(device: PciDevice) -> bool:
    """Tell a GPU or accelerator by class and vendor; a display controller of others is none."""
    if device.physical_function is not None:
        return False
    if device.code.startswith("03"):
        maker = device.vendor in (NVIDIA, _AMD)
        return maker or (device.vendor == _INTEL and device.code.startswith("0380"))
    return device.code.startswith("12")


def read_gpus(captured: Decoded[Capture], capture: Capture, tree: PciTree, texts: Texts) -> Gpus:
    """Return the GPUs: of NVML, else of AMD's tools, ``topo -m``, or the PCI bus.

    Raises ``InputError`` for a number that two GPUs have, and for more than ``MAX_GPUS``.
    """
    on_bus = [one.address for one in capture.pci or () if is_gpu(one)]
    findings: tuple[Finding, ...] = ()
    if capture.nvml is not None and capture.nvml.gpus:
        gpus = _of_nvml(captured, capture)
        links = tuple(one.nvlinks for one in sorted(capture.nvml.gpus, key=lambda gpu: gpu.index))
        findings = tuple(_not_in_driver(captured, capture, gpus, on_bus))
    else:
        gpus, findings = _without_nvml(captured, capture, texts, on_bus)
        links = (None,) * len(gpus)
    if len(gpus) > MAX_GPUS:
        raise InputError(Problem(captured.place("pci"), f"more than {MAX_GPUS} GPUs"))
    if not gpus and capture.pci is None:
        return Gpus(None)
    host = capture.host.name
    counted = {gpu.index: gpu for gpu in (texts.nvlink.gpus or () if texts.nvlink else ())}
    items = tuple(_whole(gpu, host, tree, counted.get(gpu.index)) for gpu in gpus)
    return Gpus(items, links, findings)


def _of_nvml(captured: Decoded[Capture], capture: Capture) -> list[Gpu]:
    found: dict[int, Gpu] = {}
    for place, one in enumerate(capture.nvml.gpus if capture.nvml else ()):
        if one.index in found or not 0 <= one.index < MAX_GPUS:
            at = captured.place(f"nvml.gpus[{place}].index")
            raise InputError(Problem(at, f"GPU number {one.index} is too large or stands twice"))
        states = None if not one.nvlinks else [link.up for link in one.nvlinks]
        found[one.index] = Gpu(
            index=one.index,
            name=f"GPU{one.index}",
            pci=None if one.pci is None else normal_busid(one.pci),
            model=one.model,
            uuid=one.uuid,
            nvlinks=None if states is None else states.count(True),
            nvlinks_down=None if states is None else states.count(False),
        )
    return [found[index] for index in sorted(found)]


def _without_nvml(
    captured: Decoded[Capture], capture: Capture, texts: Texts, on_bus: list[str]
) -> tuple[list[Gpu], tuple[Finding, ...]]:
    """Return the GPUs of a text, with addresses from the bus, else those of the bus."""
    said = texts.amd or texts.topo
    listed = list(said.gpus or ()) if said else []
    if not listed:
        gpus = [Gpu(index, f"GPU{index}", pci=pci) for index, pci in enumerate(on_bus)]
        return gpus, (_numbered_by_bus(captured, gpus),) if gpus else ()
    if all(gpu.pci for gpu in listed):
        return [msgspec.structs.replace(gpu, name=f"GPU{gpu.index}") for gpu in listed], ()
    vendor = _AMD if texts.amd else NVIDIA
    makers = {one.address: one.vendor for one in capture.pci or ()}
    own = [address for address in on_bus if makers[address] == vendor]
    if len(own) != len(listed):
        return listed, ()
    joined = [
        msgspec.structs.replace(gpu, pci=address, name=f"GPU{gpu.index}")
        for gpu, address in zip(listed, own, strict=True)
    ]
    return joined, (_numbered_by_bus(captured, joined),)


def _whole(gpu: Gpu, host: str, tree: PciTree, counted: Gpu | None) -> Gpu:
    """Return the GPU with its host, NUMA node, and what ``nvlink -s`` knows beyond NVML."""
    seat = tree.seat(gpu.pci)
    up, down = gpu.nvlinks, gpu.nvlinks_down
    if up is None and counted is not None:
        up, down = counted.nvlinks, counted.nvlinks_down
    return msgspec.structs.replace(
        gpu,
        host=host,
        numa=seat.numa if seat and seat.numa else gpu.numa,
        model=gpu.model or (counted.model if counted else None),
        nvlinks=up,
        nvlinks_down=down,
    )


def _numbered_by_bus(captured: Decoded[Capture], gpus: Sequence[Gpu]) -> Finding:
    return Finding(
        rule="topology/gpu-numbers-assumed",
        severity=Severity.NOTE,
        place=captured.place("pci"),
        message=f"no source gives both number and PCI address of the {len(gpus)} GPUs: they are "
        "taken in the order of their addresses, as drivers do",
        numbers={"gpus": len(gpus)},
        remedy="capture again where NVML answers: pip install 'meshwright[capture]'",
    )


def _not_in_driver(
    captured: Decoded[Capture], capture: Capture, gpus: list[Gpu], on_bus: list[str]
) -> Iterator[Finding]:
    """Report NVIDIA GPUs that are on the bus and not in NVML."""
    makers = {one.address: one.vendor for one in capture.pci or ()}
    known = {gpu.pci for gpu in gpus}
    lost = [pci for pci in on_bus if makers[pci] == NVIDIA and normal_busid(pci) not in known]
    if not lost or None in known:
        return
    part = capture.host.container is not None
    reason = (
        "a container may be given some of them only"
        if part
        else "the driver has lost them, or another driver (vfio) holds them"
    )
    yield Finding(
        rule="topology/gpu-not-in-driver",
        severity=Severity.NOTE if part else Severity.WARNING,
        place=captured.place("nvml.gpus"),
        message=f"{len(lost)} of {len(lost) + len(gpus)} NVIDIA GPUs on the PCI bus are unknown to "
        f"NVML ({', '.join(lost[:_SHOWN])}{', …' if len(lost) > _SHOWN else ''}): {reason}",
        numbers={"count": len(lost), "pci": [*lost[:_SHOWN]]},
        remedy=None if part else "look at dmesg for Xid 79 (fallen off the bus) and NVRM lines",
    )
