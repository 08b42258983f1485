"""Hosts whose GPUs may reach those of other hosts by NVLink: trays of a rack with NVLink switches.

A host's own files say nothing of the rack: a matrix of one tray shows four GPUs behind a switch,
and so does a box of its own. What tells a tray is the GPU model, or Grace memory (a NUMA node for
every GPU, the matrix's last column) beside four GPUs with all links into a switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import GpuModel, UnknownGpuError, common_gpu, find_gpu
from meshwright.cluster.join.kinds import has_domains
from meshwright.findings import Finding, Place, Severity

GPU_NUMA_IDS = "gpu_numa_ids"
"""Key of ``Facts.counts``: GPUs whose memory is a NUMA node, as that of Grace superchips."""
_RACK = "NVL72"
_TRAY_GPUS = 4
_ALL_LINKS = 18
_RULE = "topology/nvlink-domain-unknown"
_REMEDY = (
    'nvlink_domains: {rack01: "rack01-tray[01-18]", …}, or {from: …} a file that names them: '
    "nvidia-smi -q of all hosts (Fabric: ClusterUUID, CliqueId), or node labels (nvidia.com/gpu.clique)"
)
DOMAINS_MISSING = (
    "which hosts are one NVLink domain (nvlink_domains: from nvidia-smi -q of all hosts or node "
    "labels); without it each host is one of its own"
)


def rack_scale(facts: Facts) -> bool:
    """Tell whether the GPUs of this host may be part of a larger NVLink domain."""
    model = common_gpu(gpu.model for gpu in facts.gpus or ())
    if model is not None:
        return is_rack_scale(model)
    pairs = facts.nvlink_pairs or ()
    return (
        bool(facts.counts.get(GPU_NUMA_IDS))
        and 1 < len(facts.gpus or ()) <= _TRAY_GPUS
        and bool(pairs)
        and max(pair.count for pair in pairs) >= _ALL_LINKS
    )


def is_rack_scale(model: GpuModel) -> bool:
    """Tell whether a GPU model is built into racks of one NVLink domain."""
    return _RACK in model.scaleup


def rack_scale_name(name: str | None) -> bool:
    """Tell the same of a model's name."""
    try:
        return name is not None and is_rack_scale(find_gpu(name))
    except UnknownGpuError:
        return False


def of_sources(sources: Sequence[Facts], hosts: Iterable[Facts]) -> list[Finding]:
    """Return the note that no source names the NVLink domains of ``hosts``, where they may have any."""
    if any(has_domains(facts) for facts in sources):
        return []
    found = [facts for facts in hosts if rack_scale(facts)]
    return [domain_unknown(Place(found[0].path), found[0], None)] if found else []


def domain_unknown(place: Place, facts: Facts | None, num_hosts: int | None) -> Finding:
    """Return the finding that the NVLink domain is unknown; a warning where it changes routes.

    ``num_hosts``: those of the cluster, each taken as a domain of its own; ``None``: not said.
    """
    model = common_gpu(gpu.model for gpu in facts.gpus or ()) if facts is not None else None
    what = f"{model.name}s" if model is not None else "GPUs with Grace memory"
    several = num_hosts is not None and num_hosts > 1
    message = (
        f"hosts with {what} are trays of a rack whose GPUs are one NVLink domain, and no source "
        "names the domains"
    )
    if several:
        message += (
            f": each of the {num_hosts} hosts is taken as one of its own, so traffic between "
            "trays of a rack is put on the network"
        )
    severity = Severity.WARNING if several else Severity.NOTE
    return Finding(_RULE, severity, place, message, {"hosts": num_hosts}, _REMEDY)
