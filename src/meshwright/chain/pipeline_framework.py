"""What the frameworks run: which schedules, in whose order, and which of them wait for their sends.

Sources: NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py
(``get_forward_backward_func``); pytorch torch/distributed/pipelining/schedules.py
(``get_schedule_class``); pytorch/torchtitan torchtitan/distributed/pipeline_parallel.py;
deepspeedai/DeepSpeed deepspeed/runtime/pipe/schedule.py (``TrainSchedule``); huggingface/nanotron
src/nanotron/parallel/pipeline_parallel/engine.py; AI-Hypercomputer/maxtext
src/MaxText/layers/pipeline.py (``Pipeline``).
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.chain.outlined import Outline

_TORCH = ("gpipe", "1f1b", "interleaved", "looped-bfs", "interleaved-zb", "zb-v", "dualpipev")


@dataclass(frozen=True, slots=True)
class FrameworkPipelines:
    """``runs``: our names of the schedules a framework has; ``order``: whose order is simulated."""

    name: str
    runs: tuple[str, ...]
    order: str


FRAMEWORKS = {
    "megatron": FrameworkPipelines(
        "Megatron-Core", ("1f1b", "interleaved"), "Megatron-Core 0.10 and later"
    ),
    "torch": FrameworkPipelines("torch", _TORCH, "torch"),
    "torchtitan": FrameworkPipelines("torchtitan", _TORCH, "torch, which torchtitan runs"),
    "deepspeed": FrameworkPipelines(
        "DeepSpeed", ("1f1b",), "1F1B, as DeepSpeed's TrainSchedule has it"
    ),
    "nanotron": FrameworkPipelines(
        "nanotron", ("gpipe", "1f1b"), "1F1B or all forwards first, as nanotron's engines have them"
    ),
    "maxtext": FrameworkPipelines("MaxText", (), "none of MaxText's, which has no such order"),
}
"""By ``layout.framework``."""

CONVENTIONS = {"megatron": FRAMEWORKS["megatron"].order, "torch": FRAMEWORKS["torch"].order}
"""Whose order and rules a question without a job has."""


def waits_for_sends(outline: Outline, schedule: str) -> bool:
    """Tell whether ranks wait for their sends.

    Megatron's do but for overlapped interleaving: ``overlap_p2p_comm`` is on for interleaved schedules
    (``--no-overlap-p2p-communication``) and for no other (NVIDIA/Megatron-LM
    megatron/training/arguments.py). Of torch's schedules ``Schedule1F1B`` waits for its sends together
    with the receives behind them; GPipe waits after all forwards, the others where a message is used.
    """
    layout, overlap = outline.layout, outline.job.file.training.overlap_p2p
    if layout.pp < 2:
        return False
    if layout.framework in ("torch", "torchtitan"):
        return schedule == "1f1b"
    if layout.framework != "megatron":
        return False
    if schedule == "interleaved":
        return overlap is False
    return schedule in ("1f1b", "gpipe") and overlap is not True
