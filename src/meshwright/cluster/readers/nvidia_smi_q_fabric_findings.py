"""The ``Fabric`` block of ``nvidia-smi -q``, second step: GPUs that are not well in their fabric."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.cluster.readers.document_values import shown
from meshwright.cluster.readers.nvidia_smi_q_fabric_gpus import FabricGpu, domain_of
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural

_LISTED = 100
_Named = Sequence[tuple[str, list[FabricGpu]]]


def host_assumed(host: str, path: str, line: int) -> Finding:
    """Say that a host is called after its file."""
    message = (
        f"the text does not say which host it is of; it is called {host}, after the file, so "
        "another source that names this host must call it so too"
    )
    remedy = "name the file after the host, or collect with a host before each line (pdsh, clush)"
    place = Place(path, line, 1)
    return Finding(
        "assumed/host-from-file-name", Severity.NOTE, place, message, {"host": host}, remedy
    )


def fabric_findings(hosts: _Named, path: str) -> list[Finding]:
    """Return GPUs not registered, GPUs called unhealthy, and hosts whose GPUs differ."""
    every = [(host, gpu) for host, gpus in hosts for gpu in gpus]
    states = [(host, gpu, _state(gpu)) for host, gpu in every]
    waiting = [(host, gpu, state) for host, gpu, state in states if state is not None]
    found = []
    if waiting:
        _, gpu, state = waiting[0]
        message = (
            f"{len(waiting)} of {len(every)} GPUs are not registered in their NVLink fabric "
            f"({_names(waiting)}: {state}); they are in no NVLink domain"
        )
        remedy = (
            "look at the fabric manager (nvidia-fabricmanager, or NMX on a rack) and nvidia-smi -q"
        )
        found.append(_finding("fabric-not-registered", path, gpu, message, waiting, remedy))
    sick = [(host, gpu, gpu.health) for host, gpu in every if _is_sick(gpu.health)]
    if sick:
        message = (
            f"{len(sick)} of {len(every)} GPUs have an unhealthy NVLink fabric ({_names(sick)})"
        )
        remedy = "see Health under Fabric in nvidia-smi -q: bandwidth, routes, access timeouts"
        found.append(_finding("fabric-unhealthy", path, sick[0][1], message, sick, remedy))
    return [*found, *_differing(hosts, path)]


def _state(gpu: FabricGpu) -> str | None:
    """Return what keeps a GPU out of its fabric; none where the driver gives no state."""
    if gpu.state is None or gpu.state == "unknown":
        return None
    if gpu.state.lower() != "completed":
        return None if gpu.state.lower() == "not supported" else f"state {gpu.state[:40]}"
    status = gpu.status or "Success"
    return None if status.lower() == "success" else f"status {status[:40]}"


def _is_sick(health: str | None) -> bool:
    return health is not None and health.lower() not in ("healthy", "not supported")


def _names(gpus: Sequence[tuple[str, FabricGpu, str | None]]) -> str:
    return shown([f"{host} GPU{gpu.index}" for host, gpu, _ in gpus])


def _finding(
    rule: str,
    path: str,
    gpu: FabricGpu,
    message: str,
    gpus: Sequence[tuple[str, FabricGpu, str | None]],
    remedy: str,
) -> Finding:
    named: list[Number] = [[host, one.index] for host, one, _ in gpus[:_LISTED]]
    return Finding(
        f"topology/{rule}",
        Severity.WARNING,
        Place(path, gpu.line, 1, f"GPU{gpu.index}"),
        message,
        {"count": len(gpus), "gpus": named},
        remedy,
    )


def _differing(hosts: _Named, path: str) -> list[Finding]:
    odd = [(host, gpus) for host, gpus in hosts if len({domain_of(gpu) for gpu in gpus}) > 1]
    if not odd:
        return []
    host, gpus = odd[0]
    message = (
        f"{plural(len(odd), 'host')} {'has' if len(odd) == 1 else 'have'} GPUs of more than one NVLink domain, or some in none "
        f"({shown([name for name, _ in odd])}); such a host is put in no domain"
    )
    numbers: dict[str, Number] = {"count": len(odd), "hosts": [name for name, _ in odd[:_LISTED]]}
    place = Place(path, gpus[0].line, 1, host)
    return [
        Finding("topology/fabric-differs-in-host", Severity.WARNING, place, message, numbers, None)
    ]
