"""Form torch's device meshes over gloo, with a process a rank. JSON list in, answers in a file.

In: ``{"world", "names", "shape", "flat": {name: [names]}, "uses": ["fsdp", "tp", "pp"]}``. Out, per
case: ``{"groups": {name: [ranks a process met in its group, by rank]}, "descriptions": {name: text},
"coordinates": [by rank: {name: coordinate}], "used": {what: [ranks, by rank]}}``. The ranks of a group
are gathered over the group itself; ``used`` are the groups that FSDP2, tensor parallelism and a pipeline stage
took and ran on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from gloo import Found, answer
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

_WIDTH = 16


def _met(group: dist.ProcessGroup) -> list[int]:
    """Return the ranks that answer in a group, in the order of their places."""
    mine = torch.tensor([dist.get_rank()])
    places = [torch.zeros_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(places, mine, group=group)
    met = [int(place) for place in places]
    assert met == dist.get_process_group_ranks(group)
    return met


def _fsdp(mesh: DeviceMesh, names: list[str]) -> Found:
    """Shard a model with FSDP2 and take a step; return the groups of its parameters."""
    shard = "fsdp" if "fsdp" in names else "dp_shard"
    wanted = ("dp_replicate", shard) if "dp_replicate" in names else (shard,)
    model = nn.Linear(_WIDTH, _WIDTH)
    fully_shard(model, mesh=mesh[wanted])
    model(torch.ones(2, _WIDTH)).sum().backward()
    info = model._get_fsdp_state()._fsdp_param_groups[0].mesh_info
    used = {shard: dist.get_process_group_ranks(info.shard_process_group)}
    if "dp_replicate" in names:
        used["dp_replicate"] = dist.get_process_group_ranks(info.replicate_process_group)
    return used


def _tensor(mesh: DeviceMesh, names: list[str]) -> Found:
    """Split two matrices over tp and run them; return the group their shards lie on."""
    model = nn.Sequential(nn.Linear(_WIDTH, _WIDTH * 4), nn.Linear(_WIDTH * 4, _WIDTH))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    model(torch.ones(2, _WIDTH)).sum().backward()
    group = model[0].weight.device_mesh.get_group()
    return {"tp": dist.get_process_group_ranks(group)}


def _pipeline(mesh: DeviceMesh, names: list[str]) -> Found:
    """Send microbatches down a pipeline; return the rank of each stage."""
    group = mesh.get_group("pp")
    place, stages = dist.get_rank(group), dist.get_world_size(group)
    stage = PipelineStage(
        nn.Linear(_WIDTH, _WIDTH), place, stages, torch.device("cpu"), group=group
    )
    schedule = ScheduleGPipe(stage, n_microbatches=2)
    schedule.step(*([torch.ones(2, _WIDTH)] if place == 0 else []))
    places = [stage.stage_index_to_group_rank[index] for index in range(stages)]
    return {"pp": [dist.get_global_rank(group, one) for one in places]}


_USES = {"fsdp": _fsdp, "tp": _tensor, "pp": _pipeline}


def _of_case(case: Found) -> Found:
    names = tuple(case["names"])
    mesh = init_device_mesh("cpu", tuple(case["shape"]), mesh_dim_names=names)
    groups = {name: mesh.get_group(name) for name in names}
    for name, parts in case["flat"].items():
        groups[name] = mesh[tuple(parts)]._flatten(name).get_group()
    used: Found = {}
    for use in case["uses"]:
        used |= _USES[use](mesh, list(groups))
    coordinate = mesh.get_coordinate()
    return {
        "groups": {name: _met(group) for name, group in groups.items()},
        "descriptions": {name: group.group_desc for name, group in groups.items()},
        "coordinates": dict(zip(names, coordinate, strict=True)),
        "used": used,
    }


def _joined(by_rank: list[Found]) -> Found:
    first = by_rank[0]
    return {
        "groups": {name: [one["groups"][name] for one in by_rank] for name in first["groups"]},
        "descriptions": first["descriptions"],
        "coordinates": [one["coordinates"] for one in by_rank],
        "used": {name: [one["used"][name] for one in by_rank] for name in first["used"]},
    }


def main() -> None:
    cases = json.load(sys.stdin)
    answers = [_joined(by_rank) for by_rank in answer(cases, "world", _of_case)]
    Path(sys.argv[1]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
