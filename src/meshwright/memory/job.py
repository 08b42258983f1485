"""The memory of a job: every stage's terms, the worst one, what dominates there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshwright.memory.communicators import Communicator
from meshwright.memory.constants import Constants
from meshwright.memory.dispatcher import DispatcherBuffers, dispatcher_buffers
from meshwright.memory.overhead import overhead_of
from meshwright.memory.parameters import StageParameters, stage_parameters
from meshwright.memory.peak import Peak, peak_of
from meshwright.memory.states import StateForm, fp8_weight_bytes, shard_degrees, state_form
from meshwright.traffic.workload import Workload, padded_workload

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Device:
    """What memory has to fit into: a GPU model's name and its bytes, ``None`` when unknown."""

    gpu: str | None = None
    capacity_bytes: float | None = None
    board: str | None = None
    """The cluster's GPU where another capacity is given: its kernels count, its memory does not."""


@dataclass(frozen=True)
class JobMemory:
    """Bytes on the most loaded rank of every pipeline stage, arrays ``[pp]``.

    All is what one rank holds at its peak; ``peak`` is ``None`` where the job gives no batch, or the
    model has layers whose activations are not modelled (``Model.unmodelled_layers``).
    Gradients count whole beside activations: they exist while those of the last microbatch do.
    """

    work: Workload
    device: Device
    constants: Constants
    parameters: StageParameters
    weights: Floats
    gradients: Floats
    optimizer: Floats
    form: StateForm
    peak: Peak | None
    communicators: tuple[Communicator, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The batch figures without which activations are not known, in the job's words."""
        return missing_figures(self.work)

    @property
    def states(self) -> Floats:
        """Weights, gradients and optimizer states."""
        return self.weights + self.gradients + self.optimizer

    @cached_property
    def allocated(self) -> Floats:
        """Tensors of the framework's allocator at the peak, workspaces included."""
        tensors = self.states + self.constants["workspace_bytes"]
        if self.peak is None:
            return tensors
        return tensors + self.peak.activations + self.peak.transient

    @cached_property
    def fragmentation(self) -> Floats:
        """Margin: what the allocator reserves above what is allocated."""
        inside = self.allocated - self.constants["workspace_bytes"]
        return np.asarray(overhead_of(inside, self.constants).fragmentation)

    @cached_property
    def reserved(self) -> Floats:
        """What the framework's allocator takes from the device."""
        return self.allocated + self.fragmentation

    @property
    def communicator_bytes(self) -> float:
        """Buffers of all communicators of a rank."""
        return float(sum(one.bytes for one in self.communicators))

    @cached_property
    def dispatcher(self) -> DispatcherBuffers:
        """Buffers of the experts' dispatcher, outside the framework's allocator."""
        return dispatcher_buffers(self.work, self.constants)

    @cached_property
    def total(self) -> Floats:
        """All a rank takes from its device."""
        outside = self.communicator_bytes + self.constants["context_bytes"]
        dispatcher = 0.0 if self.dispatcher.bytes is None else self.dispatcher.bytes
        return self.reserved + outside + dispatcher

    @property
    def worst_stage(self) -> int:
        """The stage whose ranks take most."""
        return int(np.argmax(self.total))

    @property
    def fits(self) -> bool | None:
        """Tell whether the worst rank fits; ``None`` when it cannot be said.

        Without activations what is known is a lower bound: it can show that a job does not fit.
        """
        if self.device.capacity_bytes is None:
            return None
        if self.total[self.worst_stage] > self.device.capacity_bytes:
            return False
        return None if self.peak is None else True

    def terms(self, stage: int) -> dict[str, float]:
        """Return the bytes of a stage's rank by term, in the order of the report."""
        terms = {
            "weights": float(self.weights[stage]),
            "gradients": float(self.gradients[stage]),
            "optimizer": float(self.optimizer[stage]),
        }
        if self.peak is not None:
            terms["activations"] = float(self.peak.activations[stage])
            terms["transient"] = float(self.peak.transient[stage])
        if self.work.model.is_moe and self.dispatcher.bytes is not None:
            terms["dispatcher"] = float(self.dispatcher.bytes[stage])
        return terms | {
            "communicators": self.communicator_bytes,
            "context": self.constants["context_bytes"],
            "workspace": self.constants["workspace_bytes"],
            "fragmentation": float(self.fragmentation[stage]),
        }

    @property
    def dominant(self) -> str:
        """The largest term of the worst stage."""
        terms = self.terms(self.worst_stage)
        return max(terms, key=terms.__getitem__)


def job_memory(
    work: Workload,
    device: Device,
    constants: Constants,
    communicators: Sequence[Communicator] = (),
) -> JobMemory:
    """Return the memory of a job whose layout passed the grid's rules."""
    padded = padded_workload(work)
    parameters = stage_parameters(padded)
    form = state_form(padded, primary_fp8_bytes(padded, device, constants))
    dense, expert = shard_degrees(padded)

    def both(kind: str) -> Floats:
        one = getattr(form, kind)
        return np.asarray(
            one.bytes_of(parameters.dense, dense) + one.bytes_of(parameters.expert, expert)
        )

    return JobMemory(
        work=padded,
        device=device,
        constants=constants,
        parameters=parameters,
        weights=both("weights"),
        gradients=both("gradients"),
        optimizer=both("optimizer"),
        form=form,
        peak=_peak(padded, parameters, constants),
        communicators=tuple(communicators),
    )


def missing_figures(work: Workload) -> tuple[str, ...]:
    """Return the batch figures that are neither given nor follow, of those activations need.

    A pipeline needs the number of microbatches too: so many are in flight at most.
    """
    batch = work.batch
    needed = {"micro_batch": batch.micro_batch, "seq_len": batch.seq_len}
    if work.layout.pp > 1:
        needed["num_microbatches"] = batch.num_microbatches
    return tuple(name for name, value in needed.items() if value is None)


def primary_fp8_bytes(work: Workload, device: Device, constants: Constants) -> float | None:
    """Return bytes a weight kept in fp8 only (``fp8_param_gather``, or the constant); else ``None``."""
    precision = work.training.precision or "bf16"
    if not (work.training.fp8_param_gather or constants["fp8_primary"]):
        return None
    return fp8_weight_bytes(device.gpu or device.board, precision)


def _peak(work: Workload, parameters: StageParameters, constants: Constants) -> Peak | None:
    """Return the activations; ``None`` without a batch, or with layers that are not modelled."""
    if missing_figures(work) or work.model.unmodelled_layers:
        return None
    return peak_of(work, parameters, constants)
