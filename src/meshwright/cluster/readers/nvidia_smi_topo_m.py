"""``nvidia-smi topo -m``: the matrix of path classes between GPUs and NICs of one machine.

Alphabet: ``X``, ``NV<count>``, ``PIX``, ``PXB``, ``PHB``, ``NODE``, ``SYS`` (``MX`` of MetaX).
The matrix shows neither NVSwitches nor the GPU model.
"""

from __future__ import annotations

import re
from itertools import combinations

import msgspec

from meshwright.cluster.facts import Facts, Gpu, Nic, NvlinkPair
from meshwright.cluster.readers.nvidia_smi_topo_m_affinity import read_affinities
from meshwright.cluster.readers.nvidia_smi_topo_m_grid import Grid, has_matrix, read_grid
from meshwright.findings import Finding, Place, Severity

FORMAT = "nvidia_smi_topo_m"
_LINK = re.compile(r"(?:NV|MX)([0-9]*)\Z")
_GPU_LABEL = re.compile(r"GPU([0-9]+)\Z")
_NIC_LABEL = re.compile(r"NIC([0-9]+)\Z")
_NIC_LEGEND = re.compile(r"(?:^|(?<=\s))(NIC[0-9]{1,5})\s*:\s*(\S{1,64})")
_GPU_LIST = re.compile(
    r"\bGPU ([0-9]{1,4}): ((?:NVIDIA|Tesla|GeForce|Quadro)\b[^()]{0,80}|[^()]{1,80}(?=\(UUID))"
)
_SHOWN = 20


class _Matrix(msgspec.Struct, frozen=True):
    """The grid by kind of device; positions are those of the grid's labels."""

    grid: Grid
    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    path: str

    def cell(self, row: int, column: int) -> str:
        return self.grid.rows[row].cells[column]

    def block(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self.cell(row, column) for column in columns) for row in rows)

    def place(self, row: int) -> Place:
        return Place(self.path, self.grid.rows[row].line, 1, self.grid.labels[row])


def looks_like(text: str) -> bool:
    """Tell whether the text holds a ``topo -m`` matrix."""
    return has_matrix(text)


def read(text: str, path: str) -> Facts:
    """Return what a ``topo -m`` matrix says; text around it may be anything.

    Raises
    ------
    InputError
        There is no matrix, or it is cut off or holds an unknown cell; see ``read_grid``.
    """
    grid = read_grid(text, path)
    gpu_at = tuple(at for at, label in enumerate(grid.labels) if _GPU_LABEL.match(label))
    nic_at = tuple(at for at, label in enumerate(grid.labels) if not _GPU_LABEL.match(label))
    matrix = _Matrix(grid, gpu_at, nic_at, path)
    rows = tuple(grid.rows[at] for at in gpu_at)
    affinities, findings = read_affinities(grid, rows, path)
    models = _models(grid)
    gpus = tuple(
        _gpu(grid.labels[at], entry.numa, models)
        for at, entry in zip(gpu_at, affinities, strict=True)
    )
    pairs = _nvlink_pairs(matrix)
    numa_ids = sorted({numa for gpu in gpus for numa in gpu.numa})
    return Facts(
        format=FORMAT,
        path=path,
        gpus=gpus,
        nics=_nics(matrix),
        nvlink_pairs=pairs,
        numa_ids=tuple(numa_ids) or None,
        gpu_gpu_class=matrix.block(gpu_at, gpu_at),
        gpu_nic_class=matrix.block(gpu_at, nic_at),
        nic_nic_class=matrix.block(nic_at, nic_at),
        findings=(*_link_findings(matrix, pairs), *_hidden_pcie(matrix), *findings),
    )


def _link_findings(matrix: _Matrix, pairs: tuple[NvlinkPair, ...]) -> list[Finding]:
    return [
        *_more_matrices(matrix),
        *_asymmetric(matrix),
        *_unequal_links(matrix, pairs),
        *_outside_nvlink(matrix, pairs),
    ]


def _index(label: str) -> int:
    return int(label.removeprefix("GPU"))


def _gpu(label: str, numa: tuple[int, ...], models: dict[int, str]) -> Gpu:
    return Gpu(index=_index(label), name=label, model=models.get(_index(label)), numa=numa)


def _models(grid: Grid) -> dict[int, str]:
    """Return models by GPU number from lines of ``nvidia-smi -L`` in the same text."""
    found: dict[int, str] = {}
    for line in grid.lines:
        match = _GPU_LIST.search(line)
        if match is not None:
            found.setdefault(int(match[1]), match[2].strip())
    return found


def _nics(matrix: _Matrix) -> tuple[Nic, ...]:
    """Return the NICs; the legend gives device names, whose number need not be the label's."""
    grid = matrix.grid
    device: dict[str, str] = {}
    for line in grid.lines[grid.end_line - 1 :]:
        match = _NIC_LEGEND.search(line)
        if match is not None:
            device.setdefault(match[1], match[2])
    nics = []
    for position, at in enumerate(matrix.nics):
        label = grid.labels[at]
        number = _NIC_LABEL.match(label)
        nics.append(
            Nic(
                index=int(number[1]) if number else position,
                name=device.get(label, label),
                label=label,
            )
        )
    return tuple(nics)


def _link_count(cell: str) -> int:
    """Return the links of a cell, 0 when it is a PCIe class; ``MX`` states no count."""
    match = _LINK.match(cell)
    return 0 if match is None else int(match[1] or 1)


