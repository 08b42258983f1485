"""The JSON of ``map``: the keys of the interface, made from a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.chain.plan import Plan
from meshwright.findings import by_severity
from meshwright.origin import Origin, weakest
from meshwright.placement.place import Placement
from meshwright.report.link_classes import (
    LinkGroup,
    busiest_links,
    link_groups,
    load_by_axis,
    path_kinds,
)
from meshwright.report.spans import span_classes, span_json
from meshwright.report.text import if_sensible
from meshwright.routes.axis import AxisRoute
from meshwright.routes.reach import host_components
from meshwright.traffic.collective import Collective

LISTED_LINKS = 10_000
"""Above so many links only classes and the busiest are printed."""
SCHEMA = "meshwright/map/1"


def map_json(plan: Plan, *, list_links: bool = True) -> dict[str, Any]:
    """Return the document of ``map --json``."""
    outline = plan.outline
    layout = outline.layout
    return {
        "schema": SCHEMA,
        "job": outline.job.name,
        "world_size": if_sensible(layout.world_size),
        "layout": layout_json(plan),
        "cluster": cluster_json(plan),
        "axes": [_axis(plan, index) for index in range(len(plan.routes))],
        "unrouted": [_unrouted(one) for one in plan.unrouted],
        "links": _links(plan, list_links=list_links),
        "placement": _placement(plan),
        "reachability": _reachability(plan),
        "simulated": True,
        "findings": [finding.to_json() for finding in by_severity(outline.findings)],
        "origin": _origins(plan),
    }


def layout_json(plan: Plan) -> dict[str, Any]:
    """Return the resolved layout: degrees, order, framework and what was assumed."""
    layout = plan.outline.layout
    return {
        "tp": layout.tp,
        "cp": layout.cp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.ep,
        "etp": layout.etp,
        "edp": if_sensible(layout.edp),
        "vp": layout.vp,
        "dp_replicate": if_sensible(layout.dp_replicate),
        "dp_shard": if_sensible(layout.dp_shard),
        "order": "-".join(layout.order),
        "framework": layout.framework,
        "framework_version": layout.framework_version,
        "sequence_parallel": layout.sequence_parallel,
        "sharding": layout.sharding,
        "assumed": sorted(layout.assumed),
    }


def cluster_json(plan: Plan) -> dict[str, Any]:
    """Return what the job runs on, in counts."""
    fabric = plan.fabric
    domains = np.bincount(fabric.nvlink_domain_of_slot[fabric.nvlink_domain_of_slot >= 0])
    domains = domains[domains > 0]
    network = fabric.network
    return {
        "description": plan.outline.cluster.description if plan.outline.cluster else "",
        "hosts": fabric.num_hosts,
        "gpus": fabric.num_slots,
        "nics": len(fabric.host_of_nic),
        "nvlink_domains": len(domains) if len(domains) else None,
        "nvlink_domain_gpus": [int(domains.min()), int(domains.max())] if len(domains) else None,
        "leaves": network.leaf_switches if network else None,
        "switches": len(network.switch_names) if network else None,
        "routing": network.routing if network else None,
    }


def _axis(plan: Plan, index: int) -> dict[str, Any]:
    route, bound = plan.routes[index], plan.bounds[index]
    pairs = route.reach.unreachable_pairs if route.reach is not None else None
    return {
        "axis": route.axis,
        "name": route.name,
        "degree": route.degree,
        "num_groups": route.num_groups,
        "span": {span.tier: span_json(span) for span in route.spans},
        "span_classes": span_classes(route),
        "collectives": [
            _collective(one, time, route)
            for one, time in zip(route.collectives, bound.time_s, strict=True)
        ],
        "sent_bytes": sent_bytes(route),
        "path_kinds": path_kinds(plan, index),
        "bottleneck": None
        if bound.bottleneck is None
        else link_json(plan, bound.bottleneck, axis=index),
        "bound_s": bound.bound_s,
        "latency_s": bound.latency_s,
        "exposed_s": None,
        "unreachable_pairs": None if pairs is None else [int(pairs.min()), int(pairs.max())],
        "lost_bytes": route.lost_bytes if route.patterns else None,
    }


def sent_bytes(route: AxisRoute) -> float | None:
    """Return what the busiest rank sends a step; ``None`` when nothing is known."""
    sent = _sent_by_stage(route)
    return None if sent is None else float(sent.max())


def busiest_stage(route: AxisRoute) -> int | None:
    """Return the stage whose ranks send most, the first of equals; ``None`` when nothing is known."""
    sent = _sent_by_stage(route)
    return None if sent is None else int(np.argmax(sent))


def stages_differ(route: AxisRoute) -> bool:
    """Tell whether what runs is not the same on every pipeline stage."""
    figures = [(one.bytes_by_stage, one.count_by_stage) for one in route.collectives]
    return any(one is not None and np.ptp(one) > 0 for pair in figures for one in pair)


def _sent_by_stage(route: AxisRoute) -> NDArray[np.float64] | None:
    totals = [one.sent_bytes_by_stage(route.degree) for one in route.collectives]
    known = [total for total in totals if total is not None]
    return np.sum(known, axis=0) if known else None


def _unrouted(one: Collective) -> dict[str, Any]:
    """Return a collective that loads no link of the report: small, or over groups not listed."""
    size, count = one.bytes_by_stage, one.count_by_stage
    known = size is not None and count is not None
    return {
        "axis": one.axis,
        "op": one.op,
        "phase": one.phase,
        "what": one.what,
        "bytes": float(size.max()) if known and size is not None else None,
        "count_per_step": float(count.max()) if known and count is not None else None,
        "reason": one.reason,
    }


def _collective(one: Collective, time_s: float | None, route: AxisRoute) -> dict[str, Any]:
    size, count = one.bytes_by_stage, one.count_by_stage
    row: dict[str, Any] = {
        "op": one.op,
        "phase": one.phase,
        "what": one.what,
        "each": one.each,
        "per": one.per,
        "remark": one.remark,
        "reason": one.reason,
    }
    if size is None or count is None:
        return row | {
            "bytes": None,
            "count_per_step": None,
            "sent_bytes": None,
            "time_s": None,
            "hides_behind": one.hides_behind,
            "origin": None,
        }
    most = int(np.argmax(size * count))
    sent = one.sent_bytes_by_stage(route.degree)
    row |= {
        "bytes": float(size[most]),
        "count_per_step": float(count[most]),
        "sent_bytes": None if sent is None else float(sent[most]),
        "time_s": time_s,
        "hides_behind": one.hides_behind,
        "origin": one.origin.value,
    }
    if np.ptp(size) > 0 or np.ptp(count) > 0:
        row |= {"stage": most, "bytes_by_stage": size.tolist(), "count_by_stage": count.tolist()}
    return row


def link_json(plan: Plan, link: int, axis: int | None = None) -> dict[str, Any]:
    """Return one link; with ``axis`` its load and busy time are of that axis alone."""
    links, fabric = plan.fabric.links, plan.fabric
    one = links.classes[int(links.class_of_link[link])]
    by_axis = load_by_axis(plan, link)
    if axis is not None:
        name = plan.routes[axis].axis
        by_axis = {name: by_axis[name]} if name in by_axis else {}
    load = sum(by_axis.values())
    capacity = one.capacity_bytes_per_s
    return {
        "id": link,
        "kind": one.kind,
        "tier": one.tier,
        "direction": one.direction or None,
        "tail": fabric.node_name(int(links.tail[link])),
        "head": fabric.node_name(int(links.head[link])),
        "capacity_bytes_per_s": capacity,
        "load_bytes": load,
        "load_by_axis": by_axis,
        "busy_s": load / capacity if capacity else (0.0 if load == 0 else None),
        "utilisation": None,
    }


def _links(plan: Plan, *, list_links: bool) -> dict[str, Any]:
    total = len(plan.fabric.links)
    every = None
    if list_links and total <= LISTED_LINKS and len(plan.routes):
        every = [link_json(plan, link) for link in range(total)]
    return {
        "total": total,
        "classes": [class_json(plan, group) for group in link_groups(plan)]
        if len(plan.routes)
        else [],
        "busiest": [link_json(plan, link) for link in busiest_links(plan)],
        "all": every,
    }


def class_json(plan: Plan, group: LinkGroup) -> dict[str, Any]:
    """Return one class of equal links."""
    links, fabric = plan.fabric.links, plan.fabric
    return {
        "kind": group.kind,
        "tier": group.tier,
        "count": group.count,
        "capacity_bytes_per_s": group.capacity_bytes_per_s,
        "load_bytes": group.load_bytes,
        "load_by_axis": group.load_by_axis,
        "busy_s": group.busy_s,
        "utilisation": None,
        "example": {
            "id": group.example,
            "tail": fabric.node_name(int(links.tail[group.example])),
            "head": fabric.node_name(int(links.head[group.example])),
        },
    }


def slots_json(plan: Plan, placement: Placement) -> list[tuple[str, int]]:
    """Return ``[host, gpu]`` of every rank."""
    fabric, slots = plan.fabric, placement.slot_by_rank
    if not len(slots) or int(slots.max()) >= fabric.num_slots:
        return []
    hosts = fabric.host_of_slot[slots].tolist()
    used = {host: fabric.host_names[host] for host in set(hosts)}
    gpus = fabric.gpu_of_slot[slots].tolist()
    return [(used[host], gpu) for host, gpu in zip(hosts, gpus, strict=True)]


def _placement(plan: Plan) -> dict[str, Any]:
    proposed = None
    if plan.proposed is not None:
        proposed = {
            "rule": plan.proposed.placement.rule,
            "slot_by_rank": slots_json(plan, plan.proposed.placement),
            "axes": [
                {"axis": route.axis, "span": {span.tier: span_json(span) for span in route.spans}}
                for route in plan.proposed.routes
            ],
        }
    return {
        "rule": plan.placement.rule,
        "slot_by_rank": slots_json(plan, plan.placement),
        "proposed": proposed,
    }


def _reachability(plan: Plan) -> dict[str, Any] | None:
    """Tell whether every group's members can reach each other, and which hosts hang together."""
    known = [route.reach for route in plan.routes if route.reach is not None]
    if not known:
        return None
    fabric = plan.fabric
    parts = host_components(fabric, np.unique(fabric.host_of_slot[plan.placement.slot_by_rank]))
    names = (
        [[fabric.host_names[host] for host in part] for part in parts] if len(parts) > 1 else None
    )
    return {
        "reachable": not any((reach.unreachable_pairs > 0).any() for reach in known),
        "num_components": len(parts),
        "components": names,
    }


