"""Expert parallelism: tokens to experts and results back, every MoE layer and microbatch.

T = b·(s/c)/t tokens enter on a rank (sequence parallelism: tp ranks hold other tokens). By
dispatcher (Megatron-Core ``transformer/moe/token_dispatcher.py``), forward, and mirrored backward:

- allgather (default): all-gather of hidden states, routing map (1 byte) and probabilities (4 bytes)
  over all etp·ep ranks, reduce-scatter of results. The volume does not depend on k or balance;
- alltoall: all-to-all of T·k tokens and their probabilities over ep, and of results back; with etp
  an all-gather before the experts and a reduce-scatter after; first a small all-gather of counts;
- deepep, hybridep (flex): a token goes once to each rank that needs it, and once over the network to
  each remote host (or NVLink domain), see ``copies``. Dispatch may be fp8 (a byte and a scale of 4 bytes
  for 128 channels; DeepEP ``deep_ep/buffers/legacy.py``), results come back in bf16. Indices and
  weights, 12·k bytes a copy, are not counted. With ``deepep_mode: low_latency`` a token goes k times,
  once for each expert, straight to the expert's rank (``docs/legacy.md``: pure RDMA).

torchtitan (``expert_parallel.py``) and DeepSpeed (``moe/sharded_moe.py``) use the all-to-all;
DeepSpeed always sends full capacity. ``imbalance`` (tokens of the busiest rank over the mean)
multiplies S: time follows the busiest. ``capacity_factor`` bounds it, and with padding is it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshwright.traffic.axes import dispatch_ranks, expert_axis
from meshwright.traffic.collective import Collective, Run, known_run, unknown_run
from meshwright.traffic.copies import Copies
from meshwright.traffic.workload import MESH, NO_BATCH, Workload

FP32, INT64, BOOL = 4, 8, 1
FP8_SCALE_CHANNELS = 128
DEFAULT_DISPATCHER = {"megatron": "allgather"}
FLEX = ("deepep", "hybridep")
FUSED = "runs in the dispatcher's own kernels: NCCL logs and traces do not show it"
_OUT, _BACK = "tokens to experts", "results back"
_HIDES = {
    "shared_expert": "compute of shared experts",
    "microbatch": "another microbatch's compute",
}


@dataclass(frozen=True, slots=True)
class _Row:
    axis: str
    run: Run
    size_bytes: float
    copies: Copies | None = None


def dispatcher_of(work: Workload) -> str:
    """Return the dispatcher: the one given, else the framework's default."""
    return work.moe.dispatcher or DEFAULT_DISPATCHER.get(work.layout.framework, "alltoall")


def expert_collectives(work: Workload) -> list[Collective]:
    """Return the traffic of routed experts (shared ones are tensor-parallel alone)."""
    layout = work.layout
    if not work.model.is_moe or dispatch_ranks(layout) == 1:
        return []
    tokens, rounds = _tokens(work), work.rounds
    reason = _unproved(work)
    rows = _rows(work, tokens or 0.0)
    if tokens is None or rounds is None or reason is not None:
        return [unknown_run(row.axis, row.run, reason or NO_BATCH) for row in rows]
    times = work.expert_layers_by_stage() * rounds
    found = []
    for row in rows:
        one = known_run(row.axis, row.run, "layer and microbatch", row.size_bytes, times)
        direct = row.copies is not None and is_low_latency(work)
        found.append(replace(one, copies=None if direct else row.copies, is_direct=direct))
    return found


def router_collectives(work: Workload) -> list[Collective]:
    """Return the sum of tokens by expert (balance loss or bias), E numbers a layer and step.

    Megatron ``finalize_model_grads.py _update_router_expert_bias``, group tp-dp-cp.
    """
    if not work.model.is_moe or work.layout.framework != "megatron":
        return []
    run = Run("all_reduce", "step", "tokens by expert")
    times = work.expert_layers_by_stage()
    return [known_run("dp-cp-tp", run, "layer", work.model.experts * FP32, times)]


def _unproved(work: Workload) -> str | None:
    layout, dispatcher = work.layout, dispatcher_of(work)
    if layout.framework == "megatron":
        if layout.tp > 1 and not work.sequence_parallel:
            return "Megatron trains experts beside tp only with sequence_parallel: true"
        return None
    if layout.framework not in (*MESH, "deepspeed"):
        return f"how {layout.framework} dispatches tokens was not established"
    if dispatcher == "allgather" or (dispatcher == "hybridep" and layout.framework != "torchtitan"):
        return f"{layout.framework} has no dispatcher {dispatcher}"
    return None


def _tokens(work: Workload) -> float | None:
    """Return the tokens that enter the dispatcher on a rank."""
    tokens = work.tokens
    splits = work.sequence_parallel or work.layout.framework in MESH
    return tokens if tokens is None or not splits else tokens / work.layout.tp


def spread(work: Workload) -> float:
    """Return the factor on a balanced dispatch: imbalance, bounded (or set) by capacity."""
    capacity, imbalance = work.moe.capacity_factor, work.moe.imbalance or 1.0
    padded = work.moe.pad_to_capacity or work.layout.framework == "deepspeed"
    if padded:
        return capacity or 1.0
    return imbalance if capacity is None else min(imbalance, capacity)


