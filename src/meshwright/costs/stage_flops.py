"""FLOPs of one microbatch on every stage of a pipeline, as one rank computes them.

Counted as ``job/flops.py`` counts (Megatron-LM ``num_floating_point_operations``): two a multiply-add,
the causal half of attention. A matrix product costs as much in its input gradient and in its weight
gradient as forward; attention's core has no weights, and its backward is two forwards, all of it input
gradient. No norm, router or optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.job.flops import PASSES, flops_per_token
from meshwright.job.layer_flops import layer_work
from meshwright.job.stages import chunks_of, layers_held
from meshwright.traffic.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LayerFlops:
    """Forward FLOPs of one token: ``matmul[layers]``, ``core[layers]`` (attention), the output layer."""

    matmul: Floats
    core: Floats
    output: float
    mtp: float
    """Multi-token prediction beside the output layer, its layers included."""


@dataclass(frozen=True, slots=True)
class StageFlops:
    """FLOPs of one microbatch on a rank of every stage of the chain, ``[stages]`` each.

    ``layers``: how many each holds; ``layer[layers]``: forward and backward of each layer with its
    recomputation; ``output``: the same for what the last stage has besides.
    """

    forward: Floats
    input: Floats
    weight: Floats
    recompute: Floats
    layers: tuple[int, ...]
    layer: Floats
    output: float

    @property
    def total(self) -> Floats:
        """All of one microbatch by stage."""
        return self.forward + self.input + self.weight + self.recompute


def chain_layers(work: Workload, rank_of_stage: Sequence[int] | Ints) -> list[tuple[int, ...]]:
    """Return the layers of every stage of the chain, in the order a microbatch passes them.

    ``rank_of_stage[stages]``: the rank of each stage, every rank at least once. A rank's layers are
    divided evenly over its stages, the first of them take what is over.
    """
    ranks = [int(rank) for rank in rank_of_stage]
    return layers_held(chunks_of(work.layout, work.stage_layers, ranks))


def layer_flops(work: Workload) -> LayerFlops:
    """Return the forward FLOPs of a token by layer. Raises ``ValueError`` without ``seq_len``."""
    model, seq_len = work.model, work.batch.seq_len
    if seq_len is None:
        raise ValueError("seq_len is not given")
    flops = flops_per_token(model, seq_len)
    imbalance = work.moe.imbalance or 1.0
    work_of = [layer_work(model, layer, seq_len) for layer in range(model.num_layers)]
    # a multiply-add is two FLOPs
    matmul = np.array(
        [2 * (one.total - one.core + (imbalance - 1) * one.experts) for one in work_of]
    )
    core = np.array([2 * one.core for one in work_of])
    mtp = 0.0
    if work.training.mtp_layers:
        more = flops_per_token(model, seq_len, mtp_layers=work.training.mtp_layers)
        mtp = (more.causal - flops.causal) / PASSES
    return LayerFlops(matmul, core, flops.logits / PASSES, mtp)


def stage_flops(
    work: Workload, rank_of_stage: Sequence[int] | Ints, recompute: str, wide_cost: float = 1.0
) -> StageFlops:
    """Return the FLOPs of every stage of the chain.

    Parameters
    ----------
    rank_of_stage[stages]
        As in ``chain_layers``.
    recompute
        ``none``, ``selective`` (the core of attention again) or ``full`` (the layers' forward again).
    wide_cost
        What a FLOP of attention's core and of the output layer counts as, beside 1
        for all else: how many times longer it takes where only products with layers' weights are in a
        narrow format.

    Raises ``ValueError`` without ``micro_batch`` or ``seq_len``.
    """
    if work.tokens is None:
        raise ValueError("micro_batch or seq_len is not given")
    share = work.tokens / work.layout.tp
    each = layer_flops(work)
    matmul, core = each.matmul * share, each.core * share * wide_cost
    last = (each.output * wide_cost + each.mtp) * share
    again = {"full": matmul + core, "selective": core}.get(recompute, np.zeros_like(core))
    held = chain_layers(work, rank_of_stage)

    def by_stage(layer: Floats, end: float) -> Floats:
        found = np.array([float(layer[list(one)].sum()) for one in held])
        found[-1] += end
        return found

    return StageFlops(
        forward=by_stage(matmul + core, last),
        input=by_stage(matmul + 2 * core, last),
        weight=by_stage(matmul, last),
        recompute=by_stage(again, 0.0),
        layers=tuple(len(one) for one in held),
        layer=PASSES * (matmul + core) + again,
        output=PASSES * last,
    )
