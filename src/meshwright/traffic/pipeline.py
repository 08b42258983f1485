"""Pipeline parallelism: activations to the next chunk of layers, gradients to the previous one.

Per microbatch and boundary between chunks one message each way of A, or A/t with sequence
parallelism (Megatron-Core ``get_tensor_shapes``: s/c/t · b · h; 4 bytes an element with
``fp32_residual``). Messages by schedule:

- one chunk a rank, and interleaved: v·p - 1 boundaries; the last rank's chunks but one wrap round to
  the first rank;
- V-shaped (ZB-V, V-Half, V-Min, DualPipeV): rank r holds the chunks r and 2p-1-r. The turn at the last
  rank stays there, so 2(p-1) messages a microbatch and direction, over the same neighbours both ways;
- DualPipe, Chimera: two pipelines against each other with half of the microbatches each, so every
  link carries both directions in both phases; the two copies of each stage add their gradients
  (ranks r and p-1-r).

``variable_seq_lengths``: the shape (three 8-byte numbers) goes ahead of each message
(``p2p_communication.py _communicate_shapes``). Tied embeddings on two stages are summed once a step
over the embedding group, and so are those of multi-token prediction on a last stage of its own
(``finalize_model_grads.py _allreduce_word_embedding_grads``).
"""

from __future__ import annotations

import numpy as np

from meshwright.traffic.collective import Collective, Floats, Run, known_run, unknown_run
from meshwright.traffic.workload import COMPILER, NO_BATCH, Workload

SHAPE_BYTES = 3 * 8
_OTHERS = "other microbatches' compute"
ROWS = (("forward", "activations"), ("backward", "gradients of activations"))


def pipeline_collectives(work: Workload) -> list[Collective]:
    """Return what is sent along pp; ``bytes_by_stage[i]`` is what stage i sends."""
    if work.layout.pp == 1:
        return []
    return [*_messages(work), *_tied_embedding(work), *_mirrored(work)]


def message_bytes(work: Workload) -> float | None:
    """Return the bytes of one microbatch's message between two chunks; ``None`` without a batch."""
    size = work.hidden_tensor_bytes
    if size is None:
        return None
    if work.training.fp32_residual:
        size *= 4 / work.activation_bytes
    return size / work.layout.tp if work.sequence_parallel else size


def _messages(work: Workload) -> list[Collective]:
    message, microbatches = message_bytes(work), work.batch.num_microbatches
    compiled = work.layout.framework == "maxtext"
    if message is None or microbatches is None or compiled:
        reason = COMPILER if compiled else NO_BATCH
        return [unknown_run("pp", run, reason) for run, _ in _directions(work)]
    found = []
    for run, counts in _directions(work):
        found.append(known_run("pp", run, "chunk and microbatch", message, counts * microbatches))
        if work.training.variable_seq_lengths:
            shape = Run("send", run.phase, f"shapes of {run.what}", reverse=run.reverse)
            found.append(
                known_run("pp", shape, "chunk and microbatch", SHAPE_BYTES, counts * microbatches)
            )
    return found


def _directions(work: Workload) -> list[tuple[Run, Floats]]:
    """Return (row, messages a stage sends a microbatch) for each phase and direction."""
    found = []
    for phase, what in ROWS:
        for goes_back, counts in _counts(work):
            returns = phase == "backward"  # who received activations sends their gradients back
            run = Run("send", phase, what, hides_behind=_OTHERS, reverse=goes_back != returns)
            found.append((run, np.roll(counts, -1 if goes_back else 1) if returns else counts))
    return found


def _counts(work: Workload) -> list[tuple[bool, Floats]]:
    """Return (goes to the previous stage, messages of each stage a microbatch) of activations."""
    pp = work.layout.pp
    if work.is_folded or work.is_opposed:
        share = 0.5 if work.is_opposed else 1.0
        next_stage, previous = np.full(pp, share), np.full(pp, share)
        next_stage[-1] = previous[0] = 0
        return [(False, next_stage), (True, previous)]
    counts = np.full(pp, float(work.layout.vp))
    # The end of the pipeline sends one chunk less: its last chunk has nobody after it.
    counts[-1] -= 1
    return [(False, counts)]


def _tied_embedding(work: Workload) -> list[Collective]:
    """Return the sum of gradients of word embeddings that two stages hold."""
    tied = work.model.tied_embeddings or bool(work.training.mtp_layers)
    if not tied or work.is_folded:  # a pipeline that turns back has both ends on one rank
        return []
    layout = work.layout
    run = Run("all_reduce", "backward", "gradients of tied embeddings")
    if layout.framework != "megatron":
        reason = f"how {layout.framework} ties embeddings over stages was not established"
        return [unknown_run("embedding", run, reason)]
    size = work.model.vocab / layout.tp * work.model.hidden * work.gradient_bytes
    return [known_run("embedding", run, "step", size, np.ones(layout.pp))]


def _mirrored(work: Workload) -> list[Collective]:
    """Return the sum of gradients of the two copies of each stage (DualPipe, Chimera)."""
    if not work.is_opposed:
        return []
    dense, expert = work.parameters_by_stage()
    run = Run("all_reduce", "backward", "gradients of the opposed pipeline's copy")
    size = (dense + expert) * work.gradient_bytes
    return [known_run("pp_mirror", run, "step", size, np.ones(work.layout.pp))]
