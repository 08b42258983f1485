"""Rules about where groups sit: they read routes, and show the arithmetic of what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.costs.bound import AxisBound, inside_bound_s
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.job.layout import Layout
from meshwright.placement.place import Placement, grouped_by_host
from meshwright.routes.axis import AxisRoute
from meshwright.routes.reach import host_components
from meshwright.units import format_bytes, format_count, format_seconds

PlaceOf = Callable[[str], Place]
_SHOWN = 8
_LISTED_SLOTS = 64


def check_placed(
    routes: Sequence[AxisRoute],
    bounds: Sequence[AxisBound],
    ground: tuple[Fabric, Layout, Placement],
    place: PlaceOf,
) -> list[Finding]:
    """Return the findings of all placement rules; ``ground``: fabric, layout, placement."""
    fabric, layout, placement = ground
    findings: list[Finding] = []
    for route, bound in zip(routes, bounds, strict=True):
        if route.axis in ("tp", "etp"):
            findings += _leaves_nvlink(route, bound, (fabric, layout), place)
        if route.axis == "ep":
            findings += _expert_domains(route, fabric, place)
            findings += _experts_cut(route, bound, (fabric, layout), place)
        findings += _no_path(route, fabric, place)
    findings += _no_network(routes, fabric, place)
    findings += _not_grouped(fabric, placement, place)
    return findings


def _members(route: AxisRoute, group: int, count: int = 4) -> str:
    ranks = route.ranks[group].tolist()
    return " ".join(map(str, ranks[:count])) + (" …" if len(ranks) > count else "")


def _leaves_nvlink(
    route: AxisRoute, bound: AxisBound, ground: tuple[Fabric, Layout], place: PlaceOf
) -> list[Finding]:
    """A tensor-parallel group has members outside one NVLink domain (or host)."""
    fabric, layout = ground
    leaving = np.flatnonzero(route.islands() > 1)
    if not len(leaving):
        return []
    name = route.axis.upper()
    islands = int(route.islands().max())
    message = _who_leaves(route, fabric, leaving)
    numbers: dict[str, Number] = {
        "groups": len(leaving),
        "of": route.num_groups,
        "islands": islands,
    }
    inside = inside_bound_s(route, fabric)
    if inside and bound.bound_s:
        sent = sum(float(pattern.edge_bytes_by_stage.max()) for pattern in route.patterns)
        ratio = bound.bound_s / inside
        message += (
            f" {name} moves {format_bytes(sent)} a rank and step; over the NICs the bound is "
            f"{format_seconds(bound.bound_s)}, inside {format_seconds(inside)} ({ratio:.1f} ×)."
        )
        numbers |= {"bound_s": bound.bound_s, "inside_bound_s": inside, "ratio": ratio}
    return [
        Finding(
            "placement/tp-leaves-nvlink",
            Severity.WARNING,
            place(_key_of_order(route, layout)),
            message,
            numbers,
            _tp_remedy(route, fabric, layout),
        )
    ]


def _who_leaves(route: AxisRoute, fabric: Fabric, leaving: NDArray[np.int64]) -> str:
    counts = route.islands()[leaving]
    most = int(counts.max())
    spread = f"{most}" if counts.min() == most else f"{counts.min()} to {most}"
    islands = int((np.bincount(fabric.island_of_slot) > 0).sum())
    where = "NVLink domains" if islands < fabric.num_hosts else "hosts"
    whole = len(leaving) == route.num_groups
    every = f"All {route.num_groups}" if whole else f"{len(leaving)} of {route.num_groups}"
    members = _members(route, int(leaving[0]))
    return f"{every} {route.axis.upper()} groups have members on {spread} {where} ({members}, …)."


def _key_of_order(route: AxisRoute, layout: Layout) -> str:
    if layout.order and layout.order[0] != "tp" and "order" not in layout.assumed:
        return "layout.order"
    return f"layout.{route.axis}"


def _tp_remedy(route: AxisRoute, fabric: Fabric, layout: Layout) -> str:
    largest = int(np.bincount(fabric.island_of_slot).max(initial=1))
    if route.degree > largest:
        return f"{route.axis}: {largest} at most, the GPUs of one NVLink domain or host"
    if layout.order and layout.order[0] != "tp":
        others = [axis for axis in layout.order if axis != "tp"]
        preferred = [axis for axis in ("cp", "ep", "dp", "pp") if axis in others]
        return f"make tp the fastest axis: order: {'-'.join(['tp', *preferred])}"
    return "put the ranks of a group on one host: placement: {hosts: …} in whole hosts, or group the rank table by host"


def _expert_domains(route: AxisRoute, fabric: Fabric, place: PlaceOf) -> list[Finding]:
    """Some expert groups leave the NVLink domain that holds the others."""
    leaving = np.flatnonzero(route.islands() > 1)
    if not len(leaving) or len(leaving) == route.num_groups:
        return []
    listed = ", ".join(map(str, leaving[:_SHOWN].tolist()))
    first = int(leaving[0])
    cells = range(int(route.cells.group_start[first]), int(route.cells.group_start[first + 1]))
    domains = ", ".join(
        _domain_name(fabric, int(route.cells.slot[route.cells.start[c]])) for c in cells
    )
    return [
        Finding(
            "placement/ep-groups-uneven",
            Severity.WARNING,
            place("layout.ep"),
            f"EP group {listed} of {format_count(route.num_groups)} leaves its NVLink domain "
            f"({domains}) and goes over the network; the others stay on NVLink. The slowest group sets the pace.",
            {"groups": leaving[:_SHOWN].tolist(), "of": route.num_groups},
            f"an allocation in which each {_reach_of_group(route)} consecutive ranks (from the first to "
            "the last member of a group) lie in one NVLink domain",
        )
    ]


def _experts_cut(
    route: AxisRoute, bound: AxisBound, ground: tuple[Fabric, Layout], place: PlaceOf
) -> list[Finding]:
    """Expert groups leave their NVLink domain only because experts are cut over etp too.

    In Megatron's expert grid etp stands where tp does (``parallel_state.py``): ep · etp ranks lie
    together. Without etp a group is ep ranks in a row, where ep follows tp and cp in the order.
    """
    fabric, layout = ground
    largest = int(np.bincount(fabric.island_of_slot).max(initial=1))
    axes = [axis for axis in layout.order if axis not in ("tp", "cp")]
    near = layout.framework == "megatron" and axes[:1] == ["ep"] and layout.etp > 1
    if not near or largest % layout.ep or layout.ep * layout.etp <= largest:
        return []
    inside = inside_bound_s(route, fabric)
    if not inside or not bound.bound_s or bound.bound_s <= inside:
        return []
    return [
        Finding(
            "placement/ep-leaves-nvlink",
            Severity.WARNING,
            place("layout.etp" if "etp" not in layout.assumed else "layout.ep"),
            f"etp {layout.etp} × ep {layout.ep} = {layout.etp * layout.ep} ranks hold the experts once, more than "
            f"the {largest} GPUs of an NVLink domain or host, so EP goes over the network: the bound is "
            f"{format_seconds(bound.bound_s)}, inside {format_seconds(inside)}. With etp 1 the {layout.ep} ranks "
            f"of an EP group sit in one; each then holds its experts whole, {layout.etp} × the weights.",
            {
                "ep": layout.ep,
                "etp": layout.etp,
                "domain_gpus": largest,
                "bound_s": bound.bound_s,
                "inside_bound_s": inside,
            },
            "etp: 1",
        )
    ]


def _reach_of_group(route: AxisRoute) -> int:
    """Return how many consecutive ranks a group stretches over."""
    return int((route.ranks.max(axis=1) - route.ranks.min(axis=1)).max()) + 1


def _domain_name(fabric: Fabric, slot: int) -> str:
    domain = int(fabric.nvlink_domain_of_slot[slot])
    return fabric.nvlink_domain_names[domain] if domain >= 0 else fabric.slot_name(slot)[0]


def _no_path(route: AxisRoute, fabric: Fabric, place: PlaceOf) -> list[Finding]:
    """Members of a group have no path to each other."""
    if route.reach is None:
        return []
    pairs = route.reach.unreachable_pairs
    bad = np.flatnonzero(pairs > 0)
    if not len(bad):
        return []
    group = int(bad[0])
    slots = route.cells.slot[route.cells.start[route.cells.group_start[group]] :][: route.degree]
    parts = host_components(fabric, np.unique(fabric.host_of_slot[slots]))
    names = [[fabric.host_names[host] for host in part] for part in parts]
    numbers: dict[str, Number] = {
        "groups": len(bad),
        "of": route.num_groups,
        "pairs": int(pairs[group]),
    }
    if len(parts) > 1:
        joined = "; ".join(" ".join(part[:4]) + (" …" if len(part) > 4 else "") for part in names)
        why = f"no path joins the fabrics of these hosts: {joined}. A common root in a scheduler's file would hide that"
        numbers["components"] = [list(part[:_SHOWN]) for part in names]
        remedy = "keep each group inside one fabric; what must cross has no RDMA path"
    else:
        why = (
            "the rails do not meet, and a pair on different rails can talk only if the sender's host "
            "holds a member of the group on the receiver's rail (the relay)"
        )
        remedy = (
            "groups whose members have the same GPU index on every host, or a fabric with spines"
        )
    return [
        Finding(
            "routes/no-path",
            Severity.ERROR,
            place(f"layout.{route.axis}"),
            f"{route.axis} group {group} ({_members(route, group)}): {format_count(int(pairs[group]))} of "
            f"{format_count(route.degree * (route.degree - 1))} ordered pairs cannot send ({len(bad)} of "
            f"{route.num_groups} groups have such pairs); {why}.",
            numbers,
            remedy,
        )
    ]


def _no_network(routes: Sequence[AxisRoute], fabric: Fabric, place: PlaceOf) -> list[Finding]:
    """Groups leave their host, and nothing is known of what joins the hosts."""
    crossing = [route.axis for route in routes if (route.islands() > 1).any()]
    # Pairs that no path joins have a finding of their own.
    apart = [route.axis for route in routes if route.reach and route.reach.unreachable_pairs.any()]
    lost = [route.axis for route in routes if route.lost_bytes > 0 and route.axis not in apart]
    if not crossing or (fabric.network is not None and not lost):
        return []
    # Of hosts known by their number of GPUs alone nobody expects paths.
    bare = fabric.network is None and all(
        one.nvlink == "unknown" and not one.nics for one in fabric.node_types
    )
    axes = lost if fabric.network is not None else crossing
    why = "how hosts (or these GPUs' NICs) are joined is not known"
    if fabric.network is not None and fabric.network.routing == "tables":
        why = "the forwarding tables bring some of these flows nowhere (see topology/no-route)"
    return [
        Finding(
            "routes/network-unknown",
            Severity.NOTE if bare else Severity.WARNING,
            place("cluster.fabric"),
            f"groups along {', '.join(axes)} leave their host, and {why}: what they send there loads no link "
            "of this report and has no bound.",
            {"axes": axes},
            "a node type with NICs and fabric: {preset: rail-optimized}, or fabric: {from: …}",
        )
    ]


def _not_grouped(fabric: Fabric, placement: Placement, place: PlaceOf) -> list[Finding]:
    """Ranks of one host do not stand together in rank order."""
    if placement.rule != "table of ranks":
        return []
    better = grouped_by_host(fabric, placement)
    if better is None:
        return []
    order = [fabric.slot_name(int(slot)) for slot in better.slot_by_rank[:_LISTED_SLOTS]]
    listed = " ".join(f"{host}:{gpu}" for host, gpu in order)
    if len(better.slot_by_rank) > _LISTED_SLOTS:
        listed += " … (all of it: placement.proposed of --json)"
    return [
        Finding(
            "placement/ranks-not-grouped-by-host",
            Severity.WARNING,
            place("placement.ranks"),
            "ranks of one host do not stand together (or not in GPU order), so groups of neighbouring "
            "ranks can be split over hosts.",
            {"ranks": len(placement.slot_by_rank)},
            f"launch workers host by host, in GPU order: {listed}",
        )
    ]
