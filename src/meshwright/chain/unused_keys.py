"""Keys of a job that are read and change nothing (yet, or beside another key): said, not swallowed."""

from __future__ import annotations

from meshwright.chain.jobfile import Job
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.findings import Finding, Severity
from meshwright.job.layout import Layout

_NOT_YET = (
    "layout.kv_replication",
    "placement.launcher",
    "placement.command",
    "placement.env",
)
"""Keys whose part of the program is still to come. (``kv_replication`` of 1 changes nothing.)"""


def unused_keys(job: Job, layout: Layout) -> list[Finding]:
    """Return one note that lists the given keys without effect, with the reason."""
    reasons = {key: "not used yet" for key in _NOT_YET if job.decoded.given(key)}
    if (job.file.layout.kv_replication or 1) > 1:
        reasons.pop("layout.kv_replication", None)
    reasons |= _beside_others(job, layout)
    if not reasons:
        return []
    listed = "; ".join(f"{key} ({reason})" for key, reason in reasons.items())
    first = next(iter(reasons))
    return [
        Finding(
            "job/keys-without-effect",
            Severity.NOTE,
            job.place(first),
            f"given, and without effect on this report: {listed}.",
            {"keys": list(reasons)},
        )
    ]


def _beside_others(job: Job, layout: Layout) -> dict[str, str]:
    """Return keys that another key makes void."""
    section, placement = job.file.layout, job.file.placement
    found = {}
    if section.shard_degree is not None and layout.sharding in ("none", "zero1", "zero2", "zero3"):
        found["layout.shard_degree"] = f"sharding is {layout.sharding}"
    if section.cp_kind is not None and layout.cp == 1:
        found["layout.cp_kind"] = "cp is 1"
    if section.stages is not None:
        for key in ("first_stage_layers", "last_stage_layers"):
            if getattr(section, key) is not None:
                found[f"layout.{key}"] = "stages says it"
    if job.file.groups is not None:
        for key in ("hosts", "ranks"):
            if getattr(placement, key) is not None:
                found[f"placement.{key}"] = "members of explicit groups name their GPUs"
    elif placement.ranks is not None and placement.hosts is not None:
        found["placement.hosts"] = "placement.ranks says it"
    return found | _fabric_keys(job)


def _fabric_keys(job: Job) -> dict[str, str]:
    cluster = job.file.cluster
    if not isinstance(cluster, ClusterSection) or not isinstance(cluster.fabric, FabricSection):
        return {}
    fabric, found = cluster.fabric, {}
    shape = (
        "hosts_per_unit",
        "radix",
        "planes",
        "hosts_per_pod",
        "core_oversubscription",
        "full_units",
    )
    for key in ("preset", *shape):
        if fabric.source is not None and getattr(fabric, key) not in (None, False):
            found[f"cluster.fabric.{key}"] = "from says it"
    if fabric.preset == "none":
        for key in (*shape, "oversubscription"):
            if getattr(fabric, key) not in (None, False):
                found[f"cluster.fabric.{key}"] = "preset is none"
    return found
