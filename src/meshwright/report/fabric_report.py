"""What a cluster file comes to: hosts by kind, switches and links by tier, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshwright.chain.cluster_of_job import Cluster
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.network import Network
from meshwright.findings import Finding, Severity, by_severity
from meshwright.origin import Origin
from meshwright.report.text import counted, findings_text, paragraph, table
from meshwright.units import format_count, format_rate

_LISTED = 10_000
"""Longer lists become ``{count}`` unless all is asked for."""

_LABELS = {"gpus": "GPUs", "nics": "NICs", "components": "parts that no cable joins"}


def cluster_report_json(cluster: Cluster, path: str, *, full: bool) -> dict[str, Any]:
    """Return the document of ``topo --json`` for a cluster file."""
    fabric = cluster.fabric
    hosts = fabric.host_names
    switches = fabric.network.switch_names if fabric.network is not None else None
    return {
        "schema": "meshwright/topo/1",
        "files": [{"path": path, "format": "cluster"}],
        "description": cluster.description,
        "hosts": _cut(hosts, full=full),
        "switches": None if switches is None else _cut(switches, full=full),
        "nvlink_domains": _domains(fabric),
        "tiers": dict(_tiers(fabric)),
        "node_types": [
            {"name": node.name, "gpus": node.num_gpus, "nics": len(node.nics), "hosts": count}
            for node, count in _types(fabric)
        ],
        "link_classes": _classes(fabric),
        "findings": [finding.to_json() for finding in by_severity(list(cluster.findings))],
        "origin": {"hosts": Origin.PARSED.value, "tiers": Origin.MODELLED.value},
    }


def _cut(values: Sequence[str], *, full: bool) -> Any:
    return list(values) if full or len(values) <= _LISTED else {"count": len(values)}


def _types(fabric: Fabric) -> list[tuple[Any, int]]:
    counts = np.bincount(fabric.type_of_host, minlength=len(fabric.node_types)).tolist()
    return [pair for pair in zip(fabric.node_types, counts, strict=True) if pair[1]]


def _domains(fabric: Fabric) -> dict[str, Any]:
    """Return the number of NVLink domains, and how many hosts they hold."""
    known = fabric.nvlink_domain_of_slot >= 0
    width = int(fabric.nvlink_domain_of_slot.max(initial=0)) + 1
    pairs = np.unique(
        fabric.host_of_slot[known].astype(np.int64) * width + fabric.nvlink_domain_of_slot[known]
    )
    hosts = np.bincount(pairs % width) if len(pairs) else np.zeros(0, dtype=np.int64)
    hosts = hosts[hosts > 0]
    if not len(hosts):
        return {"count": 0, "hosts": None}
    return {"count": len(hosts), "hosts": [int(hosts.min()), int(hosts.max())]}


def _tiers(fabric: Fabric) -> list[tuple[str, int | None]]:
    """Return what is there, nearest first; ``None`` is unknown."""
    rows: list[tuple[str, int | None]] = [
        ("gpus", fabric.num_slots),
        ("hosts", fabric.num_hosts),
        ("nics", len(fabric.host_of_nic)),
    ]
    network = fabric.network
    if network is None:
        return [*rows, ("leaves", None), ("units", None), ("spines", None)]
    return rows + _switch_tiers(network)


def _switch_tiers(network: Network) -> list[tuple[str, int | None]]:
    leaves = np.unique(network.switch_of_leaf)
    cables = network.cables
    rows: list[tuple[str, int | None]] = [
        ("leaves", len(leaves)),
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


def cluster_report_text(cluster: Cluster, path: str) -> str:
    """Return the page of ``topo`` for a cluster file."""
    findings = cluster.findings
    fabric = cluster.fabric
    parts = [
        paragraph(f"{path}: cluster file. {cluster.description}. {counted(findings)}."),
        findings_text(findings, Severity.ERROR, Severity.WARNING),
        _tier_text(fabric),
        _link_text(fabric),
        findings_text(findings, Severity.NOTE),
    ]
    return "\n\n".join(part for part in parts if part)


def _tier_text(fabric: Fabric) -> str:
    rows = [
        (_LABELS.get(name, name), "not known" if count is None else format_count(count))
        for name, count in _tiers(fabric)
    ]
    domains = _domains(fabric)
    if domains["count"]:
        least, most = domains["hosts"]
        size = f"{least}" if least == most else f"{least} to {most}"
        rows.append(("NVLink domains", f"{format_count(domains['count'])} of {size} hosts"))
    return table(("tier", "count"), rows)


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


def cluster_findings(cluster: Cluster) -> list[Finding]:
    """Return the findings of a cluster file, errors first."""
    return by_severity(list(cluster.findings))