def _nvlink_pairs(matrix: _Matrix) -> tuple[NvlinkPair, ...]:
    pairs = []
    for row, column in combinations(matrix.gpus, 2):
        counts = _link_count(matrix.cell(row, column)), _link_count(matrix.cell(column, row))
        if any(counts):
            a, b = sorted(_index(matrix.grid.labels[at]) for at in (row, column))
            links = min(counts) or max(counts)
            pairs.append(NvlinkPair(a, b, links, both_ways=all(counts)))
    return tuple(sorted(pairs, key=lambda pair: (pair.a, pair.b)))


def _asymmetric(matrix: _Matrix) -> list[Finding]:
    labels = matrix.grid.labels
    unequal = [
        (row, column)
        for row, column in combinations(range(len(labels)), 2)
        if matrix.cell(row, column) != matrix.cell(column, row)
    ]
    if not unequal:
        return []
    row, column = unequal[0]
    cells = [
        [labels[a], labels[b], matrix.cell(a, b), matrix.cell(b, a)] for a, b in unequal[:_SHOWN]
    ]
    return [
        Finding(
            rule="topology/matrix-asymmetric",
            severity=Severity.WARNING,
            place=matrix.place(row),
            message=f"{labels[row]} to {labels[column]} is {matrix.cell(row, column)}, but "
            f"{labels[column]} to {labels[row]} is {matrix.cell(column, row)}"
            + (f" ({len(unequal) - 1} more such pairs)" if len(unequal) > 1 else ""),
            numbers={"count": len(unequal), "cells": [[*cell] for cell in cells]},
            remedy="run nvidia-smi topo -m again; if it stays, look for links that are down",
        )
    ]


def _totals(matrix: _Matrix, pairs: tuple[NvlinkPair, ...]) -> dict[int, int]:
    """Return the sum of a GPU's counts over its peers, GPU number -> links; 0 without any."""
    totals = {_index(matrix.grid.labels[at]): 0 for at in matrix.gpus}
    for pair in pairs:
        totals[pair.a] += pair.count
        totals[pair.b] += pair.count
    return totals


def _unequal_links(matrix: _Matrix, pairs: tuple[NvlinkPair, ...]) -> list[Finding]:
    """Compare counts; a cube mesh (NV1 and NV2) is sound when every GPU has the same sum."""
    counts = sorted({pair.count for pair in pairs})
    totals = {gpu: total for gpu, total in _totals(matrix, pairs).items() if total}
    if len(counts) < 2 or len(set(totals.values())) == 1:
        return []
    fewest = min(totals, key=totals.__getitem__)
    row = matrix.grid.labels.index(f"GPU{fewest}")
    shown = ", ".join(f"NV{count}" for count in counts)
    return [
        Finding(
            rule="topology/nvlink-count-differs",
            severity=Severity.WARNING,
            place=matrix.place(row),
            message=f"GPU pairs differ in NVLinks ({shown}); GPU{fewest} has the fewest",
            numbers={f"NV{n}": sum(pair.count == n for pair in pairs) for n in counts},
            remedy="look for links that are down: nvidia-smi nvlink -s",
        )
    ]


def _outside_nvlink(matrix: _Matrix, pairs: tuple[NvlinkPair, ...]) -> list[Finding]:
    """Report GPUs without NVLink beside three or more that are all joined (fallen off a switch)."""
    totals = _totals(matrix, pairs)
    joined = [gpu for gpu, total in totals.items() if total]
    outside = [gpu for gpu, total in totals.items() if not total]
    complete = len(joined) >= 3 and len(pairs) == len(joined) * (len(joined) - 1) // 2
    if not outside or not complete:
        return []
    names = ", ".join(f"GPU{gpu}" for gpu in outside)
    return [
        Finding(
            rule="topology/gpu-outside-nvlink",
            severity=Severity.WARNING,
            place=Place(matrix.path, matrix.grid.header_line, 1, names[:80]),
            message=f"{names}: no NVLink, while the other {len(joined)} GPUs are all joined",
            numbers={"outside": [*outside], "joined": len(joined)},
            remedy="restart the fabric manager, and look at nvidia-smi -q for its Fabric state",
        )
    ]


def _hidden_pcie(matrix: _Matrix) -> list[Finding]:
    cells = [matrix.cell(gpu, nic) for gpu in matrix.gpus for nic in matrix.nics]
    if len(cells) < 2 or len(set(cells)) > 1 or cells[0] not in ("PHB", "NODE"):
        return []
    return [
        Finding(
            rule="topology/pcie-hidden-by-vm",
            severity=Severity.NOTE,
            place=matrix.place(matrix.gpus[0]),
            message=f"every GPU-NIC cell is {cells[0]}: a virtual machine hides the PCIe tree, so "
            "which NIC is near is unknown, not equal",
            numbers={"cells": len(cells)},
            remedy="add the NCCL topology XML of the cloud image (NCCL_TOPO_FILE)",
        )
    ]


def _more_matrices(matrix: _Matrix) -> list[Finding]:
    others = matrix.grid.other_headers
    if not others:
        return []
    return [
        Finding(
            rule="topology/more-matrices",
            severity=Severity.NOTE,
            place=Place(matrix.path, others[0], 1),
            message=f"{len(others)} further matrices in this file are not read: only the first is",
            numbers={"lines": [*others[:_SHOWN]]},
            remedy="give each machine's matrix as a file of its own",
        )
    ]
