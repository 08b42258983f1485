"""Ask DeepSpeed which groups it makes. See ``recording.answer``.

In: ``{"world", "rank"}`` and, each where it is wanted: ``"topology": {"class", "axes", "dims"}``
(slowest axis first), ``"sequence": size``, ``"hpz": size``, ``"experts": {"convention", "ep", "mp_size",
"mp_mode", "pp", "before"}``. Out: ``{"groups": {name: lists}, "held": {name: ranks}}`` or
``{"refused": message}``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch.distributed as dist
from deepspeed import comm
from deepspeed.runtime.pipe import topology
from deepspeed.runtime.sequence_parallel import parallel_state_sp
from deepspeed.utils import groups
from recording import Made, answer, pretended_world

Groups = dict[str, list[list[int]]]
# else each process compiles a C++ module for all-reduce in shared memory, which nothing here sends
import_module("deepspeed.comm.torch").build_shm_op = lambda: None


def groups_of(case: dict[str, Any]) -> dict[str, Any]:
    with pretended_world(case["world"], case["rank"]) as made:
        comm.init_distributed(dist_backend="fake", auto_mpi_discovery=False, verbose=False)
        try:
            return _made(case, made)
        finally:
            groups._release_process_group_references()  # as DeepSpeed does when the world ends


def _made(case: dict[str, Any], made: Made) -> dict[str, Any]:
    found: Groups = {}
    held: dict[str, list[int]] = {}
    if case.get("topology"):
        grid = topology.PipelineParallelGrid(_topology(case["topology"]))
        groups.mpu = grid
        found |= _of_grid(grid, [ranks for _, ranks in made])
        held["ds_model"] = dist.get_process_group_ranks(grid.ds_model_proc_group)
        held["data"] = dist.get_process_group_ranks(grid.dp_proc_group)
        held["pipe"] = dist.get_process_group_ranks(grid.pp_proc_group)
        held["model"] = dist.get_process_group_ranks(grid.slice_proc_group)
    if case.get("sequence"):
        ranks = _new(made, lambda: parallel_state_sp.initialize_sequence_parallel(case["sequence"]))
        count = case["world"] // case["sequence"]
        found["sequence"], found["sequence_data"] = ranks[:count], ranks[count:]
        group = parallel_state_sp.get_sequence_parallel_group()
        held["sequence"] = dist.get_process_group_ranks(group)
    if case.get("hpz", 1) > 1:
        found["zero_param_intra_parallel"] = _new(
            made, lambda: groups._create_zero_param_parallel_group(case["hpz"])
        )
    if case.get("experts"):
        asked = case["experts"]
        found |= _split(_new(made, lambda: _experts(asked)), asked, case["world"])
        name = f"ep_size_{asked['ep']}"
        held["expert_parallel"] = list(groups._get_expert_parallel_group_ranks(name))
        held["expert_data_parallel"] = list(groups._get_expert_data_parallel_group_ranks(name))
    return {"groups": found, "held": held}


def _topology(asked: dict[str, Any]) -> topology.ProcessTopology:
    dims = dict(zip(asked["axes"], asked["dims"], strict=True))
    if asked["class"] == "ProcessTopology":
        return topology.ProcessTopology(axes=asked["axes"], dims=asked["dims"])
    if asked["class"] == "PipeDataParallelTopology":
        return topology.PipeDataParallelTopology(num_pp=dims["pipe"], num_dp=dims["data"])
    return topology.PipeModelDataParallelTopology(
        num_pp=dims["pipe"], num_mp=dims["model"], num_dp=dims["data"]
    )


def _of_grid(grid: topology.PipelineParallelGrid, made: list[list[int]]) -> Groups:
    """Split what the grid made in its order: replicas, then data, pipe and model groups."""
    ends = [grid.data_parallel_size]
    ends.append(ends[-1] + len(grid.dp_groups))
    ends.append(ends[-1] + len(grid.pipe_groups))
    found = {
        "ds_model": made[: ends[0]],
        "data": made[ends[0] : ends[1]],
        "pipe": made[ends[1] : ends[2]],
        "model": made[ends[2] :],
        "p2p": grid.p2p_groups,
    }
    topo = grid.topology()
    for name in ("data", "pipe", "model"):
        if name in topo.get_axis_names():
            assert found[name] == topo.get_axis_comm_lists(name)
    return found


def _experts(asked: dict[str, Any]) -> None:
    if asked["convention"] == "mpu":
        groups._create_expert_data_and_model_parallel(
            asked["ep"], mpu=groups.mpu, use_data_before_expert_parallel_=asked["before"]
        )
    elif asked["convention"] == "mp_size":
        groups._create_expert_and_data_parallel(
            asked["ep"],
            mp_size=asked["mp_size"],
            pp_size=asked["pp"],
            mp_mode=asked["mp_mode"],
            use_data_before_expert_parallel_=asked["before"],
        )
    else:
        groups._create_expert_and_data_parallel(
            asked["ep"], use_data_before_expert_parallel_=asked["before"]
        )


def _split(made: list[list[int]], asked: dict[str, Any], world: int) -> Groups:
    """Tell EP from EDP groups by the order in which each function makes them."""
    ep = world // asked["ep"]
    if asked["convention"] == "mpu":
        return {"expert_parallel": made[:ep], "expert_data_parallel": made[ep:]}
    if asked["convention"] == "consecutive":
        return {"expert_parallel": made[-ep:], "expert_data_parallel": made[:-ep]}
    found: Groups = {"expert_parallel": [], "expert_data_parallel": []}
    step, per_stage = len(made) // asked["pp"], ep // asked["pp"]
    for start in range(0, len(made), step):
        found["expert_parallel"] += made[start : start + per_stage]
        found["expert_data_parallel"] += made[start + per_stage : start + step]
    return found


def _new(made: Made, create: Callable[[], None]) -> list[list[int]]:
    """Return the ranks of the groups that a call makes."""
    before = len(made)
    create()
    return [ranks for _, ranks in made[before:]]


if __name__ == "__main__":
    answer(groups_of)
