"""Run schedules with torch's own pipeline runtime over gloo. JSON list in, answers in a file.

In: ``{"csv": text of the compute-only file, "ranks", "stages", "microbatches"}``. Out, per case:
``{"orders": [by rank: the operations as they ran, "2F0" …], "difference": largest difference of any
gradient from that of the whole model run without a pipeline, over the largest gradient,
"gradients": how many were compared}``.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo import Found, answer
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

_WIDTH, _SEQUENCES = 12, 3


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


def _of_case(case: Found) -> Found:
    stages, count = case["stages"], case["microbatches"]
    mine = case["csv"].splitlines()[dist.get_rank()]
    held = sorted({int(number) for number in re.findall(r"(\d+)[FBIW]\d", mine)})
    blocks, ran = _model(stages), []
    parts = [
        PipelineStage(blocks[index], index, stages, torch.device("cpu"), group=dist.group.WORLD)
        for index in held
    ]
    for part in parts:
        _recorded(part, ran)
    runtime = _PipelineScheduleRuntime(parts, count, loss_fn=nn.functional.mse_loss)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(case["csv"])
        file.flush()
        runtime._load_csv(file.name, format="compute_only")
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


def _joined(by_rank: list[Found]) -> Found:
    return {
        "orders": [one["order"] for one in by_rank],
        "difference": max(one["difference"] for one in by_rank),
        "gradients": sum(one["gradients"] for one in by_rank),
    }


def main() -> None:
    cases = json.load(sys.stdin)
    answers = [_joined(by_rank) for by_rank in answer(cases, "ranks", _of_case)]
    Path(sys.argv[1]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
