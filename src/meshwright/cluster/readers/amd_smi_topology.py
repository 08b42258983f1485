"""``amd-smi topology``: tables of access, weight, link type and bandwidth of each pair of GPUs.

``WEIGHT TABLE:`` and the like; rows and columns are PCI addresses, and the GPU number is the
place in the list. What weights and link types mean: ``amd_links.py``. Of ``NUMA BW`` (least-greatest
in MB/s) zero means unknown. Hops, coherency, atomics, DMA and direction are not used, but must be
whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.readers.amd_links import (
    PCIE,
    XGMI,
    AmdLinks,
    gpu_classes,
    kinds_of,
    nvlink_pairs,
    weights_of,
)
from meshwright.cluster.readers.amd_links_findings import amd_link_findings
from meshwright.cluster.readers.label_matrix import (
    Form,
    Matrix,
    cells_of,
    check_same_labels,
    more_matrices,
    read_matrix,
)
from meshwright.cluster.readers.nvidia_smi_topo_m_grid import clean_lines
from meshwright.cluster.readers.peer_access import Codes, peer_access_findings
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

FORMAT = "amd_smi_topology"
_COMMAND = "amd-smi topology"
_KINDS = "ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW"
_TITLE = re.compile(rf"(?:(?:^|\s)({_KINDS})|^\s*([A-Z][A-Z -]{{1,40}})) TABLE:\s*\Z")
_KNOWN_TITLE = re.compile(rf"(?:^|\s)(?:{_KINDS}) TABLE:\s")
_LABEL = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
_ADDRESS = re.compile(rf"(?:^|\s){_LABEL.pattern}(?=\s|\Z)")
_BANDWIDTH = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_NUMBERS = Form(
    label=_LABEL,
    cell=re.compile(r"[0-9]{1,9}|N/A"),
    own=frozenset({"0", "N/A"}),
    command=_COMMAND,
    own_only_there=False,
)
_FORMS = {
    "ACCESS": Form(
        label=_LABEL,
        cell=re.compile("ENABLED|DISABLED|N/A"),
        own=frozenset(),
        command=_COMMAND,
    ),
    "WEIGHT": _NUMBERS,
    "HOPS": _NUMBERS,
    "LINK TYPE": Form(
        label=_LABEL,
        cell=re.compile(f"SELF|{XGMI}|{PCIE}|UNKNOWN|N/A"),
        own=frozenset({"SELF"}),
        command=_COMMAND,
    ),
}
_OTHER = Form(label=_LABEL, cell=re.compile(r"\S+"), own=frozenset(), command=_COMMAND, exact=False)
_CODE = {"ENABLED": "OK", "DISABLED": "NS", "N/A": "U"}
"""Access in the codes of ``nvidia-smi topo -p2p``; the tool gives no reason for none."""


def looks_like(text: str) -> bool:
    """Tell whether the text holds a table of ``amd-smi topology``."""
    title = _KNOWN_TITLE.search(text) if " TABLE:" in text else None
    return title is not None and _ADDRESS.search(text, title.end()) is not None


def read(text: str, path: str) -> Facts:
    """Return GPUs by PCI address, pairs joined by XGMI, path classes by weight, and peer access.

    Raises
    ------
    InputError
        There is no table, one is cut off or holds an unknown cell (see ``read_matrix``), or two
        tables name different GPUs.
    """
    lines = clean_lines(text)
    tables, repeated = _tables(lines, path)
    first = next(iter(tables.values()))
    links = AmdLinks(
        path=path,
        labels=first.labels,
        numbers=tuple(range(len(first.labels))),
        lines=first.lines,
        kinds=kinds_of(cells_of(tables, "LINK TYPE")),
        weights=weights_of(cells_of(tables, "WEIGHT")),
        bandwidths=_bandwidths(tables.get("NUMA BW")),
    )
    pairs = nvlink_pairs(links)
    access = _access(tables.get("ACCESS"))
    findings = more_matrices(path, repeated)
    findings += amd_link_findings(links, pairs)
    if access is not None:
        findings += peer_access_findings(access, first.labels, tables["ACCESS"].lines, path)
    return Facts(
        format=FORMAT,
        path=path,
        gpus=tuple(
            Gpu(index=at, name=label, pci=label.lower()) for at, label in enumerate(first.labels)
        ),
        nvlink_pairs=pairs,
        gpu_gpu_class=gpu_classes(links),
        peer_access=access,
        findings=tuple(findings),
    )


def _tables(lines: Sequence[str], path: str) -> tuple[dict[str, Matrix], list[int]]:
    """Return the first table of each kind, and the lines (from 1) of the titles of further ones."""
    titles = [(at, kind) for at, line in enumerate(lines) if (kind := _title(line))]
    edges = [*titles, (len(lines), "")]
    tables: dict[str, Matrix] = {}
    repeated = []
    for (at, kind), (stop, _) in pairwise(edges):
        if kind in tables:
            repeated.append(at + 1)
            continue
        matrix = read_matrix(lines, range(at + 1, stop), path, _FORMS.get(kind, _OTHER))
        check_same_labels(tables, matrix, path)
        tables[kind] = matrix
    if not tables:
        message = f"no table of {_COMMAND} here: no title such as WEIGHT TABLE:"
        raise InputError(Problem(Place(path, 1, 1), message, remedy=f"paste all of {_COMMAND}"))
    return tables, repeated


def _title(line: str) -> str | None:
    match = _TITLE.search(line) if len(line) < 200 and " TABLE:" in line else None
    return None if match is None else match[1] or match[2]


def _bandwidths(table: Matrix | None) -> tuple[tuple[tuple[int, int] | None, ...], ...] | None:
    """Return least and greatest by pair; a row that holds an error's text is unknown."""
    if table is None:
        return None
    rows = []
    for cells in table.cells:
        known = [_BANDWIDTH.fullmatch(cell) for cell in cells]
        whole = len(cells) == len(table.labels)
        rows.append(
            tuple((int(m[1]), int(m[2])) if m else None for m in known)
            if whole
            else (None,) * len(table.labels)
        )
    return tuple(rows)


def _access(table: Matrix | None) -> Codes | None:
    if table is None:
        return None
    return tuple(
        tuple("X" if column == row else _CODE[cell] for column, cell in enumerate(cells))
        for row, cells in enumerate(table.cells)
    )
