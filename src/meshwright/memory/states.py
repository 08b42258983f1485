"""Weights, gradients and optimizer states: bytes a parameter, by framework and sharding.

========================  ====================================================================
Megatron, bf16            2 + 4 + 12 (fp32 master and two Adam moments); with the distributed
                          optimizer 6 + 12/D, D = dp·cp (/instances), experts edp (/instances)
                          (docs/user-guide/features/dist_optimizer.md,
                          ``theoretical_memory_usage.py``)
Megatron, fp16 / fp32     4 + 16/D (an fp32 copy of the gradients) / 8 + 8/D; without: 20 / 16
DeepSpeed                 ZeRO-2 2 + 18/D, ZeRO-3 18/D (``stage_1_and_2.py``, ``stage3.py``
                          ``estimate_zero*_model_states_mem_needs``); ZeRO-1 4 + 16/D (derived)
FSDP2, HSDP               (4 + 4 + 8)/D: parameters, gradients and moments in their own type,
                          fp32 (``_fsdp_api.py``); D = shard degree · cp
torch DDP                 4 + 4 + 8
========================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.traffic.workload import Workload

Count = Any
"""A float or an array: one entry a stage, or a candidate layout."""
MOMENT_BYTES = {"adam": 8, "adamw": 8, "sgd": 4, "muon": 4, "lion": 4}
"""Optimizer state in fp32 beside the master copy; ``sgd`` with momentum."""
FULLY_SHARDED = ("zero3", "fsdp", "hsdp")


@dataclass(frozen=True, slots=True)
class PerParameter:
    """Bytes a parameter: the part every rank holds, and the part divided over D ranks."""

    whole: float
    sharded: float

    def bytes_of(self, parameters: Count, degree: Count) -> Count:
        """Return bytes of ``parameters`` with the sharded part over ``degree`` ranks."""
        return parameters * (self.whole + self.sharded / degree)


@dataclass(frozen=True, slots=True)
class StateForm:
    """Bytes a parameter of weights, gradients and optimizer states."""

    weights: PerParameter
    gradients: PerParameter
    optimizer: PerParameter


def state_form(work: Workload, fp8_bytes: float | None = None) -> StateForm:
    """Return the bytes a parameter of a job (``fp8_bytes``: weights kept in fp8 only)."""
    moments = float(MOMENT_BYTES.get((work.training.optimizer or "adam").lower(), 8))
    framework = work.layout.framework
    if framework == "megatron":
        return _megatron(work, moments, fp8_bytes)
    if framework == "deepspeed":
        return _deepspeed(work.layout.sharding, moments)
    return _torch(work, moments)


def shard_degrees(work: Workload) -> tuple[int, int]:
    """Return the ranks that share dense and expert states (1 where nothing is sharded)."""
    layout = work.layout
    if layout.sharding == "none":
        return 1, 1
    if layout.framework == "megatron":
        dense = layout.shard_degree if layout.sharding == "hsdp" else layout.dp * layout.cp
        return max(dense // layout.instances, 1), max(layout.edp // layout.instances, 1)
    if layout.framework == "deepspeed":
        return max(layout.dp * layout.cp, 1), max(layout.edp, 1)
    copies = max(layout.dp // max(layout.shard_degree, 1), 1)
    return max(layout.shard_degree * layout.cp, 1), max(layout.edp // copies, 1)


def gathers_units(work: Workload) -> bool:
    """Tell whether parameters are gathered a unit at a time."""
    return work.layout.sharding in FULLY_SHARDED


def keeps_gathered(work: Workload) -> bool:
    """Tell whether gathered parameters stay: torch's FSDP2 in a pipeline (torchtitan ``apply_fsdp``)."""
    asked = work.training.reshard_after_forward
    if not gathers_units(work) or work.layout.framework not in ("torch", "torchtitan"):
        return False
    return work.layout.pp > 1 if asked is None else asked is False


def _megatron(work: Workload, moments: float, fp8_bytes: float | None) -> StateForm:
    precision = work.training.precision or "bf16"
    weight = 4.0 if precision == "fp32" else float(fp8_bytes or 2)
    gradient = float(work.gradient_bytes)
    optimizer = moments + (0 if precision == "fp32" else 4)
    if precision == "fp16" and gradient == 2:
        optimizer += 4  # the optimizer's fp32 copy of the gradients
    if work.layout.sharding == "none":
        return _form((weight, 0), (gradient, 0), (optimizer, 0))
    if work.layout.sharding in FULLY_SHARDED:
        return _form((0, weight), (0, gradient), (0, optimizer))
    return _form((weight, 0), (gradient, 0), (0, optimizer))


def _deepspeed(sharding: str, moments: float) -> StateForm:
    master = moments + 4
    if sharding == "none":
        return _form((2, 0), (2, 0), (master, 0))
    if sharding == "zero1":
        return _form((2, 0), (2, 4), (0, master))
    if sharding == "zero2":
        return _form((2, 0), (0, 6), (0, master))
    return _form((0, 2), (0, 4), (0, master))


def _torch(work: Workload, moments: float) -> StateForm:
    sharding = work.layout.sharding
    if sharding == "none":
        return _form((4, 0), (4, 0), (moments, 0))
    if sharding == "zero1":
        return _form((4, 0), (4, 0), (0, moments))
    if sharding == "zero2":
        return _form((4, 0), (0, 4), (0, moments))
    weights = 2.0 if keeps_gathered(work) else 0.0
    # Gradients that are reduced after the last microbatch only add up whole, in the reduction's
    # type (_fsdp_param.py to_accumulated_grad_if_needed): torch's pipelines do so.
    sync = work.training.gradient_sync or ("last" if work.layout.pp > 1 else "every")
    adds_up = sync == "last" and (work.batch.num_microbatches or 1) > 1
    gradients = float(work.gradient_bytes) if adds_up else 0.0
    return _form((weights, 4), (gradients, 4), (0, moments))


def _form(
    weights: tuple[float, float], gradients: tuple[float, float], optimizer: tuple[float, float]
) -> StateForm:
    return StateForm(PerParameter(*weights), PerParameter(*gradients), PerParameter(*optimizer))


def fp8_weight_bytes(gpu: str | None) -> float:
    """Return bytes a weight kept in fp8: a second, transposed copy on Hopper and Ada.

    TransformerEngine ``float8_tensor.py``: a ``_transpose`` buffer only where
    ``is_non_tn_fp8_gemm_supported()`` is false; Blackwell per-tensor scaling needs none.
    """
    blackwell = gpu is not None and any(word in gpu.upper() for word in ("B200", "B300"))
    return 1.0 if blackwell else 2.0
