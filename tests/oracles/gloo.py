"""Be every rank of a small world over gloo: processes that have torch loaded already."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Found = dict[str, Any]
_PATIENCE = timedelta(seconds=150)
"""A rank whose peers are gone waits no longer."""


def answer(cases: list[Found], size: str, of_case: Callable[[Found], Found]) -> list[list[Found]]:
    """Return what every rank finds for each case, by case and rank; ``case[size]`` ranks each."""
    answers: dict[int, list[Found]] = {}
    for world in sorted({case[size] for case in cases}):
        places = [index for index, case in enumerate(cases) if case[size] == world]
        by_rank = _of_world(world, [cases[index] for index in places], of_case)
        for number, index in enumerate(places):
            answers[index] = [found[number] for found in by_rank]
    return [answers[index] for index, _ in enumerate(cases)]


def _of_world(
    world: int, cases: list[Found], of_case: Callable[[Found], Found]
) -> list[list[Found]]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        processes = [_fork((rank, world), folder, cases, of_case) for rank in range(world)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in processes]
        if any(codes):
            raise SystemExit(f"ranks ended with {codes}")
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def _fork(
    at: tuple[int, int], folder: Path, cases: list[Found], of_case: Callable[[Found], Found]
) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        _be(at, folder, cases, of_case)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _be(
    at: tuple[int, int], folder: Path, cases: list[Found], of_case: Callable[[Found], Found]
) -> None:
    """Be one rank; write what it found."""
    rank, world = at
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=world,
        timeout=_PATIENCE,
    )
    found = [of_case(case) for case in cases]
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
