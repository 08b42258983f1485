"""Legal layouts near an illegal one: at most two degrees changed, same world size."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from itertools import combinations, product

import msgspec

from meshwright.chain.judge import context_of, memory_of
from meshwright.chain.outline import Outline
from meshwright.findings import has_errors
from meshwright.groups.table import group_kinds
from meshwright.job.batch import resolve_batch
from meshwright.job.layout import resolve_layout
from meshwright.rules.arithmetic import divisors
from meshwright.rules.grid import is_legal
from meshwright.rules.job import check_job_rules, check_rest
from meshwright.rules.registry import RuleContext

MAX_PROPOSALS = 5
_NEAR = 8
"""Values of one degree that are tried."""
_WEIGHED = 48
"""Layouts whose memory is counted at most: the nearest that pass every other rule."""
_DENSE = ("tp", "cp", "pp")
_EXPERT = ("ep", "etp")
_SHOWN = (*_DENSE, "dp", *_EXPERT, "vp")


class NearLayout(msgspec.Struct, frozen=True):
    """A legal layout: its degrees, and how to write it."""

    degrees: dict[str, int]
    text: str


def nearest_layouts(outline: Outline) -> list[NearLayout]:
    """Return up to five layouts that pass every rule ``check`` has, memory included, nearest first.

    Distance is the sum of |log2| of the changes. ``dp`` counts as a change where the job gives it,
    else it follows from the world size.
    """
    if outline.is_legal or outline.layout.world_size < 1 or outline.job.file.groups is not None:
        return []
    ranked = sorted(_passing(outline), key=lambda entry: (entry[0], entry[1].text))
    found: list[NearLayout] = []
    for _, near, candidate in ranked[:_WEIGHED]:
        if _fits(candidate):
            found.append(near)
        if len(found) == MAX_PROPOSALS:
            break
    return found


def _passing(outline: Outline) -> Iterator[tuple[float, NearLayout, Outline]]:
    """Yield (distance, layout, outline) of every candidate that passes all rules but memory's."""
    current = {name: max(getattr(outline.layout, name), 1) for name in _SHOWN}
    seen: set[tuple[int, ...]] = set()
    for degrees in _candidates(outline, current):
        candidate = _outline_with(outline, degrees)
        layout = candidate.layout
        shown = {name: int(getattr(layout, name)) for name in _SHOWN}
        key = tuple(shown.values())
        if key in seen or _changes(outline, shown) > 2:
            continue
        seen.add(key)
        if _is_legal(candidate):
            # a degree that follows from the others costs nothing
            free = ("dp",) if "dp" in outline.layout.assumed else ()
            moved = [name for name in _SHOWN if name not in free]
            distance = sum(abs(math.log2(shown[name] / current[name])) for name in moved)
            yield distance, NearLayout(shown, _text(shown)), candidate


def _changes(outline: Outline, shown: dict[str, int]) -> int:
    """Return how many degrees differ from what the job gives; what it left out follows freely."""
    layout = outline.layout
    followers = {"dp", "etp"}
    return sum(
        shown[name] != getattr(layout, name)
        for name in _SHOWN
        if not (name in followers and name in layout.assumed)
    )


def _candidates(outline: Outline, current: dict[str, int]) -> Iterator[dict[str, int]]:
    """Yield degrees with one or two changed to near divisors of the world size."""
    layout, model = outline.layout, outline.model
    values = divisors(layout.world_size)
    experts = model.is_moe if model is not None else layout.has_experts
    names = [*_DENSE, *(_EXPERT if experts else ())]
    near = {name: _nearest(values, current[name]) for name in names}
    if layout.vp > 1 and model is not None:
        names.append("vp")
        near["vp"] = _nearest(divisors(model.num_layers), current["vp"])
    if layout.ep > 1 and not experts:
        names.append("ep")
        near["ep"] = [1]
    for pair in combinations(names, 2):
        for chosen in product(*(near[name] for name in pair)):
            changed = {
                name: value
                for name, value in zip(pair, chosen, strict=True)
                if value != getattr(layout, name)
            }
            if changed:
                yield changed


def _nearest(values: list[int], current: int) -> list[int]:
    """Return near values, and the current one: it may be no divisor and still be right."""
    ranked = sorted(values, key=lambda value: abs(math.log2(value / current)))[:_NEAR]
    return list(dict.fromkeys([current, *ranked]))


def _outline_with(outline: Outline, degrees: dict[str, int]) -> Outline:
    """Return the outline of the same job with other degrees, as ``check`` would make it."""
    file, world_size = outline.job.file, outline.layout.world_size
    section = msgspec.structs.replace(file.layout, **degrees, dp=None, world_size=world_size)
    layout = resolve_layout(section, None)
    if outline.layout.fsdp1 is not None and "shard_degree" in outline.layout.assumed:
        layout = msgspec.structs.replace(layout, shard_degree=outline.layout.shard_degree)
    job = dataclasses.replace(outline.job, file=msgspec.structs.replace(file, layout=section))
    return Outline(
        job,
        layout,
        outline.model,
        resolve_batch(file.batch, layout.dp),
        outline.cluster,
        outline.table,
    )


def _is_legal(candidate: Outline) -> bool:
    """Tell whether no rule but those of memory gives an error."""
    context = RuleContext(
        candidate.layout, slots=candidate.num_gpus if candidate.cluster is not None else None
    )
    if not is_legal(context):
        return False
    if has_errors(check_job_rules(context, candidate.model, candidate.batch)):
        return False
    return not has_errors(check_rest(context_of(candidate)))


def _fits(candidate: Outline) -> bool:
    """Tell whether memory is enough, as far as it is known."""
    candidate.kinds = group_kinds(candidate.layout)
    memory = memory_of(candidate)
    return memory is None or memory.fits is not False


def _text(shown: dict[str, int]) -> str:
    text = " ".join(
        f"{name} {value}"
        for name, value in shown.items()
        if value > 1 and (name != "etp" or value != shown["tp"])
    )
    return text or "dp 1"
