"""Legal layouts near an illegal one: at most two degrees changed, on as many ranks as there are GPUs for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

import msgspec

from meshwright.chain.context import context_of
from meshwright.chain.judge import memory_of
from meshwright.chain.outlined import Outline
from meshwright.findings import Finding, Severity, has_errors
from meshwright.groups.table import group_kinds
from meshwright.job.layout import Layout
from meshwright.job.model import Model
from meshwright.job.sections import LayoutSection
from meshwright.rules.arithmetic import divisors
from meshwright.rules.grid import check_grid
from meshwright.rules.job import JOB_RULES
from meshwright.rules.registry import RuleContext, run_rules
from meshwright.rules.trial import JobTrial
from meshwright.schedules.names import MANY_CHUNKS, schedule_name

MAX_PROPOSALS = 5
_NEAR = 8
"""Values of one degree that are tried."""
_WEIGHED = 48
"""Layouts whose memory is counted at most: the nearest that pass every other rule."""
_DENSE = ("tp", "cp", "pp")
_EXPERT = ("ep", "etp")
_SHOWN = (*_DENSE, "dp", *_EXPERT, "vp")
_FOLLOWS_TP = ("megatron", "maxtext", "nanotron")
"""Frameworks whose etp is tp where it is left out; elsewhere it is 1 (``job/layout.py``)."""


class NearLayout(msgspec.Struct, frozen=True):
    """A legal layout: its degrees, how to write it, and the ids of its warnings."""

    degrees: dict[str, int]
    text: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nearest:
    """What a search found. ``layouts``: at most five, those without warnings first, then the nearest.

    ``world_size``: ranks they have (the GPUs of the cluster where the job asks for more). ``stays``:
    rules that every layout tried breaks, so that no degree cures them; ``too_large``: layouts that
    pass every rule but do not fit the memory.
    """

    layouts: tuple[NearLayout, ...] = ()
    world_size: int = 0
    stays: tuple[str, ...] = ()
    too_large: int = 0


@dataclass(frozen=True, slots=True)
class _Search:
    """A job and what its candidates are tried with."""

    outline: Outline
    trial: JobTrial
    world_size: int


def nearest_layouts(outline: Outline) -> list[NearLayout]:
    """Return up to five layouts that pass every rule ``check`` has, memory included."""
    return list(nearest(outline).layouts)


def nearest(outline: Outline) -> Nearest:
    """Search the layouts with one or two degrees changed.

    Distance is the sum of |log2| of the changes. ``dp`` counts as a change where the job gives it,
    else it follows from the world size.
    """
    if outline.is_legal or outline.layout.world_size < 1 or outline.job.file.groups is not None:
        return Nearest()
    context, world_size = context_of(outline), outline.layout.world_size
    if context.slots is not None and 0 < context.slots < world_size:
        world_size = context.slots
    search = _Search(outline, JobTrial(context, None), world_size)
    passing, stays = _passing(search)
    passing.sort(key=lambda entry: (bool(entry[1].warnings), entry[0], entry[1].text))
    found: list[NearLayout] = []
    too_large = 0
    for _, near, candidate in passing[:_WEIGHED]:
        fits = _fits(outline, candidate)
        too_large += not fits
        if fits:
            found.append(near)
        if len(found) == MAX_PROPOSALS:
            break
    return Nearest(tuple(found), world_size, tuple(sorted(stays)), too_large)


_Passing = tuple[float, NearLayout, RuleContext]


def _passing(search: _Search) -> tuple[list[_Passing], frozenset[str]]:
    """Return every candidate that passes all rules but memory's, and the rules that all break."""
    layout = search.outline.layout
    current = {name: max(getattr(layout, name), 1) for name in _SHOWN}
    found: list[_Passing] = []
    stays = frozenset(one.rule for one in search.outline.findings if one.severity is Severity.ERROR)
    formed = False
    for candidate in _distinct(search, current):
        grid = check_grid(candidate)
        if has_errors(grid):
            continue  # no groups: what else it breaks says nothing
        formed = True
        errors, warnings = _judged(candidate, grid)
        stays &= errors
        if errors:
            continue
        shown = {name: int(getattr(candidate.layout, name)) for name in _SHOWN}
        # a degree that follows from the others costs nothing
        moved = [name for name in _SHOWN if name != "dp" or "dp" not in layout.assumed]
        distance = sum(abs(math.log2(shown[name] / current[name])) for name in moved)
        near = NearLayout(shown, _text(layout, candidate.layout), warnings)
        found.append((distance, near, candidate))
    return found, stays if formed else frozenset()


