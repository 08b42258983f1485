"""Choose GPUs of one host: the set, or the division into groups, with the nearest paths.

Collective libraries never choose GPUs; they take those they are given. A set is judged by its worst
pair (more NVLinks are nearer, then the PCIe path classes), then by all its links, the sum of its
path classes, how near a NIC is, how few NUMA nodes it touches, and last by the lowest numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import combinations

import msgspec

from meshwright.cluster.facts import PATH_CLASSES, Facts, nearest_nics
from meshwright.cluster.join.host_devices import driver_numbers, is_numbered
from meshwright.cluster.nodes.divide import MAX_STEPS, best_division, num_divisions, num_steps
from meshwright.cluster.vendor import NVIDIA, Maker, maker_of
from meshwright.errors import UsageError

MAX_SETS = 200_000
"""Sets tried at most; larger questions are refused, not sampled."""
_LINKS = re.compile(r"(?:NV|MX)([0-9]{0,4})\Z")
_UNKNOWN = len(PATH_CLASSES)

_Judged = tuple[int, int, int]
"""Rank of the worst pair, minus all links, sum of the path classes of pairs without links."""
_NOTHING: _Judged = (-(1 << 20), 0, 0)
"""Of a set without pairs."""


class Choice(msgspec.Struct, frozen=True):
    """Chosen GPUs in groups, the worst path class inside a group, and the nearest NIC class."""

    groups: tuple[tuple[int, ...], ...]
    """The driver's numbers."""
    worst_class: str
    """As the source's matrix prints it; ``X`` for single GPUs."""
    nic_class: str | None
    """The farthest of the chosen GPUs' nearest NICs."""
    tried: int
    path: str = ""
    """The source, or the sources joined."""
    maker: Maker = NVIDIA
    pci: tuple[tuple[str, ...], ...] | None = None
    """PCI addresses of the groups' GPUs where the numbers are only their order (no driver's
    numbers in the source)."""

    def of_maker(self, maker: Maker) -> Choice:
        """Return the choice with the words of another maker."""
        return msgspec.structs.replace(self, maker=maker)


def _rank(cell: str) -> int:
    """Return how far a pair is: minus the number of links, else the place of its path class.

    An unknown cell counts as the farthest.
    """
    match = _LINKS.match(cell)
    if match is not None:
        return -(int(match[1] or 1) or 1)
    return PATH_CLASSES.index(cell) if cell in PATH_CLASSES else _UNKNOWN


