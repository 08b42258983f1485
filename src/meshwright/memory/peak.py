"""Activations of every stage at their peak, and what stands beside them at that moment.

A stage's peak is what its microbatches in flight keep, and the larger of two moments: the loss of
the last stage (logits, the output layer's input and weight gradient) and a layer's backward (its
temporaries, and with recomputation the whole layer again).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.memory.activations import (
    Cut,
    LayerBytes,
    gathered_bytes,
    hidden_bytes,
    megatron_layer,
    torch_layer,
)
from meshwright.memory.constants import Constants
from meshwright.memory.in_flight import InFlight, in_flight, interleaved_group
from meshwright.memory.parameters import StageParameters
from meshwright.memory.states import gathers_units, keeps_gathered
from meshwright.schedules.names import schedule_name
from meshwright.traffic.workload import MESH, Workload

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes by stage ``[pp]``.

    ``kept``: of all microbatches in flight; ``loss`` and ``working``: of the two moments, of which
    the larger counts; ``buffers``: messages of the pipeline that torch keeps; ``transient``:
    gathered units and gradients in the making.
    """

    in_flight: InFlight
    kept: Floats
    loss: Floats
    working: Floats
    buffers: Floats
    transient: Floats

    @property
    def activations(self) -> Floats:
        """Return what activations take at the peak."""
        return self.kept + np.maximum(self.loss, self.working) + self.buffers


def cut_of(work: Workload) -> Cut:
    """Return how one microbatch's tensors are divided. Raises ``ValueError`` without a batch."""
    if work.tokens is None:
        raise ValueError("micro_batch or seq_len is not given")
    layout, kind = work.layout, work.section.cp_kind or ""
    return Cut(
        tokens=work.tokens,
        element_bytes=work.activation_bytes,
        tp=layout.tp,
        sequence=layout.tp if work.sequence_parallel else 1,
        etp=work.expert_tp,
        imbalance=imbalance_of(work),
        copies_output=layout.cp > 1 and kind.startswith("a2a") and layout.framework == "megatron",
    )


def imbalance_of(work: Workload) -> float:
    """Return the most loaded expert rank's tokens over the mean: at most the capacity factor."""
    given = work.moe.imbalance or 1.0
    capacity = work.moe.capacity_factor
    if capacity is None:
        return given
    return capacity if work.moe.pad_to_capacity else min(given, capacity)


def recompute_of(work: Workload) -> str:
    """Return the recomputation: as given, else the framework's default."""
    default = "selective" if work.layout.framework == "torchtitan" else "none"
    return work.training.recompute or default


def layers_of(work: Workload) -> tuple[LayerBytes, LayerBytes | None]:
    """Return one layer without experts, and one with (``None`` without experts)."""
    form = torch_layer if work.layout.framework in MESH else megatron_layer
    cut, recompute = cut_of(work), recompute_of(work)
    plain = form(work.model, cut, recompute, experts=False)
    if not work.model.is_moe:
        return plain, None
    return plain, form(work.model, cut, recompute, experts=True)


def in_flight_of(work: Workload) -> InFlight:
    """Return the chunks in flight by rank; an unknown schedule counts as 1F1B."""
    layout, count = work.layout, _of_a_pass(work)
    if layout.pp == 1:  # no pipeline: one microbatch after the other
        return in_flight("1f1b", 1, count)
    name = schedule_name(work.training.schedule, layout.vp) or "1f1b"
    group = work.training.microbatch_group or interleaved_group(layout.framework, layout.pp, count)
    convention = "torch" if layout.framework in MESH else "megatron"
    found = in_flight(name, layout.pp, count, layout.vp, group, convention)
    if work.is_opposed:
        # Both of a rank's stages count here; its layers are those of both.
        return InFlight(name, found.peak / 2, found.chunks, found.exact)
    return found


def _of_a_pass(work: Workload) -> int:
    """Return the microbatches that a schedule runs in one pass; a step may have several passes."""
    return work.batch.microbatches_per_pass or work.batch.num_microbatches or 1


