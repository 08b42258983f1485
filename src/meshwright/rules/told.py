"""Notes that say what was taken for granted and what words mean here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from meshwright.cluster.fabric import Fabric
from meshwright.findings import Finding, Place, Severity
from meshwright.job.batch import Batch
from meshwright.job.layout import Layout
from meshwright.job.sections import MoeSection, TrafficItem
from meshwright.routes.axis import AxisRoute
from meshwright.traffic.collective import Collective
from meshwright.traffic.job import modelled_collectives
from meshwright.traffic.workload import Workload

PlaceOf = Callable[[str], Place]
NOTABLE_SHARE = 0.10
"""A default is worth a note when turning it changes a load by more than this."""


def _note(
    rule: str, place: Place, message: str, remedy: str | None = None, **numbers: object
) -> Finding:
    return Finding(rule, Severity.NOTE, place, message, numbers, remedy)  # type: ignore[arg-type]


def _version_note(layout: Layout, given: str, place: PlaceOf) -> list[Finding]:
    """Say that rules of another version than the given one were applied."""
    pinned = layout.framework_version
    if given.strip().lower() in (pinned.lower(), pinned.split()[-1].lower()):
        return []
    return [
        _note(
            "framework/version-not-pinned",
            place("layout.framework_version"),
            f"rules of {pinned} are applied; those of {given!r} were not compared and may differ.",
            f"framework_version: {pinned}, if its rules are the ones you want",
        )
    ]


def framework_notes(layout: Layout, given: str | None, place: PlaceOf) -> list[Finding]:
    """Say which framework's and version's rules were applied when the job does not (``given``)."""
    findings = [] if given is None else _version_note(layout, given, place)
    if "framework" in layout.assumed or "framework_version" in layout.assumed:
        assumed = "framework and version are" if "framework" in layout.assumed else "the version is"
        findings.append(
            _note(
                "assumed/framework",
                place("layout.framework"),
                f"{assumed} not given: rules of {layout.framework_version} are applied. Rank order differs "
                f"between frameworks and releases; here the order is {'-'.join(layout.order)}, the first axis fastest.",
                "framework: …, framework_version: …, and order: as your release has it",
            )
        )
    if layout.framework == "megatron" and layout.has_experts:
        findings.append(
            _note(
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
        findings.append(
            _note(
                "sharding/hsdp-mesh",
                place("layout.sharding"),
                f"mesh (replicate {layout.dp_replicate}, shard {layout.dp_shard}): shard groups all-gather parameters "
                "and reduce-scatter gradients, replicate groups all-reduce the gradient shard. If the hosts sit "
                "under several leaves, put each shard group under one.",
                replicate=layout.dp_replicate,
                shard=layout.dp_shard,
            )
        )
    return findings


def batch_notes(layout: Layout, batch: Batch, place: PlaceOf) -> list[Finding]:
    """Say which batch figures are missing to size what is sent once a microbatch."""
    given = {
        "micro_batch": batch.micro_batch,
        "num_microbatches (or global_batch)": batch.num_microbatches,
        "seq_len": batch.seq_len,
    }
    missing = [name for name, value in given.items() if value is None]
    if not missing or (layout.tp == 1 and layout.pp == 1):
        return []
    return [
        _note(
            "batch/incomplete",
            place("batch"),
            f"tensor and pipeline traffic has no size without {', '.join(missing)}.",
            "batch: {global_batch: 64, micro_batch: 1, seq_len: 8192}",
            missing=missing,
        )
    ]


def given_notes(
    items: Sequence[TrafficItem],
    degrees: Mapping[str, int],
    modelled: Sequence[Collective],
    place: PlaceOf,
) -> list[Finding]:
    """Say where traffic given by hand loads nothing, and where it replaces what is modelled."""
    findings = []
    known = {one.axis for one in modelled if one.is_known}
    for index, item in enumerate(items):
        key = f"traffic[{index}].axis"
        if degrees[item.axis] < 2:
            message = (
                f"{item.axis} has one rank a group: nothing is sent, the given bytes load nothing."
            )
            findings.append(
                Finding(
                    "traffic/axis-of-one",
                    Severity.WARNING,
                    place(key),
                    message,
                    {"axis": item.axis},
                )
            )
        elif item.axis in known:
            message = f"traffic given for {item.axis} replaces all that is modelled on it."
            findings.append(_note("traffic/given-replaces", place(key), message, axis=item.axis))
    return findings


def unused_notes(layout: Layout, gpus: int, place: PlaceOf) -> list[Finding]:
    """Say that the job leaves GPUs of its cluster idle."""
    left = gpus - layout.world_size
    if left <= 0:
        return []
    return [
        _note(
            "layout/gpus-unused",
            place("layout.world_size" if "world_size" not in layout.assumed else "layout"),
            f"{layout.world_size} ranks on a cluster of {gpus} GPUs: {left} stay idle.",
            "leave dp out to have it follow from the cluster",
            gpus=gpus,
            ranks=layout.world_size,
            idle=left,
        )
    ]


def traffic_notes(collectives: Sequence[Collective], place: PlaceOf) -> list[Finding]:
    """Say which collectives run but have no modelled size: they load nothing in this report."""
    unknown = [one for one in collectives if not one.is_known]
    if not unknown:
        return []
    axes = list(dict.fromkeys(one.axis for one in unknown))
    listed = "; ".join(
        f"{axis}: " + ", ".join(dict.fromkeys(one.what for one in unknown if one.axis == axis))
        for axis in axes
    )
    # What is given by hand replaces an axis, so it is no remedy where a part is modelled.
    empty = [
        axis for axis in axes if not any(one.is_known for one in collectives if one.axis == axis)
    ]
    op = next((one.op for one in unknown if one.axis in empty), None)
    return [
        _note(
            "traffic/not-modelled",
            place("layout"),
            f"runs, but its bytes are not known (null, not zero; no load is shown for it): {listed}.",
            f"give it by hand: traffic: [{{axis: {empty[0]}, op: {op}, bytes: 1 GB, count: 1}}]"
            if empty
            else None,
            axes=axes,
        )
    ]


def default_notes(work: Workload, place: PlaceOf) -> list[Finding]:
    """Say which left-out key would change a load by over 10 % if it were turned."""
    before = _sent_by_axis(work)
    findings = []
    for key, value, other in _turned(work):
        after = _sent_by_axis(other)
        changes = {
            axis: after[axis] / before[axis] - 1
            for axis in before
            if before[axis] > 0
            and axis in after
            and abs(after[axis] / before[axis] - 1) > NOTABLE_SHARE
        }
        if changes:
            listed = ", ".join(f"{axis} {change:+.0%}" for axis, change in changes.items())
            findings.append(
                _note(
                    f"assumed/{key.split('.')[1].replace('_', '-')}",
                    place(key),
                    f"{key} is left out; {work.layout.framework}'s default {value[0]} is assumed. With {value[1]} the load "
                    f"of a rank would change: {listed}.",
                    f"{key.split('.')[1]}: {value[0]}, to say so",
                    changes={axis: round(change, 4) for axis, change in changes.items()},
                )
            )
    return findings


def _turned(work: Workload) -> list[tuple[str, tuple[str, str], Workload]]:
    """Return (key, (default, other), workload with the other) for each key left out."""
    layout = work.layout
    rows = []

    def with_layout(**changes: object) -> Workload:
        return replace(work, layout=msgspec.structs.replace(layout, **changes))

    if "sequence_parallel" in layout.assumed and layout.tp > 1:
        rows.append(
            ("layout.sequence_parallel", ("false", "true"), with_layout(sequence_parallel=True))
        )
    if "sharding" in layout.assumed and layout.framework == "megatron":
        other = with_layout(sharding="zero1", shard_degree=layout.dp)
        rows.append(("layout.sharding", ("none", "zero1"), other))
    if work.training.gradient_dtype is None:
        default = "fp32" if work.gradient_bytes == 4 else "bf16"
        turned = "bf16" if default == "fp32" else "fp32"
        training = msgspec.structs.replace(work.training, gradient_dtype=turned)
        rows.append(
            ("training.gradient_dtype", (default, turned), replace(work, training=training))
        )
    return rows


def _sent_by_axis(work: Workload) -> dict[str, float]:
    """Return what the busiest rank sends a step on each axis (only known collectives)."""
    layout = work.layout
    degrees = {"tp": layout.tp, "dp": layout.dp, "dp-cp": layout.dp * layout.cp, "edp": layout.edp}
    sent: dict[str, float] = {}
    for one in modelled_collectives(work):
        total = one.sent_bytes_by_stage(max(degrees.get(one.axis, 2), 1))
        if total is not None:
            sent[one.axis] = sent.get(one.axis, 0.0) + float(np.max(total))
    return sent


def mesh_notes(routes: Sequence[AxisRoute], fabric: Fabric, place: PlaceOf) -> list[Finding]:
    """Say that a mesh of GPU links is loaded by one ring, where a library would use several."""
    if not any(one.nvlink == "mesh" for one in fabric.node_types):
        return []
    axes = [route.axis for route in routes if route.patterns and route.degree > 1]
    if not axes:
        return []
    return [
        _note(
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
                _note(
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
