"""The page of ``map``: verdict, findings, groups by class, the busiest links, what to trust."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.chain.plan import Plan
from meshwright.findings import Severity
from meshwright.job.layout import Layout
from meshwright.report.link_classes import LinkGroup, link_groups, path_kinds
from meshwright.report.map_json import sent_bytes
from meshwright.report.spans import span_classes
from meshwright.report.text import counted, findings_text, paragraph, table
from meshwright.routes.axis import AxisRoute
from meshwright.units import format_bytes, format_count, format_rate, format_seconds

_KINDS = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "pcie": "PCIe",
    "cpu": "CPU",
    "nic": "NIC",
    "fabric": "fabric",
}
_REACH = {
    "gpu": "one GPU",
    "host": "inside one host",
    "nvlink_domain": "inside one NVLink domain",
    "leaf": "under the same leaves",
    "spine": "across spines",
    "core": "across the core",
    "network": "between hosts",
    "none": "over fabrics that no path joins",
}
BUSY_ROWS = 8
_NAME_WIDTH = 32
CLASS_ROWS = 6


def axis_label(axis: str) -> str:
    """Return an axis as people write it: ``TP``, ``DP-CP``, ``dp_shard``."""
    return axis.upper() if axis.replace("-", "").isalpha() and len(axis) <= 12 else axis


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
    outline, layout = plan.outline, plan.outline.layout
    cluster = outline.cluster.description if outline.cluster else ""
    title = (
        f"{outline.job.name} on {format_count(layout.world_size)} GPUs ({cluster}): {degrees_text(layout)}, "
        f"order {'-'.join(layout.order)}, {layout.framework}"
    )
    groups = link_groups(plan) if plan.routes else []
    parts = [paragraph(title), paragraph(_verdict(plan, groups))]
    loud = findings_text(outline.findings, Severity.ERROR, Severity.WARNING)
    parts += [loud] if loud else []
    if plan.routes:
        parts += [_axes_table(plan), _classes_text(plan), _links_table(plan, groups)]
    quiet = findings_text(outline.findings, Severity.NOTE)
    parts += [quiet] if quiet else []
    parts.append(_trust(plan))
    return "\n\n".join(part for part in parts if part)


def _verdict(plan: Plan, groups: list[LinkGroup]) -> str:
    findings = plan.outline.findings
    text = counted(findings) + "."
    busy = [group for group in groups if group.busy_s]
    if busy:
        first = busy[0]
        axis = max(first.load_by_axis, key=first.load_by_axis.__getitem__)
        text += f" The busiest path is {_KINDS[first.kind]} under {axis_label(axis)}"
        users = sorted(
            {
                axis_label(axis)
                for group in busy
                if group.kind == "nic"
                for axis in group.load_by_axis
            }
        )
        text += (
            f"; the network is used by {', '.join(users)}."
            if users
            else "; nothing crosses the network."
        )
    return text


def _axes_table(plan: Plan) -> str:
    rows = []
    for index, (route, bound) in enumerate(zip(plan.routes, plan.bounds, strict=True)):
        kinds = path_kinds(plan, index)
        sent = sent_bytes(route)
        rows.append(
            (
                axis_label(route.axis),
                f"{format_count(route.num_groups)} × {format_count(route.degree)}",
                _span(route),
                ", ".join(_KINDS[kind] for kind in _KINDS if kinds and kind in kinds) or "-",
                "not known" if sent is None else format_bytes(sent),
                "-" if bound.bound_s is None else format_seconds(bound.bound_s),
            )
        )
    return table(("axis", "groups", "span", "path", "sent/step", "bound"), rows)


def members_text(route: AxisRoute, group: int = 0) -> str:
    """Return the members of a group: ``{r, r+4, r+8, r+12}`` where they are evenly spaced."""
    ranks = route.ranks[group].astype(np.int64)
    steps = np.diff(ranks)
    if (
        len(steps)
        and (steps == steps[0]).all()
        and (np.diff(route.ranks, axis=1) == steps[0]).all()
    ):
        named = ["r", *(f"r+{step}" for step in (ranks[1:] - ranks[0]).tolist())]
    else:
        named = [str(rank) for rank in ranks.tolist()]
    if len(named) > 5:
        named = [*named[:3], "…", named[-1]]
    return "{" + ", ".join(named) + "}"


def _span(route: AxisRoute) -> str:
    host = route.span("host")
    if host is None:
        return "-"
    low, high = int(host.domains.min()), int(host.domains.max())
    most = int(host.members_max.max())
    hosts = f"{low}" if low == high else f"{low}-{high}"
    return f"{hosts} host{'s' if high > 1 else ''}" + (f", {most}/host" if high > 1 else "")


def _classes_text(plan: Plan) -> str:
    """Say who the groups of each axis are and how far they go, a line a class of equal groups."""
    lines = [paragraph(_replicas(plan))] if plan.outline.job.file.groups is None else []
    for route in plan.routes:
        classes = span_classes(route)
        lines += [
            paragraph(_class_text(route, one, len(classes) > 1)) for one in classes[:CLASS_ROWS]
        ]
        if len(classes) > CLASS_ROWS:
            rest = sum(one["count"] for one in classes[CLASS_ROWS:])
            lines.append(
                f"{axis_label(route.axis)}: {format_count(rest)} more groups in {len(classes) - CLASS_ROWS} other classes"
            )
    return "\n".join(lines)


def _replicas(plan: Plan) -> str:
    layout = plan.outline.layout
    size = layout.world_size // layout.dp
    return f"{format_count(layout.dp)} replica{'s' if layout.dp > 1 else ''} of the model, {format_count(size)} ranks each."


def _class_text(route: AxisRoute, one: dict[str, Any], is_one_of_many: bool) -> str:
    span = one["span"]
    count, host = one["count"], span["host"]
    text = f"{axis_label(route.axis)}: {format_count(count)} group{'s' if count > 1 else ''}"
    if is_one_of_many and count <= 4:
        text += f" ({', '.join(map(str, one['groups']))})"
    text += f" {members_text(route, one['groups'][0])} {_REACH[one['reach']]}"
    if host["domains"] > 1:
        low, high = host["members"]
        each = str(low) if low == high else f"{low} to {high}"
        text += f", {each} member{'s' if high > 1 else ''} on each of {format_count(host['domains'])} hosts"
    domains = span["nvlink_domain"]["domains"] if "nvlink_domain" in span else None
    if domains and 1 < domains < host["domains"]:
        text += f", in {format_count(domains)} NVLink domains"
    if "leaf" in span and one["reach"] in ("spine", "core"):
        text += f", {format_count(span['leaf']['domains'])} leaves"
    return text


def _links_table(plan: Plan, every: list[LinkGroup]) -> str:
    groups = [group for group in every if group.load_bytes > 0]
    if not groups:
        return "No load is known: see the notes."
    rows = [
        (
            _link_name(plan, group),
            format_bytes(group.load_bytes),
            "no rate" if group.busy_s is None else format_seconds(group.busy_s),
            format_count(group.count),
            _users(group),
        )
        for group in groups[:BUSY_ROWS]
    ]
    text = table(("busiest links", "load/step", "busy", "links", "used by"), rows)
    more = len(groups) - BUSY_ROWS
    return (
        text
        + (f"\n… {more} more classes of links: --json lists them" if more > 0 else "")
        + "\n\n"
        + _rails(plan, every)
    )


def _link_name(plan: Plan, group: LinkGroup) -> str:
    fabric = plan.fabric
    tail = fabric.node_name(int(fabric.links.tail[group.example]))
    name = f"{_KINDS[group.kind]} {tail} →"
    head = fabric.node_name(int(fabric.links.head[group.example]))
    direct = not fabric.links.classes[int(fabric.links.class_of_link[group.example])].direction
    if group.kind == "fabric":
        name = f"{tail} → {head}"
    elif direct:  # inside a host both ends are told, without repeating the host
        name = f"{name} {head.rpartition(' ')[2]}"
    return name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + "…"


def _users(group: LinkGroup) -> str:
    """Return the axes that load a link, with their shares; at most two."""
    shares = sorted(group.load_by_axis.items(), key=lambda item: -item[1])
    text = ", ".join(
        f"{axis_label(axis)} {100 * load / group.load_bytes:.0f} %" for axis, load in shares[:2]
    )
    return text + (", …" if len(shares) > 2 else "")


def _rails(plan: Plan, groups: list[LinkGroup]) -> str:
    """Say whether the NICs carry the same, and by how much not."""
    nics = [group for group in groups if group.kind == "nic"]
    if not any(group.load_bytes > 0 for group in nics):
        return ""
    loads = [group.load_bytes for group in nics]
    total = sum(group.count for group in nics)
    if len(nics) == 1:
        rails = {int(rail) for rail in set(plan.fabric.rail_of_nic.tolist()) if rail >= 0}
        return paragraph(
            f"All {format_count(total // 2)} NICs"
            + (f" on {len(rails)} rails" if len(rails) > 1 else "")
            + f" carry the same, {format_bytes(loads[0])} each way a step, of {format_rate(nics[0].capacity_bytes_per_s or 0)}."
        )
    return paragraph(
        f"NICs carry between {format_bytes(min(loads))} and {format_bytes(max(loads))} a direction and step "
        f"({len(nics)} classes over {format_count(total // 2)} NICs)."
    )


def _trust(plan: Plan) -> str:
    lines = [
        "Bounds are bytes over the slowest link's rate: nothing can be faster, real runs are slower.",
        "Simulated from stated and assumed figures; does not validate your environment.",
    ]
    for route in plan.routes:
        for one in route.collectives:
            if one.bytes_by_stage is not None and one.op in (
                "all_gather",
                "all_reduce",
                "reduce_scatter",
            ):
                size = int(one.bytes_by_stage.max())
                lines.append(
                    f"Measure it with nccl-tests, {axis_label(route.axis)} group by group: {one.op}_perf -b {size} -e {size}"
                )
                return "\n".join(paragraph(line) for line in lines)
    return "\n".join(paragraph(line) for line in lines)
