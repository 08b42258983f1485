"""Which group has a number: torch numbers process groups as they are made, the world first (0).

Every rank makes every group, so the numbers are the same on all. They hold while nothing else
makes groups before. Sources: torch ``distributed_c10d._process_group_name`` (2.13); the order of
``initialize_model_parallel`` (megatron-core 0.16.1) and of nanotron's ``ParallelContext``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.groups.kinds import GroupKind
from meshwright.groups.megatron import hybrid_sizes, is_main
from meshwright.job.layout import Layout

_PARENTS = {
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "DATA_PARALLEL_GROUP_WITH_CP",
    "EMBEDDING_GROUP": "PIPELINE_MODEL_PARALLEL_GROUP",
    "POSITION_EMBEDDING_GROUP": "PIPELINE_MODEL_PARALLEL_GROUP",
}
_PARENT_BY_PREFIX = {
    "HIERARCHICAL_CONTEXT_PARALLEL": "CONTEXT_PARALLEL_GROUP",
    "HIERARCHICAL_EXPERT_DATA_PARALLEL": "EXPERT_DATA_PARALLEL_GROUP",
    "HYBRID_DP_CP": "HYBRID_DP_CP_GROUP_2",
}


@dataclass(frozen=True, slots=True)
class Numbered:
    """The group that has a number: of which kind, at which place, as which twin, and if what."""

    kind: GroupKind
    index: int
    twin: str | None = None
    condition: str | None = None


def groups_numbered(layout: Layout, kinds: Sequence[GroupKind], number: int) -> list[Numbered]:
    """Return the group that torch gave a number above 0; several where it depends on a setting.

    Empty where the number is of no group, or where the order of creation is not known
    (``has_numbers``).
    """
    if layout.framework == "nanotron":
        found = _in_blocks(
            [(kind.num_groups, [(kind, 1)]) for kind in _made_once(kinds)], number - 2
        )
        return [found] if found is not None else []
    if not has_numbers(layout):
        return []
    results = []
    for copies, setting in ((2, "true, the default"), (1, "false")):
        found = _in_blocks(_blocks(kinds, copies), number - 1)
        if found is not None:
            condition = f"create_gloo_process_groups {setting}"
            results.append(Numbered(found.kind, found.index, found.twin, condition))
    return results


def has_numbers(layout: Layout) -> bool:
    """Tell whether the order of creation is known: it depends on the script in other frameworks."""
    if layout.framework == "nanotron":
        return True
    if layout.framework != "megatron" or is_main(layout):
        return False
    # groups of unequal size are made too, and are not listed
    return not (layout.hybrid_context_parallel and hybrid_sizes(layout.dp * layout.cp)[1])


_Block = tuple[int, list[tuple[GroupKind, int]]]
"""How often a loop runs, and what it makes each time: kinds, each with communicators per group."""


def _blocks(kinds: Sequence[GroupKind], copies: int) -> list[_Block]:
    """Gather kinds that are made in one loop."""
    if not kinds:  # the layout is not legal, so no group exists
        return []
    lists = {kind.name: kind.num_groups for kind in kinds}
    lists["HYBRID_DP_CP_GROUP_2"] = lists["DATA_PARALLEL_GROUP_WITH_CP"]
    blocks: dict[str, list[tuple[GroupKind, int]]] = {}
    for kind in kinds:
        parent = _PARENTS.get(kind.name, kind.name)
        for prefix, of in _PARENT_BY_PREFIX.items():
            parent = of if kind.name.startswith(prefix) else parent
        has_gloo = any("_GLOO" in name for name in kind.twins)
        blocks.setdefault(parent, []).append((kind, copies if has_gloo else 1))
    return [(lists[parent], block) for parent, block in blocks.items()]


def _in_blocks(blocks: Sequence[_Block], place: int) -> Numbered | None:
    """Return the group at a place of the sequence of all groups (from 0)."""
    if place < 0:
        return None
    for steps, block in blocks:
        per_step = sum(kind.num_groups // steps * copies for kind, copies in block)
        if place >= steps * per_step:
            place -= steps * per_step
            continue
        step, place = divmod(place, per_step)
        for kind, copies in block:
            count = kind.num_groups // steps
            if place < count * copies:
                index, copy = divmod(place, copies)
                twin = (
                    next((name for name in kind.twins if "_GLOO" in name), None) if copy else None
                )
                return Numbered(kind, step * count + index, twin)
            place -= count * copies
    return None


def _made_once(kinds: Sequence[GroupKind]) -> list[GroupKind]:
    """Return the kinds that nanotron makes anew: it keeps groups by their ranks."""
    seen: set[tuple[str, ...]] = set()
    made = []
    for kind in kinds:
        large = tuple(
            sorted(
                axis for axis in kind.along if kind.grid is not None and kind.grid.size(axis) > 1
            )
        )
        if large not in seen:
            seen.add(large)
            made.append(kind)
    return made
