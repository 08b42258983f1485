"""Rules of pipelines: chunks, microbatches and names of schedules.

What forbids a schedule stands once, in ``schedules/make_refusals.py``; here its refusals get a place in the
job file, a remedy in the job's own figures, and the release they hold for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from meshwright.data.names import near_names
from meshwright.documents.source import shown
from meshwright.findings import Number, Severity
from meshwright.rules.arithmetic import padded
from meshwright.rules.batch import count_remedy, least_count_remedy
from meshwright.rules.layers import layers_divide
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree, first_that_hold, near
from meshwright.rules.versions import (
    INTERLEAVED_PP2,
    MICROBATCH_GROUPS,
    megatron_release,
    release_text,
)
from meshwright.schedules.closed_forms import ChunkTimes, Sizes, idle_s
from meshwright.schedules.closed_forms import bubble_fraction as closed_bubble
from meshwright.schedules.left_out import TORCH, convention_of
from meshwright.schedules.make_asked import Asked, asked
from meshwright.schedules.make_refusals import Refusal, refusals_of
from meshwright.schedules.names import NAMES, SCHEDULES, TWO_CHUNKS, schedule_name

_SCHEDULES = "NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py"
_TORCH = "pytorch torch/distributed/pipelining/schedules.py"
_UNKNOWN_COUNT = 4
"""Microbatches a stage where their number is not known: no rule forbids them."""
_MOST_CHUNKS = 8
MUCH_IDLE = 0.25
"""A larger share of a step spent idle is worth a warning."""
_ONE_BY_ONE = ("gpipe", "1f1b", "interleaved", "looped-bfs")


@rule(
    "pipeline/interleaved-pp2",
    source="NVIDIA/Megatron-LM megatron/training/arguments.py, parallel_state.py; NVIDIA/Megatron-LM#750",
    frameworks=("megatron",),
    versions="megatron-core 0.8 on: pp above 2, or pp 2 with overlapped p2p; before: pp above 2",
)
def interleaved_pp2(context: RuleContext) -> Iterator[Violation]:
    """Interleaving over two stages needs overlapped p2p."""
    layout, release = context.layout, megatron_release(context)
    old = release < INTERLEAVED_PP2
    if layout.vp <= 1 or layout.pp != 2 or (context.training.overlap_p2p is not False and not old):
        return
    why = (
        f"{release_text(release)} wants more than two stages"
        if old
        else "without overlapped p2p the next and the previous stage are the same rank, and the two sends "
        "cannot be told apart"
    )
    yield Violation(
        "layout.pp",
        f"vp {layout.vp} over two stages: {why}.",
        {"pp": 2, "vp": layout.vp, "release": release_text(release)},
        "pp: 4" if old else "training: {overlap_p2p: true}, or pp: 4",
    )


def _microbatches(context: RuleContext) -> int | None:
    """Return the microbatches of one pass through the pipeline; ``None`` where not known."""
    batch = context.batch
    if batch is None or context.layout.pp <= 1 or batch.contradictions:
        return None
    return batch.microbatches_per_pass


def _schedule(context: RuleContext) -> str | None:
    return schedule_name(context.training.schedule, context.layout.vp)


def _asked(context: RuleContext) -> Asked | None:
    """Return what the job asks of its schedule; ``None`` without a pipeline or without a known name."""
    layout, training = context.layout, context.training
    if layout.pp <= 1 or layout.vp < 1 or _schedule(context) is None:
        return None
    # a schedule of two chunks has them without being told
    own = "vp" in layout.assumed and schedule_name(training.schedule) in TWO_CHUNKS
    count = _microbatches(context)
    group = training.microbatch_group
    if count is None or _knows_no_groups(context):
        group = None
    return asked(
        training.schedule or "",
        layout.pp,
        _UNKNOWN_COUNT * layout.pp if count is None else count,
        {
            "chunks": None if own else layout.vp,
            "group": group,
            "convention": convention_of(layout.framework),
        },
    )


def _knows_no_groups(context: RuleContext) -> bool:
    """Tell whether the release of Megatron named is too old for groups of microbatches."""
    return context.layout.framework == "megatron" and megatron_release(context) < MICROBATCH_GROUPS


def _refused(context: RuleContext, rule_id: str) -> Iterator[Violation]:
    """Yield what a rule of schedules forbids, in the words of the job."""
    ask = _asked(context)
    for refusal in refusals_of(ask) if ask is not None else ():
        if refusal.rule != rule_id:
            continue
        key, remedy = _told(context, refusal)
        yield Violation(key, refusal.message, dict(refusal.numbers), remedy)


def _told(context: RuleContext, refusal: Refusal) -> tuple[str, str]:
    """Return the key that a refusal is about, and its remedy in the job's own figures."""
    layout, values = context.layout, refusal.values
    if refusal.about == "microbatches":
        made = (
            least_count_remedy(context, values[0])
            if refusal.at_least
            else count_remedy(context, values)
        )
        return "batch", made
    if refusal.about == "pp":
        even = range(2, layout.pp + 4, 2)
        return "layout.pp", degree(context, "pp", even, layout.pp, 2)
    if refusal.about == "group":
        return "training.microbatch_group", f"microbatch_group: {values[0]}"
    return "layout.vp", _chunks_remedy(context, refusal)


