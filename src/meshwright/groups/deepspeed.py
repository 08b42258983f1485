"""The groups of DeepSpeed: its topologies, its three conventions for experts, ZeRO++ and Ulysses.

Source: deepspeedai/DeepSpeed ``runtime/pipe/topology.py`` (``ProcessTopology``, row-major;
``PipelineParallelGrid``), ``utils/groups.py`` and ``runtime/sequence_parallel`` (edaa7221).
DeepSpeed gives no description to its groups, so torch prints "undefined" for all of them.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from meshwright.groups.grid import Grid, Ranks
from meshwright.groups.kinds import GroupKind, arranged_kind, grid_kind, listed_kind
from meshwright.job.layout import Layout


def topology(layout: Layout) -> Grid:
    """Return the dense grid: model fastest, then sequence (Ulysses), data and pipe."""
    sizes = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    axes = [axis for axis in layout.order if axis in sizes]
    axes += [axis for axis in sizes if axis not in axes]
    return Grid(tuple(axes), tuple(sizes[axis] for axis in axes))


def expert_convention(layout: Layout) -> str:
    """Tell which of DeepSpeed's functions makes the expert groups.

    ``mp_mode`` (given, and a model or sequence size above 1) is the path with ``mp_size``; with
    ``enable_expert_tensor_parallelism`` (etp = tp here) experts are sharded like the dense part;
    else EP groups are consecutive ranks.
    """
    if layout.mp_mode is not None and max(layout.tp, layout.cp) > 1:
        return "mp_size"
    return "mpu" if layout.etp > 1 else "consecutive"


def expert_grid(layout: Layout) -> Grid | None:
    """Return the grid of the experts; ``None`` where positions do not form one (``mp_size``)."""
    per_stage, ep, pp = layout.tp * layout.cp * layout.dp, layout.ep, layout.pp
    pair = ("edp", "ep") if layout.use_data_before_expert_parallel else ("ep", "edp")
    convention = expert_convention(layout)
    if convention == "mp_size":
        return None
    etp = layout.tp if convention == "mpu" else 1
    size = {"ep": ep, "edp": per_stage // etp // ep}
    return Grid(("etp", *pair, "pp"), (etp, size[pair[0]], size[pair[1]], pp))


def deepspeed_kinds(layout: Layout) -> list[GroupKind]:
    """Return every group kind of a valid layout, named by the axes of DeepSpeed's topology."""
    dense = topology(layout)
    kinds = [
        grid_kind("pipe", dense, ("pp",)),
        grid_kind("data", dense, ("dp",)),
        grid_kind("model", dense, ("tp",)),
        *_sequence(layout, dense),
        *_pipeline(layout, dense),
        *_hpz(layout),
    ]
    if layout.ep > 1:
        # DeepSpeed keeps both by this name
        named = (f"ep_size_{layout.ep}",)
        kinds += [dataclasses.replace(kind, also=named) for kind in _experts(layout)]
    return kinds


def _sequence(layout: Layout, dense: Grid) -> list[GroupKind]:
    """Return Ulysses' sequence groups, and those over which ZeRO shards then."""
    kinds = [grid_kind("sequence", dense, ("cp",))]
    if layout.cp > 1:
        kinds.append(grid_kind("sequence_data", dense, ("dp", "cp")))
    return kinds


def _pipeline(layout: Layout, dense: Grid) -> list[GroupKind]:
    """Return what ``PipelineParallelGrid`` adds: one replica's ranks, and pairs of stages."""
    if layout.pp == 1:
        return []
    world = layout.world_size

    def pairs() -> Ranks:
        """Return each rank with the same rank of the next stage, the last with the first."""
        pipes = dense.members(("pp",))
        following = np.empty(world, dtype=np.int32)
        following[pipes] = np.roll(pipes, -1, axis=1)
        return np.stack([np.arange(world, dtype=np.int32), following], axis=1)

    return [
        grid_kind("ds_model", dense, ("tp", "cp", "pp"), "tp-pp"),
        listed_kind("p2p", "pp_pair", pairs, (world, 2)),
    ]


def _hpz(layout: Layout) -> list[GroupKind]:
    """Return ZeRO++'s secondary partition: consecutive ranks hold one copy of the parameters."""
    if layout.zero_hpz_partition_size <= 1:
        return []
    size = min(layout.zero_hpz_partition_size, layout.world_size)
    grid = Grid(("hpz", "rest"), (size, layout.world_size // size))
    return [grid_kind("zero_param_intra_parallel", grid, ("hpz",), "hpz")]


def _experts(layout: Layout) -> list[GroupKind]:
    grid = expert_grid(layout)
    if grid is None:
        return _reordered_experts(layout)
    outside_ep, outside_edp = ("edp", "etp", "pp"), ("ep", "etp", "pp")
    kinds = [
        arranged_kind("expert_parallel", "ep", grid, ("ep",), outside_ep),
        arranged_kind("expert_data_parallel", "edp", grid, ("edp",), outside_edp),
    ]
    # _create_expert_and_data_parallel makes those of data first
    return kinds[::-1] if expert_convention(layout) == "consecutive" else kinds


def _reordered_experts(layout: Layout) -> list[GroupKind]:
    """Return ``_create_expert_and_data_parallel`` with ``mp_size`` above 1.

    A stage's ranks are put in a new order (``tp``: lane by lane; ``sp``: as they are) and cut
    into EP groups; EDP takes the same position of every EP group of the stage, of all lanes.
    """
    ep, stages, world = layout.ep, layout.pp, layout.world_size
    lanes = layout.tp if layout.mp_mode == "tp" else 1

    def cut() -> Ranks:
        """Return ``ranks[stage, ep group, position]``."""
        ranks = np.arange(world, dtype=np.int32).reshape(stages, -1, lanes)
        return ranks.transpose(0, 2, 1).reshape(stages, -1, ep)

    replicas = world // stages // ep
    return [
        listed_kind("expert_parallel", "ep", lambda: cut().reshape(-1, ep), (world // ep, ep)),
        listed_kind(
            "expert_data_parallel",
            "edp",
            lambda: cut().transpose(0, 2, 1).reshape(-1, replicas),
            (world // replicas, replicas),
        ),
    ]


def expert_coordinates(layout: Layout, rank: int) -> dict[str, int]:
    """Return a rank's position in its EP and its EDP group."""
    grid = expert_grid(layout)
    if grid is not None:
        found = grid.coordinates(rank)
        return {axis: found[axis] for axis in ("ep", "edp")}
    lanes = layout.tp if layout.mp_mode == "tp" else 1
    inside = rank % (layout.world_size // layout.pp)
    rows = layout.world_size // layout.pp // lanes
    position = inside % lanes * rows + inside // lanes
    return {"ep": position % layout.ep, "edp": position // layout.ep}
