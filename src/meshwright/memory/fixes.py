"""What would take least to make a job fit: one change at a time, counted by the model itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from meshwright.job.stages import layers_by_stage
from meshwright.memory.constants import Constants
from meshwright.memory.job import JobMemory, job_memory
from meshwright.memory.peak import recompute_of
from meshwright.memory.states import keeps_gathered
from meshwright.traffic.workload import MESH, Workload

NOTABLE_SHARE = 0.01
"""A change that saves less than this share of the worst rank is not named."""


MOST_TP = 8
"""A larger tp leaves most NVLink domains and is not proposed."""
MOST_CHANGES = 5
"""Changes that are put together at most."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One change: what to write, what it costs, bytes it saves on the worst rank."""

    change: str
    cost: str
    price: int
    """0 nothing in step time, 1 little, 2 much compute, 3 another layout."""
    saved_bytes: float
    total_bytes: float
    fits: bool | None


@dataclass(frozen=True, slots=True)
class _Candidate:
    change: str
    cost: str
    price: int
    work: Workload
    constants: Constants


def fixes(memory: JobMemory) -> list[Fix]:
    """Return changes that save memory on the worst rank, the best first.

    Those that make the job fit come first, then the cheaper ones, then those that save more.
    Communicators are taken as they are.
    """
    return [fix for fix, _ in _tried(memory)]


def together(memory: JobMemory) -> list[Fix]:
    """Return a few changes that make a job fit when no single one does; empty when none do.

    Greedy: what saves most first, up to ``MOST_CHANGES``; each is counted with
    those before it.
    """
    chosen: list[Fix] = []
    while memory.fits is False and len(chosen) < MOST_CHANGES:
        tried = _tried(memory)
        if not tried:
            return []
        fix, memory = (
            tried[0] if tried[0][0].fits else max(tried, key=lambda one: one[0].saved_bytes)
        )
        chosen.append(fix)
    return chosen if memory.fits else []


def _tried(memory: JobMemory) -> list[tuple[Fix, JobMemory]]:
    """Return every change that saves something, with the memory it leaves, the best first."""
    if memory.peak is None:
        return []
    before, capacity = float(memory.total.max()), memory.device.capacity_bytes
    found = []
    for one in _candidates(memory):
        after = job_memory(one.work, memory.device, one.constants, memory.communicators)
        total = float(after.total.max())
        if before - total < NOTABLE_SHARE * before:
            continue
        fits = None if capacity is None else total <= capacity
        fix = Fix(one.change, one.cost, one.price, before - total, total, fits)
        found.append((fix, after))
    return sorted(found, key=lambda one: (not one[0].fits, one[0].price, -one[0].saved_bytes))


def _candidates(memory: JobMemory) -> Iterator[_Candidate]:
    work, constants = memory.work, memory.constants
    for change, cost, price, other in (*_settings(work), *_layouts(work)):
        yield _Candidate(change, cost, price, other, constants)
    if work.layout.framework == "megatron" and constants["logit_bytes_megatron"] > 2:
        fused = constants.by_name["logit_bytes_fused"]
        changed = msgspec.structs.replace(fused, name="logit_bytes_megatron")
        yield _Candidate(
            "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te",
            "the loss is made in 16 bit",
            0,
            work,
            Constants({**constants.by_name, "logit_bytes_megatron": changed}, constants.changed),
        )


_Change = tuple[str, str, int, Workload]


