"""What traffic is made from: model, layout, batch and precision, put together once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.job.batch import Batch
from meshwright.job.layout import Layout
from meshwright.job.model import Model, moe_layers
from meshwright.job.parameters import RankParameters, StageLayers, parameters_per_rank
from meshwright.job.sections import LayoutSection, MoeSection, TrainingSection
from meshwright.job.stages import chunks_of, held_of_chain, ranks_of_chain
from meshwright.job.vocabulary import padded_rows
from meshwright.schedules.names import TWO_CHUNKS, TWO_DIRECTIONS, schedule_name

Floats = NDArray[np.float64]
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 2, "mxfp8": 2, "nvfp4": 2}
"""Activations and parameters on the wire (fp8 and fp4 training still send bf16 activations)."""
MESH = ("torch", "torchtitan")
"""Frameworks whose groups are those of a DeviceMesh."""
COMPILER = "XLA chooses what MaxText runs from the shardings; it was not established"
NO_BATCH = "micro_batch, seq_len or the number of microbatches is not given"
WORDS = StageLayers((), has_embedding=True, has_output=False)
LOGITS = StageLayers((), has_embedding=False, has_output=True)
BOTH_ENDS = StageLayers((), has_embedding=True, has_output=True)
"""What stands outside the layers: on the first stage, on the last, on the only one."""


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
        ``--accumulate-allreduce-grads-in-fp32``; fp16 does not); torchtitan's FSDP reduces in fp32
        (``mixed_precision_reduce``); so does nanotron (``accumulate_grad_in_fp32``). torch's FSDP2 and
        DeepSpeed reduce in the type of the computation. DDP reduces in the parameters' type: they
        are taken as fp32 under autocast, as the memory model keeps them.
        """
        if self.training.gradient_dtype is not None:
            return ELEMENT_BYTES[self.training.gradient_dtype]
        layout = self.layout
        if layout.framework == "megatron" and self.training.precision != "fp16":
            return 4
        if layout.framework in ("torchtitan", "nanotron"):
            return 4
        if layout.framework == "torch" and layout.sharding in ("none", "zero1"):
            return 4
        return self.activation_bytes

    @property
    def parameter_bytes(self) -> int:
        """Bytes of one parameter as gathered (1 with ``--fp8-param-gather``)."""
        return 1 if self.training.fp8_param_gather else self.activation_bytes

    @property
    def sequence_parallel(self) -> bool:
        """Tell whether tp splits the sequence between blocks (torchtitan has no other way)."""
        layout = self.layout
        always = layout.framework == "torchtitan" and "sequence_parallel" in layout.assumed
        return layout.tp > 1 and (layout.sequence_parallel or always)

    @property
    def schedule(self) -> str:
        """Our name of the pipeline schedule; '' where it is unknown (a rule says so)."""
        return schedule_name(self.training.schedule, self.layout.vp) or ""

    @property
    def is_folded(self) -> bool:
        """Tell whether the pipeline turns back at its last rank: rank r has the chunks r and 2p-1-r."""
        return self.layout.pp > 1 and self.schedule in TWO_CHUNKS

    @property
    def is_opposed(self) -> bool:
        """Tell whether two pipelines run against each other: rank r has the stages r and p-1-r."""
        return self.layout.pp > 1 and self.schedule in TWO_DIRECTIONS

    @property
    def rounds(self) -> float | None:
        """Microbatches that pass each layer a rank holds in a step; ``None`` when not known.

        Of two opposed pipelines each takes half of the microbatches.
        """
        count = self.batch.num_microbatches
        if count is None:
            return None
        return count / 2 if self.is_opposed else float(count)

    @property
    def tokens(self) -> float | None:
        """Tokens of one microbatch on a context-parallel rank."""
        micro, seq = self.batch.micro_batch, self.batch.seq_len
        return None if micro is None or seq is None else micro * (seq / self.layout.cp)

    @property
    def hidden_tensor_bytes(self) -> float | None:
        """A: one hidden tensor of one microbatch on a context-parallel rank, not split by tp."""
        tokens = self.tokens
        return None if tokens is None else tokens * self.model.hidden * self.activation_bytes

    def held_layers(self) -> list[tuple[int, ...]]:
        """Return the numbers of the layers each stage holds, all its chunks together."""
        pp, chunks = self.layout.pp, 2 if self.is_folded else self.layout.vp
        ranks = ranks_of_chain(pp, pp * chunks, folded=self.is_folded)
        chain = chunks_of(self.layout, self.stage_layers, ranks)
        held = held_of_chain(chain, pp, folded=self.is_folded)
        if self.is_opposed:
            return [
                mine + other if rank != len(held) - 1 - rank else mine
                for rank, (mine, other) in enumerate(zip(held, reversed(held), strict=True))
            ]
        return held

    def embedding_stages(self) -> Floats:
        """Return 1 for each stage that embeds tokens (two of opposed pipelines), else 0."""
        return self._ends(0)

    def output_stages(self) -> Floats:
        """Return 1 for each stage that makes logits (the first one where the pipeline turns), else 0."""
        return self._ends(0 if self.is_folded else self.layout.pp - 1)

    def _ends(self, stage: int) -> Floats:
        marks = np.zeros(self.layout.pp)
        marks[stage] = 1
        if self.is_opposed:
            marks[self.layout.pp - 1 - stage] = 1
        return marks

    def mtp_by_stage(self) -> Floats:
        """Return the multi-token prediction layers of each stage: all where the output is."""
        return self.output_stages() * (self.training.mtp_layers or 0)

    def layers_by_stage(self) -> Floats:
        """Return how many layers each stage runs, multi-token prediction included."""
        held = np.array([float(len(layers)) for layers in self.held_layers()])
        return held + self.mtp_by_stage()

    def expert_layers_by_stage(self) -> Floats:
        """Return how many of each stage's layers are mixtures of experts."""
        kinds = moe_layers(self.model)
        held = np.array([float(sum(kinds[one] for one in held)) for held in self.held_layers()])
        # A multi-token prediction layer is of the last layer's kind (Megatron gpt_model.py).
        return held + self.mtp_by_stage() * float(kinds[-1])

    @property
    def expert_tp(self) -> int:
        """Ranks that share one expert's matrices.

        Without ep torchtitan shards experts as any MLP (``TensorParallel`` in ``apply_moe_ep_tp``).
        """
        layout = self.layout
        if layout.framework in MESH and layout.ep == 1:
            return layout.tp
        return layout.etp

    def parameters_of(self, part: StageLayers) -> RankParameters:
        """Return the parameters a rank holds of some layers and ends, before sharding over dp."""
        copied = bool(self.section.kv_replication and self.section.kv_replication > 1)
        return parameters_per_rank(
            self.model,
            part,
            tp=self.layout.tp,
            ep=self.layout.ep,
            etp=self.expert_tp,
            kv_replication=copied,
        )

    def layer_parameters(self, *, is_moe: bool) -> RankParameters | None:
        """Return what a rank holds of one layer with, or without experts; ``None``: has none such."""
        kinds = moe_layers(self.model)
        if is_moe not in kinds:
            return None
        layer = kinds.index(is_moe)
        return self.parameters_of(StageLayers((layer,), has_embedding=False, has_output=False))

    def stage_parts(self) -> list[StageLayers]:
        """Return what each stage holds."""
        ends = zip(self.embedding_stages(), self.output_stages(), self.mtp_by_stage(), strict=True)
        return [
            StageLayers(
                layers, has_embedding=bool(first), has_output=bool(last), mtp_layers=int(mtp)
            )
            for layers, (first, last, mtp) in zip(self.held_layers(), ends, strict=True)
        ]

    def parameters_by_stage(self) -> tuple[Floats, Floats]:
        """Return dense and expert parameters a rank holds, by stage, before sharding over dp."""
        held = [self.parameters_of(part) for part in self.stage_parts()]
        dense = np.array([float(one.dense) for one in held])
        return dense, np.array([float(one.expert) for one in held])


def padded_workload(work: Workload) -> Workload:
    """Return the job with the rows of the vocabulary that its framework makes (padded again: the same)."""
    layout, model = work.layout, work.model
    rows = padded_rows(
        model.vocab, max(layout.tp, 1), layout.framework, work.section.vocab_divisible_by
    )
    return replace(work, model=msgspec.structs.replace(model, vocab=rows))
