"""Megatron-LM's own estimate (``megatron/training/theoretical_memory_usage.py``), as it is.

Kept for comparison with what Megatron prints, gaps included: it shards the optimizer over the
data-parallel size without cp, ignores cp in activations, counts MLPs by ``4·f/h`` whether gated or
of experts, and the multi-token prediction block as layers only. Activations are those with sequence
parallelism and selective recomputation.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.job.model import Model, moe_layers
from meshwright.traffic.workload import Workload, padded_workload

GAPS = (
    "the optimizer is sharded over dp without cp",
    "activations ignore cp, gating, experts and grouped heads",
    "stages hold L/p layers each, the most loaded one an embedding besides",
    "the vocabulary counts as padded already where tp divides it",
    "recomputation is selective and sequence parallelism on, whatever the job says",
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes on the most loaded rank; activations are the first stage's."""

    parameters: float
    weights_optimizer_bytes: float
    activations_bytes: float

    @property
    def total_bytes(self) -> float:
        """Both together."""
        return self.weights_optimizer_bytes + self.activations_bytes


def megatron_estimate(work: Workload) -> Estimate:
    """Return Megatron's estimate of a job.

    Its vocabulary is the estimator's ``padded_vocab_size``: padded where tp does not divide it or
    ``vocab_divisible_by`` is given, else as it is.

    Raises ``ValueError`` without micro_batch and seq_len.
    """
    layout = work.layout
    if work.section.vocab_divisible_by is not None or work.model.vocab % max(layout.tp, 1):
        work = padded_workload(work)
    dense, expert = _most_loaded(work)
    sharded = layout.sharding != "none"
    each = 6 + 12 / max(layout.dp, 1) if sharded else 18.0
    routed = 6 + 12 / max(layout.edp, 1) if sharded else 18.0
    return Estimate(dense + expert, dense * each + expert * routed, _activations(work))


def _most_loaded(work: Workload) -> tuple[float, float]:
    """Return dense and routed parameters of L/p layers, the prediction block and an embedding."""
    model, layout = work.model, work.layout
    kinds = moe_layers(model)
    blocks = {kind: kinds.count(kind) / layout.pp for kind in (False, True)}
    blocks[kinds[-1]] += work.training.mtp_layers or 0
    dense = model.hidden * (2 if model.norm == "layer" else 1) / layout.pp
    for kind, count in blocks.items():
        if count:
            sharded, whole = _layer(model, experts=kind)
            dense += count * (sharded / layout.tp + whole)
    ends = 2 if layout.pp == 1 and not model.tied_embeddings else 1
    dense += ends * model.hidden * model.vocab / layout.tp
    one = model.hidden * model.moe_ffn * (3 if model.gated_mlp else 2)
    return dense, blocks[True] * model.experts * one / (layout.etp * layout.ep)


def _layer(model: Model, *, experts: bool) -> tuple[float, float]:
    """Return parameters of a layer over tp, and whole, without routed experts."""
    norm_size = 2 if model.norm == "layer" else 1
    sharded, whole = _attention(model, norm_size)
    width = model.shared_ffn_total if experts else model.ffn
    sharded += model.hidden * width * (3 if model.gated_mlp else 2)
    whole += 2 * model.hidden * norm_size
    return sharded, whole + (model.hidden * model.experts if experts else 0)


def _attention(model: Model, norm_size: int) -> tuple[float, float]:
    if not model.is_mla:
        query = model.heads * model.head_dim
        return 2.0 * model.hidden * query * (1 + model.kv_heads / model.heads), 0.0
    heads = model.heads * model.head_dim
    sharded = (model.q_lora_rank or model.hidden) * heads
    sharded += model.kv_lora_rank * model.heads * (model.qk_nope_dim + model.v_head_dim)
    sharded += model.heads * model.v_head_dim * model.hidden
    latents = model.q_lora_rank + model.kv_lora_rank
    whole = latents * (model.hidden + norm_size) + model.hidden * model.qk_rope_dim
    return float(sharded), float(whole)


def _activations(work: Workload) -> float:
    micro, seq = work.batch.micro_batch, work.batch.seq_len
    if micro is None or seq is None:
        raise ValueError("micro_batch or seq_len is not given")
    model, layout = work.model, work.layout
    tokens, pp = seq * micro, layout.pp
    hidden = tokens * model.hidden
    size = hidden * (18 + 4 * model.ffn / model.hidden) * model.num_layers
    size += 8 * tokens * pp + hidden * pp  # input and dropout of the embedding
    if layout.vp > 1:
        size *= 1 + (pp - 1) / (pp * layout.vp)
    elif pp > 1:
        size *= min(1.0, (work.batch.num_microbatches or pp) / pp)
    if pp == 1:
        size += hidden * 4 * (1 + model.vocab / model.hidden)
    return size / layout.tp
