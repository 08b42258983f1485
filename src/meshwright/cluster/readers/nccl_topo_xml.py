"""NCCL topology XML: what ``NCCL_TOPO_DUMP_FILE`` writes and ``NCCL_TOPO_FILE`` reads.

The only common file with PCIe tree, link speeds, NIC speeds and NVLink counts together. Files of
cloud images are skeletons without ``gpu`` and ``net`` elements; devices then count by PCI class.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from meshwright.cluster.facts import Facts, Gpu, Nic, NvlinkPair, PcieChain
from meshwright.cluster.readers.nccl_topo_xml_devices import Devices, read_gpus, read_nics
from meshwright.cluster.readers.nccl_topo_xml_links import read_links
from meshwright.cluster.readers.nccl_topo_xml_tree import Seat, Tree, build_tree, class_matrix
from meshwright.cluster.readers.safe_xml import parse_xml
from meshwright.findings import Finding, Severity

FORMAT = "nccl_topo_xml"
_PROLOGUE = re.compile(r"[\ufeff\s]*(?:<!--.*?-->|<\?.*?\?>)", re.DOTALL)
_SYSTEM = re.compile(r"[\ufeff\s]*<(?:!DOCTYPE\s+)?system[\s>/]")


def looks_like(text: str) -> bool:
    """Tell whether the text is a NCCL topology file: its root is ``system`` and holds CPUs."""
    start = 0
    while match := _PROLOGUE.match(text, start):
        start = match.end()
    match = _SYSTEM.match(text, start)
    return match is not None and ("<cpu" in text or "version=" in text)


def read(text: str, path: str) -> Facts:
    """Return what a NCCL topology file says.

    Rates are bytes per second in one direction. GPUs stand in the order of their ``dev``.

    Raises
    ------
    InputError
        The text is no well-formed topology file, or holds what ``safe_xml`` refuses.
    """
    tree = build_tree(parse_xml(text, path), path)
    gpus, nics = read_gpus(tree), read_nics(tree)
    findings = [*gpus.findings, *nics.findings, *_classless(tree)]
    pairs: tuple[NvlinkPair, ...] | None = None
    nvswitches = {pci.busid for pci in tree.pcis if pci.kind == "nvswitch"}
    if tree.gpus and gpus.items is not None:
        links = read_links(tree, [leaf.element for leaf in gpus.leaves], gpus.items)
        pairs = links.pairs
        nvswitches.update(links.nvswitches)
        findings.extend(links.findings)
    both_known = gpus.items is not None and nics.items is not None
    numa_ids = sorted({cpu.numaid for cpu in tree.cpus if cpu.numaid is not None})
    hosts = dict.fromkeys(cpu.host for cpu in tree.cpus if cpu.host is not None)
    return Facts(
        format=FORMAT,
        path=path,
        gpus=gpus.items,
        nics=nics.items,
        hosts=tuple(hosts) or None,
        nvswitches=tuple(sorted(nvswitches)) if nvswitches or tree.gpus else None,
        nvlink_pairs=pairs,
        numa_ids=tuple(numa_ids) or None,
        gpu_gpu_class=_gpu_classes(gpus, pairs),
        gpu_nic_class=class_matrix(gpus.seats, nics.seats) if both_known else None,
        nic_nic_class=None if nics.items is None else _square(nics.seats),
        pcie_chains=_chains(tree, gpus, nics),
        findings=tuple(findings),
    )


def _classless(tree: Tree) -> list[Finding]:
    """Note elements of unknown kind, where kinds are told by class."""
    unknown = [pci for pci in tree.pcis if pci.kind is None]
    if not unknown or (tree.gpus and tree.nets):
        return []
    return [
        Finding(
            rule="topology/pci-class-missing",
            severity=Severity.NOTE,
            place=unknown[0].element.place(tree.path),
            message=f"{len(unknown)} pci elements have no class: what they are is unknown",
            numbers={"count": len(unknown)},
            remedy="dump the file on the machine itself with NCCL_TOPO_DUMP_FILE",
        )
    ]


def _square(seats: Sequence[Seat]) -> tuple[tuple[str, ...], ...]:
    """Return the class matrix of devices among themselves, ``X`` on the diagonal."""
    return tuple(
        tuple("X" if column == at else name for column, name in enumerate(row))
        for at, row in enumerate(class_matrix(seats, seats))
    )


def _gpu_classes(
    gpus: Devices[Gpu], pairs: tuple[NvlinkPair, ...] | None
) -> tuple[tuple[str, ...], ...] | None:
    """Return ``NV<count>`` where two GPUs are paired, else the class by the tree."""
    if gpus.items is None:
        return None
    rows = [list(row) for row in _square(gpus.seats)]
    position = {gpu.index: at for at, gpu in enumerate(gpus.items)}
    for pair in pairs or ():
        a, b = position[pair.a], position[pair.b]
        rows[a][b] = rows[b][a] = f"NV{pair.count}"
    return tuple(tuple(row) for row in rows)


def _chains(tree: Tree, gpus: Devices[Gpu], nics: Devices[Nic]) -> tuple[PcieChain, ...] | None:
    """Return the way up of every GPU, then of every NIC; ``None`` when no device is known."""
    if gpus.items is None and nics.items is None:
        return None
    names = [gpu.name for gpu in gpus.items or ()] + [nic.name for nic in nics.items or ()]
    chains = []
    for name, seat in zip(names, (*gpus.seats, *nics.seats), strict=True):
        own = None if seat.pci is None else tree.pcis[seat.pci].rate_bytes_per_s
        bridges = [tree.pcis[number] for number in seat.bridges]
        chains.append(
            PcieChain(
                device=name,
                nodes=(*(pci.busid for pci in bridges), tree.cpus[seat.cpu].name),
                rates_bytes_per_s=(own, *(pci.rate_bytes_per_s for pci in bridges)),
            )
        )
    return tuple(chains)
