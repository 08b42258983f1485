"""``nvidia-smi topo -m``, second step: CPU and NUMA values that follow the cells of a GPU row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import msgspec

from meshwright.cluster.readers.nvidia_smi_topo_m_grid import Grid, Row
from meshwright.findings import Finding, Severity

_CPU_PART = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?\Z")
_NUMA_PART = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?\Z")
_FUSED_ID = re.compile(r"(?:0|[1-9][0-9]?)?\Z")
_MAX_NUMA_RANGE = 256
_MAX_CHARACTERS = 512
_CUT_CHARACTERS = 11
"""Length from which the tool is known to cut a list: ``0,2,4,6,8,10`` stands for 0 to 94."""
_SHOWN = 8


class Affinity(msgspec.Struct, frozen=True):
    """The values of one row."""

    numa: tuple[int, ...] = ()
    """NUMA ids; empty for ``N/A`` and for what cannot be told."""
    cpus: str | None = None
    fused: str | None = None
    """CPU list and NUMA id as they touch in the text (``0-47,96-1430``)."""
    settled: bool = True
    """False for a fused value that could be cut in more than one way."""
    readable: bool = True
    gpu_numa: int | None = None
    """NUMA node that the GPU's own memory is (Grace superchips)."""


def read_affinities(
    grid: Grid, rows: tuple[Row, ...], path: str
) -> tuple[list[Affinity], list[Finding]]:
    """Return the values of each GPU row, and findings on those that are cut or touch."""
    first = [_affinity(row, grid.titles, {}) for row in rows]
    clean = {
        entry.cpus: str(entry.numa[0])
        for entry in first
        if entry.cpus is not None and entry.fused is None and len(entry.numa) == 1
    }
    entries = [
        _affinity(row, grid.titles, clean) if entry.fused is not None else entry
        for row, entry in zip(rows, first, strict=True)
    ]
    return entries, _findings(rows, entries, path)


def _affinity(row: Row, titles: tuple[str, ...], clean: Mapping[str, str]) -> Affinity:
    values = row.rest.split()
    if len(values) > len(titles):
        values = re.sub(r",\s+(?=[0-9])", ",", row.rest).split()
    if not values or not titles:
        return Affinity()
    if len(row.rest) > _MAX_CHARACTERS:
        return Affinity(readable=False)
    if len(values) == len(titles):
        named = dict(zip(titles, values, strict=True))
        own = _numa_ids(named.get("gpu_numa") or "N/A")
        entry = _plain(named.get("cpu"), named.get("numa"))
        return msgspec.structs.replace(entry, gpu_numa=own[0] if own else None)
    if len(values) == len(titles) - 1 and titles[:2] == ("cpu", "numa"):
        # One of two things: the CPU cell is blank, or its right edge touches the NUMA cell.
        blank = row.rest.count("\t") > 1 and not row.rest.split("\t")[1].strip()
        if blank or values[0].isdecimal() or values[0] == "N/A":
            return _plain(None, values[0])
        return _fused(values, clean)
    return Affinity(readable=False)


def _plain(cpus: str | None, numa: str | None) -> Affinity:
    ids = () if numa is None else _numa_ids(numa)
    cpus = None if cpus == "N/A" else cpus
    return Affinity(cpus=cpus, readable=False) if ids is None else Affinity(ids, cpus)


def _numa_ids(text: str) -> tuple[int, ...] | None:
    """Return the ids of ``0``, ``0-1`` or ``0,2``; none for ``N/A``; ``None`` when unreadable."""
    if text == "N/A":
        return ()
    ids: set[int] = set()
    for part in text.split(","):
        match = _NUMA_PART.match(part)
        if match is None:
            return None
        low, high = int(match[1]), int(match[2] or match[1])
        if not 0 <= high - low <= _MAX_NUMA_RANGE:
            return None
        ids.update(range(low, high + 1))
    return tuple(sorted(ids))


