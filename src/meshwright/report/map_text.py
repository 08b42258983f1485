"""The page of ``map``: verdict, findings, groups by class, the busiest links, what to trust."""

from __future__ import annotations

import numpy as np

from meshwright.chain.plan import Plan
from meshwright.findings import Severity
from meshwright.job.layout import Layout
from meshwright.origin import Origin
from meshwright.report.link_classes import LinkGroup, link_groups
from meshwright.report.map_tables import (
    KINDS,
    axes_table,
    axis_label,
    groups_text,
    links_table,
    nics_text,
)
from meshwright.report.text import counted, findings_text, paragraph
from meshwright.units import format_count


def degrees_text(layout: Layout) -> str:
    """Return ``TP 4 × DP 4``: the degrees above 1."""
    names = ("tp", "cp", "pp", "dp", "ep", "etp")
    parts = [
        f"{name.upper()} {getattr(layout, name)}"
        for name in names
        if getattr(layout, name) > 1 and (name != "etp" or layout.has_experts)
    ]
    return " × ".join(parts) or "one rank"


def map_text(plan: Plan) -> str:
    """Return the whole page."""
    findings = plan.outline.findings
    groups = link_groups(plan) if plan.routes else []
    parts = [paragraph(_title(plan)), paragraph(_verdict(plan, groups))]
    parts.append(findings_text(findings, Severity.ERROR, Severity.WARNING))
    if plan.routes:
        parts += [axes_table(plan), groups_text(plan), links_table(plan, groups)]
        parts.append(paragraph(nics_text(plan, groups)))
    parts.append(findings_text(findings, Severity.NOTE))
    parts.append(_trust(plan, groups))
    return "\n\n".join(part for part in parts if part)


def _title(plan: Plan) -> str:
    outline, layout = plan.outline, plan.outline.layout
    cluster = outline.cluster.description if outline.cluster else ""
    if outline.job.file.groups is not None:
        return f"{len(outline.kinds)} explicit groups on {plan.fabric.num_slots} GPUs ({cluster})"
    name = outline.job.name if outline.model is not None else f"job {outline.job.name}"
    return (
        f"{name} on {format_count(layout.world_size)} GPUs ({cluster}): {degrees_text(layout)}, "
        f"{_order_text(layout)}{layout.framework}"
    )


def _order_text(layout: Layout) -> str:
    """Return the order of the axes; a mesh of its own (MaxText) has another."""
    return "" if layout.jax_mesh is not None else f"order {'-'.join(layout.order)}, "


def _verdict(plan: Plan, groups: list[LinkGroup]) -> str:
    """Return counts of findings, the busiest path, who uses the network, and what is not known."""
    text = counted(plan.outline.findings) + "."
    busy = [group for group in groups if group.busy_s]
    if busy:
        axis = max(busy[0].load_by_axis, key=busy[0].load_by_axis.__getitem__)
        text += f" The busiest path with a known load is {KINDS[busy[0].kind]} under {axis_label(axis)}."
    if not plan.routes:
        return text
    users = {axis for group in groups if group.kind == "nic" for axis in group.load_by_axis}
    speaking = [route for route in plan.routes if route.collectives]
    crossing = [route for route in speaking if (route.islands() > 1).any()]
    silent = [route.axis for route in crossing if route.axis not in users]
    if users:
        text += f" The network is used by {', '.join(axis_label(axis) for axis in sorted(users))}"
        text += f" (and {_labels(silent)}, load not known)." if silent else "."
    elif silent:
        verb = "crosses" if len(silent) == 1 else "cross"
        text += f" {_labels(silent)} {verb} the network, load not known."
    else:
        text += " Nothing crosses the network."
    return text


def _labels(axes: list[str]) -> str:
    return ", ".join(axis_label(axis) for axis in axes)


def _trust(plan: Plan, groups: list[LinkGroup]) -> str:
    """Say what the figures are worth, where rates come from, and how to measure."""
    lines = [
        "Bounds are bytes over the slowest link's rate: where that is true nothing can be faster."
    ]
    rates = _rate_origins(plan, groups)
    lines += [f"Rates: {rates}."] if rates else []
    if any(group.kind == "fabric" and group.load_bytes > 0 for group in groups):
        lines.append(_routing(plan))
    lines.append("Simulated; does not validate your environment.")
    measure = _measure(plan, groups)
    lines += [measure] if measure else []
    return "\n".join(paragraph(line) for line in lines)


def _routing(plan: Plan) -> str:
    """Say how flows find their way through the fabric."""
    network = plan.fabric.network
    if network is not None and network.routing == "tables":
        return "Ways through the fabric: by its forwarding tables (parsed), one way a flow."
    return (
        "Ways through the fabric: spread evenly over all shortest ones (modelled; static or hashed routing "
        "can load some cables more)."
    )


def _rate_origins(plan: Plan, groups: list[LinkGroup]) -> str:
    """Return ``NVLink stated, NIC assumed``: the origin of the rates of loaded links."""
    links = plan.fabric.links
    found: dict[str, str] = {}
    for group in groups:
        if group.load_bytes > 0:
            one = links.classes[int(links.class_of_link[group.example])]
            origin = Origin(one.origin).value if one.capacity_bytes_per_s else "unknown"
            found.setdefault(KINDS[one.kind], origin)
    return ", ".join(f"{kind} {origin}" for kind, origin in found.items())


def _measure(plan: Plan, groups: list[LinkGroup]) -> str:
    """Return the nccl-tests command for the axis that keeps the busiest link busy."""
    busy = [group for group in groups if group.busy_s]
    if not busy:
        return ""
    axis = max(busy[0].load_by_axis, key=busy[0].load_by_axis.__getitem__)
    route = next(route for route in plan.routes if route.axis == axis)
    sizes = [
        (int(np.max(one.bytes_by_stage)), one.op)
        for one in route.collectives
        if one.bytes_by_stage is not None and one.op != "send" and one.remark is None
    ]
    if not sizes:
        return ""
    size, op = max(sizes)
    test = {"all_to_all": "alltoall"}.get(op, op)
    return f"Measure {axis_label(axis)} with nccl-tests, one group at a time: {test}_perf -b {size} -e {size}"
