"""The groups of Megatron-Core, in creation order.

Source: NVIDIA/Megatron-LM ``megatron/core/parallel_state.py``: ``RankGenerator``,
``generate_masked_orthogonal_rank_groups``, ``create_hierarchical_groups`` and
``initialize_model_parallel``. Two grids share one order string: the decoder grid (tp, cp, dp, pp)
and the expert grid (etp in the place of tp, ep, edp in the place of dp, pp). Main (d98e8a64) adds three
groups of weight rematerialisation (GTP), of one rank each while ``gtp_remat_size`` is 1. Megatron-FSDP
(``core/distributed/fsdp/mcore_fsdp_adapter.py``) shards over the slices of dp-cp and replicates over
the groups between optimizer instances.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from meshwright.groups.grid import Grid, Ranks, split_digits
from meshwright.groups.kinds import GroupKind, grid_kind, joined_axis, listed_kind
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


def is_main(layout: Layout) -> bool:
    """Tell whether the rules of the main branch are applied, not those of the release."""
    return "main" in layout.framework_version


def megatron_kinds(layout: Layout) -> list[GroupKind]:
    """Return every group kind of a valid layout, in Megatron-Core's creation order."""
    dense, expert = decoder_grid(layout), expert_grid(layout)
    main = is_main(layout)
    kinds = [
        *_remat("GTP_WEIGHT_REMAT_GROUP", dense, (), main=main),
        grid_kind("DATA_PARALLEL_GROUP_WITH_CP", dense, ("dp", "cp")),
        *_partial_data_parallel(layout, dense),
        *_hybrid_context(layout, dense),
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
        *_remat("EXPERT_GTP_WEIGHT_REMAT_GROUP", expert, (), main=main),
        grid_kind("EXPERT_MODEL_PARALLEL_GROUP", expert, ("ep",)),
        grid_kind("EXPERT_TENSOR_PARALLEL_GROUP", expert, ("etp",)),
        grid_kind("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", expert, ("etp", "ep")),
        grid_kind("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", expert, ("etp", "ep", "pp")),
        *_remat(
            "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP_WITH_EGTP",
            expert,
            ("etp", "ep", "pp"),
            main=main,
        ),
        grid_kind("EXPERT_DATA_PARALLEL_GROUP", expert, ("edp",)),
        *_hierarchical_expert_data(layout, expert),
        _instances(layout, expert),
    ]
    return [_with_twins(kind) for kind in kinds]


def _remat(name: str, grid: Grid, along: tuple[str, ...], *, main: bool) -> list[GroupKind]:
    """Return a group along the gtp_remat axis (of size 1 here) and others; only main has them."""
    axis = joined_axis((*along, "egtp")) if along else "egtp" if "ep" in grid.axes else "gtp"
    return [grid_kind(name, grid, along, axis)] if main else []


_GLOO_TWINS = (
    "DATA_PARALLEL_GROUP_WITH_CP",
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP",
    "DATA_PARALLEL_GROUP",
    "EXPERT_DATA_PARALLEL_GROUP",
)
"""Kinds that exist a second time over Gloo, for the CPU (``create_gloo_process_groups``)."""
_GATHER_TWINS = ("DATA_PARALLEL_GROUP_WITH_CP", "EXPERT_DATA_PARALLEL_GROUP")
"""Kinds that may exist a second time for the all-gather alone (``create_all_gather_groups``)."""


def _with_twins(kind: GroupKind) -> GroupKind:
    """Add the names of communicators with the same ranks and another id."""
    twins = [f"{kind.name}_GLOO"] if kind.name in _GLOO_TWINS else []
    twins += [f"{kind.name}_AG"] if kind.name in _GATHER_TWINS else []
    if kind.name.startswith("HIERARCHICAL_EXPERT"):
        twins.append(kind.name.replace("_GROUP_L", "_GROUP_GLOO_L"))
    return dataclasses.replace(kind, twins=tuple(twins)) if twins else kind


def _partial_data_parallel(layout: Layout, dense: Grid) -> list[GroupKind]:
    if layout.instances == 1:
        return []
    degree = layout.dp * layout.cp // layout.instances
    return [
        listed_kind(
            "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP",
            # Megatron-FSDP's HSDP shards over these
            "dp_shard" if layout.sharding == "hsdp" else "intra_dp-cp",
            lambda: dense.members(("dp", "cp")).reshape(-1, degree),
            (layout.world_size // degree, degree),
        )
    ]


def hybrid_sizes(ranks: int) -> tuple[list[int], list[int]]:
    """Return the group sizes of hybrid context parallelism over ``ranks`` ranks of dp-cp.

    First those that cut them evenly, then those that leave a shorter last group.
    """
    sizes = [1 << power for power in range(1, ranks.bit_length() - 1)]
    return [n for n in sizes if ranks % n == 0], [n for n in sizes if ranks % n]


def _hybrid_context(layout: Layout, dense: Grid) -> list[GroupKind]:
    """Cut every dp-cp list into slices of each power of two (``create_hybrid_dp_cp_groups``).

    Sizes that leave a shorter slice are not listed: a rule says so.
    """
    if not layout.hybrid_context_parallel:
        return []
    return [
        listed_kind(
            f"HYBRID_DP_CP_GROUP_{size}",
            f"hybrid_dp-cp_{size}",
            lambda size=size: dense.members(("dp", "cp")).reshape(-1, size),  # type: ignore[misc]
            (layout.world_size // size, size),
        )
        for size in hybrid_sizes(layout.dp * layout.cp)[0]
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
    between = "dp_replicate" if layout.sharding == "hsdp" else "inter_edp"
    return [
        listed_kind(
            f"HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L{level}",
            ("intra_edp", between)[level],
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
