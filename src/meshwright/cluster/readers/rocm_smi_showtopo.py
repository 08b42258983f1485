"""``rocm-smi --showtopo``: weight, hops, link type of each pair of GPUs, and NUMA nodes.

Blocks under titles ``=== Weight between two GPUs ===``; reports often hold one block alone. The
diagonal is ``0`` in every table, link types too. What the cells mean: ``amd_links.py``.
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
    by_number,
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
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

FORMAT = "rocm_smi_showtopo"
_COMMAND = "rocm-smi --showtopo"
_TITLE = re.compile(r"= ?(Weight|Hops|Link Type) between two GPUs ?={3}")
_RULE = "==="
_NUMA = re.compile(
    r"\bGPU ?\[?([0-9]{1,5})\]?\s{0,40}:\s{0,9}\(Topology\) Numa (Node|Affinity):[ \t]*(\S{0,40})"
)
_LABEL = re.compile(r"GPU(?:0|[1-9][0-9]{0,4})")
_NODE = re.compile(r"[0-9]{1,4}")
_OWN = frozenset({"0"})
_NONE = "N/A|None|XXXX|UNKNOWN"
"""What versions of the tool print for a pair of which the driver says nothing."""
_NUMBERS = Form(
    label=_LABEL,
    cell=re.compile(rf"[0-9]{{1,9}}|{_NONE}"),
    own=_OWN,
    command=_COMMAND,
    own_only_there=False,
)
_TYPES = Form(
    label=_LABEL,
    cell=re.compile(rf"0|{XGMI}|{PCIE}|{_NONE}"),
    own=_OWN,
    command=_COMMAND,
    own_only_there=False,
)


def looks_like(text: str) -> bool:
    """Tell whether the text holds a table of ``rocm-smi --showtopo``."""
    return "between two GPUs" in text and _TITLE.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return GPUs with NUMA nodes, pairs joined by XGMI and path classes by weight.

    Raises
    ------
    InputError
        There is no table, one is cut off or holds an unknown cell (see ``read_matrix``), two
        tables name different GPUs, or a NUMA line names a GPU that no table has.
    """
    lines = clean_lines(text)
    tables, repeated = _tables(lines, path)
    first = next(iter(tables.values()))
    links = AmdLinks(
        path=path,
        labels=first.labels,
        numbers=tuple(int(label.removeprefix("GPU")) for label in first.labels),
        lines=first.lines,
        kinds=kinds_of(cells_of(tables, "Link Type")),
        weights=weights_of(cells_of(tables, "Weight")),
    )
    numa = _numa(lines, path, first.labels)
    pairs = nvlink_pairs(links)
    gpus = tuple(
        Gpu(index=number, name=label, numa=numa.get(label, ()))
        for number, label in zip(links.numbers, links.labels, strict=True)
    )
    ids = sorted({node for gpu in gpus for node in gpu.numa})
    return Facts(
        format=FORMAT,
        path=path,
        gpus=gpus,
        nvlink_pairs=by_number(pairs, links.numbers),
        numa_ids=tuple(ids) or None,
        gpu_gpu_class=gpu_classes(links),
        findings=(
            *more_matrices(path, repeated),
            *amd_link_findings(links, pairs),
            *_numa_unknown(links, numa),
        ),
    )


def _tables(lines: Sequence[str], path: str) -> tuple[dict[str, Matrix], list[int]]:
    """Return the first table of each kind, and the lines (from 1) of the titles of further ones."""
    edges = [at for at, line in enumerate(lines) if _RULE in line] + [len(lines)]
    tables: dict[str, Matrix] = {}
    repeated = []
    for at, stop in pairwise(edges):
        title = _TITLE.search(lines[at])
        if title is None:
            continue
        if title[1] in tables:
            repeated.append(at + 1)
            continue
        form = _TYPES if title[1] == "Link Type" else _NUMBERS
        matrix = read_matrix(lines, range(at + 1, stop), path, form)
        check_same_labels(tables, matrix, path)
        tables[title[1]] = matrix
    if not tables:
        message = f"no table of {_COMMAND} here: no title such as === Weight between two GPUs ==="
        raise InputError(Problem(Place(path, 1, 1), message, remedy=f"paste all of {_COMMAND}"))
    return tables, repeated


def _numa(lines: Sequence[str], path: str, labels: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Return the NUMA node of each GPU: its affinity, else its node; negative is unknown."""
    words: dict[str, dict[str, str]] = {}
    for at, line in enumerate(lines):
        match = _NUMA.search(line)
        if match is None:
            continue
        label = f"GPU{int(match[1])}"
        if label not in labels:
            message = f"{label} has a NUMA node but no row in the tables above"
            place = Place(path, at + 1, match.start() + 1)
            raise InputError(
                Problem(place, message, remedy=f"paste all of {_COMMAND}", excerpt=match[0])
            )
        words.setdefault(label, {}).setdefault(match[2], match[3])
    found: dict[str, tuple[int, ...]] = {}
    for label, said in words.items():
        known = [said[key] for key in ("Affinity", "Node") if _NODE.fullmatch(said.get(key, ""))]
        found[label] = (int(known[0]),) if known else ()
    return found


def _numa_unknown(links: AmdLinks, numa: dict[str, tuple[int, ...]]) -> list[Finding]:
    """Note GPUs without a NUMA node, where the text gives nodes at all."""
    unknown = [label for label in links.labels if not numa.get(label)]
    if not numa or not unknown:
        return []
    at = links.labels.index(unknown[0])
    return [
        Finding(
            rule="topology/numa-unknown",
            severity=Severity.NOTE,
            place=Place(links.path, links.lines[at], 1, unknown[0]),
            message=f"{len(unknown)} GPUs have no NUMA node (the first: {unknown[0]})",
            numbers={"count": len(unknown), "gpus": [*unknown[:20]]},
        )
    ]
