"""A capture's paths between devices: NVLink pairs and path classes.

A cell that a tool printed stands; the PCI tree gives the others, by the rule of ``hwloc_xml_paths``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import msgspec

from meshwright.capture.document import Capture, NvLink
from meshwright.cluster.facts import Facts, NvlinkPair
from meshwright.cluster.readers.hwloc_xml_paths import path_class
from meshwright.cluster.readers.meshwright_capture_gpus import Gpus
from meshwright.cluster.readers.meshwright_capture_nics import Nics
from meshwright.cluster.readers.meshwright_capture_texts import Texts
from meshwright.cluster.readers.meshwright_capture_tree import PciTree, Seated
from meshwright.cluster.readers.nccl_topo_xml_tree import normal_busid
from meshwright.cluster.readers.nvidia_smi_nvlink_s_findings import link_findings
from meshwright.cluster.readers.nvidia_smi_nvlink_s_listing import GpuLinks, Link
from meshwright.documents import Decoded
from meshwright.findings import Finding, Severity

Cells = tuple[tuple[str, ...], ...]
_MAX_LINKS = 256


class Classes(msgspec.Struct, frozen=True):
    """Path classes as ``Facts`` holds them; ``None`` where a pair of the matrix is unknown."""

    gpu_gpu: Cells | None = None
    gpu_nic: Cells | None = None
    nic_nic: Cells | None = None


def nvlink_pairs(gpus: Gpus, texts: Texts) -> tuple[NvlinkPair, ...] | None:
    """Return pairs joined by NVLink or XGMI: as a tool prints them, else by NVML's far ends."""
    items = gpus.items or ()
    numbers = {gpu.index for gpu in items}
    to_switch = [_to_switch(links) for links in gpus.links]
    said = texts.amd or texts.topo
    if said is not None and said.nvlink_pairs is not None:
        switched = any(to_switch)
        told = (one for one in said.nvlink_pairs if {one.a, one.b} <= numbers)
        return tuple(
            msgspec.structs.replace(one, via_switch=True) if switched else one for one in told
        )
    if not items or any(links is None for links in gpus.links):
        return None
    counts: Counter[tuple[int, int]] = Counter()
    of_address = {gpu.pci: at for at, gpu in enumerate(items) if gpu.pci is not None}
    for at, links in enumerate(gpus.links):
        for link in links or ():
            far = of_address.get(normal_busid(link.remote)) if link.up and link.remote else None
            if far is not None and far > at:
                counts[at, far] += 1
    pairs = [
        NvlinkPair(items[a].index, items[b].index, count, via_switch=False)
        for (a, b), count in counts.items()
    ]
    joined = [at for at, count in enumerate(to_switch) if count]
    pairs += [
        NvlinkPair(items[a].index, items[b].index, min(to_switch[a], to_switch[b]), via_switch=True)
        for a, b in combinations(joined, 2)
        if (a, b) not in counts
    ]
    return tuple(sorted(pairs, key=lambda pair: (pair.a, pair.b)))


def _to_switch(links: tuple[NvLink, ...] | None) -> int:
    return sum(link.up and link.remote_type == "switch" for link in links or ())


def path_classes(
    tree: PciTree,
    gpus: Gpus,
    nics: Nics,
    pairs: tuple[NvlinkPair, ...] | None,
    texts: Texts,
) -> Classes:
    """Return the matrices of path classes."""
    if gpus.items is None or nics.items is None:
        seats = gpus.seated or nics.seated
        square = _square(tree, seats, _told_gpus(gpus, pairs, texts) if gpus.items else {})
        return Classes(gpu_gpu=square) if gpus.items else Classes(nic_nic=square)
    told_gpus = _told_gpus(gpus, pairs, texts)
    told_nics, told_mixed = _told_nics(nics, texts.topo, [gpu.index for gpu in gpus.items])
    return Classes(
        gpu_gpu=_square(tree, gpus.seated, told_gpus),
        gpu_nic=_cells(tree, gpus.seated, nics.seated, told_mixed),
        nic_nic=_square(tree, nics.seated, told_nics),
    )


