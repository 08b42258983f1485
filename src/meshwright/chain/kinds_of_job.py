"""The groups of a job that its training keys make, beside those of its layout."""

from __future__ import annotations

from dataclasses import replace

from meshwright.chain.outlined import Outline
from meshwright.groups.of_training import mirror_kind, spread_kinds
from meshwright.schedules.names import TWO_DIRECTIONS, schedule_name
from meshwright.traffic.workload import MESH


def add_training_kinds(outline: Outline) -> None:
    """Add the groups of opposed pipelines and of FSDP's ``reshard_after_forward`` to the outline's."""
    job, layout = outline.job.file, outline.layout
    if job.groups is not None or not outline.kinds:
        return
    found = []
    if layout.pp > 1 and schedule_name(job.training.schedule, layout.vp) in TWO_DIRECTIONS:
        mirror = mirror_kind(outline.kinds)
        found += [mirror] if mirror is not None else []
    reshard = job.training.reshard_after_forward
    fully = layout.sharding in ("fsdp", "hsdp") and layout.framework in MESH
    if fully and reshard is not None and not isinstance(reshard, bool):
        found += spread_kinds(outline.kinds, reshard)
    known = {kind.name for kind in outline.kinds}
    by_torch = layout.framework != "maxtext"
    outline.kinds += [
        replace(kind, is_sorted_by_torch=by_torch) for kind in found if kind.name not in known
    ]
