"""Legal layouts near an illegal one: at most two degrees changed, same world size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product

import msgspec

from meshwright.chain.outline import Outline
from meshwright.findings import has_errors
from meshwright.job.batch import resolve_batch
from meshwright.job.layout import resolve_layout
from meshwright.rules.arithmetic import divisors
from meshwright.rules.grid import is_legal
from meshwright.rules.job import check_job_rules
from meshwright.rules.registry import RuleContext

MAX_PROPOSALS = 5
_DENSE = ("tp", "cp", "pp")
_CHANGED = (*_DENSE, "ep", "etp")


class NearLayout(msgspec.Struct, frozen=True):
    """A legal layout: its degrees, and how to write it."""

    degrees: dict[str, int]
    text: str


def nearest_layouts(outline: Outline) -> list[NearLayout]:
    """Return up to five layouts that pass every rule checked here, the nearest first.

    Distance is the sum of |log2| of the changes; ``dp`` follows from the world size.
    """
    if outline.is_legal or outline.layout.world_size < 1:
        return []
    world_size = outline.layout.world_size
    current = {name: max(getattr(outline.layout, name), 1) for name in _CHANGED}
    found: dict[tuple[int, ...], tuple[float, NearLayout]] = {}
    for degrees in _candidates(current, divisors(world_size), _changed(outline)):
        near = _legal(outline, degrees)
        if near is not None:
            distance = sum(abs(math.log2(degrees[name] / current[name])) for name in _CHANGED)
            key = tuple(near.degrees.values())
            if key not in found or distance < found[key][0]:
                found[key] = (distance, near)
    ranked = sorted(found.values(), key=lambda entry: (entry[0], entry[1].text))
    return [near for _, near in ranked[:MAX_PROPOSALS]]


def _changed(outline: Outline) -> tuple[str, ...]:
    """Return the degrees to change: those of experts only where there are some."""
    model = outline.model
    experts = model.is_moe if model is not None else outline.layout.has_experts
    return _CHANGED if experts else _DENSE


def _candidates(
    current: dict[str, int], values: list[int], changed: tuple[str, ...]
) -> Iterator[dict[str, int]]:
    """Yield layouts with one or two degrees changed to near divisors of the world size."""
    near = {
        name: sorted(values, key=lambda value: abs(math.log2(value / current[name])))[:8]
        for name in _CHANGED
    }
    for names in combinations(changed, 2):
        for pair in product(*(near[name] for name in names)):
            yield current | dict(zip(names, pair, strict=True))


def _legal(outline: Outline, degrees: dict[str, int]) -> NearLayout | None:
    file = outline.job.file
    section = msgspec.structs.replace(
        file.layout, **degrees, dp=None, world_size=outline.layout.world_size
    )
    layout = resolve_layout(section, None)
    context = RuleContext(layout, slots=outline.fabric.num_slots if outline.fabric else None)
    if not is_legal(context):
        return None
    batch = resolve_batch(file.batch, layout.dp)
    if has_errors(check_job_rules(context, outline.model, batch)):
        return None
    if outline.model is not None and outline.model.heads % layout.tp:
        return None  # no proposal that a rule still to come would refuse
    shown = {name: getattr(layout, name) for name in ("tp", "cp", "pp", "dp", "ep", "etp")}
    text = " ".join(
        f"{name} {value}"
        for name, value in shown.items()
        if value > 1 and (name != "etp" or value != layout.tp)
    )
    return NearLayout(shown, text or "dp 1")
