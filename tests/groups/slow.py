"""Group membership by plain loops over its definition, to hold the array engine against.

A layout is a mixed-radix number: ``rank = Σ c_i · S_i``, axes fastest first. A group along some
axes holds the ranks with equal coordinates on all others; groups enumerate those others and
members enumerate the axes of the group, both fastest first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from meshwright.job.layout import Layout

Groups = list[list[int]]
Axes = Sequence[tuple[str, int]]


def groups_along(axes: Axes, along: Collection[str]) -> Groups:
    world_size = 1
    for _, size in axes:
        world_size *= size
    found: dict[int, dict[int, int]] = {}
    for rank in range(world_size):
        rest, group, group_radix, member, member_radix = rank, 0, 1, 0, 1
        for name, size in axes:
            digit, rest = rest % size, rest // size
            if name in along:
                member += digit * member_radix
                member_radix *= size
            else:
                group += digit * group_radix
                group_radix *= size
        found.setdefault(group, {})[member] = rank
    return [[members[at] for at in sorted(members)] for _, members in sorted(found.items())]


def _named(order: Sequence[str], sizes: dict[str, int]) -> list[tuple[str, int]]:
    """Put sizes in the order string's order; axes it does not name come last."""
    names = [name for name in order if name in sizes]
    return [(name, sizes[name]) for name in (*names, *(n for n in sizes if n not in names))]


def _digit_groups(ranks: list[int], sizes: Sequence[int], level: int) -> Groups:
    """Split a list into groups whose members' positions differ in one digit only."""
    step = 1
    for size in sizes[:level]:
        step *= size
    found = []
    for position, _ in enumerate(ranks):
        if position // step % sizes[level] == 0:
            found.append([ranks[position + step * digit] for digit in range(sizes[level])])
    return found


def _joined(groups: Groups, many: int) -> Groups:
    return [
        [rank for group in groups[at : at + many] for rank in group]
        for at in range(0, len(groups), many)
    ]


def megatron_groups(layout: Layout) -> dict[str, Groups]:
    """Return every group of Megatron-Core 0.16 in creation order."""
    one = layout.instances
    dense = _named(
        layout.order, {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    )
    expert = _named(
        layout.order, {"tp": layout.etp, "ep": layout.ep, "dp": layout.edp, "pp": layout.pp}
    )
    found: dict[str, Groups] = {}
    data = groups_along(dense, ("dp", "cp"))
    found["DATA_PARALLEL_GROUP_WITH_CP"] = data
    if one > 1:
        slices = []
        for group in data:
            width = len(group) // one
            slices += [group[at : at + width] for at in range(0, len(group), width)]
        found["INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP"] = slices
    found["DATA_PARALLEL_GROUP"] = groups_along(dense, ("dp",))
    found["CONTEXT_PARALLEL_GROUP"] = groups_along(dense, ("cp",))
    for level, _ in enumerate(layout.hierarchical_cp):
        found[f"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}"] = [
            part
            for group in groups_along(dense, ("cp",))
            for part in _digit_groups(group, layout.hierarchical_cp, level)
        ]
    pipelines = groups_along(dense, ("pp",))
    found["MODEL_PARALLEL_GROUP"] = groups_along(dense, ("tp", "pp"))
    found["TENSOR_MODEL_PARALLEL_GROUP"] = groups_along(dense, ("tp",))
    found["PIPELINE_MODEL_PARALLEL_GROUP"] = pipelines
    found["EMBEDDING_GROUP"] = [
        [group[0], group[-1]] if len(group) > 1 else group for group in pipelines
    ]
    found["POSITION_EMBEDDING_GROUP"] = [[group[0]] for group in pipelines]
    found["TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP"] = groups_along(dense, ("tp", "dp", "cp"))
    found["TENSOR_AND_DATA_PARALLEL_GROUP"] = groups_along(dense, ("tp", "dp"))
    found["TENSOR_AND_CONTEXT_PARALLEL_GROUP"] = groups_along(dense, ("tp", "cp"))
    found["EXPERT_MODEL_PARALLEL_GROUP"] = groups_along(expert, ("ep",))
    found["EXPERT_TENSOR_PARALLEL_GROUP"] = groups_along(expert, ("tp",))
    found["EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP"] = groups_along(expert, ("tp", "ep"))
    whole = groups_along(expert, ("tp", "ep", "pp"))
    found["EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP"] = whole
    edp = groups_along(expert, ("dp",))
    found["EXPERT_DATA_PARALLEL_GROUP"] = edp
    if one > 1:
        for level in (0, 1):
            found[f"HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L{level}"] = [
                part
                for group in edp
                for part in _digit_groups(group, (layout.edp // one, one), level)
            ]
    found["INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP"] = _joined(whole, layout.edp // one)
    return found


def mesh_groups(layout: Layout) -> dict[str, Groups]:
    """Return the groups of a torch DeviceMesh by dimension (and of torchtitan's sparse mesh)."""
    sizes = {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp}
    dense: list[tuple[str, int]] = []
    named = [axis for axis in layout.order if axis != "ep"]
    for axis in (*named, *(a for a in ("tp", "cp", "dp", "pp") if a not in named)):
        if axis == "dp":
            replicas = layout.dp // layout.shard_degree
            dense += [("dp_shard", layout.shard_degree), ("dp_replicate", replicas)]
        else:
            dense.append((axis, sizes[axis]))
    found = {name: groups_along(dense, (name,)) for name, _ in reversed(dense)}
    found["batch"] = groups_along(dense, ("dp_shard", "dp_replicate"))
    if layout.framework == "torchtitan" or layout.cp > 1:
        found["fsdp"] = groups_along(dense, ("dp_shard", "cp"))
        found["loss"] = groups_along(dense, ("dp_shard", "dp_replicate", "cp"))
    if layout.ep > 1:
        region = layout.shard_degree * layout.cp * layout.tp
        sparse = [
            ("ep", layout.ep),
            ("efsdp", region // layout.ep),
            ("dp_replicate", layout.dp // layout.shard_degree),
            ("pp", layout.pp),
        ]
        found["efsdp"] = groups_along(sparse, ("efsdp",))
        found["ep"] = groups_along(sparse, ("ep",))
    return found
