"""What a cluster file comes to: hosts by kind, switches and links by tier, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshwright.chain.cluster_of_job import Cluster
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.hostlist import compress_hostlist
from meshwright.cluster.networks.network import Network
from meshwright.findings import Finding, Severity, by_severity
from meshwright.origin import Origin
from meshwright.report.text import counted, findings_text, paragraph, table
from meshwright.units import format_count, format_rate, plural

_LISTED = 10_000
"""Longer lists become ``{count}`` unless all is asked for."""

_LABELS = {
    "gpus": "GPUs",
    "nics": "NICs",
    "nics on leaves": "NICs on leaves",
    "components": "parts that no cable joins",
}


def cluster_report_json(
    cluster: Cluster, path: str, findings: Sequence[Finding], *, full: bool
) -> dict[str, Any]:
    """Return the document of ``topo --json`` for a cluster file."""
    fabric = cluster.fabric
    hosts = fabric.host_names
    switches = fabric.network.switch_names if fabric.network is not None else None
    return {
        "schema": "meshwright/topo/1",
        "files": [{"path": path, "format": "cluster"}],
        "description": cluster.description,
        "hosts": _cut(hosts, full=full),
        "allocation": None if cluster.allocation is None else _cut(cluster.allocation, full=full),
        "switches": None if switches is None else _cut(switches, full=full),
        **_lists(fabric, full=full),
        "nvlink_domains": _domains_json(fabric, full=full),
        "tiers": dict(_tiers(fabric)),
        "node_types": [
            {"name": node.name, "gpus": node.num_gpus, "nics": len(node.nics), "hosts": count}
            for node, count in _types(fabric)
        ],
        "link_classes": _classes(fabric),
        "findings": [finding.to_json() for finding in by_severity(findings)],
        "origin": {"hosts": Origin.PARSED.value, "tiers": Origin.MODELLED.value},
    }


def _cut(values: Sequence[str], *, full: bool) -> Any:
    return list(values) if full or len(values) <= _LISTED else {"count": len(values)}


def _lists(fabric: Fabric, *, full: bool) -> dict[str, Any]:
    """Return GPUs, NICs and cables as for a source; null where a cluster file has no such thing."""
    lists: dict[str, Any] = dict.fromkeys(
        ("other_devices", "nvswitches", "nvlink_pairs", "numa_nodes", "nearest_nic", "links")
    )
    slots, nics, network = fabric.num_slots, len(fabric.host_of_nic), fabric.network
    lists |= {"gpus": {"count": slots}, "nics": {"count": nics}}
    if full or slots <= _LISTED:
        names = map(fabric.slot_name, range(slots))
        lists["gpus"] = [{"host": host, "index": gpu} for host, gpu in names]
    if full or nics <= _LISTED:
        lists["nics"] = [_nic(fabric, nic) for nic in range(nics)]
    if network is not None:
        cables = network.cables
        wired = np.flatnonzero(fabric.leaf_of_nic >= 0)
        lists["links"] = {"count": len(cables) + len(wired)}
        if full or len(cables) + len(wired) <= _LISTED:
            ends = np.stack([cables.lower, cables.upper], axis=1).tolist()
            named = [[network.switch_names[a], network.switch_names[b]] for a, b in ends]
            mine = [[fabric.nic_name(nic), _leaf(fabric, nic)] for nic in wired.tolist()]
            lists["links"] = [{"a": a, "b": b} for a, b in [*mine, *named]]
    return lists


def _nic(fabric: Fabric, nic: int) -> dict[str, Any]:
    host, _, name = fabric.nic_name(nic).partition(" ")
    return {"host": host, "name": name, "leaf": _leaf(fabric, nic)}


def _leaf(fabric: Fabric, nic: int) -> str | None:
    leaf = int(fabric.leaf_of_nic[nic])
    if leaf < 0 or fabric.network is None:
        return None
    return fabric.network.switch_names[int(fabric.network.switch_of_leaf[leaf])]


def _types(fabric: Fabric) -> list[tuple[Any, int]]:
    counts = np.bincount(fabric.type_of_host, minlength=len(fabric.node_types)).tolist()
    return [pair for pair in zip(fabric.node_types, counts, strict=True) if pair[1]]


def _domain_of_host(fabric: Fabric) -> list[tuple[int, int]]:
    """Return the (NVLink domain, host) pairs, by domain."""
    known = fabric.nvlink_domain_of_slot >= 0
    width = fabric.num_hosts
    pairs = np.unique(
        fabric.nvlink_domain_of_slot[known].astype(np.int64) * width + fabric.host_of_slot[known]
    )
    return list(zip((pairs // width).tolist(), (pairs % width).tolist(), strict=True))


def _domains(fabric: Fabric) -> dict[int, list[int]]:
    """Return the hosts of each NVLink domain."""
    domains: dict[int, list[int]] = {}
    for domain, host in _domain_of_host(fabric):
        domains.setdefault(domain, []).append(host)
    return domains


def _domains_json(fabric: Fabric, *, full: bool) -> Any:
    domains = _domains(fabric)
    if not full and len(domains) > _LISTED:
        return {"count": len(domains)}
    return [
        {
            "name": fabric.nvlink_domain_names[domain],
            "hosts": [fabric.host_names[host] for host in hosts],
        }
        for domain, hosts in domains.items()
    ]


def _tiers(fabric: Fabric) -> list[tuple[str, int | None]]:
    """Return what is there, nearest first; ``None`` is unknown."""
    rows: list[tuple[str, int | None]] = [
        ("gpus", fabric.num_slots),
        ("hosts", fabric.num_hosts),
        ("nics", len(fabric.host_of_nic)),
    ]
    network = fabric.network
    if network is not None:
        rows.append(("nics on leaves", int((fabric.leaf_of_nic >= 0).sum())))
    if network is None:
        return [*rows, ("leaves", None), ("units", None), ("spines", None)]
    return rows + _switch_tiers(network)


def _switch_tiers(network: Network) -> list[tuple[str, int | None]]:
    leaves = np.unique(network.switch_of_leaf)
    cables = network.cables
    rows: list[tuple[str, int | None]] = [
        ("leaves", network.leaf_switches),
        ("units", len(np.unique(network.unit_of_leaf))),
        ("pods", len(np.unique(network.pod_of_leaf))),
    ]
    below = leaves
    for name, tier in (("spines", "leaf-spine"), ("cores", "spine-core")):
        index = cables.tier_names.index(tier) if tier in cables.tier_names else -1
        upper = np.setdiff1d(np.unique(cables.upper[cables.tier == index]), below)
        rows.append((name, len(upper)))
        below = np.union1d(below, upper)
    rows.append(("components", len(np.unique(network.component_of_leaf))))
    return rows


def _classes(fabric: Fabric) -> list[dict[str, Any]]:
    """Return the classes of equal links; each direction is a link."""
    counts = np.bincount(fabric.links.class_of_link, minlength=len(fabric.links.classes))
    return [
        {
            "kind": one.kind,
            "direction": one.direction,
            "tier": one.tier,
            "count": count,
            "capacity_bytes_per_s": one.capacity_bytes_per_s,
            "origin": one.origin.value,
        }
        for one, count in zip(fabric.links.classes, counts.tolist(), strict=True)
        if count
    ]


def cluster_report_text(cluster: Cluster, path: str, findings: Sequence[Finding]) -> str:
    """Return the page of ``topo`` for a cluster file."""
    fabric = cluster.fabric
    parts = [
        paragraph(f"{path}: cluster file. {cluster.description}. {counted(findings)}."),
        findings_text(findings, Severity.ERROR, Severity.WARNING),
        _tier_text(cluster),
        _link_text(fabric),
        findings_text(findings, Severity.NOTE),
    ]
    return "\n\n".join(part for part in parts if part)


def _tier_text(cluster: Cluster) -> str:
    fabric = cluster.fabric
    rows = [
        (_LABELS.get(name, name), "not known" if count is None else format_count(count))
        for name, count in _tiers(fabric)
    ]
    sizes = [len(hosts) for hosts in _domains(fabric).values()]
    if sizes:
        least, most = min(sizes), max(sizes)
        size = f"{least}" if least == most else f"{least} to {most}"
        hosts = "host" if most == 1 else "hosts"
        rows.append(("NVLink domains", f"{format_count(len(sizes))} of {size} {hosts}"))
    if cluster.allocation is not None:
        given = plural(len(cluster.allocation), "host")
        rows.append(("allocation", f"{given}: {_cut_text(compress_hostlist(cluster.allocation))}"))
    return table(("tier", "count"), rows)


def _cut_text(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 2] + " …"


def _link_text(fabric: Fabric) -> str:
    merged: dict[tuple[str, str, str, str], int] = {}
    for one in _classes(fabric):
        rate = one["capacity_bytes_per_s"]
        key = (
            one["kind"],
            one["tier"] or "-",
            format_rate(rate) if rate else "not known",
            one["origin"],
        )
        merged[key] = merged.get(key, 0) + one["count"]
    rows = [
        (kind, tier, format_count(count), rate, origin)
        for (kind, tier, rate, origin), count in merged.items()
    ]
    if not rows:
        return ""
    return table(("links (each direction)", "tier", "count", "rate", "origin"), rows)
