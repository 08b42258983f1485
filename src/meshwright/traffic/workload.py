"""What traffic is made from: model, layout, batch and precision, put together once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.job.batch import Batch
from meshwright.job.layout import Layout
from meshwright.job.model import Model, moe_layers
from meshwright.job.parameters import StageLayers, parameters_per_rank
from meshwright.job.sections import LayoutSection, MoeSection, TrainingSection
from meshwright.job.stages import layers_held

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 2}
"""Activations and parameters on the wire (fp8 training still sends bf16 activations)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One job's model, layout, batch and training keys; ``stage_layers`` by pipeline stage."""

    model: Model
    layout: Layout
    batch: Batch
    training: TrainingSection
    moe: MoeSection
    section: LayoutSection
    stage_layers: tuple[int, ...]

    @property
    def activation_bytes(self) -> int:
        """Bytes of one activation element."""
        return ELEMENT_BYTES[self.training.precision or "bf16"]

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one gradient element as reduced.

        Megatron accumulates and reduces in fp32 beside bf16 (which implies
        ``--accumulate-allreduce-grads-in-fp32``; fp16 does not); torch DDP reduces in the
        parameters' type.
        """
        if self.training.gradient_dtype is not None:
            return ELEMENT_BYTES[self.training.gradient_dtype]
        if self.layout.framework == "megatron" and self.training.precision != "fp16":
            return 4
        return self.activation_bytes

    @property
    def hidden_tensor_bytes(self) -> float | None:
        """A: one hidden tensor of one microbatch on a context-parallel rank, not split by tp."""
        micro, seq = self.batch.micro_batch, self.batch.seq_len
        if micro is None or seq is None:
            return None
        return micro * (seq / self.layout.cp) * self.model.hidden * self.activation_bytes

    def held_layers(self) -> list[tuple[int, ...]]:
        """Return the numbers of the layers each stage holds, all its chunks together."""
        return layers_held(self.stage_layers, self.layout.vp)

    def expert_layers_by_stage(self) -> NDArray[np.float64]:
        """Return how many of each stage's layers are mixtures of experts."""
        kinds = moe_layers(self.model)
        return np.array([float(sum(kinds[one] for one in held)) for held in self.held_layers()])

    def parameters_by_stage(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return dense and expert parameters a rank holds, by stage, before sharding over dp."""
        layout = self.layout
        dense, expert = [], []
        for stage, layers in enumerate(self.held_layers()):
            held = parameters_per_rank(
                self.model,
                StageLayers(
                    layers,
                    has_embedding=stage == 0,
                    has_output=stage == layout.pp - 1,
                ),
                tp=layout.tp,
                ep=layout.ep,
                etp=layout.etp,
                kv_replication=bool(
                    self.section.kv_replication and self.section.kv_replication > 1
                ),
            )
            dense.append(float(held.dense))
            expert.append(float(held.expert))
        return np.array(dense), np.array(expert)
