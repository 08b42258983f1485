"""The chain: job and cluster to groups, traffic, placement, routes, bounds and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.chain.context import context_of
from meshwright.chain.kinds_of_job import add_training_kinds
from meshwright.chain.outlined import Outline
from meshwright.cluster.assembly.merging import MAX_NAMED
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.hostlist import Hostlists
from meshwright.costs.bound import AxisBound, axis_bound, total_load
from meshwright.errors import InputError, Problem
from meshwright.groups.kinds import GroupKind
from meshwright.job.stages import layers_by_stage
from meshwright.placement.place import (
    Placement,
    by_host_order,
    by_table,
    grouped_by_host,
    in_order,
    nowhere,
)
from meshwright.routes.axis import AxisRoute, Ground, route_axis
from meshwright.routes.tiers import tiers_of
from meshwright.rules.placed import check_placed
from meshwright.rules.told import (
    assumed_notes,
    batch_notes,
    default_notes,
    given_notes,
    mesh_notes,
    traffic_notes,
    unjudged_errors,
    unused_notes,
    vocabulary_notes,
)
from meshwright.schedules.names import TWO_CHUNKS, schedule_name
from meshwright.traffic.collective import Collective
from meshwright.traffic.job import (
    collectives_without_model,
    given_collectives,
    modelled_collectives,
)
from meshwright.traffic.workload import Workload

_PRIMARY = ("tp", "cp", "dp", "dp_replicate", "dp_shard", "pp", "ep", "etp", "edp")
"""Axes shown in a map even where no collective of known size runs on them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A routed job. ``load_bytes[axis, link]`` follows the order of ``routes``.

    ``unrouted``: collectives that load no link: minor ones (the gradient norm, input data), too small
    to count beside the others, and those over groups that are not listed (a note says so).
    """

    outline: Outline
    placement: Placement
    routes: tuple[AxisRoute, ...]
    bounds: tuple[AxisBound, ...]
    load_bytes: NDArray[np.float64]
    proposed: Proposed | None
    unrouted: tuple[Collective, ...] = ()

    @property
    def fabric(self) -> Fabric:
        """The fabric of the plan."""
        if self.outline.fabric is None:
            raise ValueError("a plan has a fabric")
        return self.outline.fabric


@dataclass(frozen=True, slots=True)
class Proposed:
    """A better order of the same slots, with the spans it gives."""

    placement: Placement
    routes: tuple[AxisRoute, ...]


def plan_job(outline: Outline) -> Plan:
    """Route a legal job. Raises ``InputError`` without a cluster or with unknown hosts."""
    job, fabric = outline.job, outline.fabric
    add_training_kinds(outline)
    if fabric is None:
        message = "the job names no cluster, so there is nothing to route over"
        raise InputError(Problem(job.place("cluster"), message, remedy="cluster: dgx-h100 x 2"))
    placement = nowhere()
    if outline.is_legal or outline.table is not None:
        placement = place_ranks(outline, fabric)
    if not outline.is_legal:
        return Plan(outline, placement, (), (), np.zeros((0, len(fabric.links))), None)
    collectives = _collectives(outline)
    ground = Ground(fabric, placement.slot_by_rank, tiers_of(fabric), _stage_of_rank(outline))
    routes = _routes(outline, collectives, ground)
    bounds = tuple(axis_bound(route, fabric) for route in routes)
    plan = Plan(
        outline,
        placement,
        routes,
        bounds,
        total_load(routes, fabric),
        _propose(outline, routes, ground),
        _unrouted(collectives, routes),
    )
    outline.findings += check_placed(routes, bounds, (fabric, outline.layout, placement), job.place)
    outline.findings += vocabulary_notes(routes, fabric, job.file.moe, job.place)
    if job.file.groups is None:
        if outline.model is not None:
            outline.findings += batch_notes(outline.layout, outline.batch, job.place)
        outline.findings += unused_notes(outline.layout, outline.num_gpus, job.place)
    axes = [kind.axis for kind in outline.kinds]
    outline.findings += traffic_notes(collectives, axes, job.place)
    outline.findings += mesh_notes(routes, fabric, job.place)
    return plan


def _unrouted(
    collectives: Sequence[Collective], routes: Sequence[AxisRoute]
) -> tuple[Collective, ...]:
    routed = {id(one) for route in routes for one in route.collectives}
    return tuple(one for one in collectives if id(one) not in routed)


def place_ranks(outline: Outline, fabric: Fabric) -> Placement:
    """Return where ranks sit; findings of a rank table are kept. Raises ``InputError``."""
    job, world_size = outline.job, outline.layout.world_size
    if job.file.groups is not None:
        return in_order(world_size)  # explicit members name their host and GPU themselves
    if outline.table is not None:
        placement, findings = by_table(fabric, outline.table, job.place("placement.ranks"))
        outline.findings += findings
        return placement
    hosts = job.file.placement.hosts
    if hosts is None and outline.cluster is not None and outline.cluster.allocation is not None:
        return by_host_order(fabric, outline.cluster.allocation, world_size)
    if hosts is None:
        return in_order(world_size)
    try:
        texts = [hosts] if isinstance(hosts, str) else list(hosts)
        names = Hostlists(MAX_NAMED).expand(*texts)
        return by_host_order(fabric, names, world_size)
    except ValueError as error:
        raise InputError(Problem(job.place("placement.hosts"), str(error))) from None
    except KeyError as error:
        raise InputError(
            Problem(job.place("placement.hosts"), f"no host {error.args[0]!r} in the cluster")
        ) from None


def workload_of(outline: Outline) -> Workload | None:
    """Return what traffic is made from; ``None`` without a model."""
    if outline.model is None:
        return None
    file = outline.job.file
    folded = schedule_name(file.training.schedule) in TWO_CHUNKS
    layers = layers_by_stage(outline.layout, outline.model.num_layers, folded=folded)
    if layers is None:
        return None  # a rule has said so
    return Workload(
        model=outline.model,
        layout=outline.layout,
        batch=outline.batch,
        training=file.training,
        moe=file.moe,
        section=file.layout,
        stage_layers=tuple(layers),
    )


def _collectives(outline: Outline) -> list[Collective]:
    file, layout = outline.job.file, outline.layout
    work = workload_of(outline) if file.groups is None else None
    if work is not None:
        found = modelled_collectives(work)
        outline.findings += default_notes(work, outline.job.place)
        outline.findings += unjudged_errors(context_of(outline))
        outline.findings += assumed_notes(work, outline.job.place)
    elif file.groups is not None:
        found = []
    else:
        found = collectives_without_model(layout, file.moe, file.layout.cp_kind)
    given = given_collectives(file.traffic or (), layout.pp)
    axes = {one.axis for one in given}
    degrees = {kind.axis: kind.degree for kind in outline.kinds}
    for index, item in enumerate(file.traffic or ()):
        if item.axis not in degrees:
            message = f"no groups along {item.axis!r}"
            remedy = f"axes of this layout: {', '.join(sorted(degrees))}"
            raise InputError(
                Problem(outline.job.place(f"traffic[{index}].axis"), message, remedy=remedy)
            )
    outline.findings += given_notes(file.traffic or (), degrees, found, outline.job.place)
    return [one for one in found if one.axis not in axes] + given


def _stage_of_rank(outline: Outline) -> NDArray[np.int64]:
    """Return the pipeline stage of every rank: its position in its pp group."""
    stage = np.zeros(outline.layout.world_size, dtype=np.int64)
    for kind in outline.kinds:
        if kind.axis == "pp" and outline.job.file.groups is None:
            stage[kind.members()] = np.arange(kind.degree)
    return stage


def _routes(
    outline: Outline, collectives: Sequence[Collective], ground: Ground
) -> tuple[AxisRoute, ...]:
    """Route every axis of more than one rank that is primary or carries more than minor ones."""
    routes = []
    routed = [one for one in collectives if not one.is_minor]
    carried = {one.axis for one in routed}
    seen: set[str] = set()
    explicit = outline.job.file.groups is not None
    for kind in outline.kinds:
        primary = kind.axis in _PRIMARY and not _is_repeated(kind, outline)
        if not explicit and (kind.degree < 2 or not (primary or kind.axis in carried)):
            continue
        if kind.axis in seen:
            continue
        seen.add(kind.axis)
        mine = [one for one in routed if one.axis == kind.axis]
        routes.append(route_axis(kind.axis, kind.name, kind.members(), mine, ground))
    if explicit:
        return tuple(routes)
    return tuple(sorted(routes, key=lambda route: _order_of(route.axis)))


def _is_repeated(kind: GroupKind, outline: Outline) -> bool:
    """Tell whether an axis only repeats another: edp and etp of a model without experts, dp of a mesh."""
    layout = outline.layout
    if kind.axis in ("etp", "edp"):
        return not layout.has_experts
    if layout.framework == "megatron":
        return False
    sharded = layout.dp_shard > 1
    return (
        sharded if kind.axis == "dp" else kind.axis in ("dp_shard", "dp_replicate") and not sharded
    )


def _order_of(axis: str) -> int:
    names = (
        "tp",
        "etp",
        "ep",
        "ep-etp",
        "cp",
        "cp_l0",
        "cp_l1",
        "dp",
        "dp-cp",
        "intra_dp-cp",
        "dp_shard",
        "dp_shard-cp",
        "hpz",
        "dp_replicate",
        "edp",
        "intra_edp",
        "inter_edp",
        "pp",
        "pp_mirror",
        "embedding",
    )
    base = axis.split("/", maxsplit=1)[0]
    return names.index(base) if base in names else len(names)


def _propose(outline: Outline, routes: Sequence[AxisRoute], ground: Ground) -> Proposed | None:
    """Group a scattered rank table by host and show what that gives."""
    if outline.table is None or not outline.is_legal:
        return None
    fabric = ground.fabric
    better = grouped_by_host(fabric, Placement(ground.slot_by_rank, "table of ranks"))
    if better is None:
        return None
    new = Ground(fabric, better.slot_by_rank, ground.tiers, ground.stage_of_rank)
    again = tuple(route_axis(r.axis, r.name, r.ranks, (), new) for r in routes)
    return Proposed(better, again)