class _Pool:
    """The GPUs to choose from, by position in the facts, and the paths between them."""

    def __init__(self, facts: Facts, among: Sequence[int] | None) -> None:
        if not facts.gpu_gpu_class:
            raise UsageError(f"{facts.path} relates no GPU to another: nothing to choose by")
        self._facts = facts
        self._cells = facts.gpu_gpu_class
        self._number = driver_numbers(facts)
        self.positions = self._positions(among)
        ranks = [[_rank(cell) for cell in row] for row in self._cells]
        self._worse = [
            [max(rank, ranks[b][a]) for b, rank in enumerate(row)] for a, row in enumerate(ranks)
        ]
        near = nearest_nics(facts) or {}
        self._nics = {at: _rank(name) for at, (name, _) in near.items()}
        self._numa = [frozenset(gpu.numa) for gpu in facts.gpus or ()]

    def _positions(self, among: Sequence[int] | None) -> list[int]:
        """Return the positions in the order of the GPUs' numbers."""
        position = {number: at for at, number in self._number.items()}
        if among is None:
            return [position[number] for number in sorted(position)]
        unknown = [gpu for gpu in among if gpu not in position]
        if unknown or len(set(among)) != len(among):
            raise UsageError(f"no GPU {unknown[0]} here" if unknown else "a GPU is named twice")
        return [position[gpu] for gpu in sorted(among)]

    def judge(self, chosen: Sequence[int]) -> _Judged:
        """Return how far a set's GPUs are from each other."""
        pairs = [self._worse[a][b] for a, b in combinations(chosen, 2)]
        if not pairs:
            return _NOTHING
        links = sum(rank for rank in pairs if rank < 0)
        return max(pairs), links, sum(rank for rank in pairs if rank >= 0)

    def nic_rank(self, chosen: Sequence[int]) -> int:
        """Return the sum of the nearest NICs' path classes."""
        return sum(self._nics.get(at, 0) for at in chosen)

    def num_numa(self, chosen: Sequence[int]) -> int:
        """Return the NUMA nodes of a set; 0 where none is known."""
        return len(frozenset().union(*(self._numa[at] for at in chosen)))

    def choice(self, groups: Sequence[Sequence[int]], tried: int) -> Choice:
        """Return the chosen GPUs by their numbers, with what the matrix prints of them."""
        gpus = self._facts.gpus or ()
        near = nearest_nics(self._facts)
        nic = None
        if near:
            nic = max((near[at][0] for group in groups for at in group), key=_rank)
        cells = [
            max(self._cells[a][b], self._cells[b][a], key=_rank)
            for group in groups
            for a, b in combinations(group, 2)
        ]
        shown = None
        if not is_numbered(self._facts):
            shown = tuple(tuple(gpus[at].pci or gpus[at].name for at in group) for group in groups)
        return Choice(
            groups=tuple(tuple(self._number[at] for at in group) for group in groups),
            worst_class=max(cells, key=_rank, default="X"),
            nic_class=nic,
            tried=tried,
            path=self._facts.path,
            maker=maker_of(self._facts),
            pci=shown,
        )


def choose_set(facts: Facts, count: int, among: Sequence[int] | None = None) -> Choice:
    """Return the ``count`` GPUs with the nearest paths to each other, then to a NIC.

    ``among`` and the answer hold the driver's GPU numbers; of a source without them, the order of
    the PCI addresses. Raises ``UsageError`` when there are too few GPUs, or too many sets to try.
    """
    pool = _Pool(facts, among)
    total = len(pool.positions)
    if not 1 <= count <= total:
        raise UsageError(f"{count} GPUs of {total} cannot be chosen")
    tried = math.comb(total, count)
    if tried > MAX_SETS:
        raise UsageError(
            f"{total} GPUs have {_count(tried)} sets of {count}, more than the {MAX_SETS:,} that are "
            "compared; name fewer GPUs with --among"
        )

    def key(chosen: tuple[int, ...]) -> tuple[_Judged, int, int]:
        return pool.judge(chosen), pool.nic_rank(chosen), pool.num_numa(chosen)

    best = min(combinations(pool.positions, count), key=key)
    return pool.choice((best,), tried)


def choose_groups(facts: Facts, size: int, among: Sequence[int] | None = None) -> Choice:
    """Return the GPUs divided into groups of ``size`` with the nearest paths inside each.

    Numbers as in ``choose_set``. Raises ``UsageError`` when they cannot be divided so.
    """
    pool = _Pool(facts, among)
    total = len(pool.positions)
    if size < 1 or total % size:
        raise UsageError(f"{total} GPUs cannot be divided into groups of {size}")
    tried = num_divisions(total, size)
    if num_steps(total, size) > MAX_STEPS:
        raise UsageError(
            f"{total} GPUs can be divided into groups of {size} in {_count(tried)} ways, too many to "
            "compare; name fewer GPUs with --among"
        )

    def cost(group: tuple[int, ...]) -> tuple[int, tuple[int, int, int]]:
        worst, links, classes = pool.judge(group)
        return worst, (links, classes, pool.num_numa(group))

    return pool.choice(best_division(pool.positions, size, cost), tried)


def _count(number: int) -> str:
    digits = int(math.log10(number))
    return f"{number:,}" if digits < 12 else f"over 10^{digits}"
