"""``amd-smi topology --json``: the tables of ``amd-smi topology`` as one list of links a GPU.

Since ROCm 6.2 an entry is ``{gpu, bdf, links: [{gpu, bdf, weight, link_status, link_type, num_hops,
bandwidth, ...}]}``, of which ``-a``, ``-t`` and the like leave keys out; before, it was ``{gpu,
link_accessibility: {gpu_0: ...}, weight: {...}, link_type: {...}, numa_bandwidth: {...}}`` without
addresses. (ROCm/amdsmi ``CHANGELOG.md``, ROCm 6.2, and the comments in its topology command.)
What weights and link types mean: ``amd_links.py``. Hops are not used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.readers.amd_links import (
    AmdLinks,
    by_number,
    gpu_classes,
    kinds_of,
    nvlink_pairs,
    weights_of,
)
from meshwright.cluster.readers.amd_links_findings import amd_link_findings
from meshwright.cluster.readers.document_values import (
    child,
    is_json,
    is_null,
    items,
    known_text,
    mapping,
    parse,
    whole_number,
)
from meshwright.cluster.readers.peer_access import Codes, peer_access_findings
from meshwright.documents import MappingNode, Node, ScalarNode
from meshwright.errors import InputError

FORMAT = "amd_smi_json"
MAX_GPUS = 1024
_LOOKS = re.compile(r'"(?:link_status|link_type|num_hops|link_accessibility|numa_bandwidth)"\s*:')
_GPU = re.compile(r'"gpu"\s*:')
_OLD_TARGET = re.compile(r"gpu_([0-9]{1,4})")
_BANDWIDTH = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_KEYS = {
    "link_type": ("link_type", "link_type"),
    "weight": ("weight", "weight"),
    "bandwidth": ("bandwidth", "numa_bandwidth"),
    "access": ("link_status", "link_accessibility"),
}
"""What is read: its key in a link, and its key before ROCm 6.2."""
_CODE = {"ENABLED": "OK", "DISABLED": "NS"}
"""Access in the codes of ``nvidia-smi topo -p2p``; the tool gives no reason for none."""
_NOTHING = "N/A"

_Table = tuple[tuple[str, ...], ...]


def looks_like(text: str) -> bool:
    """Tell whether the text is JSON with links between GPUs as ``amd-smi`` writes them."""
    return is_json(text) and _GPU.search(text) is not None and _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return GPUs, pairs joined by XGMI, path classes by weight, and peer access.

    Raises
    ------
    InputError
        The text is no such list, a GPU stands twice, or a link names a GPU that is not listed.
    """
    entries = _entries(parse(text, path))
    numbers = tuple(entries)
    addresses = [known_text(child(entry, "bdf"), "bdf") for entry in entries.values()]
    labels = tuple(
        address or f"GPU{number}" for address, number in zip(addresses, numbers, strict=True)
    )
    lines = tuple(entry.line for entry in entries.values())
    tables = _tables(entries)
    links = AmdLinks(
        path=path,
        labels=labels,
        numbers=numbers,
        lines=lines,
        kinds=kinds_of(tables.get("link_type")),
        weights=weights_of(tables.get("weight")),
        bandwidths=_bandwidths(tables.get("bandwidth")),
    )
    pairs = nvlink_pairs(links)
    access = _access(tables.get("access"))
    findings = amd_link_findings(links, pairs)
    if access is not None:
        findings += peer_access_findings(access, labels, lines, path)
    return Facts(
        format=FORMAT,
        path=path,
        gpus=tuple(
            Gpu(index=number, name=label, pci=address.lower() if address else None)
            for number, label, address in zip(numbers, labels, addresses, strict=True)
        ),
        nvlink_pairs=by_number(pairs, numbers),
        gpu_gpu_class=gpu_classes(links),
        peer_access=access,
        findings=tuple(findings),
    )


def _entries(root: Node) -> dict[int, MappingNode]:
    """Return the entry of each GPU, by its number, in the order listed."""
    wrapped = child(root, "gpu_data") if isinstance(root, MappingNode) else None
    entries: dict[int, MappingNode] = {}
    for node in items(root if wrapped is None else wrapped, "the list of GPUs"):
        entry = mapping(node, "an entry")
        number = whole_number(child(entry, "gpu"), "gpu", entry, MAX_GPUS - 1)
        if number in entries:
            raise InputError(
                entry.problem(
                    f"a second GPU {number}", remedy="give each machine's output as its own file"
                )
            )
        entries[number] = entry
    if not entries:
        raise InputError(root.problem("the list holds no GPU"))
    return entries


def _tables(entries: dict[int, MappingNode]) -> dict[str, _Table]:
    """Return the cells of every kind that some entry gives; what is left out is ``N/A``."""
    place = {number: at for at, number in enumerate(entries)}
    size = len(entries)
    cells: dict[str, list[list[str]]] = {}
    for row, entry in enumerate(entries.values()):
        for kind, target, value in _said(entry):
            if target not in place:
                message = f"a link to GPU {target}, which is not listed"
                raise InputError(value.problem(message, remedy="give the output for all GPUs"))
            if kind not in cells:
                cells[kind] = [[_NOTHING] * size for _ in range(size)]
            cells[kind][row][place[target]] = _cell(value, kind)
    if not cells:
        first = next(iter(entries.values()))
        raise InputError(first.problem("the list gives no links between GPUs"))
    return {kind: tuple(map(tuple, table)) for kind, table in cells.items()}


def _said(entry: MappingNode) -> list[tuple[str, int, Node]]:
    """Return kind, the other GPU and the value of all that an entry says of its links."""
    said: list[tuple[str, int, Node]] = []
    for node in items(child(entry, "links"), "links"):
        link = mapping(node, "a link")
        target = whole_number(child(link, "gpu"), "gpu", link, MAX_GPUS - 1)
        for kind, (key, _) in _KEYS.items():
            value = child(link, key)
            if value is not None:
                said.append((kind, target, value))
    for kind, (_, key) in _KEYS.items():
        table = child(entry, key)
        if table is None:
            continue
        for name, one in mapping(table, key).entries.items():
            match = _OLD_TARGET.fullmatch(name)
            if match is None:
                raise InputError(one.node.problem(f"{key}: {name[:40]!r} is no gpu_<number>"))
            said.append((kind, int(match[1]), one.node))
    return said


def _cell(value: Node, kind: str) -> str:
    if not isinstance(value, ScalarNode):
        raise InputError(value.problem(f"{kind}: expected a text or a number"))
    return _NOTHING if is_null(value) else value.text.strip()


def _bandwidths(table: _Table | None) -> tuple[tuple[tuple[int, int] | None, ...], ...] | None:
    if table is None:
        return None
    found = [[_BANDWIDTH.fullmatch(cell) for cell in row] for row in table]
    return tuple(tuple((int(m[1]), int(m[2])) if m else None for m in row) for row in found)


def _access(table: Sequence[Sequence[str]] | None) -> Codes | None:
    if table is None:
        return None
    return tuple(
        tuple("X" if column == row else _CODE.get(cell, "U") for column, cell in enumerate(cells))
        for row, cells in enumerate(table)
    )
