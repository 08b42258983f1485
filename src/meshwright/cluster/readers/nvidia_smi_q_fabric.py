"""The ``Fabric`` block of ``nvidia-smi -q``: which NVLink domain each GPU is in.

Three forms: the blocks of ``nvidia-smi -q`` (``State``, ``Status``, ``CliqueId``, ``ClusterUUID``,
``Health``), the same lines picked out with ``grep``, and the table of ``nvidia-smi
--query-gpu=…,fabric.clusterUuid,fabric.cliqueId --format=csv``. Several hosts in one text are told
apart by the prefixes and headings of parallel shells (``host_lines``).

The domain's key is the pair of cluster UUID and clique id (NVIDIA/nccl issue 1301), as in the label
``nvidia.com/gpu.clique``; a UUID of zeros is no fabric, and a GPU whose registration is not complete
and successful is in none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import PurePath

from meshwright.cluster.facts import Facts, Gpu, HostPlace
from meshwright.cluster.readers.host_lines import HostText, split_hosts
from meshwright.cluster.readers.nvidia_smi_q_fabric_findings import fabric_findings, host_assumed
from meshwright.cluster.readers.nvidia_smi_q_fabric_gpus import (
    FabricGpu,
    domain_of,
    gpus_of_blocks,
    gpus_of_table,
    is_table_head,
)
from meshwright.cluster.readers.nvidia_smi_topo_m_grid import clean_lines
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

FORMAT = "nvidia_smi_q_fabric"
_BLOCK = re.compile(
    r"^(?:[A-Za-z0-9][\w.-]{0,254}: ?)?[ \t]{0,64}(?:CliqueId|ClusterUUID) {0,40} : ", re.M
)
_COLUMN = re.compile(r"fabric\.cl(?:usterUuid|iqueId)\b", re.I)
_MAX_MENTIONS = 1000
_MAX_GPUS = 1 << 20

Named = tuple[str, list[FabricGpu]]


def looks_like(text: str) -> bool:
    """Tell by content whether the text gives cliques and cluster UUIDs of GPUs."""
    return _BLOCK.search(text) is not None or _has_table(text)


def _has_table(text: str) -> bool:
    """Tell whether some line is the header of a csv table with a fabric column."""
    for match in islice(_COLUMN.finditer(text), _MAX_MENTIONS):
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        line = text[start : len(text) if end < 0 else end] if match.start() - start < 4000 else ""
        if is_table_head(split_hosts([line])[0].lines[0].text.rstrip("\r")):
            return True
    return False


def read(text: str, path: str) -> Facts:
    """Return the GPUs, and each host's NVLink domain as its place; ``host`` is never set.

    Where the text names no host it is called after the file, which is a finding.

    Raises ``InputError`` for a text without a GPU.
    """
    parts = split_hosts(clean_lines(text), path)
    hosts: list[Named] = []
    assumed = []
    for part in parts:
        gpus = _gpus(part)
        if not gpus:
            continue
        names = part.hosts
        if not names:
            names = (PurePath(path).name.partition(".")[0] or "host",)
            assumed.append(host_assumed(names[0], path, gpus[0].line))
        hosts += [(name, gpus) for name in names]
        if sum(len(found) for _, found in hosts) > _MAX_GPUS:
            raise InputError(Problem(Place(path, gpus[0].line, 1), "names too many GPUs"))
    if not hosts:
        message = "no GPU with a Fabric block here: no lines CliqueId and ClusterUUID"
        remedy = (
            "give the output of nvidia-smi -q, or of nvidia-smi --query-gpu=index,name,pci.bus_id,"
            "uuid,fabric.clusterUuid,fabric.cliqueId --format=csv"
        )
        raise InputError(Problem(Place(path, 1, 1), message, remedy=remedy))
    places = tuple(HostPlace(name, (), _domain(gpus)) for name, gpus in hosts)
    return Facts(
        format=FORMAT,
        path=path,
        hosts=tuple(name for name, _ in hosts),
        gpus=tuple(_gpu(name, gpu) for name, gpus in hosts for gpu in gpus),
        places=places,
        counts={"nvlink_domains": len({place.nvlink_domain for place in places} - {None})},
        findings=(*assumed, *fabric_findings(hosts, path)),
    )


def _gpus(part: HostText) -> list[FabricGpu]:
    head = next((at for at, line in enumerate(part.lines) if is_table_head(line.text)), None)
    if head is not None:
        return gpus_of_table(part.lines[head:])
    return gpus_of_blocks(part.lines)


def _domain(gpus: Sequence[FabricGpu]) -> str | None:
    """Return the domain of all GPUs of a host; ``None`` where they differ or have none."""
    found = {domain_of(gpu) for gpu in gpus}
    return next(iter(found)) if len(found) == 1 else None


def _gpu(host: str, gpu: FabricGpu) -> Gpu:
    return Gpu(gpu.index, f"GPU{gpu.index}", host=host, pci=gpu.pci, model=gpu.model, uuid=gpu.uuid)
