"""Rules of pipelines: layers by stage, and the microbatches a schedule asks for."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.job.layout import Layout
from meshwright.job.stages import layers_by_stage
from meshwright.memory.in_flight import TWO_CHUNKS, schedule_name
from meshwright.rules.arithmetic import divisors, nearest_multiples, padded, shown_list
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.versions import (
    INTERLEAVED_PP2,
    MICROBATCH_GROUPS,
    megatron_release,
    release_text,
)

_MOST_STAGES = 64
"""More stages than this are not proposed."""
_SCHEDULES = "NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py"
_TORCH = "pytorch torch/distributed/pipelining/schedules.py"
_MESH = ("torch", "torchtitan")
_ROUNDED = ("interleaved", "interleaved-zb")
MUCH_IDLE = 0.25
"""A larger share of a step spent idle is worth a warning."""


@rule(
    "pipeline/layers-divide",
    source="NVIDIA/Megatron-LM megatron/training/arguments.py, transformer_config.py; NVIDIA/Megatron-LM#1304",
)
def layers_divide(context: RuleContext) -> Iterator[Violation]:
    """Layers divide over stages and chunks, or a stage map says where each goes."""
    model, layout = context.model, context.layout
    if model is None or layout.pp < 1 or layout.vp < 1:
        return
    if layers_by_stage(layout, model.num_layers) is not None:
        return
    key = "stages" if layout.stages is not None else next(iter(_fixed_ends(layout)), "pp")
    numbers: dict[str, object] = {
        "layers": model.num_layers,
        "pp": layout.pp,
        "vp": layout.vp,
    }
    splits = _uneven(layout, model.num_layers)
    if key == "pp" and splits:
        floor = model.num_layers // layout.pp * layout.pp
        numbers |= {"floor_total": floor, "lost": model.num_layers - floor, "splits": splits}
    yield Violation(
        f"layout.{key}",
        _why_layers(context, model.num_layers),
        numbers,  # type: ignore[arg-type]
        _layers_remedy(context, model.num_layers),
    )


def _fixed_ends(layout: Layout) -> dict[str, int]:
    """Return the layers of the first and last stage, where they are given."""
    ends = {
        "first_stage_layers": layout.first_stage_layers,
        "last_stage_layers": layout.last_stage_layers,
    }
    return {name: layers for name, layers in ends.items() if layers is not None}


def _uneven(layout: Layout, num_layers: int) -> list[list[int]]:
    """Return stage maps that keep all layers: lighter ends, and the heavier stages first."""
    if layout.vp > 1 or not 1 < layout.pp <= min(_MOST_STAGES, num_layers):
        return []
    even, more = divmod(num_layers, layout.pp)
    front = [even + 1] * more + [even] * (layout.pp - more)
    # embedding and loss stand on the ends, so the middle takes what is left over
    skip = min(1, layout.pp - more)
    middle = [even] * skip + [even + 1] * more + [even] * (layout.pp - more - skip)
    return [middle, front] if middle != front else [front]


def _why_layers(context: RuleContext, num_layers: int) -> str:
    layout = context.layout
    if layout.stages is not None:
        return (
            f"stages {shown_list(layout.stages)} hold {sum(layout.stages)} layers on {len(layout.stages)} "
            f"stages; the model has {num_layers} layers and pp is {layout.pp}."
        )
    if ends := _fixed_ends(layout):
        listed = " and ".join(f"{name} {layers}" for name, layers in ends.items())
        free = max(layout.pp - len(ends), 0)
        chunks_of = f" into {layout.vp} equal chunks a stage" if layout.vp > 1 else " evenly"
        return (
            f"{listed} of {num_layers} layers leave {num_layers - sum(ends.values())} for {free} of "
            f"{layout.pp} stages, which does not divide{chunks_of}."
        )
    chunks = layout.pp * layout.vp
    interleaved = f" × {layout.vp} chunks" if layout.vp > 1 else ""
    return (
        f"{num_layers} layers over {layout.pp} stages{interleaved} leave {num_layers % chunks} over "
        f"({num_layers} = {chunks} × {num_layers // chunks} + {num_layers % chunks}); a split that rounds "
        f"down would train {num_layers - num_layers % chunks} without a word."
    )


def _layers_remedy(context: RuleContext, num_layers: int) -> str:
    layout = context.layout
    legal = [value for value in divisors(num_layers) if value <= _MOST_STAGES]
    remedy = f"pp {', '.join(map(str, legal))}"
    splits = _uneven(layout, num_layers)
    return f"{remedy}, or an uneven stage map: stages: {splits[0]}" if splits else remedy


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


@rule(
    "pipeline/interleaved-microbatches",
    source=f"{_SCHEDULES}; {_TORCH}; pytorch/pytorch#129597",
    frameworks=("megatron", "torch", "torchtitan"),
    versions="megatron-core to 0.9: m % pp == 0; 0.10 on: groups of pp; torch: m divides into m // pp rounds",
)
def interleaved_microbatches(context: RuleContext) -> Iterator[Violation]:
    """Interleaved schedules take only some numbers of microbatches."""
    count, name, layout = _microbatches(context), _schedule(context), context.layout
    if count is None or name not in _ROUNDED:
        return
    if layout.framework == "megatron":
        yield from _megatron_rounds(context, count)
        return
    rounds = max(1, count // layout.pp)
    if count % rounds:
        yield Violation(
            "batch",
            f"{count} microbatches over pp {layout.pp} in {rounds} rounds leave {count % rounds} over.",
            {"microbatches": count, "pp": layout.pp, "rounds": rounds, "remainder": count % rounds},
            f"num_microbatches: {nearest_multiples(count, rounds)}, or a multiple of {layout.pp}",
        )


def _megatron_rounds(context: RuleContext, count: int) -> Iterator[Violation]:
    pp, release = context.layout.pp, megatron_release(context)
    if count % pp == 0:
        return
    how = (
        "m % pp must be 0"
        if release < MICROBATCH_GROUPS
        else "groups of pp microbatches must be full (0 < m % pp is refused)"
    )
    yield Violation(
        "batch",
        f"interleaved: {count} microbatches over pp {pp} leave {count % pp} over; {release_text(release)}: {how}.",
        {
            "microbatches": count,
            "pp": pp,
            "remainder": count % pp,
            "release": release_text(release),
        },
        f"num_microbatches: {nearest_multiples(count, pp)}{_local_remedy(context, padded(count, pp))}",
    )


def _local_remedy(context: RuleContext, microbatches: int) -> str:
    """Return what the job's own keys would have to be, where it speaks of a local batch."""
    batch = context.batch
    if batch is None or batch.given.local_batch is None or batch.micro_batch is None:
        return ""
    figures = batch.given
    local = microbatches * batch.micro_batch
    text = f", that is local_batch: {local}"
    if figures.global_batch and context.layout.dp > 0:
        steps, rest = divmod(figures.global_batch, local * context.layout.dp)
        text += f" (grad_accum {steps})" if steps and not rest else ""
    return text


