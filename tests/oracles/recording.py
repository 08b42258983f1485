"""Runs beside the originals: a pretended world of any size, and the groups they make in it.

torch's "fake" process groups hold ranks and send nothing, so one process stands for a whole world.
Every rank of a job makes every group, so what one rank asks torch for is the full list.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

Made = list[tuple[str, list[int]]]
"""Description (may be empty) and ranks of each group, in order of creation."""


@contextmanager
def pretended_world(world_size: int, rank: int) -> Iterator[Made]:
    """Be one rank of a world; what is yielded fills with each group that torch is asked to make."""
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    made: Made = []
    new_group = dist.new_group

    def recorded(ranks: Any = None, *args: Any, **more: Any) -> Any:
        ranks = None if ranks is None else list(ranks)
        group = new_group(ranks, *args, **more)
        made.append((more.get("group_desc") or "", ranks or list(range(world_size))))
        return group

    dist.new_group = recorded
    try:
        yield made
    finally:
        dist.new_group = new_group
        dist.destroy_process_group()


def answer(one: Callable[[Any], dict[str, Any]]) -> None:
    """Answer every layout of the JSON list on standard input; what is raised is a refusal.

    The answers go to the file that the first argument names: the originals print.
    """
    answers = []
    for case in json.load(sys.stdin):
        try:
            answers.append(one(case))
        except Exception as error:
            answers.append({"refused": f"{type(error).__name__}: {error}"})
    Path(sys.argv[1]).write_text(json.dumps(answers))
