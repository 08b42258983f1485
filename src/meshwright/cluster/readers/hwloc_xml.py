"""hwloc XML: what ``lstopo --of xml`` writes on one machine, with or without GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.cluster.facts import Facts, Gpu, NvlinkPair, PcieChain
from meshwright.cluster.readers.hwloc_xml_devices import (
    Gpus,
    Nics,
    read_gpus,
    read_nics,
    read_nvswitches,
)
from meshwright.cluster.readers.hwloc_xml_findings import check_matrix, io_not_listed
from meshwright.cluster.readers.hwloc_xml_links import Matrix, pairs_of, read_matrices
from meshwright.cluster.readers.hwloc_xml_paths import chain, class_matrix
from meshwright.cluster.readers.hwloc_xml_tree import Seat, Tree, build_tree
from meshwright.cluster.readers.safe_xml import parse_xml
from meshwright.cluster.readers.xml_root import root_tag

FORMAT = "hwloc_xml"


def looks_like(text: str) -> bool:
    """Tell whether the text is a hwloc topology: its root is ``topology`` and holds objects."""
    return root_tag(text) == "topology" and "<object" in text


def read(text: str, path: str) -> Facts:
    """Return what a hwloc file says of its machine.

    Rates are bytes per second in one direction. Without I/O objects in the file, GPUs and NICs
    are ``None``; without bridges, classes and chains are. NVLink pairs are ``None`` without a
    matrix: hwloc writes none for GPUs without links, nor for links of a generation it does not
    know.

    Raises
    ------
    InputError
        The text is no well-formed hwloc file, or holds what ``safe_xml`` refuses.
    """
    root = parse_xml(text, path, allow_doctype=True)
    tree = build_tree(root, path)
    if not tree.lists_io:
        return Facts(
            format=FORMAT,
            path=path,
            numa_ids=tree.numa_ids or None,
            findings=(io_not_listed(tree),),
        )
    gpus, nics = read_gpus(tree), read_nics(tree)
    matrices = read_matrices(root, tree, gpus)
    pairs = _pairs(matrices, gpus.items)
    switches = read_nvswitches(tree)
    gpu_seats = [unit.seat for unit in gpus.units]
    shown = tree.lists_bridges
    return Facts(
        format=FORMAT,
        path=path,
        gpus=gpus.items,
        nics=nics.items,
        nvswitches=switches if switches or matrices else None,
        nvlink_pairs=pairs,
        numa_ids=tree.numa_ids or None,
        gpu_gpu_class=_gpu_classes(gpus, pairs) if shown else None,
        gpu_nic_class=class_matrix(gpu_seats, nics.seats) if shown else None,
        nic_nic_class=_square(nics.seats) if shown else None,
        pcie_chains=_chains(tree, gpus, nics) if shown else None,
        findings=(
            *gpus.findings,
            *nics.findings,
            *(found for one in matrices for found in check_matrix(one, tree, gpus.items)),
        ),
    )


def _pairs(matrices: Sequence[Matrix], gpus: tuple[Gpu, ...]) -> tuple[NvlinkPair, ...] | None:
    if not matrices:
        return None
    pairs = {(one.a, one.b): one for matrix in matrices for one in pairs_of(matrix, gpus)}
    return tuple(pairs[key] for key in sorted(pairs))


def _square(seats: Sequence[Seat]) -> tuple[tuple[str, ...], ...]:
    """Return the class matrix of devices among themselves, ``X`` on the diagonal."""
    return tuple(
        tuple("X" if column == at else name for column, name in enumerate(row))
        for at, row in enumerate(class_matrix(seats, seats))
    )


def _gpu_classes(gpus: Gpus, pairs: tuple[NvlinkPair, ...] | None) -> tuple[tuple[str, ...], ...]:
    """Return ``NV<count>`` where two GPUs are paired, else the class by the tree."""
    rows = [list(row) for row in _square([unit.seat for unit in gpus.units])]
    position = {gpu.index: at for at, gpu in enumerate(gpus.items)}
    for pair in pairs or ():
        a, b = position[pair.a], position[pair.b]
        rows[a][b] = rows[b][a] = f"NV{pair.count}"
    return tuple(tuple(row) for row in rows)


def _chains(tree: Tree, gpus: Gpus, nics: Nics) -> tuple[PcieChain, ...]:
    """Return the way up of every GPU, then of every NIC."""
    chains = []
    for gpu, unit in zip(gpus.items, gpus.units, strict=True):
        rate = None if unit.pci is None else tree.pcis[unit.pci].rate_bytes_per_s
        chains.append(chain(tree, gpu.name, rate, unit.seat))
    for nic, pci, seat in zip(nics.items, nics.pcis, nics.seats, strict=True):
        chains.append(chain(tree, nic.name, None if pci is None else pci.rate_bytes_per_s, seat))
    return tuple(chains)