@rule(
    "pipeline/microbatches-fill-stages",
    source=f"{_TORCH}; NVIDIA-NeMo/Automodel#2575",
    frameworks=_MESH,
)
def microbatches_fill(context: RuleContext) -> Iterator[Violation]:
    """Schedules of torch want as many microbatches a pass as stages (DualPipeV: twice as many)."""
    count, name, layout = _microbatches(context), _schedule(context), context.layout
    least = layout.pp * (2 if name == "dualpipev" else 1)
    if count is None or name not in ("1f1b", "interleaved", "dualpipev") or count >= least:
        return
    batch = context.batch
    assert batch is not None
    figures = batch.given
    # the flexible rule takes fewer than pp in one round where nothing is accumulated
    if name == "interleaved" and figures.local_batch is None:
        return
    micro = batch.micro_batch or 1
    numbers = {"microbatches": count, "least": least, "min_local_batch": least * micro}
    if figures.global_batch and layout.dp > 0 and figures.local_batch:
        numbers |= {
            "grad_accum": figures.global_batch // (figures.local_batch * layout.dp),
            "grad_accum_after": figures.global_batch // (least * micro * layout.dp),
        }
    of = (
        f"local_batch {figures.local_batch} / micro_batch {micro} = " if figures.local_batch else ""
    )
    yield Violation(
        "batch.local_batch" if figures.local_batch else "batch",
        f"{of}{count} microbatches a pass, fewer than the {least} that {name} over pp {layout.pp} needs.",
        numbers,
        f"num_microbatches: {least}{_local_remedy(context, least)}; memory of a microbatch stays the same",
    )


