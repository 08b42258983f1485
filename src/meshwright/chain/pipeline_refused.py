"""Why a pipeline is not run: rules of its schedule, flaws of a user's order, layers that do not suffice."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.schedules.make_asked import asked
from meshwright.schedules.make_refusals import Refusal, refusals
from meshwright.schedules.names import TWO_CHUNKS
from meshwright.schedules.orders import Orders
from meshwright.schedules.validity import Flaw, flaws_of

_CHUNKS = "pipeline/schedule-chunks"
_RULES = {
    "idle-rank": "schedule/idle-rank",
    "missing-stage": "schedule/missing-stage",
    "missing-microbatch": "schedule/missing-microbatch",
    "rank": "schedule/rank",
    "missing": "schedule/missing",
    "twice": "schedule/twice",
    "pair": "schedule/pair",
    "order": "schedule/order",
    "deadlock": "schedule/deadlock",
}
"""Rule of each kind of ``Flaw``."""
_OPTIONS = (
    ("num_microbatches: ", "-m "),
    ("leave vp out", "leave -v out"),
    ("vp: ", "-v "),
    ("pp: ", "-p "),
    ("group: ", "--group "),
    ("schedule: ", "--schedule "),
)
"""Words of the schedules' remedies, and the same as options of the command line."""


def forbidden(ask: PipelineAsk) -> list[Finding]:
    """Return what keeps a question from an answer; empty where there is nothing.

    Raises ``UsageError`` where nobody knows the schedule.
    """
    if ask.orders is not None:
        return flaws(ask.schedule, ask.orders)
    refused = refusals(ask.schedule, ask.pp, ask.microbatches, **ask.options)
    found = [_finding(ask, one) for one in refused]
    return found or [*_same_neighbour(ask), *_too_few_layers(ask)]


def flaws(name: str, orders: Orders) -> list[Finding]:
    """Return what is wrong with a user's order; ``name``: its file, which has a line for each rank."""
    return [_flaw(name, flaw) for flaw in flaws_of(orders)]


def _flaw(name: str, flaw: Flaw) -> Finding:
    at: dict[str, Number] = {}
    if flaw.rank >= 0:
        at = {"rank": flaw.rank}
    if flaw.operation >= 0:
        at["operation"] = flaw.operation
    return Finding(
        _RULES[flaw.kind],
        Severity.ERROR,
        Place(file=name, line=flaw.rank + 1 if flaw.rank >= 0 else None),
        flaw.message,
        at | dict(flaw.numbers),
        "correct the order of this rank" if flaw.rank >= 0 else "correct the schedule",
    )


def as_options(remedy: str) -> str:
    """Return a remedy that names keys of a job file as options of the command line."""
    for key, option in _OPTIONS:
        remedy = remedy.replace(key, option)
    return remedy


def _finding(ask: PipelineAsk, refusal: Refusal) -> Finding:
    remedy = as_options(refusal.remedy) if ask.by_options else refusal.remedy
    return Finding(
        refusal.rule,
        Severity.ERROR,
        ask.place(_key(ask, refusal)),
        refusal.message,
        dict(refusal.numbers),
        remedy,
    )


def _key(ask: PipelineAsk, refusal: Refusal) -> str:
    """Return the key whose value a rule does not bear."""
    if refusal.rule == _CHUNKS:
        return "layout.vp"
    if "microbatches" not in refusal.numbers:
        return "layout.pp"
    return "batch.num_microbatches" if ask.group is None else "group"


def _same_neighbour(ask: PipelineAsk) -> Iterator[Finding]:
    """Yield that Megatron's interleaved ranks cannot tell two sends apart, which go to one rank.

    As ``rules/pipeline.py`` has it of a job (NVIDIA/Megatron-LM megatron/training/arguments.py).
    """
    megatron = ask.schedule == "interleaved" and ask.convention == "megatron"
    if not (megatron and ask.pp == 2 and ask.blocking):
        return
    remedy = "training: {overlap_p2p: true}, or pp: 4"
    yield Finding(
        "pipeline/interleaved-pp2",
        Severity.ERROR,
        ask.place("layout.pp"),
        "interleaved over two stages: without overlapped p2p the next and the previous stage are the same "
        "rank, and the two sends cannot be told apart.",
        {"pp": 2, "vp": ask.chunks or 1},
        "leave --blocking out, or -p 4" if ask.by_options else remedy,
    )


def _too_few_layers(ask: PipelineAsk) -> Iterator[Finding]:
    """Yield that some stage would hold no layer, where a schedule asks for more stages than the job has."""
    layers = ask.work.rank_layers()
    made = asked(ask.schedule, ask.pp, ask.microbatches, ask.options)
    if not layers or made.chunks < 2 or min(layers) >= made.chunks:
        return
    least = min(layers)
    fixed = made.schedule in TWO_CHUNKS
    remedy = "schedule: 1f1b" if fixed or least < 2 else f"vp: {least}"
    yield Finding(
        _CHUNKS,
        Severity.ERROR,
        ask.place("layout.vp"),
        f"{made.schedule} cuts each rank's layers into {made.chunks} stages; rank {layers.index(least)} has "
        f"{least}.",
        {"schedule": made.schedule, "vp": made.chunks, "layers": least},
        as_options(remedy) if ask.by_options else remedy,
    )
