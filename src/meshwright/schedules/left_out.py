"""What a schedule holds on a rank where nobody says how many chunks."""

from __future__ import annotations

from typing import Final

from meshwright.schedules.names import MANY_CHUNKS, TWO_CHUNKS, schedule_name

TORCH: Final = ("torch", "torchtitan")
"""Frameworks that run torch's schedules."""


def chunks_left_out(framework: str | None, schedule: str | None) -> int:
    """Return ``vp`` where it is left out.

    torchtitan gives each rank two stages of a schedule of several (pytorch/torchtitan
    torchtitan/distributed/pipeline_parallel.py ``pipeline_llm``). Megatron interleaves only where it is
    told how many chunks.
    """
    if framework not in TORCH or schedule_name(schedule) not in (*MANY_CHUNKS, *TWO_CHUNKS):
        return 1
    return 2


def convention_of(framework: str) -> str:
    """Return whose order and rules a framework has (``make_asked.CONVENTIONS``)."""
    return "torch" if framework in TORCH else "megatron"