def _chunks_remedy(context: RuleContext, refusal: Refusal) -> str:
    """Return other chunks, or another schedule, whichever breaks no other rule."""
    name = str(refusal.numbers["schedule"])
    if name == "1f1b":
        options: list[Mapping[str, object]] = [
            {"training.schedule": "interleaved"},
            {"layout.vp": None},
        ]
        return first_that_hold(context, options)
    if refusal.values == (1,):
        return first_that_hold(context, [{"layout.vp": None}, {"layout.vp": 1}], most=1)
    most = 2 if name in TWO_CHUNKS else _MOST_CHUNKS
    chunks = near(context, "layout.vp", range(2, most + 1), 2, 1) or [2]
    options = [{"layout.vp": chunks[0]}, {"training.schedule": "1f1b"}]
    return first_that_hold(context, options)


@rule(
    "pipeline/interleaved-microbatches",
    source=f"{_SCHEDULES}; {_TORCH}; pytorch/pytorch#129597",
    versions="megatron-core to 0.9: m % pp == 0; 0.10 on: groups of pp or more (microbatch_group), the last as "
    "full as pp; torch: rounds = max(1, m // pp), m % rounds == 0",
)
def interleaved_microbatches(context: RuleContext) -> Iterator[Violation]:
    """Interleaved schedules take only some numbers of microbatches."""
    group = context.training.microbatch_group
    found = _refused(context, "pipeline/interleaved-microbatches")
    if context.layout.framework != "megatron":
        yield from found
        return
    release = release_text(megatron_release(context))
    if group is not None and _knows_no_groups(context):
        yield Violation(
            "training.microbatch_group",
            f"microbatch_group {group}: {release} knows no groups of microbatches, 0.10 on does.",
            {"group": group, "release": release},
            "leave microbatch_group out, or framework_version: megatron-core 0.10.0",
        )
    for one in found:
        message = f"{one.message} Applied: {release}."
        yield Violation(one.key, message, {**one.numbers, "release": release}, one.remedy)


@rule(
    "pipeline/microbatches-fill-stages",
    source=f"{_TORCH}; NVIDIA-NeMo/Automodel#2575",
    versions="torch: 1f1b and DualPipeV; the interleaved ones where the batch of a pass is given (Automodel)",
)
def microbatches_fill(context: RuleContext) -> Iterator[Violation]:
    """Schedules of torch want as many microbatches a pass as stages (DualPipeV: twice as many)."""
    found = list(_refused(context, "pipeline/microbatches-fill-stages"))
    if not found:
        found = list(_automodel(context))
    for one in found:
        least = one.numbers["least"]
        assert isinstance(least, int)
        of, numbers = _of_a_pass(context, least)
        yield Violation(
            "batch.local_batch" if of else one.key,
            f"{of}{one.message}",
            {**one.numbers, **numbers},
            f"{one.remedy}; memory of a microbatch stays the same",
        )


