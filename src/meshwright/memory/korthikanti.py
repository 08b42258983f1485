"""Activation bytes a layer of Korthikanti et al. 2022 (arXiv 2205.05198), table 2.

GPT layers with dropout and without flash attention, 16-bit: attention 11 sbh + 5as²b, MLP 19 sbh,
two LayerNorms 4 sbh. The forms on which Megatron-Core's own estimator stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.traffic.workload import Workload

Count = Any
STRATEGIES = (
    "no_parallel",
    "tp",
    "tp_sp",
    "tp_selective",
    "tp_sp_selective",
    "full_recompute",
    "full_recompute_sp",
)


BASELINE = "tp"
"""The strategy that the paper's shares are of."""


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One strategy: bytes of a layer and of the first stage, and their share of ``BASELINE``."""

    strategy: str
    bytes_per_layer: float
    first_stage_bytes: float
    share_of_baseline: float


def paper_rows(work: Workload) -> list[PaperRow]:
    """Return every strategy for a job's sizes, whatever the job itself says.

    Raises ``ValueError`` without micro_batch and seq_len.
    """
    micro, seq = work.batch.micro_batch, work.batch.seq_len
    if micro is None or seq is None:
        raise ValueError("micro_batch or seq_len is not given")
    model, layout = work.model, work.layout
    elements, scores = seq * micro * model.hidden / layout.cp, 5 * model.heads * seq / model.hidden
    each = {name: bytes_per_layer(name, elements, layout.tp, scores) for name in STRATEGIES}
    return [
        PaperRow(
            name,
            float(size),
            float(first_stage_bytes(size, model.num_layers, layout.pp, layout.vp)),
            float(size / each[BASELINE]),
        )
        for name, size in each.items()
    ]


def bytes_per_layer(strategy: str, hidden_elements: Count, tp: Count, scores: Count) -> Count:
    """Return bytes a layer and microbatch on a rank.

    Parameters
    ----------
    strategy
        One of ``STRATEGIES``.
    hidden_elements
        s·b·h (divided by cp where there is context parallelism).
    tp
        Tensor-parallel degree.
    scores
        5·a·s/h: what attention scores weigh beside the hidden size.

    Raises ``ValueError`` for an unknown strategy.
    """
    if strategy == "no_parallel":
        return hidden_elements * (34 + scores)
    if strategy == "tp":
        return hidden_elements * (10 + 24 / tp + scores / tp)
    if strategy == "tp_sp":
        return hidden_elements * (34 / tp + scores / tp)
    if strategy == "tp_selective":
        return hidden_elements * (10 + 24 / tp)
    if strategy == "tp_sp_selective":
        return hidden_elements * 34 / tp
    if strategy == "full_recompute":
        return hidden_elements * 2
    if strategy == "full_recompute_sp":
        return hidden_elements * 2 / tp
    raise ValueError(f"no strategy {strategy!r}: {', '.join(STRATEGIES)}")


def first_stage_bytes(per_layer: Count, layers: int, pp: int, vp: int) -> Count:
    """Return bytes of the first stage: all layers' worth, and the interleaved schedule's more.

    1F1B holds p microbatches of L/p layers; interleaved L·(1 + (p-1)/(p·v)) layers.
    """
    more = 1 + (pp - 1) / (pp * vp) if vp > 1 else 1.0
    return per_layer * layers * more