@rule("pipeline/dualpipe-even", source="deepseek-ai/DualPipe dualpipe/dualpipe.py, dualpipev.py")
def dualpipe_even(context: RuleContext) -> Iterator[Violation]:
    """DualPipe wants an even pp, an even number of microbatches, and at least 2·pp of them."""
    name, layout, count = _schedule(context), context.layout, _microbatches(context)
    if name != "dualpipe" or layout.pp <= 1:
        return
    if layout.pp % 2:
        yield Violation(
            "layout.pp",
            f"DualPipe over pp {layout.pp}: two pipelines run against each other, so pp is even.",
            {"pp": layout.pp},
            f"pp: {layout.pp - 1} or {layout.pp + 1}",
        )
    if count is not None and (count % 2 or count < 2 * layout.pp):
        yield Violation(
            "batch",
            f"DualPipe over pp {layout.pp} with {count} microbatches: their number is even and at least "
            f"2 · pp = {2 * layout.pp}.",
            {"microbatches": count, "pp": layout.pp, "least": 2 * layout.pp},
            f"num_microbatches: {max(padded(count, 2), 2 * layout.pp)}",
        )


@rule("pipeline/schedule-chunks", source=f"{_TORCH}; {_SCHEDULES}")
def schedule_chunks(context: RuleContext) -> Iterator[Violation]:
    """The schedule and vp agree on the chunks a rank holds."""
    name, layout = _schedule(context), context.layout
    if name is None or layout.pp <= 1 or "vp" in layout.assumed:
        return
    given = context.training.schedule
    right = None
    if name in TWO_CHUNKS and layout.vp != 2:
        right = "vp: 2"
    elif name in (*_ROUNDED, "looped-bfs") and layout.vp == 1:
        right = "vp: 2, or schedule: 1f1b"
    elif name in ("gpipe", "zb-h1", "zb-h2", "dualpipe", "chimera") and layout.vp > 1:
        right = "leave vp out"
    if right is not None:
        yield Violation(
            "layout.vp",
            f"schedule {given} with vp {layout.vp}: it runs other chunks a rank.",
            {"vp": layout.vp, "schedule": given},
            right,
        )


def bubble_fraction(pp: int, microbatches: int, vp: int = 1) -> float:
    """Return the idle share of 1F1B (interleaved with ``vp``), stages even: (p-1)/(v·m + p-1)."""
    return (pp - 1) / (vp * microbatches + pp - 1)


@rule(
    "pipeline/much-idle",
    source="(p-1)/(v·m + p-1), Megatron arXiv 2104.04473",
    severity=Severity.WARNING,
)
def much_idle(context: RuleContext) -> Iterator[Violation]:
    """Few microbatches leave a pipeline idle for much of the step."""
    name, layout, count = _schedule(context), context.layout, _microbatches(context)
    if count is None or name not in ("1f1b", "gpipe", "interleaved") or layout.vp < 1:
        return
    chunks = layout.vp if name == "interleaved" else 1
    idle = bubble_fraction(layout.pp, count, chunks)
    if idle <= MUCH_IDLE:
        return
    quarter = padded(-(-3 * (layout.pp - 1) // chunks), layout.pp)
    yield Violation(
        "batch",
        f"{count} microbatches over pp {layout.pp}"
        f"{f' × vp {chunks}' if chunks > 1 else ''}: {100 * idle:.1f} % of a step is idle, (pp-1)/(vp·m + pp-1).",
        {"microbatches": count, "pp": layout.pp, "vp": chunks, "formula_bubble_fraction": idle},
        f"num_microbatches: {quarter} (a smaller micro_batch or dp, a larger global_batch), or a smaller pp",
    )


PIPELINE_RULES: tuple[Rule, ...] = (
    layers_divide,
    interleaved_pp2,
    interleaved_microbatches,
    microbatches_fill,
    dualpipe_even,
    schedule_chunks,
    much_idle,
)
"""Rules of pipelines."""
