"""hwloc XML: what is odd about the links between its GPUs, and what the file leaves out."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.cluster.facts import Gpu
from meshwright.cluster.readers.hwloc_xml_links import Matrix, link_totals, planes
from meshwright.cluster.readers.hwloc_xml_tree import Tree
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural

_SHOWN = 20


def io_not_listed(tree: Tree) -> Finding:
    """Return the note on a file without I/O objects."""
    return Finding(
        rule="topology/io-not-listed",
        severity=Severity.NOTE,
        place=Place(tree.path),
        message="the file lists no PCI or OS devices: GPUs and NICs are unknown, not absent",
        remedy="run lstopo --of xml without --no-io, on the machine itself",
    )


def check_matrix(matrix: Matrix, tree: Tree, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Yield the findings on one bandwidth matrix."""
    yield from _unknown(matrix, tree)
    yield from _one_way(matrix, tree, gpus)
    if matrix.name == "XGMIBandwidth":
        yield _xgmi(matrix, tree)
        return
    if matrix.cells and matrix.link_mb_per_s is None:
        yield _rate_unknown(matrix, tree)
    yield from _unjoined_planes(matrix, tree, gpus)
    yield from _unequal(matrix, tree, gpus)
    yield from _to_cpu(matrix, tree)


def _unknown(matrix: Matrix, tree: Tree) -> Iterator[Finding]:
    if matrix.unknown:
        yield Finding(
            rule="topology/nvlink-target-unknown",
            severity=Severity.NOTE,
            place=matrix.element.place(tree.path),
            message=f"{len(matrix.unknown)} objects of {matrix.name} are not in the file: "
            + ", ".join(matrix.unknown[:_SHOWN]),
            numbers={"count": len(matrix.unknown), "targets": [*matrix.unknown[:_SHOWN]]},
        )


def _one_way(matrix: Matrix, tree: Tree, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    names = {("gpu", at): gpu.name for at, gpu in enumerate(gpus)}
    names |= {("switch", at): pci.busid for at, pci in enumerate(tree.pcis)}
    unequal = [
        (row, column)
        for (row, column), value in matrix.cells.items()
        if value > matrix.cells.get((column, row), 0)
    ]
    if unequal:
        shown: list[Number] = [
            [names.get(row, row[0]), names.get(column, column[0])]
            for row, column in unequal[:_SHOWN]
        ]
        yield Finding(
            rule="topology/nvlink-asymmetric",
            severity=Severity.WARNING,
            place=matrix.element.place(tree.path),
            message=f"{plural(len(unequal), 'pair')} of {matrix.name} {'differs' if len(unequal) == 1 else 'differ'} between the two directions",
            numbers={"pairs": shown, "count": len(unequal)},
        )


def _unjoined_planes(matrix: Matrix, tree: Tree, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    parts = planes(matrix)
    if len(parts) < 2:
        return
    described: list[Number] = [
        {
            "gpus": [gpus[at].name for at in positions],
            "nvswitches": [tree.pcis[at].busid for at in switches],
        }
        for positions, switches in parts[:_SHOWN]
    ]
    sizes = " and ".join(f"{len(part[0])} GPUs on {len(part[1])} NVSwitches" for part in parts[:4])
    yield Finding(
        rule="topology/nvlink-planes-not-joined",
        severity=Severity.WARNING,
        place=matrix.element.place(tree.path),
        message=f"the file shows {len(parts)} NVLink planes and no link between them ({sizes}): "
        "hwloc does not see links between NVSwitches, so the planes of this one machine may be "
        "joined all the same",
        numbers={"planes": described},
        remedy="give nvidia-smi topo -m of this machine, which shows pairs across the planes",
    )


def _unequal(matrix: Matrix, tree: Tree, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    totals = link_totals(matrix)
    most = max(totals.values(), default=0)
    fewer = [at for at in range(len(gpus)) if totals[at] < most]
    if fewer:
        names = ", ".join(gpus[at].name for at in fewer[:_SHOWN])
        yield Finding(
            rule="topology/nvlink-count-differs",
            severity=Severity.WARNING,
            place=matrix.element.place(tree.path),
            message=f"GPU {names}: fewer NVLinks than the {most} of the other GPUs",
            numbers={gpu.name: totals[at] for at, gpu in enumerate(gpus)},
            remedy="look for links that are down: nvidia-smi nvlink -s",
        )


def _to_cpu(matrix: Matrix, tree: Tree) -> Iterator[Finding]:
    cells = [cell for cell in matrix.cells if cell[0][0] == "gpu" and cell[1][0] == "cpu"]
    if cells:
        count = len({row for row, _ in cells})
        yield Finding(
            rule="topology/nvlink-to-cpu",
            severity=Severity.NOTE,
            place=matrix.element.place(tree.path),
            message=f"{count} GPUs have NVLinks to a CPU; they join no pair of GPUs",
            numbers={"gpus": count},
        )


def _rate_unknown(matrix: Matrix, tree: Tree) -> Finding:
    return Finding(
        rule="topology/nvlink-count-unclear",
        severity=Severity.WARNING,
        place=matrix.element.place(tree.path),
        message="bandwidths are no multiples of one NVLink's 25000 or 20000 MB/s: each is counted "
        "as one link",
        numbers={"mb_per_s": sorted(set(matrix.cells.values()))[:_SHOWN]},
        remedy="give nvidia-smi topo -m or nvidia-smi nvlink -s, which print the number of links",
    )


def _xgmi(matrix: Matrix, tree: Tree) -> Finding:
    return Finding(
        rule="topology/xgmi-pairs-may-be-indirect",
        severity=Severity.NOTE,
        place=matrix.element.place(tree.path),
        message="XGMI pairs are counted as one link each: the library calls every pair of a hive "
        "one hop, direct or not",
        remedy="give rocm-smi --showtopo, whose weights tell direct neighbours",
    )