def _automodel(context: RuleContext) -> Iterator[Violation]:
    """Yield that a pass of a given size has fewer microbatches than ranks, which Automodel refuses.

    torch itself takes fewer in one round, where nothing is accumulated.
    """
    count, batch, pp = _microbatches(context), context.batch, context.layout.pp
    mine = context.layout.framework in TORCH and _schedule(context) == "interleaved"
    if count is None or batch is None or batch.given.local_batch is None or not mine:
        return
    if count < pp:
        yield Violation(
            "batch",
            f"{count} microbatches a pass, fewer than the {pp} that interleaved over pp {pp} needs.",
            {"microbatches": count, "pp": pp, "least": pp},
            least_count_remedy(context, pp),
        )


def _of_a_pass(context: RuleContext, least: int) -> tuple[str, dict[str, Number]]:
    """Return how the microbatches of a pass came about, and the figures with enough of them."""
    batch, dp = context.batch, context.layout.dp
    assert batch is not None
    figures, micro = batch.given, batch.micro_batch or 1
    numbers: dict[str, Number] = {"min_local_batch": least * micro}
    if not figures.local_batch:
        return "", numbers
    if figures.global_batch and dp > 0:
        numbers["grad_accum"] = figures.global_batch // (figures.local_batch * dp)
        numbers["grad_accum_after"] = figures.global_batch // (least * micro * dp)
    return f"local_batch {figures.local_batch} / micro_batch {micro} = ", numbers


@rule("pipeline/dualpipe-even", source="deepseek-ai/DualPipe dualpipe/dualpipe.py, dualpipev.py")
def dualpipe_even(context: RuleContext) -> Iterator[Violation]:
    """DualPipe wants an even pp, an even number of microbatches, and at least 2·pp of them."""
    yield from _refused(context, "pipeline/dualpipe-even")


@rule("pipeline/chimera-even", source="Chimera arXiv 2107.06925 section 3.1")
def chimera_even(context: RuleContext) -> Iterator[Violation]:
    """Chimera wants an even pp and an even number of microbatches."""
    yield from _refused(context, "pipeline/chimera-even")


@rule(
    "pipeline/schedule-chunks",
    source=f"{_TORCH}; {_SCHEDULES}; pytorch/torchtitan torchtitan/distributed/pipeline_parallel.py",
)
def schedule_chunks(context: RuleContext) -> Iterator[Violation]:
    """The schedule and vp agree on the chunks a rank holds."""
    for one in _refused(context, "pipeline/schedule-chunks"):
        message = one.message
        if "vp" in context.layout.assumed:
            framework = context.layout.framework
            message += (
                f" vp is left out, and {framework} cuts a rank's layers only where it is told to."
            )
        yield Violation(one.key, message, one.numbers, one.remedy)


@rule(
    "assumed/vp",
    source="pytorch/torchtitan torchtitan/distributed/pipeline_parallel.py pipeline_llm",
    severity=Severity.NOTE,
    frameworks=TORCH,
)
def chunks_assumed(context: RuleContext) -> Iterator[Violation]:
    """A schedule of several stages a rank is taken to have two where vp is left out."""
    layout = context.layout
    if layout.pp > 1 and layout.vp > 1 and "vp" in layout.assumed:
        yield Violation(
            "layout.vp",
            f"schedule {shown(context.training.schedule or '')} holds several stages a rank and vp is left out: "
            f"{layout.vp} are taken, torchtitan's default (where layers_per_stage is not set).",
            {"vp": layout.vp},
            f"vp: {layout.vp}",
        )