Told = dict[tuple[int, int], str]
"""Cells by positions of the facts."""


def _told_gpus(gpus: Gpus, pairs: tuple[NvlinkPair, ...] | None, texts: Texts) -> Told:
    position = {gpu.index: at for at, gpu in enumerate(gpus.items or ())}
    said = texts.amd or texts.topo
    told: Told = {}
    if said is not None and said.gpu_gpu_class and said.gpus:
        for gpu, row in zip(said.gpus, said.gpu_gpu_class, strict=True):
            for other, cell in zip(said.gpus, row, strict=True):
                if gpu.index in position and other.index in position:
                    told[position[gpu.index], position[other.index]] = cell
        return told
    for pair in pairs or ():
        a, b = position[pair.a], position[pair.b]
        told[a, b] = told[b, a] = f"NV{pair.count}"
    return told


def _told_nics(nics: Nics, topo: Facts | None, numbers: list[int]) -> tuple[Told, Told]:
    """Return the cells that ``topo -m`` shows: of two NICs, and of a GPU and a NIC."""
    if topo is None or not topo.nics or not topo.gpus or not nics.ports:
        return {}, {}
    column = {nic.name: at for at, nic in enumerate(topo.nics)}
    row = {gpu.index: at for at, gpu in enumerate(topo.gpus)}
    known = [
        (at, column[port.device.name])
        for at, port in enumerate(nics.ports)
        if port.device.name in column
    ]
    among = topo.nic_nic_class
    told: Told = {}
    if among:
        told = {(a, b): among[x][y] for a, x in known for b, y in known if x != y}
    cells = topo.gpu_nic_class
    mixed: Told = {}
    if cells:
        for gpu, number in enumerate(numbers):
            if number in row:
                mixed |= {(gpu, nic): cells[row[number]][at] for nic, at in known}
    return told, mixed


def _square(tree: PciTree, devices: tuple[Seated, ...], told: Told) -> Cells | None:
    own = {(at, at): "X" for at in range(len(devices))}
    return _cells(tree, devices, devices, told | own)


def _cells(
    tree: PciTree, rows: tuple[Seated, ...], columns: tuple[Seated, ...], told: Told
) -> Cells | None:
    across = [tree.seat(one.pci) for one in columns]
    matrix = []
    for place, one in enumerate(rows):
        seat = tree.seat(one.pci)
        cells = []
        for at, other in enumerate(across):
            cell = told.get((place, at))
            if cell is None:
                if seat is None or other is None:
                    return None
                same = one.pci == columns[at].pci
                cell = "PIX" if same else path_class(seat, other)
            cells.append(cell)
        matrix.append(tuple(cells))
    return tuple(matrix)


def nvlink_findings(
    captured: Decoded[Capture], capture: Capture, texts: Texts
) -> Iterator[Finding]:
    """Yield links that are down, as NVML lists them, where ``nvlink -s`` does not list them too.

    Where no link of any GPU is up the cards have no bridge, as a rule: a note.
    """
    gpus = capture.nvml.gpus if capture.nvml else ()
    linked = [one for one in gpus if one.nvlinks]
    if not linked:
        return
    place = captured.place("nvml.gpus")
    if not any(link.up for one in linked for link in one.nvlinks or ()):
        yield Finding(
            "topology/nvlink-all-down",
            Severity.NOTE,
            place,
            f"no NVLink of the {len(linked)} GPUs is up: cards without a bridge, MIG, or a fabric "
            "that has not started",
            {"gpus": len(linked)},
        )
    elif texts.nvlink is None:
        listings = [
            GpuLinks(
                one.index,
                one.model,
                one.uuid,
                place.line or 1,
                {
                    link.number: Link(link.up, None, place.line or 1)
                    for link in (one.nvlinks or ())[:_MAX_LINKS]
                },
            )
            for one in linked
        ]
        yield from link_findings(listings, str(place.file))
