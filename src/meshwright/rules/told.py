"""Notes that say what was taken for granted and what words mean here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.findings import Finding, Place, Severity
from meshwright.job.batch import Batch
from meshwright.job.layout import Layout
from meshwright.job.sections import MoeSection, TrafficItem
from meshwright.routes.axis import AxisRoute
from meshwright.traffic.axes import degree_of_axis
from meshwright.traffic.collective import Collective
from meshwright.traffic.data_fsdp import reshard_of
from meshwright.traffic.expert import dispatcher_of, expert_collectives
from meshwright.traffic.job import modelled_collectives
from meshwright.traffic.workload import Workload
from meshwright.units import format_bytes

PlaceOf = Callable[[str], Place]
NOTABLE_SHARE = 0.10
"""A default is worth a note when turning it changes a load by more than this."""
_EVERY_MICROBATCH = ("zero2", "zero3", "fsdp", "hsdp")
"""Shardings that send for every microbatch."""


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
        order = ""
        if layout.jax_mesh is None:
            order = f"; here the order is {'-'.join(layout.order)}, the first axis fastest"
        findings.append(
            _note(
                "assumed/framework",
                place("layout.framework"),
                f"{assumed} not given: rules of {layout.framework_version} are applied. Rank order differs "
                f"between frameworks and releases{order}.",
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
    by_microbatch = max(layout.tp, layout.pp, layout.cp, layout.ep) > 1
    if not missing or not (by_microbatch or layout.sharding in _EVERY_MICROBATCH):
        return []
    return [
        _note(
            "batch/incomplete",
            place("batch"),
            f"what is sent for every microbatch has no size without {', '.join(missing)}.",
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


def traffic_notes(
    collectives: Sequence[Collective], axes: Collection[str], place: PlaceOf
) -> list[Finding]:
    """Say which collectives load nothing in this report: of unknown size, or over groups not listed."""
    return [*_unsized(collectives, place), *_ungrouped(collectives, axes, place)]


def _unsized(collectives: Sequence[Collective], place: PlaceOf) -> list[Finding]:
    unknown = [one for one in collectives if not one.is_known and one.phase != "input"]
    if not unknown:
        return []
    axes = list(dict.fromkeys(one.axis for one in unknown))
    rows: dict[tuple[str, str | None], dict[str, None]] = {}
    for one in unknown:
        rows.setdefault((one.axis, one.reason), {})[one.what] = None
    listed = "; ".join(
        f"{axis}: {', '.join(what)}" + (f" ({reason})" if reason else "")
        for (axis, reason), what in rows.items()
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


def _ungrouped(
    collectives: Sequence[Collective], axes: Collection[str], place: PlaceOf
) -> list[Finding]:
    """Say what has a size and no groups: fewer ranks than an axis, or pairs of opposed pipelines."""
    known = [one for one in collectives if one.is_known and not one.is_minor]
    lost = [one for one in known if one.axis not in axes]
    if not lost:
        return []
    total = {one.axis: 0.0 for one in lost}
    for one in lost:
        if one.bytes_by_stage is not None and one.count_by_stage is not None:
            total[one.axis] += float((one.bytes_by_stage * one.count_by_stage).max())
    listed = "; ".join(
        f"{axis}: {', '.join(dict.fromkeys(one.what for one in lost if one.axis == axis))}, "
        f"{format_bytes(size)} a step (S)"
        for axis, size in total.items()
    )
    return [
        _note(
            "traffic/groups-not-listed",
            place("layout"),
            f"runs, and its size is known, but over groups that are not listed, so it loads no link: {listed}.",
            axes=list(total),
            bytes=total,
        )
    ]


def assumed_notes(work: Workload, place: PlaceOf) -> list[Finding]:
    """Say what of a model is left out, or taken as even, because the job does not say it."""
    findings = []
    mtp = work.model.mtp_layers
    if mtp and work.training.mtp_layers is None:
        findings.append(
            _note(
                "assumed/mtp-layers",
                place("training.mtp_layers"),
                f"{work.model.name} has {mtp} multi-token prediction layer{'s' if mtp > 1 else ''}; training.mtp_layers "
                "is left out, so none is counted.",
                f"training: {{mtp_layers: {mtp}}}",
                mtp_layers=mtp,
            )
        )
    routed = any(one.copies or one.axis == "ep" for one in expert_collectives(work))
    if routed and dispatcher_of(work) != "allgather" and work.moe.imbalance is None:
        findings.append(
            _note(
                "assumed/imbalance",
                place("moe.imbalance"),
                "moe.imbalance is left out: tokens are spread evenly over experts (1.0). Time follows the busiest "
                "rank, and its load grows in proportion.",
                "moe: {imbalance: 1.3}, the largest over the mean of your own counts",
            )
        )
    return findings


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


_Turned = tuple[str, tuple[str, str], Workload]


def _turned(work: Workload) -> list[_Turned]:
    """Return (key, (default, other), workload with the other) for each key left out."""
    return [*_turned_layout(work), *_turned_experts(work), *_turned_training(work)]


def _turned_layout(work: Workload) -> Iterator[_Turned]:
    layout = work.layout
    left_out = "sequence_parallel" in layout.assumed and layout.framework in ("megatron", "torch")
    if left_out and layout.tp > 1:
        other = msgspec.structs.replace(layout, sequence_parallel=True)
        yield "layout.sequence_parallel", ("false", "true"), replace(work, layout=other)
    if "sharding" in layout.assumed and layout.framework == "megatron":
        other = msgspec.structs.replace(layout, sharding="zero1", shard_degree=layout.dp)
        yield "layout.sharding", ("none", "zero1"), replace(work, layout=other)


def _turned_experts(work: Workload) -> Iterator[_Turned]:
    moe = work.moe
    if not work.model.is_moe or work.layout.ep == 1:
        return
    default = dispatcher_of(work)
    if moe.dispatcher is None:
        turned: Literal["alltoall", "deepep"] = "alltoall" if default == "allgather" else "deepep"
        other = msgspec.structs.replace(moe, dispatcher=turned)
        yield "moe.dispatcher", (default, turned), replace(work, moe=other)
    if default == "deepep" and moe.dispatch_dtype is None:
        other = msgspec.structs.replace(moe, dispatch_dtype="fp8")
        yield "moe.dispatch_dtype", ("bf16", "fp8"), replace(work, moe=other)


def _turned_training(work: Workload) -> Iterator[_Turned]:
    training = work.training
    if training.reshard_after_forward is None and work.layout.sharding in ("fsdp", "hsdp"):
        reshards = bool(reshard_of(work))
        words = ("true", "false") if reshards else ("false", "true")
        other = msgspec.structs.replace(training, reshard_after_forward=not reshards)
        yield "training.reshard_after_forward", words, replace(work, training=other)
    if training.gradient_dtype is None:
        wide = work.gradient_bytes == 4
        words = ("fp32", "bf16") if wide else ("bf16", "fp32")
        other = msgspec.structs.replace(training, gradient_dtype="bf16" if wide else "fp32")
        yield "training.gradient_dtype", words, replace(work, training=other)


def _sent_by_axis(work: Workload) -> dict[str, float]:
    """Return what the busiest rank sends a step on each axis (only known collectives)."""
    sent: dict[str, NDArray[np.float64]] = {}
    for one in modelled_collectives(work):
        total = one.sent_bytes_by_stage(degree_of_axis(work.layout, one.axis) or 2)
        if total is not None:
            # Dispatchers differ in which of these axes they use: compare their sum.
            axis = "ep" if one.axis in ("etp", "ep-etp") else one.axis
            sent[axis] = sent.get(axis, np.zeros(1)) + total
    return {axis: float(total.max()) for axis, total in sent.items()}


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
