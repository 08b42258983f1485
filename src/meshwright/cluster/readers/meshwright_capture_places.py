"""A capture's host in the network: its NVLink domain by the driver, its switches by Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshwright.capture.document import Capture, GpuFabric
from meshwright.cluster.facts import HostPlace
from meshwright.documents import Decoded
from meshwright.findings import Finding, Severity

_NO_UUID = re.compile(r"[0-]*\Z")
_SHOWN = 8
_MAX_TIERS = 16
_DEGRADED_BITS = 0b11
_DEGRADED = 1
"""``NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE``, the lowest two bits of the mask."""


def host_place(capture: Capture) -> HostPlace:
    """Return the host's place; both parts may be unknown."""
    domains = _domains(capture)
    domain = domains.pop() if len(domains) == 1 else None
    return HostPlace(capture.host.name, _tiers(capture), domain)


def domain_of(fabric: GpuFabric | None) -> str | None:
    """Return cluster UUID and clique id as Kubernetes labels write them; no UUID is no domain."""
    if fabric is None or fabric.state != "completed" or fabric.status not in (0, None):
        return None
    uuid = (fabric.cluster_uuid or "").lower()
    if _NO_UUID.match(uuid) or fabric.clique_id is None:
        return None
    return f"{uuid}.{fabric.clique_id}"


def _domains(capture: Capture) -> set[str]:
    """Return the domains of the GPUs; one GPU without any is no sign of another."""
    gpus = capture.nvml.gpus if capture.nvml else ()
    return {domain for gpu in gpus if (domain := domain_of(gpu.fabric)) is not None}


def _tiers(capture: Capture) -> tuple[str, ...]:
    """Return Slurm's switches above the node, nearest first, where the address names them all."""
    slurm = capture.host.slurm
    if slurm is None or not slurm.topology_address or not slurm.topology_pattern:
        return ()
    names = slurm.topology_address.split(".")
    kinds = slurm.topology_pattern.split(".")
    switches = kinds[:-1]
    # A switch whose name has a dot, or one of several possible ([s1-2]), cannot be told.
    sound = len(names) == len(kinds) and kinds[-1] == "node" and set(switches) == {"switch"}
    if not sound or len(switches) > _MAX_TIERS or any("[" in name or not name for name in names):
        return ()
    return tuple(reversed(names[:-1]))


def domain_findings(captured: Decoded[Capture], capture: Capture) -> Iterator[Finding]:
    """Yield what is wrong with the GPUs' registration at the NVLink fabric."""
    gpus = capture.nvml.gpus if capture.nvml else ()
    place = captured.place("nvml.gpus")
    domains = sorted(_domains(capture))
    if len(domains) > 1:
        yield Finding(
            "topology/nvlink-domains-differ",
            Severity.WARNING,
            place,
            f"the GPUs of this host are in {len(domains)} NVLink domains "
            f"({', '.join(domains[:_SHOWN])}); the host is taken as in none",
            {"domains": [*domains[:_SHOWN]]},
            "look at the partitions of the fabric manager",
        )
    waiting = [gpu.index for gpu in gpus if gpu.fabric and _is_waiting(gpu.fabric)]
    if waiting:
        yield Finding(
            "topology/gpu-fabric-not-ready",
            Severity.WARNING,
            place,
            f"{_gpus(waiting)}: not registered at the NVLink fabric, so jobs on them fail at start",
            {"gpus": [*waiting[:_SHOWN]], "count": len(waiting)},
            "start nvidia-fabricmanager (on GB200: nvidia-imex as well); nvidia-smi -q shows Fabric",
        )
    degraded = [
        gpu.index
        for gpu in gpus
        if gpu.fabric and (gpu.fabric.health_mask or 0) & _DEGRADED_BITS == _DEGRADED
    ]
    if degraded:
        yield Finding(
            "topology/gpu-fabric-degraded",
            Severity.WARNING,
            place,
            f"{_gpus(degraded)}: the driver says that NVLink bandwidth is degraded",
            {"gpus": [*degraded[:_SHOWN]], "count": len(degraded)},
            "look for links that are down: nvidia-smi nvlink -s, and at the fabric manager",
        )


def _is_waiting(fabric: GpuFabric) -> bool:
    failed = fabric.state == "completed" and fabric.status not in (0, None)
    return failed or fabric.state in ("not_started", "in_progress")


def _gpus(numbers: list[int]) -> str:
    more = ", …" if len(numbers) > _SHOWN else ""
    return ", ".join(f"GPU{number}" for number in numbers[:_SHOWN]) + more
