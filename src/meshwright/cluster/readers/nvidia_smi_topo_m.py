"""``nvidia-smi topo -m``: the matrix of path classes between GPUs and NICs of one machine.

Alphabet: ``X``, ``NV<count>``, ``PIX``, ``PXB``, ``PHB``, ``NODE``, ``SYS`` (``MX`` of MetaX).
The matrix shows neither NVSwitches nor the GPU model.
"""

from __future__ import annotations

import re
from itertools import combinations

import msgspec

from meshwright.cluster.facts import Facts, Gpu, Nic, NvlinkPair
from meshwright.cluster.nodes.rack_scale import GPU_NUMA_IDS
from meshwright.cluster.readers.nvidia_smi_topo_m_affinity import read_affinities
from meshwright.cluster.readers.nvidia_smi_topo_m_findings import (
    Matrix,
    host_of,
    link_count,
    matrix_findings,
)
from meshwright.cluster.readers.nvidia_smi_topo_m_grid import Grid, has_matrix, read_grid

FORMAT = "nvidia_smi_topo_m"
_GPU_LABEL = re.compile(r"GPU([0-9]+)\Z")
_NIC_LABEL = re.compile(r"NIC([0-9]+)\Z")
_NIC_LEGEND = re.compile(r"(?:^|(?<=\s))(NIC[0-9]{1,5})\s*:\s*(\S{1,64})")
_GPU_LIST = re.compile(
    r"\bGPU ([0-9]{1,4}): ((?:NVIDIA|Tesla|GeForce|Quadro)\b[^()]{0,80}|[^()]{1,80}(?=\(UUID))"
)


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
    matrix = Matrix(grid, gpu_at, nic_at, path)
    rows = tuple(grid.rows[at] for at in gpu_at)
    affinities, findings = read_affinities(grid, rows, path)
    models = _models(grid)
    gpus = tuple(
        _gpu(grid.labels[at], entry.numa, models)
        for at, entry in zip(gpu_at, affinities, strict=True)
    )
    pairs = _nvlink_pairs(matrix)
    numa_ids = sorted({numa for gpu in gpus for numa in gpu.numa})
    own_memory = sum(entry.gpu_numa is not None for entry in affinities)
    facts = Facts(
        format=FORMAT,
        path=path,
        host=host_of(grid, path),
        gpus=gpus,
        nics=_nics(matrix),
        nvlink_pairs=pairs,
        numa_ids=tuple(numa_ids) or None,
        gpu_gpu_class=matrix.block(gpu_at, gpu_at),
        gpu_nic_class=matrix.block(gpu_at, nic_at),
        nic_nic_class=matrix.block(nic_at, nic_at),
        counts={GPU_NUMA_IDS: own_memory} if own_memory else {},
    )
    return msgspec.structs.replace(facts, findings=(*matrix_findings(matrix, facts), *findings))


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


def _nics(matrix: Matrix) -> tuple[Nic, ...]:
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


def _nvlink_pairs(matrix: Matrix) -> tuple[NvlinkPair, ...]:
    pairs = []
    for row, column in combinations(matrix.gpus, 2):
        counts = link_count(matrix.cell(row, column)), link_count(matrix.cell(column, row))
        if any(counts):
            a, b = sorted(_index(matrix.grid.labels[at]) for at in (row, column))
            links = min(counts) or max(counts)
            pairs.append(NvlinkPair(a, b, links, both_ways=all(counts)))
    return tuple(sorted(pairs, key=lambda pair: (pair.a, pair.b)))
