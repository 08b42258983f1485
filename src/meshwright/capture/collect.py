"""Put the capture of one host together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from meshwright.capture.cpus import read_cpus
from meshwright.capture.document import SCHEMA, Capture, Missing, Nvml, PciDevice
from meshwright.capture.infiniband import read_infiniband
from meshwright.capture.names import read_host
from meshwright.capture.network_devices import read_network
from meshwright.capture.nvml import read_nvml
from meshwright.capture.pci_tree import AMD, NVIDIA, read_pci
from meshwright.capture.tools import Run, ask_tools, run_tool
from meshwright.findings import Finding, Place, Severity
from meshwright.origin import Origin

_LINE_CHARACTERS = 300
_GPU_CLASSES = ("03", "12")
_MAKERS = {NVIDIA: "nvidia", AMD: "amd"}


def collect(
    root: Path = Path("/"),
    *,
    run: Run = run_tool,
    nvml: Any | None = None,
    environ: Mapping[str, str] | None = None,
    version: str = "",
) -> dict[str, Any]:
    """Return what one host has as the document of ``document.Capture``, in builtins.

    Nothing is written, no privilege is needed, and nothing is raised for what the host shows.

    Parameters
    ----------
    root
        Where ``sys`` and ``proc`` are.
    run
        Runs one tool.
    nvml
        The module ``pynvml``; ``None`` where it is not installed.
    environ
        Environment variables; by default those of this process.
    version
        Version of the program, for the document.
    """
    pci = read_pci(root)
    vendors = _vendors(pci)
    seen = read_nvml(nvml)
    if isinstance(seen, Nvml) and seen.gpus:
        vendors |= {"nvidia"}
    tools, tools_missing = ask_tools(run, vendors)
    rdma = read_infiniband(root)
    cpus = read_cpus(root)
    capture = Capture(
        schema=SCHEMA,
        captured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        meshwright=version,
        host=read_host(root, os.environ if environ is None else environ),
        cpus=cpus,
        pci=pci,
        infiniband=rdma,
        network=read_network(root),
        nvml=seen if isinstance(seen, Nvml) else None,
        tools=tools,
    )
    nvml_missing = (seen,) if isinstance(seen, Missing) and "nvidia" in vendors else ()
    told = (*_gaps(capture, vendors), *nvml_missing, *tools_missing)
    document: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(capture, missing=told))
    document["findings"] = [_finding(one).to_json() for one in told]
    measured = [part for part in _MEASURED if part in document]
    document["origin"] = dict.fromkeys(measured, Origin.MEASURED.value)
    return document


def _finding(one: Missing) -> Finding:
    """Return what is missing as a finding; ``subject`` is what."""
    message = f"no {one.what}: {one.why}"
    place = Place(subject=one.what)
    return Finding("capture/missing", Severity.NOTE, place, message, {}, one.remedy)


_MEASURED = ("cpus", "pci", "infiniband", "network", "nvml", "tools")
"""Parts with numbers: all are what this host says of itself at this moment."""


def _vendors(pci: tuple[PciDevice, ...] | None) -> frozenset[str]:
    """Return whose GPUs the bus shows; without a bus they may be anybody's."""
    if pci is None:
        return frozenset(_MAKERS.values())
    return frozenset(
        _MAKERS[one.vendor]
        for one in pci
        if one.code.startswith(_GPU_CLASSES) and one.vendor in _MAKERS
    )


def _gaps(capture: Capture, vendors: frozenset[str]) -> Iterator[Missing]:
    """Yield what the kernel does not show."""
    if capture.pci is None:
        yield Missing(
            what="pci",
            why="/sys/bus/pci/devices cannot be listed: GPUs and adapters are unknown",
            remedy="run it on the host itself, or mount /sys into the container",
        )
    elif not vendors and not any(one.code.startswith("12") for one in capture.pci):
        yield Missing(
            what="gpus",
            why="the PCI bus shows no NVIDIA or AMD GPU and no other accelerator",
        )
    if not capture.infiniband:
        yield _no_rdma(capture)
    if capture.network is None:
        yield Missing(what="network", why="/sys/class/net cannot be listed")
    if capture.cpus.numa_nodes is None:
        yield Missing(
            what="numa",
            why="/sys/devices/system/node shows no NUMA node",
            remedy="mount /sys into the container, or use a kernel with NUMA support",
        )


def _no_rdma(capture: Capture) -> Missing:
    """Return why there is no RDMA device, with the adapters that might have been one."""
    adapters = [one.address for one in capture.pci or () if one.code.startswith("0207")]
    if adapters:
        return Missing(
            what="infiniband",
            why=f"{len(adapters)} InfiniBand adapters on the PCI bus ({adapters[0]} …), but "
            "/sys/class/infiniband lists none",
            remedy="load the driver (mlx5_ib); in a container, share the host's RDMA devices",
        )
    return Missing(what="infiniband", why="/sys/class/infiniband lists no RDMA device")


def to_json(document: Mapping[str, Any]) -> str:
    """Return the document as JSON text in ASCII, a record or a printed line to a line."""
    return "".join(_written(document, "")) + "\n"


def _written(value: Any, margin: str) -> Iterator[str]:
    whole = json.dumps(value)
    if not isinstance(value, dict | list | tuple) or len(whole) <= _LINE_CHARACTERS:
        yield whole
        return
    opening, closing = whole[0], whole[-1]
    named = value.items() if isinstance(value, dict) else ((None, one) for one in value)
    yield opening
    for place, (key, one) in enumerate(named):
        yield f"{',' if place else ''}\n{margin} "
        if key is not None:
            yield json.dumps(key) + ": "
        yield from _written(one, margin + " ")
    yield f"\n{margin}{closing}"
