"""The rule of layers by stage: they divide over stages and chunks, or a stage map says where each goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from meshwright.job.layout import Layout
from meshwright.job.stages import layers_by_stage
from meshwright.rules.arithmetic import divisors, shown_list
from meshwright.rules.registry import RuleContext, Violation, rule
from meshwright.rules.remedies import degree, first_that_hold, holds, near

_MOST_LAYERS = 1024
"""Layers of an end stage that are tried."""
_TRIED = 24
"""Pairs of stages and chunks that are tried."""
_MOST_CHUNKS = 8
"""Degrees listed in a remedy."""
_MOST_STAGES = 64
"""More stages than this are not proposed."""


@rule(
    "pipeline/layers-divide",
    source="NVIDIA/Megatron-LM megatron/training/arguments.py, transformer_config.py; NVIDIA/Megatron-LM#1304; "
    "pytorch/torchtitan torchtitan/distributed/pipeline_parallel.py",
    versions="torchtitan splits what does not divide by itself, embedding and output counted as a layer each",
)
def layers_divide(context: RuleContext) -> Iterator[Violation]:
    """Layers divide over stages and chunks, or a stage map says where each goes."""
    model, layout = context.model, context.layout
    if model is None or layout.pp < 1 or layout.vp < 1 or _divides(layout, model.num_layers):
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
        _why_layers(layout, model.num_layers),
        numbers,  # type: ignore[arg-type]
        _layers_remedy(context, model.num_layers),
    )


def _divides(layout: Layout, num_layers: int, changes: Mapping[str, object] | None = None) -> bool:
    """Tell whether the layers divide, with other values of some keys."""
    named = {key.rpartition(".")[2]: value for key, value in (changes or {}).items()}
    changed = msgspec.structs.replace(layout, **named)
    return layers_by_stage(changed, num_layers) is not None


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
    return _maps(layout.pp, num_layers)


def _maps(stages: int, num_layers: int) -> list[list[int]]:
    even, more = divmod(num_layers, stages)
    front = [even + 1] * more + [even] * (stages - more)
    # embedding and loss stand on the ends, so the middle takes what is left over
    skip = min(1, stages - more)
    middle = [even] * skip + [even + 1] * more + [even] * (stages - more - skip)
    return [middle, front] if middle != front else [front]


def _why_layers(layout: Layout, num_layers: int) -> str:
    if layout.stages is not None:
        return _why_map(layout, layout.stages, num_layers)
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
    if layout.framework == "torchtitan":
        return (
            f"{num_layers} layers over {layout.pp} stages{interleaved}: with embedding and output, a layer each, "
            f"there are {num_layers + 2} for {chunks}, and torchtitan wants one a stage at least."
        )
    return (
        f"{num_layers} layers over {layout.pp} stages{interleaved} leave {num_layers % chunks} over "
        f"({num_layers} = {chunks} × {num_layers // chunks} + {num_layers % chunks}); a split that rounds "
        f"down would train {num_layers - num_layers % chunks} without a word."
    )


def _why_map(layout: Layout, stages: Sequence[int], num_layers: int) -> str:
    """Return what is wrong with a stage map: its length, its sum, or an entry."""
    pp, vp, of = layout.pp, layout.vp, f"stages {shown_list(stages)}"
    if len(stages) not in (pp, pp * vp):
        wanted = (
            f"{pp}"
            if vp == 1
            else f"{pp * vp}, one a chunk (pp {pp} × vp {vp}), or {pp}, one a rank"
        )
        return (
            f"{of} hold {sum(stages)} layers on {len(stages)} stages; the model has {num_layers} layers and pp is "
            f"{pp}: the map has {wanted} entries."
        )
    if sum(stages) != num_layers:
        return (
            f"{of} hold {sum(stages)} layers on {len(stages)} {'stages' if vp == 1 else 'entries'}; the model has "
            f"{num_layers} layers and pp is {pp}."
        )
    if min(stages) < 0:
        return f"{of}: a stage holds no fewer than 0 layers."
    wrong = next(layers for layers in stages if layers % vp)
    return (
        f"{of} with vp {vp}: {wrong} layers do not divide into {vp} equal chunks. With one entry a chunk, in "
        f"the order a microbatch passes them, the map has pp × vp = {pp * vp} entries."
    )


def _layers_remedy(context: RuleContext, num_layers: int) -> str:
    """Return an even split: other chunks, another pp, or a stage map that keeps all layers."""
    layout = context.layout
    if layout.stages is not None:
        return _that_divide(context, _other_maps(layout, layout.stages, num_layers), num_layers)
    if ends := _fixed_ends(layout):
        texts = [_end_remedy(context, name, given, num_layers) for name, given in ends.items()]
        options = [
            dict.fromkeys((f"layout.{name}" for name in ends), None),
            *_any_map(layout, num_layers),
        ]
        return ", or ".join(text for text in texts if text) or _that_divide(
            context, options, num_layers
        )
    options_text = []
    if layout.vp > 1 and num_layers % layout.pp == 0:
        chunks = divisors(num_layers // layout.pp)
        options_text.append(degree(context, "vp", chunks, layout.vp, _MOST_CHUNKS))
    splits = _uneven(layout, num_layers)
    uneven = [f"an uneven stage map: stages: {splits[0]}"] if splits else []
    kept = bool(splits) and holds(context, {"layout.stages": tuple(splits[0])})
    legal = _legal_pp(layout, num_layers)
    if near(context, "layout.pp", legal, layout.pp) or (legal and not options_text and not kept):
        options_text.append(degree(context, "pp", legal, layout.pp, _MOST_CHUNKS))
    if not options_text and not kept:
        options_text.append(first_that_hold(context, _both(layout, num_layers)))
    return ", or ".join([*options_text, *uneven])


def _other_maps(layout: Layout, stages: Sequence[int], num_layers: int) -> list[dict[str, object]]:
    """Return what could stand instead of a stage map that does not fit, the nearest first."""
    pp, vp = layout.pp, layout.vp
    found: list[dict[str, object]] = []
    whole = sum(stages) == num_layers and min(stages, default=-1) >= 0
    if whole and len(stages) == pp:
        held = [_divided(layers, vp) for layers in stages]
        chain = tuple(one[chunk] for chunk in range(vp) for one in held)
        found.append({"layout.stages": chain})
    elif whole and len(stages) % vp == 0:
        found.append({"layout.pp": len(stages) // vp})
    return [*found, *_any_map(layout, num_layers), {"layout.stages": None}]


def _divided(layers: int, chunks: int) -> list[int]:
    each, over = divmod(layers, chunks)
    return [each + (chunk < over) for chunk in range(chunks)]


def _any_map(layout: Layout, num_layers: int) -> list[dict[str, object]]:
    """Return a map of every chunk, as even as can be."""
    chunks = layout.pp * layout.vp
    if not 0 < chunks <= min(_MOST_STAGES, num_layers):
        return []
    return [{"layout.stages": tuple(_maps(chunks, num_layers)[0])}]


def _that_divide(
    context: RuleContext, options: Sequence[dict[str, object]], num_layers: int
) -> str:
    """Return the first two options under which the layers divide, else stages and chunks that do."""
    good = [one for one in options if _divides(context.layout, num_layers, one)]
    if not any(holds(context, one) for one in good):
        free = msgspec.structs.replace(
            context.layout, stages=None, first_stage_layers=None, last_stage_layers=None
        )
        given = ("stages", "first_stage_layers", "last_stage_layers")
        without = {
            f"layout.{name}": None for name in given if getattr(context.layout, name) is not None
        }
        good += [one | without for one in _both(free, num_layers)]
    return first_that_hold(context, good)


def _end_remedy(context: RuleContext, name: str, given: int, num_layers: int) -> str:
    """Return values of ``first_stage_layers`` (or last) that leave a rest which divides."""
    good = [
        value
        for value in range(1, min(num_layers, _MOST_LAYERS) + 1)
        if _divides(context.layout, num_layers, {name: value})
    ]
    kept = near(context, f"layout.{name}", good, given, 2)
    return f"{name}: {' or '.join(map(str, kept))}" if kept else ""


def _both(layout: Layout, num_layers: int) -> list[dict[str, object]]:
    """Return stages and chunks that divide the layers, the nearest first."""
    pairs = [
        (pp, vp)
        for pp in divisors(num_layers)
        if pp <= _MOST_STAGES
        for vp in divisors(num_layers // pp)
        if pp > 1 or vp == 1
    ]
    pairs.sort(key=lambda one: abs(one[0] - layout.pp) + abs(one[1] - layout.vp))
    return [{"layout.pp": pp, "layout.vp": vp} for pp, vp in pairs[:_TRIED]]


def _legal_pp(layout: Layout, num_layers: int) -> list[int]:
    """Return the pp that divide the layers, chunks and all."""
    return [
        pp
        for pp in divisors(num_layers)
        if pp <= _MOST_STAGES and _divides(layout, num_layers, {"pp": pp})
    ]