def _rows(work: Workload, tokens: float) -> list[_Row]:
    dispatcher = dispatcher_of(work)
    if dispatcher == "allgather":
        rows = _gathered(work, tokens)
    elif dispatcher in FLEX:
        rows = _fused(work, tokens)
    else:
        rows = _exchanged(work, tokens)
    hides = _hides_behind(work)
    remark = FUSED if dispatcher in FLEX else None
    rows = [replace(row, run=replace(row.run, hides_behind=hides, remark=remark)) for row in rows]
    if work.training.recompute == "full":
        rows += [
            replace(row, run=replace(row.run, phase="recompute"))
            for row in rows
            if row.run.phase == "forward"
        ]
    return rows


def _hides_behind(work: Workload) -> str | None:
    if work.layout.pp > 1 and work.schedule in ("dualpipe", "dualpipev"):
        return _HIDES["microbatch"]
    return _HIDES.get(work.moe.overlap or "none")


def _gathered(work: Workload, tokens: float) -> list[_Row]:
    layout, experts = work.layout, work.model.experts
    axis, every = expert_axis(layout), layout.ep * layout.etp * tokens
    hidden, odds = every * work.model.hidden * work.activation_bytes, every * experts * FP32
    return [
        _Row(axis, Run("all_gather", "forward", _OUT), hidden),
        _Row(axis, Run("all_gather", "forward", "routing map"), every * experts * BOOL),
        _Row(axis, Run("all_gather", "forward", "probabilities"), odds),
        _Row(axis, Run("reduce_scatter", "forward", _BACK), hidden),
        _Row(axis, Run("all_gather", "backward", "gradients of results"), hidden),
        _Row(axis, Run("reduce_scatter", "backward", "gradients of probabilities"), odds),
        _Row(axis, Run("reduce_scatter", "backward", "gradients of tokens"), hidden),
    ]


def _exchanged(work: Workload, tokens: float) -> list[_Row]:
    layout = work.layout
    sent = tokens * work.model.top_k * spread(work)
    hidden, odds = sent * work.model.hidden * work.activation_bytes, sent * FP32
    ranks = layout.ep * (1 if layout.framework in MESH else layout.etp)
    counts = ranks * work.model.experts * INT64
    rows = []
    if layout.framework == "megatron":
        rows.append(_Row(expert_axis(layout), Run("all_gather", "forward", "token counts"), counts))
    elif layout.framework in MESH:
        size = work.model.experts * INT64
        rows.append(_Row("ep", Run("all_to_all", "forward", "token counts"), size))
    if layout.ep > 1:
        rows += _pair("ep", "all_to_all", "all_to_all", hidden)
        if layout.framework == "megatron":
            for phase, what in (("forward", ""), ("backward", "gradients of ")):
                rows.append(_Row("ep", Run("all_to_all", phase, f"{what}probabilities"), odds))
    if layout.etp > 1 and layout.framework not in MESH:
        rows += _pair("etp", "all_gather", "reduce_scatter", layout.etp * hidden)
    return rows


def _pair(axis: str, out: str, back: str, size: float) -> list[_Row]:
    """Return dispatch and combine, and their mirror images backward."""
    return [
        _Row(axis, Run(out, "forward", _OUT), size),
        _Row(axis, Run(back, "forward", _BACK), size),
        _Row(axis, Run(out, "backward", "gradients of results"), size),
        _Row(axis, Run(back, "backward", "gradients of tokens"), size),
    ]


def copies_of(work: Workload) -> Copies:
    """Return how tokens spread over the ranks of a fused dispatch."""
    model, layout = work.model, work.layout
    limited = 0 < model.router_topk_groups < model.router_groups
    return Copies(
        experts=model.experts,
        top_k=model.top_k,
        ranks=layout.ep,
        groups=model.router_groups if limited else 1,
        chosen_groups=model.router_topk_groups if limited else 1,
        etp=1 if layout.framework in MESH else layout.etp,
    )


def is_low_latency(work: Workload) -> bool:
    """Tell whether DeepEP's low-latency kernels dispatch: a token once for each of its k experts."""
    return dispatcher_of(work) == "deepep" and work.moe.deepep_mode == "low_latency"


def _fused(work: Workload, tokens: float) -> list[_Row]:
    copies = copies_of(work)
    axis = "ep" if work.layout.framework in MESH else expert_axis(work.layout)
    each = copies.etp * work.model.top_k if is_low_latency(work) else copies.per_token
    sent = tokens * each * spread(work)
    back = sent * work.model.hidden * work.activation_bytes
    out = back
    if work.moe.dispatch_dtype == "fp8":
        out = sent * work.model.hidden * (1 + FP32 / FP8_SCALE_CHANNELS)
    return [
        _Row(axis, Run("all_to_all", "forward", _OUT), out, copies),
        _Row(axis, Run("all_to_all", "forward", _BACK), back, copies),
        _Row(axis, Run("all_to_all", "backward", "gradients of results"), out, copies),
        _Row(axis, Run("all_to_all", "backward", "gradients of tokens"), back, copies),
    ]
