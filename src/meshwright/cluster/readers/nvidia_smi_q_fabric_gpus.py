"""The ``Fabric`` block of ``nvidia-smi -q``, first step: from one host's lines to its GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from meshwright.cluster.readers.document_values import known
from meshwright.cluster.readers.host_lines import HostLine
from meshwright.cluster.readers.nvidia_smi_nvlink_r import short_address

_GPU = re.compile(r"\s*GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])\s*\Z")
_FABRIC = re.compile(r"(\s*)Fabric\s*\Z")
_PAIR = re.compile(r"(\s*)([A-Za-z][A-Za-z ]{0,38}?) {0,40} : (.{0,200})")
_WANTED = ("State", "Status", "CliqueId", "ClusterUUID", "Summary")
_NO_UUID = re.compile(r"[0-]*\Z")
_NOTHING = (
    "[n/a]",
    "[not supported]",
    "not supported",
    "requested functionality has been deprecated",
)
_FABRIC_COLUMN = re.compile(r"\s*fabric\.cl(?:usterUuid|iqueId)\s*", re.I)
_COLUMN = re.compile(r"\s*[\w.]{1,60}(?: \[[\w/%]{1,12}\])?\s*")
_COLUMNS = {
    "index": "index",
    "name": "model",
    "gpu_name": "model",
    "pci.bus_id": "pci",
    "gpu_bus_id": "pci",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "fabric.clusteruuid": "cluster_uuid",
    "fabric.cliqueid": "clique",
    "fabric.state": "state",
    "fabric.status": "status",
    "fabric.health.summary": "health",
}


class FabricGpu(msgspec.Struct):
    """One GPU and what is said of its fabric; ``None`` is not said or not known."""

    index: int
    line: int
    pci: str | None = None
    model: str | None = None
    uuid: str | None = None
    state: str | None = None
    status: str | None = None
    clique: str | None = None
    cluster_uuid: str | None = None
    health: str | None = None


def domain_of(gpu: FabricGpu) -> str | None:
    """Return ``<cluster UUID>.<clique id>`` of a GPU that is registered in a fabric."""
    if gpu.cluster_uuid is None or gpu.clique is None or _NO_UUID.match(gpu.cluster_uuid):
        return None
    if (gpu.state or "completed").lower() != "completed":
        return None
    if (gpu.status or "success").lower() != "success":
        return None
    return f"{gpu.cluster_uuid.lower()}.{gpu.clique}"


def is_table_head(text: str) -> bool:
    """Tell whether a line is the header of the csv form."""
    cells = text.split(",") if len(text) < 4000 else []
    return (
        len(cells) > 1
        and any(map(_FABRIC_COLUMN.fullmatch, cells))
        and all(map(_COLUMN.fullmatch, cells))
    )


def gpus_of_table(lines: Sequence[HostLine]) -> list[FabricGpu]:
    """Return the GPUs of a csv table, whose header is the first of ``lines``."""
    columns = [
        _COLUMNS.get(name.strip().lower().partition(" [")[0]) for name in lines[0].text.split(",")
    ]
    gpus: list[FabricGpu] = []
    for line in lines[1:]:
        cells = line.text[:4000].split(",")
        if len(cells) != len(columns) or is_table_head(line.text):
            continue
        said = {
            name: _said(cell) for name, cell in zip(columns, cells, strict=True) if name is not None
        }
        index = said.pop("index", None)
        number = int(index) if index and re.fullmatch("[0-9]{1,4}", index) else len(gpus)
        address = said.pop("pci", None)
        pci = short_address(address) if address and ":" in address else None
        gpus.append(FabricGpu(number, line.number, pci=pci, **said))
    return gpus


def gpus_of_blocks(lines: Sequence[HostLine]) -> list[FabricGpu]:
    """Return the GPUs of ``nvidia-smi -q``, or of the fabric lines picked out of it."""
    whole = any(_FABRIC.match(line.text) for line in lines)
    return _whole(lines) if whole else _picked(lines)


def _whole(lines: Sequence[HostLine]) -> list[FabricGpu]:
    """Read full blocks; only what is indented under ``Fabric`` counts as fabric."""
    gpus: list[FabricGpu] = []
    indent: int | None = None
    for line in lines:
        if match := _GPU.match(line.text):
            gpus.append(FabricGpu(len(gpus), line.number, pci=short_address(match[1])))
            indent = None
        elif match := _FABRIC.match(line.text):
            indent = len(match[1])
            if not gpus or gpus[-1].state is not None:
                gpus.append(FabricGpu(len(gpus), line.number))
        elif match := _PAIR.match(line.text):
            if indent is not None and len(match[1]) <= indent:
                indent = None
            if gpus:
                _take(gpus[-1], match[2], _said(match[3]), in_fabric=indent is not None)
    return gpus


def _take(gpu: FabricGpu, key: str, value: str | None, *, in_fabric: bool) -> None:
    if key == "Product Name":
        gpu.model = value
    elif key == "GPU UUID":
        gpu.uuid = value
    elif in_fabric:
        _set(gpu, key, value)


def _picked(lines: Sequence[HostLine]) -> list[FabricGpu]:
    """Read lines without their blocks: a key that comes again begins the next GPU."""
    gpus: list[FabricGpu] = []
    seen: set[str] = set()
    for line in lines:
        match = _PAIR.match(line.text)
        if match is None or match[2] not in _WANTED:
            continue
        if not gpus or match[2] in seen:
            gpus.append(FabricGpu(len(gpus), line.number))
            seen = set()
        seen.add(match[2])
        _set(gpus[-1], match[2], _said(match[3]))
    return gpus


def _set(gpu: FabricGpu, key: str, value: str | None) -> None:
    if key == "State":
        gpu.state = value or "unknown"
    elif key == "Status":
        gpu.status = value
    elif key == "CliqueId":
        gpu.clique = value
    elif key == "ClusterUUID":
        gpu.cluster_uuid = value
    elif key == "Summary":
        gpu.health = value


def _said(text: str) -> str | None:
    value = known(text)
    return None if value is None or value.lower() in _NOTHING else value
