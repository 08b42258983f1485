"""Write a cluster file from topology sources, to be edited and used by a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import UnknownGpuError, find_gpu
from meshwright.cluster.hostlist import compress_hostlist
from meshwright.documents import dump_yaml
from meshwright.errors import UsageError
from meshwright.report.new_file import new_file

_NODE_FORMATS = ("nvidia_smi_topo_m", "nccl_topo_xml")


def write_cluster(sources: Sequence[Facts], path: str) -> None:
    """Write what the sources say as a cluster file; paths in it start at its folder.

    Raises ``UsageError`` when no source describes a host or a fabric.
    """
    document, missing = cluster_document(sources, Path(path).parent)
    head = [f"# From {', '.join(Path(facts.path).name for facts in sources)}; edit as needed."]
    head += [f"# Not said by these files: {text}" for text in missing]
    with new_file(path) as file:
        file.write(("\n".join(head) + "\n" + dump_yaml(document)).encode())


def cluster_document(sources: Sequence[Facts], folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the sections of a cluster file, and what is left for the user to add."""
    document: dict[str, Any] = {}
    missing = []
    node = next((facts for facts in sources if facts.format in _NODE_FORMATS and facts.gpus), None)
    if node is not None:
        document["node"] = {"from": _relative(node.path, folder), **_gpu(node)}
        missing += [] if "gpu" in document["node"] else ["the GPU model (node: {…, gpu: H100-SXM})"]
    else:
        missing.append("the host (node: a preset such as dgx-h100, or from: a file)")
    fabric = next((facts for facts in sources if facts.cables or facts.tree), None)
    if fabric is not None:
        document["fabric"] = {"from": _relative(fabric.path, folder)}
        if fabric.hosts:
            document["allocation"] = compress_hostlist(fabric.hosts)
    else:
        missing.append("the fabric (fabric: {preset: rail-optimized}, or from: a file)")
    domains = _domains(sources)
    if domains:
        document["nvlink_domains"] = domains
    if not document:
        raise UsageError("no source describes a host, a fabric or NVLink domains: nothing to write")
    return document, missing


def _relative(path: str, folder: Path) -> str:
    return os.path.relpath(path, folder)


def _gpu(facts: Facts) -> dict[str, str]:
    models = {gpu.model for gpu in facts.gpus or ()} - {None}
    if len(models) != 1:
        return {}
    try:
        return {"gpu": find_gpu(str(models.pop())).name}
    except UnknownGpuError:
        return {}


def _domains(sources: Sequence[Facts]) -> dict[str, str]:
    """Return NVLink domains that host labels name (a scheduler's blocks need not be any)."""
    found: dict[str, list[str]] = {}
    for facts in sources:
        for place in facts.places or ():
            if place.nvlink_domain is not None:
                found.setdefault(place.nvlink_domain, []).append(place.host)
    return {name: compress_hostlist(hosts) for name, hosts in found.items()}
