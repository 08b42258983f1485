"""Tensor parallelism outside the layers: embedding, output layer, loss, whole parameters.

Vocab-parallel embedding (``core/tensor_parallel/layers.py VocabParallelEmbedding``): all-reduce of A
forward, or with sequence parallelism reduce-scatter forward and all-gather backward. Output layer
(column-parallel): all-reduce of the input gradient, or all-gather forward, reduce-scatter and
all-gather again backward. Vocab-parallel cross entropy (``cross_entropy.py``): 3 all-reduces (largest
logit, the label's logit, sum of exponentials) of one fp32 a token. torchtitan does the same with
loss parallel, its default; DTensor gathers nothing again.

Multi-token prediction (``core/transformer/multi_token_prediction.py``): each depth embeds and makes
logits once more on the stage of the output. Its ``eh_proj`` is column-parallel from 2h to h: input 2A
as above, and its output is gathered whole (all-gather of A; with sequence parallelism its
split has an all-gather of A backward).

Parameters that tp does not split see other tokens on each rank under sequence parallelism: one
coalesced all-reduce a step (``finalize_model_grads.py _allreduce_non_tensor_model_parallel_grads``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.job.parameters import StageLayers, parameters_per_rank
from meshwright.traffic.collective import (
    Collective,
    Floats,
    Run,
    known_run,
    unknown_run,
)
from meshwright.traffic.workload import MESH, NO_BATCH, Workload

FP32 = 4
_WEIGHT, _INPUT = "weight-gradient GEMM", "input-gradient GEMM"


@dataclass(frozen=True, slots=True)
class _End:
    """A row, how many A it carries, and how often a stage does it in a microbatch."""

    run: Run
    tensors: float
    by_stage: Floats


def end_collectives(work: Workload) -> list[Collective]:
    """Return what runs on tp outside the layers. For tp above 1."""
    size, tokens, rounds = work.hidden_tensor_bytes, work.tokens, work.rounds
    reason = _unproved(work)
    losses = work.output_stages() + work.mtp_by_stage()
    loss = Run("all_reduce", "forward", "vocab-parallel cross entropy", 3)
    found = []
    for end in _ends(work):
        if not end.by_stage.any():
            continue
        if size is None or rounds is None or reason is not None:
            found.append(unknown_run("tp", end.run, reason or NO_BATCH))
        else:
            times = end.by_stage * rounds
            found.append(known_run("tp", end.run, "microbatch", end.tensors * size, times))
    if tokens is None or rounds is None or reason is not None:
        found.append(unknown_run("tp", loss, reason or NO_BATCH))
    else:
        found.append(known_run("tp", loss, "microbatch", tokens * FP32, losses * rounds))
    return found + _replicated(work)


def _unproved(work: Workload) -> str | None:
    framework = work.layout.framework
    if framework in ("megatron", *MESH):
        return None
    return f"how {framework} splits embedding, output layer and loss was not established"


def _ends(work: Workload) -> list[_End]:
    split = work.sequence_parallel
    again = split and work.layout.framework == "megatron"
    words = work.embedding_stages() + work.mtp_by_stage()
    logits = work.output_stages() + work.mtp_by_stage()
    rows = _embedding(words, split=split)
    rows += _column(("output layer's input", 1), logits, split=split, again=again)
    projected = work.mtp_by_stage()
    rows += _column(("multi-token projection's input", 2), projected, split=split, again=again)
    gather = Run("all_gather", "forward", "multi-token projection's output")
    rows.append(_End(gather, 1, projected))
    if split:
        back = Run("all_gather", "backward", "gradients of the projection's split output")
        rows.append(_End(back, 1, projected))
    return rows


def _embedding(by_stage: Floats, *, split: bool) -> list[_End]:
    if not split:
        return [_End(Run("all_reduce", "forward", "embedding"), 1, by_stage)]
    return [
        _End(Run("reduce_scatter", "forward", "embedding"), 1, by_stage),
        _End(Run("all_gather", "backward", "gradients of the embedding's output"), 1, by_stage),
    ]


def _column(what: tuple[str, float], by_stage: Floats, *, split: bool, again: bool) -> list[_End]:
    """Return the rows of one column-parallel layer; ``what``: its input and how many A that is."""
    name, tensors = what
    grads = f"gradients of the {name}"
    if not split:
        run = Run("all_reduce", "backward", grads, hides_behind=_WEIGHT)
        return [_End(run, tensors, by_stage)]
    runs = [
        Run("all_gather", "forward", name),
        Run("reduce_scatter", "backward", grads, hides_behind=_WEIGHT),
    ]
    if again:
        runs.append(
            Run(
                "all_gather", "backward", f"{name} again, for weight gradients", hides_behind=_INPUT
            )
        )
    return [_End(run, tensors, by_stage) for run in runs]


def _replicated(work: Workload) -> list[Collective]:
    """Return the all-reduce of gradients of parameters that every tp rank holds whole."""
    if not work.sequence_parallel:
        return []
    run = Run("all_reduce", "step", "gradients of norms, router and biases, whole on each rank")
    if work.layout.framework != "megatron":
        reason = "when DTensor reduces the gradients of norms was not established"
        return [unknown_run("tp", run, reason)]
    whole = replicated_parameters(work)
    return [known_run("tp", run, "step", whole * work.gradient_bytes, np.ones(work.layout.pp))]


def replicated_parameters(work: Workload) -> Floats:
    """Return the dense parameters each stage's ranks hold whole. For tp above 1.

    A rank holds ``whole + split / tp``; all of it is ``whole + split``.
    """
    tp = work.layout.tp
    parts = work.stage_parts()
    held, every = (np.array([_dense(work, part, degree) for part in parts]) for degree in (tp, 1))
    whole: Floats = (tp * held - every) / (tp - 1)
    return whole


def _dense(work: Workload, part: StageLayers, tp: int) -> float:
    return float(parameters_per_rank(work.model, part, tp=tp, ep=1, etp=1).dense)
