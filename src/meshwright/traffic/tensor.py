"""Tensor parallelism: collectives of the transformer layers.

Per block and microbatch (Megatron-Core ``core/tensor_parallel/layers.py``), S = A each:
without sequence parallelism 1 all-reduce forward and 1 backward; with it 1 all-gather and 1
reduce-scatter each way, plus 1 all-gather backward that makes the input whole again for the
weight gradients. torch's DTensor keeps the gathered input and has none of those (counted by running
it). Full recompute repeats the forward ones; recompute of the core attention repeats none.

A layer has two blocks, attention and MLP. Routed experts of Megatron-Core use their own groups
(``moe/token_dispatcher.py``), so a layer with experts has attention alone, and a second block where
it has shared experts (``moe/shared_experts.py``). torchtitan gathers the input of a mixture and
scatters its output like an MLP's (``apply_moe_ep_tp``).

``tp_comm_overlap``: TransformerEngine's user buffers (``pytorch/module/base.py initialize_ub``):
the same bytes, by copy engines or by kernels that are no NCCL collectives.
"""

from __future__ import annotations

from dataclasses import replace

from meshwright.traffic.collective import Collective, Floats, Run, known_run, unknown_run
from meshwright.traffic.tensor_ends import end_collectives
from meshwright.traffic.workload import COMPILER, MESH, NO_BATCH, Workload

USER_BUFFERS = "runs in TransformerEngine's user buffers: NCCL logs and traces do not show it"
_WEIGHT, _INPUT = "weight-gradient GEMM", "input-gradient GEMM"

PLAIN = (
    Run("all_reduce", "forward", "row-parallel outputs"),
    Run("all_reduce", "backward", "gradients of column-parallel inputs", hides_behind=_WEIGHT),
)
SPLIT = (
    Run("all_gather", "forward", "column-parallel inputs"),
    Run("reduce_scatter", "forward", "row-parallel outputs"),
    Run("all_gather", "backward", "gradients of row-parallel outputs"),
    Run("reduce_scatter", "backward", "gradients of column-parallel inputs", hides_behind=_WEIGHT),
)
AGAIN = Run("all_gather", "backward", "inputs again, for weight gradients", hides_behind=_INPUT)
"""What one block runs a microbatch: without, with sequence parallelism, and Megatron's last."""
_OVERLAPPED = {
    "column-parallel inputs": "its column-parallel GEMM (ring_exchange)",
    "row-parallel outputs": "its row-parallel GEMM (pipeline)",
    "gradients of row-parallel outputs": "its input-gradient GEMM (ring_exchange)",
    "gradients of column-parallel inputs": f"{_WEIGHT} (bulk)",
    "inputs again, for weight gradients": f"{_INPUT} (bulk)",
}


def tensor_collectives(work: Workload) -> list[Collective]:
    """Return the tp collectives: layers, embedding, output layer, loss, replicated gradients."""
    if work.layout.tp == 1:
        return []
    return [*_layers(work), *end_collectives(work)]


def _layers(work: Workload) -> list[Collective]:
    size, rounds = work.hidden_tensor_bytes, work.rounds
    reason = NO_BATCH if size is None or rounds is None else unproved(work)
    runs = block_runs(work)
    if size is None or rounds is None or reason is not None:
        return [unknown_run("tp", run, reason or NO_BATCH) for run in runs]
    blocks = _blocks(work)
    # Layers with and without experts differ, so what a layer runs is their mean.
    each = float(blocks.sum() / work.layers_by_stage().sum())
    return [
        replace(known_run("tp", run, "layer and microbatch", size, blocks * rounds), each=each)
        for run in runs
    ]


def unproved(work: Workload) -> str | None:
    """Return why the tp collectives of a framework are not known (``None``: they are)."""
    framework = work.layout.framework
    if framework == "maxtext":
        return COMPILER
    if work.sequence_parallel and framework not in ("megatron", *MESH):
        return f"what {framework} runs with sequence parallelism was not established"
    return None


def _blocks(work: Workload) -> Floats:
    """Return the tensor-parallel blocks of each stage's layers."""
    experts = work.expert_layers_by_stage()
    whole = 2 * work.layers_by_stage()
    if work.layout.framework in MESH or work.model.shared_ffn_total > 0:
        return whole
    return whole - experts


def block_runs(work: Workload) -> list[Run]:
    """Return what runs once a block and microbatch."""
    layout = work.layout
    rows = list(SPLIT if work.sequence_parallel else PLAIN)
    if work.sequence_parallel and layout.framework == "megatron":
        rows.append(AGAIN)
    if work.training.recompute == "full":
        rows += [repeated(run) for run in rows if run.phase == "forward"]
    overlapped = work.training.tp_comm_overlap and layout.framework == "megatron"
    if not (overlapped and work.sequence_parallel):
        return rows
    return [
        Run(
            run.op,
            run.phase,
            run.what,
            hides_behind=_OVERLAPPED[run.what],
            remark=USER_BUFFERS,
        )
        for run in rows
    ]


def repeated(run: Run) -> Run:
    """Return a forward row as recompute repeats it."""
    return Run(
        run.op,
        "recompute",
        run.what,
        run.each,
        hides_behind=run.hides_behind,
        reverse=run.reverse,
        remark=run.remark,
    )