def _bound_origin(plan: Plan) -> Origin:
    """Return the origin of bounds: modelled, and no better than the rates of the loaded links."""
    links = plan.fabric.links
    loaded = np.flatnonzero(plan.load_bytes.sum(axis=0) > 0)
    used = np.unique(links.class_of_link[loaded])
    return weakest([Origin.MODELLED, *(links.classes[int(one)].origin for one in used)])


def _origins(plan: Plan) -> dict[str, str]:
    origins = {
        "axes[*].span": Origin.MODELLED.value,
        "axes[*].collectives[*].bytes": Origin.MODELLED.value,
        "axes[*].collectives[*].time_s": Origin.MODELLED.value,
        "axes[*].bound_s": _bound_origin(plan).value,
        "axes[*].latency_s": Origin.ASSUMED.value,
        "links.classes[*].load_bytes": Origin.MODELLED.value,
        "links.classes[*].busy_s": Origin.MODELLED.value,
        "placement.slot_by_rank": Origin.PARSED.value
        if plan.outline.table is not None
        else Origin.ASSUMED.value,
    }
    for one in plan.fabric.links.classes:
        tier = f" && @.tier=='{one.tier}'" if one.tier else ""
        key = f"links.classes[?@.kind=='{one.kind}'{tier}].capacity_bytes_per_s"
        origins[key] = one.origin.value
    for key in sorted(plan.outline.layout.assumed):
        origins[f"layout.{key}"] = Origin.ASSUMED.value
    return origins
