"""What rules may look at: made of the parts of a job once, for every command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.assembly.merge import parse_preset
from meshwright.cluster.gpus import GpuModel, UnknownGpuError, find_gpu
from meshwright.cluster.nodes.presets import find_preset
from meshwright.cluster.sections import ClusterSection
from meshwright.placement.place import Placement
from meshwright.rules.registry import Hardware, RuleContext
from meshwright.rules.trial import JobTrial

if TYPE_CHECKING:
    from meshwright.chain.outlined import Outline

_SPREAD = ("tp", "ep")
"""Axes whose spread over hosts rules ask for."""


def context_of(outline: Outline, placement: Placement | None = None) -> RuleContext:
    """Return what rules may look at; nothing is tried for a remedy (``trying`` does)."""
    file = outline.job.file
    return RuleContext(
        layout=outline.layout,
        place=outline.job.place,
        slots=outline.num_gpus if outline.cluster is not None else None,
        model=outline.model,
        batch=outline.batch,
        section=file.layout,
        moe=file.moe,
        training=file.training,
        hardware=None if outline.fabric is None else hardware_of(outline, placement),
    )


def trying(outline: Outline, placement: Placement | None = None) -> RuleContext:
    """Return the same, with remedies tried before they are given."""
    context = context_of(outline, placement)
    table = outline.table
    ranks = context.slots if table is None else len(table.hosts)
    return replace(context, trial=JobTrial(context, ranks))


def hardware_of(outline: Outline, placement: Placement | None = None) -> Hardware:
    """Return hosts, GPUs and NVLink domains, and how far groups spread where ranks have a place."""
    fabric = outline.fabric
    if fabric is None or not fabric.num_slots:
        return Hardware()
    sizes = np.diff(fabric.slot_start)
    even = bool(sizes[0] > 0 and (sizes == sizes[0]).all())
    hosts: dict[str, int] = {}
    islands: dict[str, int] = {}
    if placement is not None and outline.is_legal:
        hosts = _spread(outline, fabric.host_of_slot, placement)
        islands = _spread(outline, fabric.island_of_slot, placement)
    return Hardware(
        gpus_per_host=int(sizes[0]) if even else None,
        domain_gpus=int(np.bincount(fabric.island_of_slot).max()),
        hosts_of_axis=hosts,
        islands_of_axis=islands,
        gpus=_known_gpus(dict.fromkeys(node.gpu for node in fabric.node_types if node.gpu)),
        preset=_preset(outline.job.file.cluster),
    )


def _known_gpus(names: dict[str, None]) -> tuple[GpuModel, ...]:
    found = []
    for name in names:
        try:
            found.append(find_gpu(name))
        except UnknownGpuError:
            continue
    return tuple(found)


def _preset(cluster: str | ClusterSection | None) -> str | None:
    """Return the host preset of a cluster named in one line; ``None`` of every other."""
    parsed = parse_preset(cluster) if isinstance(cluster, str) else None
    return parsed[0] if parsed is not None and find_preset(parsed[0]) is not None else None


def _spread(
    outline: Outline, domain_of_slot: NDArray[np.integer[Any]], placement: Placement
) -> dict[str, int]:
    """Return by axis the most domains that a group has members in."""
    slots, found = placement.slot_by_rank, {}
    if len(slots) < outline.layout.world_size or (slots < 0).any():
        return {}
    for kind in outline.kinds:
        if kind.axis not in _SPREAD or kind.axis in found or kind.degree < 2:
            continue
        domains = np.sort(domain_of_slot[slots[kind.members()]], axis=1)
        found[kind.axis] = int((np.diff(domains, axis=1) > 0).sum(axis=1).max()) + 1
    return found
