"""The tables of ``map``: axes, who is in their groups, what they run, the busiest links."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.chain.plan import Plan
from meshwright.report.link_classes import LinkGroup, path_kinds
from meshwright.report.map_json import busiest_stage, sent_bytes, stages_differ
from meshwright.report.spans import span_classes
from meshwright.report.text import WIDTH, paragraph, table
from meshwright.routes.axis import AxisRoute
from meshwright.units import (
    format_binary_bytes,
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
)

KINDS = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "pcie": "PCIe",
    "cpu": "CPU",
    "nic": "NIC",
    "fabric": "fabric",
}
"""Link kinds as people write them, in the order of a path."""
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
CLASS_ROWS = 6
_NAME_WIDTH = 26


def axis_label(axis: str) -> str:
    """Return an axis as people write it: ``TP``, ``DP-CP``, ``dp_shard``."""
    return axis.upper() if axis.replace("-", "").isalpha() and len(axis) <= 12 else axis


def axes_table(plan: Plan) -> str:
    """Return a row an axis: groups, span, path, what a rank sends, bound."""
    rows = []
    for index, (route, bound) in enumerate(zip(plan.routes, plan.bounds, strict=True)):
        sent = sent_bytes(route)
        rows.append(
            (
                axis_label(route.axis),
                f"{format_count(route.num_groups)} × {format_count(route.degree)}",
                _span(route),
                _path(plan, index),
                _sent_text(route, sent),
                "-" if bound.bound_s is None else format_seconds(bound.bound_s),
            )
        )
    return table(("axis", "groups", "span", "path", "sent/step", "bound"), rows)


def _sent_text(route: AxisRoute, sent: float | None) -> str:
    if not route.collectives:
        return "none"
    return "not known" if sent is None else format_bytes(sent)


def _path(plan: Plan, index: int) -> str:
    """Return the kinds of links that carry an axis; in brackets where its bytes are not known."""
    kinds = path_kinds(plan, index)
    if kinds:
        return ", ".join(name for kind, name in KINDS.items() if kind in kinds)
    route = plan.routes[index]
    if not route.collectives:
        return "-"
    crossing = bool((route.islands() > 1).any())
    switched = (plan.fabric.nvlink_domain_of_slot[route.cells.slot] >= 0).all()
    parts = ["NVLink"] if switched and (route.cells.size > 1).any() else []
    parts += ["NIC"] if crossing and plan.fabric.network is not None else []
    leaf = route.span("leaf")
    parts += ["fabric"] if leaf is not None and int(leaf.crossings.max(initial=0)) > 0 else []
    return f"({', '.join(parts)})" if parts else "not known"


def _span(route: AxisRoute) -> str:
    host = route.span("host")
    if host is None:
        return "-"
    low, high = int(host.domains.min()), int(host.domains.max())
    most = int(host.members_max.max())
    hosts = f"{low}" if low == high else f"{low}-{high}"
    return f"{hosts} host{'s' if high > 1 else ''}" + (f", {most}/host" if high > 1 else "")


def groups_text(plan: Plan) -> str:
    """Say who the groups of each axis are, how far they go and what they run."""
    lines = [] if plan.outline.job.file.groups is not None else [_replicas(plan)]
    for route in plan.routes:
        lines += _class_lines(route)
        lines += _runs(route)
    return "\n".join(paragraph(line, hanging="  ") for line in lines)


def _replicas(plan: Plan) -> str:
    layout = plan.outline.layout
    size = layout.world_size // layout.dp
    many, ranks = ("s" if layout.dp > 1 else ""), ("s" if size > 1 else "")
    return f"{format_count(layout.dp)} replica{many} of the model, {format_count(size)} rank{ranks} each."


def _class_lines(route: AxisRoute) -> list[str]:
    """Return a line a class of groups, with classes that read alike taken together."""
    merged: dict[str, tuple[int, list[int], int]] = {}
    for one in span_classes(route):
        text = _class_text(one)
        count, groups, first = merged.get(text, (0, [], one["groups"][0]))
        merged[text] = (count + one["count"], groups + one["groups"], first)
    lines = []
    for text, (count, groups, first) in list(merged.items())[:CLASS_ROWS]:
        head = f"{axis_label(route.axis)}: {format_count(count)} group{'s' if count > 1 else ''}"
        if len(merged) > 1 and count <= 4:
            head += f" ({', '.join(map(str, sorted(groups)))})"
        lines.append(f"{head} {members_text(route, first)} {text}")
    if len(merged) > CLASS_ROWS:
        rest = sum(count for count, _, _ in list(merged.values())[CLASS_ROWS:])
        more = len(merged) - CLASS_ROWS
        lines.append(
            f"{axis_label(route.axis)}: {format_count(rest)} more groups in {more} other classes"
        )
    return lines


def members_text(route: AxisRoute, group: int = 0) -> str:
    """Return the members of a group: ``{r, r+4, r+8, r+12}`` where they are evenly spaced."""
    ranks = route.ranks[group].astype(np.int64)
    steps = np.diff(ranks)
    even = len(steps) > 0 and (steps == steps[0]).all()
    if even and (np.diff(route.ranks, axis=1) == steps[0]).all():
        named = ["r", *(f"r+{step}" for step in (ranks[1:] - ranks[0]).tolist())]
    else:
        named = [str(rank) for rank in ranks.tolist()]
    if len(named) > 5:
        named = [*named[:3], "…", named[-1]]
    return "{" + ", ".join(named) + "}"


def _class_text(one: dict[str, Any]) -> str:
    span = one["span"]
    host, text = span["host"], _REACH[one["reach"]]
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


def _runs(route: AxisRoute) -> list[str]:
    """Return what one rank runs a step: ``all_gather 3,072 × 64 MiB``.

    It is a rank of the stage that sends most, the one of the table above: stages differ.
    """
    stage = busiest_stage(route)
    if stage is None:
        return []
    totals: dict[tuple[str, float], float] = {}
    for one in route.collectives:
        if one.bytes_by_stage is None or one.count_by_stage is None:
            continue
        size, count = float(one.bytes_by_stage[stage]), float(one.count_by_stage[stage])
        if size and count:
            totals[one.op, size] = totals.get((one.op, size), 0.0) + count
    runs = [
        f"{op} {format_count(count)} × {format_binary_bytes(size) if size < 1 << 30 else format_bytes(size)}"
        for (op, size), count in totals.items()
    ]
    who = f", stage {stage}" if stages_differ(route) else ""
    return [f"{axis_label(route.axis)} runs a step{who}: {', '.join(runs)}"] if runs else []


def links_table(plan: Plan, every: list[LinkGroup]) -> str:
    """Return the busiest classes of links with load, rate, busy time and users."""
    groups = [group for group in every if group.load_bytes > 0]
    if not groups:
        return "No load is known: see the notes."
    text = _links_rows(plan, groups, users=2)
    if not fits(text):
        text = _links_rows(plan, groups, users=1)
    more = len(groups) - BUSY_ROWS
    if more > 0:
        text += f"\n… {more} more class{'es' if more > 1 else ''} of links: --json lists them"
    return text


def _links_rows(plan: Plan, groups: list[LinkGroup], *, users: int) -> str:
    rows = [
        (
            _link_name(plan, group),
            format_bytes(group.load_bytes),
            "unknown"
            if not group.capacity_bytes_per_s
            else format_rate(group.capacity_bytes_per_s),
            "unknown" if group.busy_s is None else format_seconds(group.busy_s),
            format_count(group.count),
            _users(group, users),
        )
        for group in groups[:BUSY_ROWS]
    ]
    return table(("busiest links", "load/step", "rate", "busy", "links", "used by"), rows)


def _link_name(plan: Plan, group: LinkGroup) -> str:
    fabric = plan.fabric
    one = fabric.links.classes[int(fabric.links.class_of_link[group.example])]
    tail = fabric.node_name(int(fabric.links.tail[group.example]))
    head = fabric.node_name(int(fabric.links.head[group.example]))
    if group.kind == "fabric":
        return _fit(f"{tail} → {head}")
    device = tail.rpartition(" ")[2]
    if not one.direction:  # inside a host both ends are told, without repeating the host
        device += f" → {head.rpartition(' ')[2]}"
        return _fit(f"{KINDS[group.kind]} {device}")
    return _fit(f"{KINDS[group.kind]} {tail} →")


def _fit(name: str) -> str:
    """Cut a name in its middle: both ends of it tell most."""
    if len(name) <= _NAME_WIDTH:
        return name
    keep = _NAME_WIDTH - 1
    return f"{name[: keep // 2]}…{name[-(keep - keep // 2) :]}"


def _users(group: LinkGroup, most: int) -> str:
    """Return the axes that load a link, with their shares; the ``most`` largest."""
    shares = sorted(group.load_by_axis.items(), key=lambda item: -item[1])
    text = ", ".join(
        f"{axis_label(axis)} {100 * load / group.load_bytes:.0f} %" for axis, load in shares[:most]
    )
    return text + (" …" if len(shares) > most else "")


def nics_text(plan: Plan, groups: list[LinkGroup]) -> str:
    """Say whether the NICs carry the same, and by how much not."""
    nics = [group for group in groups if group.kind == "nic"]
    if not any(group.load_bytes > 0 for group in nics):
        return ""
    total = sum(group.count for group in nics)
    low = format_bytes(min(group.load_bytes for group in nics))
    high = format_bytes(max(group.load_bytes for group in nics))
    rails = {int(rail) for rail in np.unique(plan.fabric.rail_of_nic) if rail >= 0}
    on_rails = f" on {len(rails)} rails" if len(rails) > 1 else ""
    if low == high:
        same = "the same" if len(nics) == 1 else "nearly the same"
        return f"All {format_count(total // 2)} NICs{on_rails} carry {same}, {low} each way a step."
    return (
        f"{format_count(total // 2)} NICs{on_rails} carry between {low} and {high} a direction and step "
        f"({len(nics)} classes)."
    )


def fits(text: str) -> bool:
    """Tell whether every line of a page fits the width."""
    return all(len(line) <= WIDTH for line in text.splitlines())
