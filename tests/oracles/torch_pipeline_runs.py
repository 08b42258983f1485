"""Run schedules with torch's own pipeline runtime over gloo. JSON list in, answers in a file.

In: ``{"csv": text of the compute-only file, "ranks", "stages", "microbatches"}``. Out, per case:
``{"orders": [by rank: the operations as they ran, "2F0" …], "difference": largest difference of any
gradient from that of the whole model run without a pipeline, over the largest gradient,
"gradients": how many were compared}``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

Found = dict[str, Any]
_WIDTH, _SEQUENCES = 12, 3
_PATIENCE = timedelta(seconds=100)


def _model(stages: int) -> list[nn.Module]:
    """Return a small model, one block a stage, the same on every rank."""
    torch.manual_seed(11)
    return [nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Tanh()).double() for _ in range(stages)]


def _recorded(stage: PipelineStage, into: list[str]) -> None:
    """Write down every operation of a stage when it runs."""
    forward, backward = stage.forward_one_chunk, stage.backward_one_chunk
    weight, index = stage.backward_weight_one_chunk, stage.stage_index

    def run_forward(number: int, *args: Any, **kwargs: Any) -> Any:
        into.append(f"{index}F{number}")
        return forward(number, *args, **kwargs)

    def run_backward(number: int, *args: Any, **kwargs: Any) -> Any:
        into.append(f"{index}{'B' if kwargs.get('full_backward', True) else 'I'}{number}")
        return backward(number, *args, **kwargs)

    def run_weight(number: int, *args: Any, **kwargs: Any) -> Any:
        into.append(f"{index}W{number}")
        return weight(number, *args, **kwargs)

    stage.forward_one_chunk = run_forward
    stage.backward_one_chunk = run_backward
    stage.backward_weight_one_chunk = run_weight


def _of_case(case: Found, folder: Path, rank: int) -> Found:
    stages, count = case["stages"], case["microbatches"]
    path = folder / f"schedule-{rank}.csv"
    path.write_text(case["csv"])
    mine = case["csv"].splitlines()[rank]
    held = sorted({int(number) for number in re.findall(r"(\d+)[FBIW]\d", mine)})
    blocks, ran = _model(stages), []
    parts = [
        PipelineStage(blocks[index], index, stages, torch.device("cpu"), group=dist.group.WORLD)
        for index in held
    ]
    for part in parts:
        _recorded(part, ran)
    runtime = _PipelineScheduleRuntime(parts, count, loss_fn=nn.functional.mse_loss)
    runtime._load_csv(str(path), format="compute_only")
    torch.manual_seed(5)
    words = torch.randn(count * _SEQUENCES, _WIDTH, dtype=torch.double)
    target = torch.randn(count * _SEQUENCES, _WIDTH, dtype=torch.double)
    first, last = 0 in held, stages - 1 in held
    runtime.step(*([words] if first else []), target=target if last else None)
    whole = nn.Sequential(*_model(stages))
    nn.functional.mse_loss(whole(words), target).backward()
    pairs = [
        (ours.grad, theirs.grad)
        for index in held
        for ours, theirs in zip(blocks[index].parameters(), whole[index].parameters(), strict=True)
    ]
    largest = max(float(theirs.abs().max()) for _, theirs in pairs)
    difference = max(float((ours - theirs).abs().max()) for ours, theirs in pairs)
    return {"order": ran, "difference": difference / largest, "gradients": len(pairs)}


def _be(rank: int, world: int, folder: Path, cases: list[Found]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=_PATIENCE
    )
    found = [_of_case(case, folder, rank) for case in cases]
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _fork(rank: int, world: int, folder: Path, cases: list[Found]) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        _be(rank, world, folder, cases)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _of_world(world: int, cases: list[Found]) -> list[Found]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        processes = [_fork(rank, world, folder, cases) for rank in range(world)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in processes]
        if any(codes):
            raise SystemExit(f"ranks ended with {codes}")
        by_rank = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
    return [
        {
            "orders": [one[index]["order"] for one in by_rank],
            "difference": max(one[index]["difference"] for one in by_rank),
            "gradients": sum(one[index]["gradients"] for one in by_rank),
        }
        for index, _ in enumerate(cases)
    ]


def main() -> None:
    cases = json.load(sys.stdin)
    answers: dict[int, Found] = {}
    for world in sorted({case["ranks"] for case in cases}):
        places = [index for index, case in enumerate(cases) if case["ranks"] == world]
        found = _of_world(world, [cases[index] for index in places])
        answers |= dict(zip(places, found, strict=True))
    Path(sys.argv[1]).write_text(json.dumps([answers[index] for index, _ in enumerate(cases)]))


if __name__ == "__main__":
    main()
