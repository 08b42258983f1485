"""Processors and NUMA nodes from procfs and sysfs."""

from __future__ import annotations

import re
from pathlib import Path

from meshwright.capture.document import Cpus, NumaNode
from meshwright.capture.sysfs import entries, printable, read_text, read_value

_NODE = re.compile(r"node([0-9]{1,6})\Z")
_CPULIST = re.compile(r"[0-9]{1,7}(?:-[0-9]{1,7})?(?:,[0-9]{1,7}(?:-[0-9]{1,7})?)*\Z")
_CPUINFO_BYTES = 1 << 14
_CPULIST_BYTES = 1 << 16
_MAX_DISTANCES = 4096


def read_cpus(root: Path) -> Cpus:
    """Return model, CPUs that are online, and NUMA nodes (``None`` where the kernel shows none)."""
    system = root / "sys/devices/system"
    names = entries(system / "node")
    nodes = None
    if names is not None:
        matches = [match for match in map(_NODE.match, names) if match]
        nodes = tuple(_node(system / "node" / match[0], int(match[1])) for match in matches) or None
    return Cpus(
        model=_model(root),
        online=_cpulist(system / "cpu/online"),
        numa_nodes=nodes,
    )


def cpu_flags(root: Path) -> frozenset[str]:
    """Return the flags of the first processor."""
    return frozenset((_cpuinfo(root).get("flags") or "").split())


def _model(root: Path) -> str | None:
    info = _cpuinfo(root)
    named = info.get("model name") or info.get("cpu model") or info.get("cpu")
    if named:
        return printable(named)
    # Arm gives numbers only.
    implementer, part = info.get("CPU implementer"), info.get("CPU part")
    if implementer and part:
        return printable(f"implementer {implementer} part {part}")
    return None


def _cpuinfo(root: Path) -> dict[str, str]:
    text = read_text(root / "proc/cpuinfo", _CPUINFO_BYTES) or ""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        key, mark, value = line.partition(":")
        if mark:
            found.setdefault(key.strip(), value.strip())
    return found


def _node(folder: Path, number: int) -> NumaNode:
    text = (read_value(folder / "distance") or "").split()
    known = all(word.isascii() and word.isdecimal() and len(word) <= 4 for word in text)
    return NumaNode(
        id=number,
        cpus=_cpulist(folder / "cpulist") or "",
        distances=tuple(map(int, text[:_MAX_DISTANCES])) if known else (),
    )


def _cpulist(path: Path) -> str | None:
    text = (read_text(path, _CPULIST_BYTES) or "").strip()
    return text if _CPULIST.match(text) else None
