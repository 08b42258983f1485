"""The chain: job and cluster to groups, traffic, placement, routes, bounds and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.chain.cluster_of_job import Cluster, cluster_of_job, rank_table_of
from meshwright.chain.jobfile import Job, job_model
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.hostlist import expand_hostlist
from meshwright.costs.bound import AxisBound, axis_bound, total_load
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, has_errors
from meshwright.groups.grid import Ranks
from meshwright.groups.kinds import GroupKind
from meshwright.groups.table import grids, group_kinds
from meshwright.job.batch import Batch, resolve_batch
from meshwright.job.layout import Layout, resolve_layout
from meshwright.job.model import Model
from meshwright.job.sections import LayoutSection
from meshwright.job.stages import layers_by_stage
from meshwright.placement.place import Placement, by_host_order, by_table, grouped_by_host, in_order
from meshwright.placement.rank_table import RankTable
from meshwright.routes.axis import AxisRoute, Ground, route_axis
from meshwright.routes.tiers import tiers_of
from meshwright.rules.grid import check_grid
from meshwright.rules.job import check_job_rules
from meshwright.rules.placed import check_placed
from meshwright.rules.registry import RuleContext
from meshwright.rules.told import (
    default_notes,
    framework_notes,
    mesh_notes,
    traffic_notes,
    unused_notes,
    vocabulary_notes,
)
from meshwright.traffic.collective import Collective
from meshwright.traffic.job import (
    collectives_without_model,
    given_collectives,
    modelled_collectives,
)
from meshwright.traffic.workload import Workload

_PRIMARY = ("tp", "cp", "dp", "dp_replicate", "dp_shard", "pp", "ep", "etp", "edp")
"""Axes shown in a map even where no collective of known size runs on them."""


@dataclass(slots=True)
class Outline:
    """What can be said before anything is routed: layout, model, cluster, group kinds.

    ``kinds`` is empty when a finding is an error: the groups do not exist then.
    """

    job: Job
    layout: Layout
    model: Model | None
    batch: Batch
    cluster: Cluster | None
    table: RankTable | None
    kinds: list[GroupKind] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def fabric(self) -> Fabric | None:
        """The fabric, where the job names one."""
        return self.cluster.fabric if self.cluster is not None else None

    @property
    def is_legal(self) -> bool:
        """Tell whether the groups exist."""
        return not has_errors(self.findings)


@dataclass(frozen=True, slots=True)
class Plan:
    """A routed job. ``load_bytes[axis, link]`` follows the order of ``routes``."""

    outline: Outline
    placement: Placement
    routes: tuple[AxisRoute, ...]
    bounds: tuple[AxisBound, ...]
    load_bytes: NDArray[np.float64]
    proposed: Proposed | None

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


def outline_job(job: Job) -> Outline:
    """Resolve a job as far as its groups. Raises ``InputError`` for what cannot be read."""
    model = job_model(job)
    table = rank_table_of(job)
    cluster = cluster_of_job(job, table)
    slots = cluster.fabric.num_slots if cluster is not None else None
    section = job.file.layout
    if job.file.groups is not None and section.world_size is None and section.dp is None:
        section = _whole_cluster(job, slots)
    layout = resolve_layout(section, _ranks_wanted(table, slots))
    batch = resolve_batch(job.file.batch, layout.dp)
    outline = Outline(job, layout, model, batch, cluster, table)
    context = RuleContext(layout, job.place, slots)
    outline.findings += check_grid(context)
    outline.findings += check_job_rules(context, model, batch)
    if cluster is not None:
        outline.findings += cluster.findings
    if outline.is_legal:
        outline.kinds = group_kinds(layout)
        outline.findings += framework_notes(layout, job.place)
    return outline


def _ranks_wanted(table: RankTable | None, slots: int | None) -> int | None:
    return len(table.hosts) if table is not None else slots


def _whole_cluster(job: Job, slots: int | None) -> LayoutSection:
    """With explicit groups and no layout every slot is a rank of its own."""
    if slots is None:
        raise InputError(
            Problem(job.place("groups"), "explicit groups need a cluster", remedy="cluster: …")
        )
    return msgspec.structs.replace(job.file.layout, world_size=slots)


def plan_job(outline: Outline) -> Plan:
    """Route a legal job. Raises ``InputError`` without a cluster or with unknown hosts."""
    job, fabric = outline.job, outline.fabric
    if fabric is None:
        message = "the job names no cluster, so there is nothing to route over"
        raise InputError(Problem(job.place("cluster"), message, remedy="cluster: dgx-h100 x 2"))
    placement = place_ranks(outline, fabric)
    if not outline.is_legal:
        return Plan(outline, placement, (), (), np.zeros((0, len(fabric.links))), None)
    collectives = _collectives(outline)
    ground = Ground(
        fabric, placement.slot_by_rank, tiers_of(fabric), _stage_of_rank(outline.layout)
    )
    routes = _routes(outline, collectives, ground)
    bounds = tuple(axis_bound(route, fabric) for route in routes)
    plan = Plan(
        outline,
        placement,
        routes,
        bounds,
        total_load(routes, fabric),
        _propose(outline, routes, ground),
    )
    outline.findings += check_placed(routes, bounds, (fabric, outline.layout, placement), job.place)
    outline.findings += vocabulary_notes(routes, fabric, job.file.moe, job.place)
    if job.file.groups is None:
        outline.findings += unused_notes(outline.layout, fabric, job.place)
    outline.findings += traffic_notes(collectives, job.place)
    outline.findings += mesh_notes(routes, fabric, job.place)
    return plan


def place_ranks(outline: Outline, fabric: Fabric) -> Placement:
    """Return where ranks sit; findings of a rank table are kept. Raises ``InputError``."""
    job, world_size = outline.job, outline.layout.world_size
    if outline.table is not None:
        placement, findings = by_table(fabric, outline.table, job.place("placement.ranks"))
        outline.findings += findings
        return placement
    hosts = job.file.placement.hosts
    if hosts is None:
        return in_order(world_size)
    try:
        texts = [hosts] if isinstance(hosts, str) else list(hosts)
        names = [name for text in texts for name in expand_hostlist(text)]
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
    layers = layers_by_stage(outline.layout, outline.model.num_layers)
    if layers is None:
        return None  # a rule has said so
    file = outline.job.file
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
    work = workload_of(outline)
    if work is not None:
        found = modelled_collectives(work)
        outline.findings += default_notes(work, outline.job.place)
    elif file.groups is not None and layout.dp == layout.world_size:
        found = []
    else:
        found = collectives_without_model(layout, file.moe, file.layout.cp_kind)
    given = given_collectives(file.traffic or (), layout.pp)
    axes = {one.axis for one in given}
    known = {kind.axis for kind in outline.kinds} | {item.name for item in file.groups or ()}
    for index, item in enumerate(file.traffic or ()):
        if item.axis not in known:
            message = f"no groups along {item.axis!r}"
            remedy = f"axes of this layout: {', '.join(sorted(known))}"
            raise InputError(
                Problem(outline.job.place(f"traffic[{index}].axis"), message, remedy=remedy)
            )
    return [one for one in found if one.axis not in axes] + given


def _stage_of_rank(layout: Layout) -> NDArray[np.int64]:
    grid = grids(layout)[0]
    ranks = np.arange(layout.world_size, dtype=np.int64)
    return ranks // grid.stride("pp") % layout.pp


def _routes(
    outline: Outline, collectives: Sequence[Collective], ground: Ground
) -> tuple[AxisRoute, ...]:
    """Route every axis of more than one rank that is primary or carries something."""
    routes = []
    carried = {one.axis for one in collectives}
    seen: set[str] = set()
    explicit = outline.job.file.groups
    for kind in outline.kinds if explicit is None else ():
        wanted = kind.axis in carried or (kind.axis in _PRIMARY and not _is_repeated(kind, outline))
        if kind.degree < 2 or not wanted or kind.axis in seen:
            continue
        seen.add(kind.axis)
        mine = [one for one in collectives if one.axis == kind.axis]
        routes.append(route_axis(kind.axis, kind.name, kind.members(), mine, ground))
    for name, ranks in _explicit_groups(outline):
        mine = [one for one in collectives if one.axis == name]
        routes.append(route_axis(name, name, ranks, mine, ground))
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
        "cp",
        "dp",
        "dp-cp",
        "dp_shard",
        "dp_replicate",
        "edp",
        "pp",
        "embedding",
    )
    return names.index(axis) if axis in names else len(names)


def _explicit_groups(outline: Outline) -> list[tuple[str, Ranks]]:
    """Return the groups given as (host, GPU) pairs; ranks are slots of the cluster."""
    fabric = outline.fabric
    found = []
    for index, item in enumerate(outline.job.file.groups or ()):
        if fabric is None:
            break
        number = {name: host for host, name in enumerate(fabric.host_names)}
        slots = []
        for position, (host, gpu) in enumerate(item.members):
            place = outline.job.place(f"groups[{index}].members[{position}]")
            row = host if isinstance(host, int) else number.get(host, -1)
            if not 0 <= row < fabric.num_hosts:
                raise InputError(Problem(place, f"no host {host!r} in the cluster"))
            start, end = fabric.slot_start[row : row + 2].tolist()
            if not 0 <= gpu < end - start:
                raise InputError(
                    Problem(place, f"host {host!r} has GPUs 0 … {end - start - 1}, not {gpu}")
                )
            slots.append(start + gpu)
        if len(set(slots)) != len(slots) or not slots:
            raise InputError(
                Problem(outline.job.place(f"groups[{index}].members"), "names a GPU twice, or none")
            )
        found.append((item.name, np.array([slots], dtype=np.int32)))
    return found


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
