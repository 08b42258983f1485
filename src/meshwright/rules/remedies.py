"""Remedies that can be pasted (``key: value``) and hold: each is tried against all rules first.

Where nothing can be tried (a rule asked alone, without its job), the nearest values stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from meshwright.job.sections import BatchSection, LayoutSection, MoeSection, TrainingSection
from meshwright.rules.arithmetic import divisors
from meshwright.rules.registry import RuleContext

_TRIED = 32
"""Values of one key that are tried, the nearest first."""
_COMPENSATED = ("tp", "cp", "pp")
"""Degrees that make the world together with dp."""
_SECTION_OF = {
    key: name
    for name, section in (
        ("layout", LayoutSection),
        ("batch", BatchSection),
        ("moe", MoeSection),
        ("training", TrainingSection),
    )
    for key in section.__struct_fields__
}
_VALUES = {"true": True, "false": False}
Changes = Mapping[str, object]


def harm(context: RuleContext, changes: Changes) -> int:
    """Return how many rules changed keys break that the job does not break already."""
    if context.trial is None:
        return 0
    return len(context.trial(changes) - context.trial({}))


def holds(context: RuleContext, changes: Changes) -> bool:
    """Tell whether changed keys break no rule that the job does not break already."""
    return harm(context, changes) == 0


def cures(context: RuleContext, rule: str, changes: Changes) -> bool:
    """Tell whether changed keys break nothing else and end an error; false where nothing is tried."""
    return (
        context.trial is not None and holds(context, changes) and rule not in context.trial(changes)
    )


def lawful(context: RuleContext, text: str) -> bool:
    """Tell whether ``cp: 2, dp: 8`` breaks no rule that the job does not break already.

    What is no key of a job (an option of a command) is taken as lawful.
    """
    changes: dict[str, object] = {}
    for part in text.split(", "):
        name, colon, value = part.partition(": ")
        if not colon or name not in _SECTION_OF:
            return True
        changes[f"{_SECTION_OF[name]}.{name}"] = _VALUES.get(value, _number(value))
    return holds(context, changes)


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def written(changes: Changes) -> str:
    """Return ``tp: 4 and dp: 16``: keys without their section (``None``: ``leave dp out``)."""
    return " and ".join(_one(key.rpartition(".")[2], value) for key, value in changes.items())


def _one(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return f"{name}: {list(value)}"
    return f"leave {name} out" if value is None else f"{name}: {value}"


def first_that_hold(context: RuleContext, options: Sequence[Changes], most: int = 2) -> str:
    """Return the first options that break nothing else, else the first of all; as text."""
    good = [one for one in options if holds(context, one)] or list(options[:1])
    return "; or ".join(written(one) for one in good[:most])


def near(
    context: RuleContext, key: str, values: Iterable[int], target: int, most: int = 4
) -> list[int]:
    """Return the values of a key nearest to ``target`` that break no other rule, in order.

    Empty where each would; without a trial the nearest.
    """
    good: list[int] = []
    for value in _ranked(values, target):
        if len(good) < most and holds(context, {key: value}):
            good.append(value)
    return sorted(good)


def degree(
    context: RuleContext, name: str, values: Iterable[int], target: int, most: int = 4
) -> str:
    """Return ``tp: 2, 4``: degrees that break no other rule.

    Where dp is given and each alone breaks one, dp is changed with it: ``tp: 4 and dp: 16``. Where
    nothing helps, those that break the fewest: a layout can be wrong in ways that only show then.
    """
    ranked = _ranked(values, target)
    good = near(context, f"layout.{name}", ranked, target, most)
    if not good:
        pairs = [one for one in _with_dp(context, name, ranked) if holds(context, one)]
        if pairs:
            return "; or ".join(written(one) for one in pairs[:2])
        harms = [harm(context, {f"layout.{name}": value}) for value in ranked]
        least = min(harms, default=0)
        fewest = [value for value, one in zip(ranked, harms, strict=True) if one == least]
        good = sorted(fewest[:most])
    return f"{name}: {', '.join(map(str, good))}"


def _ranked(values: Iterable[int], target: int) -> list[int]:
    return sorted(values, key=lambda value: abs(value - target))[:_TRIED]


def degree_of(context: RuleContext, name: str, number: int, target: int) -> str:
    """Return ``degree`` over the divisors of a number."""
    return degree(context, name, divisors(number), target)


def _with_dp(context: RuleContext, name: str, values: Sequence[int]) -> list[Changes]:
    """Return the values with the dp that keeps the world as it is."""
    layout = context.layout
    if name not in _COMPENSATED or "dp" in layout.assumed:
        return []
    others = layout.world_size
    for other in _COMPENSATED:
        size = 1 if other == name else getattr(layout, other)
        if size < 1 or others % size:
            return []
        others //= size
    return [
        {f"layout.{name}": value, "layout.dp": others // value}
        for value in values
        if value > 0 and others % value == 0
    ]


def multiples(context: RuleContext, key: str, number: int, factor: int) -> str:
    """Return ``seq_len: 8160 or 8192``: the next multiples of ``factor`` below and above that hold."""
    below = [number // factor * factor - step * factor for step in range(_TRIED)]
    above = [(number // factor + 1) * factor + step * factor for step in range(_TRIED)]
    chosen = [
        next((one for one in values if one > 0 and holds(context, {key: one})), None)
        for values in (below, above)
    ]
    found = [one for one in chosen if one is not None]
    if not found:
        found = [one for one in (below[0], above[0]) if one > 0]
    return f"{key.rpartition('.')[2]}: {' or '.join(map(str, found))}"
