"""The groups of Megatron-Core, in creation order.

Source: NVIDIA/Megatron-LM ``megatron/core/parallel_state.py``: ``RankGenerator``,
``generate_masked_orthogonal_rank_groups``, ``create_hierarchical_groups`` and
``initialize_model_parallel``. Two grids share one order string: the decoder grid (tp, cp, dp, pp)
and the expert grid (etp in the place of tp, ep, edp in the place of dp, pp).
"""

from __future__ import annotations

import numpy as np

from meshwright.groups.grid import Grid, Ranks, split_digits
from meshwright.groups.kinds import GroupKind, grid_kind, listed_kind
from meshwright.job.layout import Layout


def decoder_grid(layout: Layout) -> Grid:
    """Return the grid of the dense part: ep is 1 there."""
    sizes = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    return _grid(layout.order, sizes, {})


def expert_grid(layout: Layout) -> Grid:
    """Return the grid of the experts: cp is 1, tp's place is etp's, dp's place is edp's."""
    sizes = {"etp": layout.etp, "ep": layout.ep, "edp": layout.edp, "pp": layout.pp}
    return _grid(layout.order, sizes, {"tp": "etp", "dp": "edp"})


def _grid(order: tuple[str, ...], sizes: dict[str, int], rename: dict[str, str]) -> Grid:
    axes = [rename.get(token, token) for token in order]
    axes = [axis for axis in axes if axis in sizes]
    axes += [axis for axis in sizes if axis not in axes]  # of size 1, or a rule has refused it
    return Grid(tuple(axes), tuple(sizes[axis] for axis in axes))


def megatron_kinds(layout: Layout) -> list[GroupKind]:
    """Return every group kind of a valid layout, in Megatron-Core's creation order."""
    dense, expert = decoder_grid(layout), expert_grid(layout)
    kinds = [grid_kind("DATA_PARALLEL_GROUP_WITH_CP", dense, ("dp", "cp"))]
    kinds += _partial_data_parallel(layout, dense)
    kinds += [
        grid_kind("DATA_PARALLEL_GROUP", dense, ("dp",)),
        grid_kind("CONTEXT_PARALLEL_GROUP", dense, ("cp",)),
        *_hierarchical_context(layout, dense),
        grid_kind("MODEL_PARALLEL_GROUP", dense, ("tp", "pp")),
        grid_kind("TENSOR_MODEL_PARALLEL_GROUP", dense, ("tp",)),
        grid_kind("PIPELINE_MODEL_PARALLEL_GROUP", dense, ("pp",)),
        *_embedding(layout, dense),
        grid_kind("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", dense, ("tp", "dp", "cp")),
        grid_kind("TENSOR_AND_DATA_PARALLEL_GROUP", dense, ("tp", "dp")),
        grid_kind("TENSOR_AND_CONTEXT_PARALLEL_GROUP", dense, ("tp", "cp")),
        grid_kind("EXPERT_MODEL_PARALLEL_GROUP", expert, ("ep",)),
        grid_kind("EXPERT_TENSOR_PARALLEL_GROUP", expert, ("etp",)),
        grid_kind("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", expert, ("etp", "ep")),
        grid_kind("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", expert, ("etp", "ep", "pp")),
        grid_kind("EXPERT_DATA_PARALLEL_GROUP", expert, ("edp",)),
        *_hierarchical_expert_data(layout, expert),
        _instances(layout, expert),
    ]
    return kinds


def _partial_data_parallel(layout: Layout, dense: Grid) -> list[GroupKind]:
    if layout.instances == 1:
        return []
    degree = layout.dp * layout.cp // layout.instances
    return [
        listed_kind(
            "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP",
            "intra_dp-cp",
            lambda: dense.members(("dp", "cp")).reshape(-1, degree),
            (layout.world_size // degree, degree),
        )
    ]


def _hierarchical_context(layout: Layout, dense: Grid) -> list[GroupKind]:
    sizes = layout.hierarchical_cp
    return [
        listed_kind(
            f"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}",
            f"cp_l{level}",
            lambda level=level: split_digits(dense.members(("cp",)), sizes, level),  # type: ignore[misc]
            (layout.world_size // size, size),
        )
        for level, size in enumerate(sizes)
    ]


def _embedding(layout: Layout, dense: Grid) -> list[GroupKind]:
    """Return first and last stage of each pipeline, and the first alone."""
    pipelines = layout.world_size // layout.pp
    both = 2 if layout.pp > 1 else 1

    def ends() -> Ranks:
        return dense.members(("pp",))[:, [0, -1][:both]]

    return [
        listed_kind("EMBEDDING_GROUP", "embedding", ends, (pipelines, both)),
        listed_kind(
            "POSITION_EMBEDDING_GROUP",
            "position_embedding",
            lambda: dense.members(("pp",))[:, :1],
            (pipelines, 1),
        ),
    ]


def _hierarchical_expert_data(layout: Layout, expert: Grid) -> list[GroupKind]:
    if layout.instances == 1:
        return []
    sizes = (layout.edp // layout.instances, layout.instances)
    return [
        listed_kind(
            f"HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L{level}",
            ("intra_edp", "inter_edp")[level],
            lambda level=level: split_digits(expert.members(("edp",)), sizes, level),  # type: ignore[misc]
            (layout.world_size // size, size),
        )
        for level, size in enumerate(sizes)
    ]


def _instances(layout: Layout, expert: Grid) -> GroupKind:
    """Concatenate every edp/instances consecutive etp-ep-pp groups."""
    degree = layout.world_size // layout.instances

    def members() -> Ranks:
        return np.ascontiguousarray(expert.members(("etp", "ep", "pp"))).reshape(-1, degree)

    return listed_kind(
        "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP",
        "instance",
        members,
        (layout.instances, degree),
    )
