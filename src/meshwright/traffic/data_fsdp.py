"""FSDP2 and HSDP: parameters gathered unit by unit, gradients scattered, copies added.

A unit is a transformer layer, and what stands outside the layers: torch's root module (embedding,
norm and output together), torchtitan's embedding, and its norm with the output (``apply_fsdp``).
Counted by running torch 2.13, for each unit and microbatch:

=============================================  ==========  ===========  ==============  ==========
``reshard_after_forward``                      forward AG  backward AG  reduce-scatter  all-reduce
=============================================  ==========  ===========  ==============  ==========
true (default; the root: false)                1           1            1               HSDP: 1
false                                          1           0            1               HSDP: 1
an int r: backward over r ranks                1           1            1               HSDP: 1
``gradient_sync: last``, before the last       1           as above     0               0
``replica_sync: last``, before the last        1           as above     1               0
=============================================  ==========  ===========  ==============  ==========

S: unit parameters in the compute type (all-gather), in the reduce type (reduce-scatter), that over
the shard degree (all-reduce over dp_replicate). With pipeline stages torch reduces in the last
microbatch alone and keeps parameters gathered where they are not resharded
(``pipelining/stage.py backward_maybe_with_nosync``; UNSHARD and REDUCE_GRAD once a chunk in its
schedules); torchtitan's default there is false. With ep torchtitan shards experts apart, over
efsdp (our edp).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.groups.of_training import spread_axis
from meshwright.traffic.axes import degree_of_axis, shard_axis
from meshwright.traffic.collective import Collective, Floats, Per, Run, known_run, unknown_run
from meshwright.traffic.workload import BOTH_ENDS, LOGITS, NO_BATCH, WORDS, Workload

_PREFETCH = "compute of the unit before (prefetch)"
_NEXT_UNIT = "backward compute of the next unit"
_KEPT = ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
"""FSDP1's words for parameters that stay gathered after forward."""
BY_SCHEDULE = (
    "with pipeline stages and resharding after forward it depends on the schedule; "
    "training.reshard_after_forward: false keeps parameters gathered"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """One kind of FSDP unit.

    ``parameters``: of one unit on a rank before sharding; ``by_stage``: units of each stage;
    ``axis``: over which it is sharded; ``reshard``: true, false, or ranks.
    """

    name: str
    parameters: float
    by_stage: Floats
    axis: str
    reshard: bool | int


def fsdp_collectives(work: Workload) -> list[Collective]:
    """Return what FSDP2 or HSDP runs, unit by unit."""
    return [one for unit in units_of(work) for one in _unit(work, unit)]


def reshard_of(work: Workload) -> bool | int:
    """Return the policy of layers: the one given, else the framework's default."""
    given = work.training.reshard_after_forward
    if given is not None:
        return given
    if work.layout.fsdp1 in _KEPT:
        return False
    return not (work.layout.framework == "torchtitan" and work.layout.pp > 1)


def units_of(work: Workload) -> list[Unit]:
    """Return the units of a job that hold parameters."""
    every = [*_layer_units(work), *_end_units(work)]
    return [unit for unit in every if unit.parameters > 0 and unit.by_stage.any()]


def _layer_units(work: Workload) -> Iterator[Unit]:
    axis, reshard = shard_axis(work.layout), reshard_of(work)
    experts = work.expert_layers_by_stage()
    plain, held = (work.layer_parameters(is_moe=kind) for kind in (False, True))
    if plain is not None:
        yield Unit("layers", plain.dense, work.layers_by_stage() - experts, axis, reshard)
    if held is None:
        return
    if work.layout.ep == 1:
        yield Unit("layers with experts", held.dense + held.expert, experts, axis, reshard)
        return
    yield Unit("layers without their experts", held.dense, experts, axis, reshard)
    yield Unit("experts", held.expert, experts, "edp", reshard)


def _end_units(work: Workload) -> Iterator[Unit]:
    axis, reshard = shard_axis(work.layout), reshard_of(work)
    words = work.parameters_of(WORDS).dense
    together = work.embedding_stages() * work.output_stages()
    first = work.embedding_stages() - together
    last = work.output_stages() - together
    logits = work.parameters_of(LOGITS).dense
    both = work.parameters_of(BOTH_ENDS).dense
    if work.layout.framework == "torchtitan":
        # Of tied words the embedding's unit holds the parameter; "always" would reshard the last.
        always = work.training.reshard_after_forward is True
        yield Unit("embedding", words, first + together, axis, reshard)
        yield Unit("norm and output", logits, last, axis, always)
        yield Unit("norm and output", both - words, together, axis, always)
        return
    yield Unit("root: embedding", words, first, axis, reshard=False)
    yield Unit("root: norm and output", logits, last, axis, reshard=False)
    yield Unit("root: embedding, norm and output", both, together, axis, reshard=False)


def _unit(work: Workload, unit: Unit) -> Iterator[Collective]:
    gathers, syncs = _gathers(work, unit), _syncs(work)
    for run, axis, times, per in gathers:
        if times is None:
            reason = NO_BATCH if work.rounds is None else BY_SCHEDULE
            yield unknown_run(axis, run, reason)
        else:
            size = unit.parameters * work.parameter_bytes
            yield known_run(axis, run, per, size, unit.by_stage * times)
    size = unit.parameters * work.gradient_bytes
    (times, per), (copied, copied_per) = syncs
    scatter = Run(
        "reduce_scatter", "backward", f"gradients of {unit.name}", hides_behind=_NEXT_UNIT
    )
    if times is None:
        yield unknown_run(unit.axis, scatter, NO_BATCH)
    else:
        yield known_run(unit.axis, scatter, per, size, unit.by_stage * times)
    if work.layout.dp_replicate < 2:
        return
    between = Run(
        "all_reduce", "backward", f"gradient shards of {unit.name}", hides_behind=_NEXT_UNIT
    )
    degree = degree_of_axis(work.layout, unit.axis) or 1
    if copied is None:
        yield unknown_run("dp_replicate", between, NO_BATCH)
    else:
        times_by_stage = unit.by_stage * copied
        yield known_run("dp_replicate", between, copied_per, size / degree, times_by_stage)


def _gathers(work: Workload, unit: Unit) -> list[tuple[Run, str, float | None, Per]]:
    """Return (row, axis, times a unit, for what) of the all-gathers of parameters."""
    forward = Run("all_gather", "forward", f"parameters of {unit.name}", hides_behind=_PREFETCH)
    backward = Run("all_gather", "backward", f"parameters of {unit.name}", hides_behind=_PREFETCH)
    per: Per = "unit and microbatch"
    times: float | None = work.rounds
    if work.layout.pp > 1:
        per, times = "unit", (1.0 if unit.reshard is False else None)
    rows: list[tuple[Run, str, float | None, Per]] = [(forward, unit.axis, times, per)]
    if unit.reshard is not False:
        rows.append((backward, _spread_axis(work, unit), times, per))
    return rows


def _spread_axis(work: Workload, unit: Unit) -> str:
    """Return the axis of the backward gathers: of ``reshard_after_forward: 8`` groups of 8 ranks."""
    degree = degree_of_axis(work.layout, unit.axis)
    if unit.reshard is True or unit.reshard == degree:
        return unit.axis
    return spread_axis(unit.axis, int(unit.reshard))


def _syncs(work: Workload) -> tuple[tuple[float | None, Per], tuple[float | None, Per]]:
    """Return (times a unit, for what) of the reduce-scatter and of the all-reduce over copies."""
    last: tuple[float | None, Per] = (1.0, "unit")
    every: tuple[float | None, Per] = (work.rounds, "unit and microbatch")
    if work.layout.pp > 1 or work.training.gradient_sync == "last":
        return last, last
    return every, last if work.training.replica_sync == "last" else every