def _distinct(search: _Search, current: Mapping[str, int]) -> Iterator[RuleContext]:
    """Yield the context of every layout that differs from the job's, in two degrees at most."""
    outline, seen = search.outline, set()
    for degrees in _candidates(search, current):
        changes: dict[str, object] = {f"layout.{name}": value for name, value in degrees.items()}
        changes |= {"layout.dp": None, "layout.world_size": search.world_size}
        candidate = search.trial.changed(changes)
        key = tuple(int(getattr(candidate.layout, name)) for name in _SHOWN)
        changed = _changed(outline.layout, candidate.layout)
        if key not in seen and 1 <= len(changed) <= 2:
            seen.add(key)
            yield candidate


def _changed(given: Layout, candidate: Layout) -> list[str]:
    """Return the degrees that differ from what the job gives; what it left out follows freely."""
    return [
        name for name in _SHOWN if getattr(candidate, name) != _expected(given, candidate, name)
    ]


def _expected(given: Layout, candidate: Layout, name: str) -> int:
    """Return a degree as the job has it, or as it follows where the job leaves it out."""
    if name not in given.assumed:
        return int(getattr(given, name))
    if name == "dp":
        return candidate.dp
    if name == "etp":
        return candidate.tp if given.framework in _FOLLOWS_TP else 1
    return int(getattr(given, name))


def _judged(candidate: RuleContext, grid: list[Finding]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the ids of errors and of warnings."""
    found = [*grid, *run_rules(JOB_RULES, candidate)]
    errors = frozenset(one.rule for one in found if one.severity is Severity.ERROR)
    warnings = dict.fromkeys(one.rule for one in found if one.severity is Severity.WARNING)
    return errors, tuple(warnings)


def _candidates(search: _Search, current: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield degrees with one or two changed to near divisors of the world size."""
    layout, model = search.outline.layout, search.outline.model
    values = divisors(search.world_size)
    experts = model.is_moe if model is not None else layout.has_experts
    names = [*_DENSE, *(_EXPERT if experts else ())]
    near = {name: _nearest(_dividing(values, name, model), current[name]) for name in names}
    many = schedule_name(search.outline.job.file.training.schedule) in MANY_CHUNKS
    if (layout.vp > 1 or many) and model is not None:
        names.append("vp")
        near["vp"] = _nearest(divisors(model.num_layers), current["vp"])
    if layout.ep > 1 and not experts:
        names.append("ep")
        near["ep"] = [1]
    if "dp" not in layout.assumed:
        yield {}  # dp alone, made to fill the world
    for pair in combinations(names, 2):
        for chosen in product(*(near[name] for name in pair)):
            changed = {
                name: value
                for name, value in zip(pair, chosen, strict=True)
                if value != getattr(layout, name)
            }
            if changed:
                yield changed


def _dividing(values: list[int], name: str, model: Model | None) -> list[int]:
    """Return the values that divide what a degree cuts evenly in every framework, where it is known."""
    whole = {"tp": model.heads, "ep": model.experts}.get(name, 0) if model is not None else 0
    return [value for value in values if whole % value == 0]


def _nearest(values: list[int], current: int) -> list[int]:
    """Return near values, and the current one: it may be no divisor and still be right."""
    ranked = sorted(values, key=lambda value: abs(math.log2(value / current)))[:_NEAR]
    return list(dict.fromkeys([current, *ranked]))


def _fits(outline: Outline, candidate: RuleContext) -> bool:
    """Tell whether memory is enough, as far as it is known."""
    assert candidate.batch is not None
    section: LayoutSection = candidate.section
    file = msgspec.structs.replace(outline.job.file, layout=section)
    job = dataclasses.replace(outline.job, file=file)
    near = Outline(
        job, candidate.layout, outline.model, candidate.batch, outline.cluster, outline.table
    )
    near.kinds = group_kinds(candidate.layout)
    memory = memory_of(near)
    return memory is None or memory.fits is not False


def _text(given: Layout, candidate: Layout) -> str:
    """Return the degrees above 1, and every one that the job has otherwise."""
    changed = _changed(given, candidate)
    parts = []
    for name in _SHOWN:
        value = int(getattr(candidate, name))
        follows = name == "etp" and value == _expected(given, candidate, name)
        if name in changed or (value > 1 and not follows):
            parts.append(f"{name} {value}")
    return " ".join(parts) or "dp 1"
