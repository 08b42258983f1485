"""Choose GPUs of one host: the set, or the division into groups, with the nearest paths.

NCCL never chooses GPUs; it takes those it is given. A set is judged by its worst GPU-GPU path
class, then by the sum of classes, then by how near a NIC is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from meshwright.cluster.facts import PATH_CLASSES, Facts, nearest_nics
from meshwright.errors import UsageError

MAX_SETS = 200_000
"""Sets tried at most; larger questions are refused, not sampled."""
_LINKED = -1


class Choice(msgspec.Struct, frozen=True):
    """Chosen GPUs in groups, the worst path class inside a group, and the nearest NIC class."""

    groups: tuple[tuple[int, ...], ...]
    worst_class: str
    nic_class: str | None
    tried: int


def _cost(name: str) -> int:
    """NVLink is nearest; an unknown cell counts as the farthest."""
    if name.startswith(("NV", "MX")):
        return _LINKED
    return PATH_CLASSES.index(name) if name in PATH_CLASSES else len(PATH_CLASSES)


def _table(facts: Facts) -> list[list[int]]:
    matrix = facts.gpu_gpu_class
    if not matrix:
        raise UsageError(f"{facts.path} relates no GPU to another: nothing to choose by")
    return [[_cost(cell) for cell in row] for row in matrix]


def _name(cost: int, facts: Facts) -> str:
    if cost == _LINKED:
        cells = {
            cell
            for row in facts.gpu_gpu_class or ()
            for cell in row
            if cell.startswith(("NV", "MX"))
        }
        return min(cells, default="NV")
    return PATH_CLASSES[cost] if 0 <= cost < len(PATH_CLASSES) else "unknown"


def choose_set(facts: Facts, count: int, among: Sequence[int] | None = None) -> Choice:
    """Return the ``count`` GPUs with the nearest paths to each other, then to a NIC.

    Raises ``UsageError`` when there are too few GPUs, or too many sets to try.
    """
    table, pool = _table(facts), _pool(facts, among)
    if not 1 <= count <= len(pool):
        raise UsageError(f"{count} GPUs of {len(pool)} cannot be chosen")
    nic_cost = _nic_costs(facts)
    best: tuple[tuple[int, int, int], tuple[int, ...]] | None = None
    tried = 0
    for chosen in combinations(pool, count):
        tried += 1
        if tried > MAX_SETS:
            raise UsageError(f"more than {MAX_SETS:,} sets of {count} out of {len(pool)} GPUs")
        key = (*_judge(table, chosen), sum(nic_cost[gpu] for gpu in chosen))
        if best is None or key < best[0]:
            best = (key, chosen)
    if best is None:  # pragma: no cover - there is at least one set
        raise UsageError("no set of GPUs")
    return _choice(facts, (best[1],), best[0][0], tried)


def choose_groups(facts: Facts, size: int, among: Sequence[int] | None = None) -> Choice:
    """Return the GPUs divided into groups of ``size`` with the nearest paths inside each.

    Raises ``UsageError`` when they cannot be divided so.
    """
    table, pool = _table(facts), _pool(facts, among)
    if size < 1 or len(pool) % size:
        raise UsageError(f"{len(pool)} GPUs cannot be divided into groups of {size}")
    best: tuple[tuple[int, int], tuple[tuple[int, ...], ...]] | None = None
    tried = 0
    for groups in _divisions(tuple(pool), size):
        tried += 1
        if tried > MAX_SETS:
            raise UsageError(f"more than {MAX_SETS:,} ways to divide {len(pool)} GPUs by {size}")
        judged = [_judge(table, group) for group in groups]
        key = (max(worst for worst, _ in judged), sum(total for _, total in judged))
        if best is None or key < best[0]:
            best = (key, groups)
    if best is None:  # pragma: no cover - there is at least one division
        raise UsageError("no division of GPUs")
    return _choice(facts, best[1], best[0][0], tried)


def _divisions(pool: tuple[int, ...], size: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not pool:
        yield ()
        return
    first, rest = pool[0], pool[1:]
    for others in combinations(rest, size - 1):
        left = tuple(gpu for gpu in rest if gpu not in others)
        for division in _divisions(left, size):
            yield ((first, *others), *division)


def _judge(table: list[list[int]], chosen: Sequence[int]) -> tuple[int, int]:
    costs = [max(table[a][b], table[b][a]) for a, b in combinations(chosen, 2)]
    return max(costs, default=_LINKED), sum(costs)


def _pool(facts: Facts, among: Sequence[int] | None) -> list[int]:
    """Return positions of the GPUs to choose from (``among`` holds GPU indices)."""
    position = {gpu.index: place for place, gpu in enumerate(facts.gpus or ())}
    if among is None:
        return list(position.values())
    unknown = [gpu for gpu in among if gpu not in position]
    if unknown or len(set(among)) != len(among):
        raise UsageError(f"no GPU {unknown[0]} here" if unknown else "a GPU is named twice")
    return [position[gpu] for gpu in among]


def _nic_costs(facts: Facts) -> list[int]:
    near = nearest_nics(facts) or {}
    return [_cost(near[place][0]) if place in near else 0 for place in range(len(facts.gpus or ()))]


def _choice(facts: Facts, groups: tuple[tuple[int, ...], ...], worst: int, tried: int) -> Choice:
    gpus = facts.gpus or ()
    near = nearest_nics(facts)
    chosen = [place for group in groups for place in group]
    nic = max((near[place][0] for place in chosen), key=_cost) if near else None
    size = max(len(group) for group in groups)
    return Choice(
        groups=tuple(tuple(gpus[place].index for place in group) for group in groups),
        worst_class=_name(worst, facts) if size > 1 else "X",
        nic_class=nic,
        tried=tried,
    )