@rule("pipeline/schedule-unknown", source="schedules/names.py", severity=Severity.WARNING)
def schedule_unknown(context: RuleContext) -> Iterator[Violation]:
    """The schedule is one that is known here."""
    given = context.training.schedule
    if given is None or context.layout.pp <= 1 or _schedule(context) is not None:
        return
    close = list(dict.fromkeys(NAMES[one] for one in near_names(given, filter(None, NAMES))))
    listed = ", ".join(close or SCHEDULES)
    yield Violation(
        "training.schedule",
        f"{shown(given)} is no schedule known here"
        + (f"; the nearest {'are' if len(close) > 1 else 'is'} {listed}." if close else ".")
        + " Its rules are not checked, and memory and idle time are not those of it.",
        {"schedule": given[:64], "nearest": close},
        f"schedule: {close[0] if close else SCHEDULES[0]}, or another of {', '.join(SCHEDULES)}",
    )


def bubble_fraction(pp: int, microbatches: int, vp: int = 1) -> float:
    """Return the idle share of 1F1B (interleaved with ``vp``), stages even: (p-1)/(v·m + p-1)."""
    return (pp - 1) / (vp * microbatches + pp - 1)


@rule(
    "pipeline/much-idle",
    source="(p-1)/(v·m + p-1), Megatron arXiv 2104.04473; schedules/closed_forms.py",
    severity=Severity.WARNING,
)
def much_idle(context: RuleContext) -> Iterator[Violation]:
    """Few microbatches leave a pipeline idle for much of the step."""
    ask = _asked(context)
    if ask is None or _microbatches(context) is None or refusals_of(ask):
        return
    name, pp, count, chunks = ask.schedule, ask.pp, ask.microbatches, ask.chunks
    times = _even_times(name)
    idle = _share(name, Sizes(pp, count, chunks, ask.group), times)
    if idle is None or idle <= MUCH_IDLE:
        return
    form = (
        "(pp-1)/(vp·m + pp-1)"
        if name in _ONE_BY_ONE and (count >= pp or chunks == 1)
        else "the closed form of stages that take the same"
    )
    remedy = "a smaller dp or pp"
    if enough := _enough(ask, times):
        remedy = f"{least_count_remedy(context, enough)}, or {remedy}"
    yield Violation(
        "batch",
        f"{name}: {count} microbatches over pp {pp}"
        f"{f' × vp {chunks}' if chunks > 1 else ''}: {100 * idle:.1f} % of a step is idle, {form}.",
        {"microbatches": count, "pp": pp, "vp": chunks, "formula_bubble_fraction": idle},
        remedy,
    )


def _even_times(name: str) -> ChunkTimes:
    """Return times for which the form is exact: Chimera's wants a backward of one forward."""
    return ChunkTimes(1.0, 0.5, 0.5) if name == "chimera" else ChunkTimes()


def _share(name: str, sizes: Sizes, times: ChunkTimes) -> float | None:
    """Return the idle share; ``None`` where no form is exact."""
    found = closed_bubble(name, sizes, times)
    return None if found is None or not np.isfinite(found).all() else float(found)


def _enough(ask: Asked, times: ChunkTimes) -> int:
    """Return the least multiple of pp that leaves a quarter idle or less; 0 where it is not known."""
    many = _UNKNOWN_COUNT * ask.pp
    idle = idle_s(ask.schedule, Sizes(ask.pp, many, ask.chunks, ask.group), times)
    if idle is None or not np.isfinite(idle).all():
        return 0
    work = ask.chunks * (float(times.forward_s) + float(times.input_s) + float(times.weight_s))  # type: ignore[arg-type]
    least = padded(max(int(np.ceil(3 * float(idle) / work)), 1), ask.pp)
    return max(least, 2 * ask.pp) if ask.schedule.startswith("dualpipe") else least


PIPELINE_RULES: tuple[Rule, ...] = (
    layers_divide,
    interleaved_pp2,
    interleaved_microbatches,
    microbatches_fill,
    dualpipe_even,
    chimera_even,
    schedule_chunks,
    chunks_assumed,
    schedule_unknown,
    much_idle,
)
"""Rules of pipelines."""
