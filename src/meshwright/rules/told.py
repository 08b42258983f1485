"""Notes that say what was taken for granted and what words mean here.

Those on traffic and on defaults stand in files of their own and are told from here too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.cluster.fabric import Fabric
from meshwright.findings import Finding
from meshwright.job.batch import Batch
from meshwright.job.layout import Layout
from meshwright.job.sections import MoeSection
from meshwright.routes.axis import AxisRoute
from meshwright.rules.note import PlaceOf, note
from meshwright.rules.registry import RuleContext
from meshwright.rules.told_defaults import assumed_notes, default_notes, narrow_format_notes
from meshwright.rules.told_errors import unjudged_errors
from meshwright.rules.told_traffic import given_notes, traffic_notes
from meshwright.rules.world import gpus_unused

__all__ = [
    "assumed_notes",
    "batch_notes",
    "default_notes",
    "framework_notes",
    "given_notes",
    "mesh_notes",
    "narrow_format_notes",
    "traffic_notes",
    "unjudged_errors",
    "unused_notes",
    "vocabulary_notes",
]

_EVERY_MICROBATCH = ("zero2", "zero3", "fsdp", "hsdp")
"""Shardings that send for every microbatch."""


def _version_note(layout: Layout, given: str, place: PlaceOf) -> list[Finding]:
    """Say that rules of another version than the given one were applied."""
    pinned = layout.framework_version
    if given.strip().lower() in (pinned.lower(), pinned.split()[-1].lower()):
        return []
    return [
        note(
            "framework/version-not-pinned",
            place("layout.framework_version"),
            f"rules of {pinned} are applied; those of {given!r} were not compared and may differ.",
            f"framework_version: {pinned}, if its rules are the ones you want",
        )
    ]


def framework_notes(
    layout: Layout, given: str | None, place: PlaceOf, gpus_per_host: int | None = None
) -> list[Finding]:
    """Say which framework's and version's rules were applied when the job does not (``given``)."""
    findings = [] if given is None else _version_note(layout, given, place)
    if "framework" in layout.assumed or "framework_version" in layout.assumed:
        assumed = "framework and version are" if "framework" in layout.assumed else "the version is"
        order = ""
        if layout.jax_mesh is None:
            order = f"; here the order is {'-'.join(layout.order)}, the first axis fastest"
        findings.append(
            note(
                "assumed/framework",
                place("layout.framework"),
                f"{assumed} not given: rules of {layout.framework_version} are applied. Rank order differs "
                f"between frameworks and releases{order}.",
                _as_written(layout),
            )
        )
    if layout.framework == "megatron" and layout.has_experts:
        findings.append(
            note(
                "groups/experts-fold",
                place("layout.ep"),
                f"experts use a second grid over the same ranks (etp {layout.etp} × ep {layout.ep} × "
                f"edp {layout.edp} × pp {layout.pp}): inside one pipeline stage EP groups fold over tp, cp and dp, "
                "so a rank's coordinates in dense and expert groups are independent.",
                etp=layout.etp,
                ep=layout.ep,
                edp=layout.edp,
            )
        )
    if layout.sharding == "hsdp":
        findings.append(_hsdp_note(layout, place, gpus_per_host))
    return findings


def _hsdp_note(layout: Layout, place: PlaceOf, gpus_per_host: int | None) -> Finding:
    """Say what runs on the mesh of HSDP, and where torch's setting by host cannot make it."""
    text = (
        f"mesh (replicate {layout.dp_replicate}, shard {layout.dp_shard}): shard groups all-gather parameters "
        "and reduce-scatter gradients, replicate groups all-reduce the gradient shard. If the hosts sit "
        "under several leaves, put each shard group under one."
    )
    hosts = None
    if gpus_per_host and layout.dp_shard > gpus_per_host:
        hosts = -(-layout.dp_shard // gpus_per_host)
        text += f" A shard group lies on {hosts} hosts or more"
        if layout.framework in ("torch", "torchtitan"):
            text += (
                f": the setting by host (FSDP1's HYBRID_SHARD shards over one host, {gpus_per_host} GPUs here) "
                "cannot express that, an explicit mesh can"
            )
        text += "."
    return note(
        "sharding/hsdp-mesh",
        place("layout.sharding"),
        text,
        replicate=layout.dp_replicate,
        shard=layout.dp_shard,
        hosts=hosts,
    )


def _as_written(layout: Layout) -> str:
    """Return what says the same in the job, so that the note goes."""
    named = {"framework": layout.framework, "framework_version": layout.framework_version}
    return ", ".join(f"{key}: {value}" for key, value in named.items() if key in layout.assumed)


def batch_notes(layout: Layout, batch: Batch, place: PlaceOf) -> list[Finding]:
    """Say which batch figures are missing to size what is sent once a microbatch."""
    given = {
        "micro_batch": batch.micro_batch,
        "num_microbatches (or global_batch)": batch.num_microbatches,
        "seq_len": batch.seq_len,
    }
    missing = [name for name, value in given.items() if value is None]
    by_microbatch = max(layout.tp, layout.pp, layout.cp, layout.ep) > 1
    if not missing or not (by_microbatch or layout.sharding in _EVERY_MICROBATCH):
        return []
    return [
        note(
            "batch/incomplete",
            place("batch"),
            f"what is sent for every microbatch has no size without {', '.join(missing)}.",
            "batch: {global_batch: 64, micro_batch: 1, seq_len: 8192}",
            missing=missing,
        )
    ]


def unused_notes(layout: Layout, gpus: int, place: PlaceOf) -> list[Finding]:
    """Say that the job leaves GPUs of its cluster idle (``check`` runs the same rule)."""
    return list(gpus_unused.findings(RuleContext(layout, place, slots=gpus)))


def mesh_notes(routes: Sequence[AxisRoute], fabric: Fabric, place: PlaceOf) -> list[Finding]:
    """Say that a mesh of GPU links is loaded by one ring, where a library would use several."""
    if not any(one.nvlink == "mesh" for one in fabric.node_types):
        return []
    axes = [route.axis for route in routes if route.patterns and route.degree > 1]
    if not axes:
        return []
    return [
        note(
            "routes/mesh-one-ring",
            place("cluster.node"),
            "GPUs of a host are joined by a mesh of links; each group is routed as one ring in NIC order. A "
            "library builds several rings over different links, so single links can carry less than shown.",
            axes=axes,
        )
    ]


def vocabulary_notes(
    routes: Sequence[AxisRoute], fabric: Fabric, moe: MoeSection, place: PlaceOf
) -> list[Finding]:
    """Say that an NVLink domain is not a host, where a dispatcher's setting asks for the one."""
    domain_gpus = np.bincount(fabric.nvlink_domain_of_slot[fabric.nvlink_domain_of_slot >= 0])
    hosts = np.bincount(fabric.island_of_slot)
    per_host = int(np.diff(fabric.slot_start).max(initial=0))
    if not len(domain_gpus) or int(hosts.max(initial=0)) <= per_host:
        return []
    findings = []
    for route in routes:
        span = route.span("nvlink_domain")
        if route.axis != "ep" or span is None:
            continue
        members, in_host = int(span.members_max.max()), min(per_host, route.degree)
        if moe.dispatcher in ("deepep", "hybridep"):
            setting = f"NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN={members}"
            findings.append(
                note(
                    "vocabulary/nvlink-domain-not-host",
                    place("moe.dispatcher"),
                    f"{members} EP ranks of a group share one NVLink domain of {int(domain_gpus.max())} GPUs, over several "
                    f"hosts of {per_host}. Where a dispatcher says node it means NVLink domain: with {in_host} instead of "
                    f"{members}, traffic that could use NVLink goes to RDMA.",
                    setting,
                    ep_ranks_per_nvlink_domain=members,
                    domain_gpus=int(domain_gpus.max()),
                    gpus_per_host=per_host,
                )
            )
    return findings