def _settings(work: Workload) -> Iterator[_Change]:
    """Yield changes that keep the layout."""
    layout, training = work.layout, work.training
    mesh = layout.framework in MESH
    if layout.sharding == "none" and layout.dp * layout.cp > 1:
        sharding = "fsdp" if mesh else "zero1"
        degree = layout.dp if mesh else layout.shard_degree
        other = msgspec.structs.replace(layout, sharding=sharding, shard_degree=degree)
        cost = "parameters are gathered every pass" if mesh else "no step time worth naming"
        yield f"sharding: {sharding}", cost, int(mesh), replace(work, layout=other)
    if layout.tp > 1 and not work.sequence_parallel:
        other = msgspec.structs.replace(layout, sequence_parallel=True)
        yield "sequence_parallel: true", "no more bytes sent", 0, replace(work, layout=other)
    if keeps_gathered(work):
        other_training = msgspec.structs.replace(training, reshard_after_forward=True)
        cost = "parameters are gathered for every microbatch"
        yield "reshard_after_forward: true", cost, 1, replace(work, training=other_training)
    now = recompute_of(work)
    costs = {"selective": ("attention runs twice", 1), "full": ("a third more compute", 2)}
    order = ("none", "selective", "full")
    for kind in order[order.index(now) + 1 :]:
        text, price = costs[kind]
        other_training = msgspec.structs.replace(training, recompute=kind)
        yield f"recompute: {kind}", text, price, replace(work, training=other_training)
    micro, count = work.batch.micro_batch, work.batch.num_microbatches
    if micro is not None and micro > 1 and micro % 2 == 0:
        batch = msgspec.structs.replace(
            work.batch, micro_batch=micro // 2, num_microbatches=(count or 1) * 2
        )
        cost = "smaller matrix products, the same tokens a step"
        yield f"micro_batch: {micro // 2}", cost, 1, replace(work, batch=batch)


def _layouts(work: Workload) -> Iterator[_Change]:
    """Yield layouts with one degree doubled at the cost of dp (ep: inside dp)."""
    layout, model = work.layout, work.model
    if (
        layout.ep > 0
        and layout.edp % 2 == 0
        and model.experts % (2 * layout.ep) == 0 < model.experts
    ):
        other = msgspec.structs.replace(layout, ep=2 * layout.ep, edp=layout.edp // 2)
        yield f"ep: {2 * layout.ep}", "tokens go to more ranks", 3, replace(work, layout=other)
    if layout.dp % 2:
        return
    heads = 2 * layout.tp
    even = model.heads % heads == 0 and max(model.kv_heads, heads) % min(model.kv_heads, heads) == 0
    if even and heads <= MOST_TP and (not model.is_moe or layout.edp % 2 == 0):
        changes = {"tp": heads}
        if layout.etp == layout.tp and layout.tp > 1:
            changes |= {"etp": heads, "edp": layout.edp // 2}
        yield (
            f"tp: {heads}, dp: {layout.dp // 2}",
            "more bytes sent in a layer",
            3,
            _with(work, changes),
        )
    pp = 2 * layout.pp
    if layout.stages is None and layout.edp % 2 == 0:
        changes = {"pp": pp, "edp": layout.edp // 2}
        other_layout = msgspec.structs.replace(layout, pp=pp)
        counts = layers_by_stage(other_layout, model.num_layers, folded=work.is_folded)
        if counts is not None:
            cost = "a larger bubble"
            moved = replace(_with(work, changes), stage_layers=tuple(counts))
            yield f"pp: {pp}, dp: {layout.dp // 2}", cost, 3, moved
    seq = work.batch.seq_len
    if seq is not None and seq % (4 * layout.cp) == 0:
        cost = "keys and values travel"
        changes = {"cp": 2 * layout.cp}
        yield f"cp: {2 * layout.cp}, dp: {layout.dp // 2}", cost, 3, _with(work, changes)


def _with(work: Workload, changes: dict[str, int]) -> Workload:
    """Return the job with some degrees changed and dp halved; the global batch stays."""
    layout, count = work.layout, work.batch.num_microbatches
    degree = layout.shard_degree
    halved = degree // 2 if degree > 1 and degree % 2 == 0 else degree
    other = msgspec.structs.replace(layout, **changes, dp=layout.dp // 2, shard_degree=halved)
    batch = work.batch
    if count is not None:
        batch = msgspec.structs.replace(batch, num_microbatches=2 * count)
    return replace(work, layout=other, batch=batch)