def peak_of(work: Workload, parameters: StageParameters, constants: Constants) -> Peak:
    """Return the peak of every stage. Raises ``ValueError`` without micro_batch and seq_len."""
    cut, flight = cut_of(work), in_flight_of(work)
    plain, moe = layers_of(work)
    experts = work.expert_layers_by_stage()
    others = work.layers_by_stage() - experts
    layer = plain.kept * others + (moe.kept * experts if moe is not None else 0)
    working = np.where(others > 0, plain.working, 0.0)
    if moe is not None:
        working = np.maximum(working, np.where(experts > 0, moe.working, 0.0))
    return Peak(
        in_flight=flight,
        kept=layer * flight.microbatches,
        loss=_loss_bytes(work, cut, parameters, constants),
        working=working,
        buffers=_pipeline_buffers(work, cut, flight),
        transient=_transient_bytes(work, parameters, constants),
    )


def logit_bytes(work: Workload, constants: Constants) -> float:
    """Return bytes an element of the logits at the peak of the loss."""
    if work.layout.framework not in MESH:
        return constants["logit_bytes_megatron"]
    if work.training.compile:
        return constants["logit_bytes_compiled"]
    return constants["logit_bytes_torch_tp" if work.layout.tp > 1 else "logit_bytes_torch"]


def _loss_bytes(
    work: Workload, cut: Cut, parameters: StageParameters, constants: Constants
) -> Floats:
    """Logits, the final norm, the output layer's gathered input and its gradient, weight gradient."""
    model, last = work.model, work.output_stages()
    elements = cut.tokens * model.vocab / cut.tp
    heads = last + work.mtp_by_stage()
    logits = heads * elements * logit_bytes(work, constants)
    norm = last * 2 * hidden_bytes(model, cut)
    ends = last * 2 * gathered_bytes(model, cut)
    loss: Floats = logits + norm + ends
    if work.layout.framework not in MESH:
        # The weight gradient goes to its fp32 sum through a tensor of the weights' type.
        loss = loss + cut.element_bytes * parameters.output
    elif work.layout.pp > 1:
        # torch's last stage keeps every microbatch's output until the schedule's step ends.
        others = _of_a_pass(work) - 1
        loss = loss + last * elements * cut.element_bytes * others
    return loss


def _pipeline_buffers(work: Workload, cut: Cut, flight: InFlight) -> Floats:
    """Torch's stages keep a receive buffer a microbatch each way, and their outputs in flight.

    Megatron frees an output when it is sent (``deallocate_pipeline_outputs``).
    """
    if work.layout.framework not in MESH or work.layout.pp == 1:
        return np.zeros(work.layout.pp)
    message = hidden_bytes(work.model, cut)
    received = 2.0 * _of_a_pass(work) * flight.chunks
    return np.asarray(message * (received + flight.peak), dtype=np.float64)


def _transient_bytes(work: Workload, parameters: StageParameters, constants: Constants) -> Floats:
    """Gathered units and gradients in the making (FSDP); dummy weight gradients (Megatron)."""
    width = work.activation_bytes
    largest: Floats = np.maximum(
        parameters.unit, np.maximum(parameters.embedding, parameters.output)
    )
    found: Floats = np.zeros(work.layout.pp)
    if work.layout.framework == "megatron":
        found = found + constants["keep_dummy_gradients"] * width * parameters.shapes
    elif work.layout.framework == "deepspeed" and gathers_units(work):
        return found + 4 * largest
    if not gathers_units(work):
        return found
    gradient = width * largest
    if keeps_gathered(work):
        return found + gradient
    # The current unit, the prefetched one and its flat all-gather output; the reduce-scatter's
    # input beside the gradient (_fsdp_param_group.py).
    gathered = width * (largest + 2 * parameters.unit)
    return found + gathered + gradient + work.gradient_bytes * largest