def _fused(values: list[str], clean: Mapping[str, str]) -> Affinity:
    """Cut a CPU list that may hold the NUMA id as its last digits."""
    token = values[0]
    cuts = []
    for length in (0, 1, 2):
        cpus, digits = token[: len(token) - length], token[len(token) - length :]
        if _is_regular(cpus) and _FUSED_ID.match(digits):
            cuts.append((cpus, digits))
    # Another row that shows the same list whole settles it.
    seen = [cut for cut in cuts if cut[0] in clean and cut[1] in ("", clean[cut[0]])]
    cuts = seen or cuts
    if len(cuts) != 1:
        return Affinity(fused=token, settled=False)
    cpus, digits = cuts[0]
    if not digits:
        # Nothing touches: the last column is the blank one.
        return _plain(cpus, values[1] if len(values) > 1 else None)
    return Affinity((int(digits),), cpus, fused=token)


def _is_regular(cpus: str) -> bool:
    """Tell whether a list could be one of the tool: rising ranges, all of one length.

    The parts are the hardware threads of the same cores (``0-47,96-143``).
    """
    parts = [_CPU_PART.match(part) for part in cpus.split(",")]
    ranges = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    rising = all(low <= high for low, high in ranges) and all(
        before[1] < after[0] for before, after in pairwise(ranges)
    )
    return len(ranges) == len(parts) and rising and len({high - low for low, high in ranges}) == 1


def _is_cut(cpus: str) -> bool:
    """Tell whether a list ends where the tool's buffer ended."""
    if cpus.endswith((",", "-")):
        return True
    numbers = cpus.split(",")
    if len(cpus) < _CUT_CHARACTERS or len(numbers) < 4 or not all(n.isdecimal() for n in numbers):
        return False
    steps = {int(b[:9]) - int(a[:9]) for a, b in pairwise(numbers)}
    return len(steps) == 1 and steps.pop() > 1


def _findings(rows: tuple[Row, ...], entries: list[Affinity], path: str) -> list[Finding]:
    cut = [at for at, entry in enumerate(entries) if entry.cpus and _is_cut(entry.cpus)]
    fused = [at for at, entry in enumerate(entries) if entry.fused is not None]
    unreadable = [at for at, entry in enumerate(entries) if not entry.readable]
    found = []
    if cut:
        lists = Counter(entries[at].cpus for at in cut)
        found.append(
            Finding(
                rule="topology/cpu-list-cut",
                severity=Severity.NOTE,
                place=rows[cut[0]].rest_place(path),
                message=f"the tool cut the CPU list of {len(cut)} rows: it is no count of cores",
                numbers={str(cpus): count for cpus, count in lists.most_common(_SHOWN)},
            )
        )
    if fused:
        found.append(_fused_finding(rows, entries, fused, path))
    if unreadable:
        found.append(
            Finding(
                rule="topology/affinity-unreadable",
                severity=Severity.NOTE,
                place=rows[unreadable[0]].rest_place(path),
                message=f"CPU and NUMA values of {len(unreadable)} rows cannot be told apart: "
                f"{rows[unreadable[0]].rest.strip()[:40]!r}; their NUMA id is unknown",
                numbers={"rows": [rows[at].label for at in unreadable[:_SHOWN]]},
            )
        )
    return found


def _fused_finding(
    rows: tuple[Row, ...], entries: list[Affinity], fused: list[int], path: str
) -> Finding:
    open_rows = [rows[at].label for at in fused if not entries[at].settled]
    entry = entries[fused[0]]
    if open_rows:
        outcome = (
            f"how to cut it is not clear, so NUMA is unknown for {', '.join(open_rows[:_SHOWN])}"
        )
    else:
        outcome = f"read as CPUs {entry.cpus} and NUMA {entry.numa[0]}"
    return Finding(
        rule="topology/cpu-numa-fused",
        severity=Severity.NOTE,
        place=rows[fused[0]].rest_place(path),
        message=f"CPU list and NUMA id touch in {len(fused)} rows ({entry.fused}): {outcome}",
        numbers={"rows": [rows[at].label for at in fused[:_SHOWN]], "unsettled": len(open_rows)},
        remedy="put a blank between the two values" if open_rows else None,
    )
