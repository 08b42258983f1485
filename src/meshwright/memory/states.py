"""Weights, gradients and optimizer states: bytes a parameter, by framework and sharding.

========================  ====================================================================
Megatron, bf16            2 + 4 + 12 (fp32 master and two Adam moments); with the distributed
                          optimizer 6 + 12/D, D = dp·cp (/instances), experts edp (/instances)
                          (docs/user-guide/features/dist_optimizer.md,
                          ``theoretical_memory_usage.py``)
Megatron, fp16 / fp32     4 + 16/D (an fp32 copy of the gradients) / 8 + 8/D; without: 20 / 16
DeepSpeed                 ZeRO-2 2 + 18/D, ZeRO-3 18/D (``stage_1_and_2.py``, ``stage3.py``
                          ``estimate_zero*_model_states_mem_needs``); ZeRO-1 4 + 16/D (derived).
                          Gradients add up in the parameters' type (``engine.py get_data_types``);
                          with ``gradient_dtype: fp32`` (``grad_accum_dtype``) ZeRO-1 keeps them
                          whole in fp32 (``bf16_optimizer.py``), ZeRO-2 adds up 4 bytes, ZeRO-3's
                          buffer is the fp32 one
FSDP2, HSDP               (4 + 4 + 8)/D: parameters, gradients and moments in their own type,
                          fp32 (``_fsdp_api.py``); D = shard degree · cp. What is reduced in
                          another type is cast back (``_fsdp_collectives.py foreach_reduce``)
torch DDP                 4 + 8 + 8: fp32 parameters under autocast, gradients twice (DDP's
                          buckets: ``gradient_as_bucket_view``). Gradients have the type of the
                          parameters, so ``gradient_dtype: bf16`` is a model in bf16 with
                          moments in bf16 (``torch.optim`` makes them like the parameters)
nanotron                  bf16 weights 2, their gradients 2 until the backward ends (without ZeRO
                          2 more in DDP's buckets), fp32 sum 4, fp32 master 4 and moments 8, with
                          ZeRO-1 over dp
                          (``optim/gradient_accumulator.py``, ``accumulate_grad_in_fp32``);
                          with ``gradient_dtype: bf16``: 2 + 2 + moments in bf16
========================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.traffic.data_fsdp import reshard_of
from meshwright.traffic.workload import MESH, Workload

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
        return _deepspeed(work, moments)
    if framework == "nanotron":
        return _nanotron(work, moments)
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
    if layout.framework == "nanotron":
        return max(layout.dp, 1), max(layout.dp, 1)  # ZeroDistributedOptimizer: dp alone
    copies = max(layout.dp // max(layout.shard_degree, 1), 1)
    return max(layout.shard_degree * layout.cp, 1), max(layout.edp // copies, 1)


def gathers_units(work: Workload) -> bool:
    """Tell whether parameters are gathered a unit at a time (FSDP1's SHARD_GRAD_OP does too)."""
    layout = work.layout
    return layout.sharding in FULLY_SHARDED or (
        layout.fsdp1 is not None and layout.sharding == "zero2"
    )


def ddp_bucket_bytes(work: Workload, width: float) -> float:
    """Return bytes a parameter of DDP's buckets, which hold gradients a second time.

    ``gradient_as_bucket_view`` is false by default (``torch/nn/parallel/distributed.py``).
    """
    return width if work.layout.dp * work.layout.cp > 1 else 0.0


def keeps_gathered(work: Workload) -> bool:
    """Tell whether gathered parameters stay: FSDP that does not reshard after forward."""
    if not gathers_units(work) or work.layout.framework not in MESH:
        return False
    return reshard_of(work) is False


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


def _deepspeed(work: Workload, moments: float) -> StateForm:
    precision, sharding = work.training.precision or "bf16", work.layout.sharding
    weight, gradient = (4.0 if precision == "fp32" else 2.0), float(work.gradient_bytes)
    if sharding == "none":
        return _form((weight, 0), (gradient, 0), (moments + (0 if weight == 4 else 4), 0))
    master = moments + 4  # a copy of its own, of fp32 parameters too
    if sharding == "zero1":
        # BF16_Optimizer steps on views of its fp32 sums; the others flatten their part to fp32.
        in_place = gradient == 4 and precision not in ("fp16", "fp32")
        return _form((weight, 0), (gradient, 0 if in_place else 4), (0, master))
    if sharding == "zero2":
        return _form((weight, 0), (0, gradient + 4), (0, master))
    return _form((0, weight), (0, 4), (0, master))


def _nanotron(work: Workload, moments: float) -> StateForm:
    shares = (0, 1) if work.layout.sharding != "none" else (1, 0)
    wide = work.gradient_bytes == 4
    if work.training.precision == "fp32":
        return _form((4, 0), (4, 0), (moments * shares[0], moments * shares[1]))
    # DDP is left out where gradients add up in fp32 for a sharded optimizer (trainer.py make_ddp).
    buckets = 0.0 if wide and shares[1] else ddp_bucket_bytes(work, 2)
    # Without the fp32 sum the optimizer works on the weights themselves.
    states = moments + 4 if wide else moments / 2
    return _form(
        (2, 0), ((6 if wide else 2) + buckets, 0), (states * shares[0], states * shares[1])
    )


def _torch(work: Workload, moments: float) -> StateForm:
    sharding = work.layout.sharding
    if sharding == "none":
        # Parameters, their gradients and moments have one type: what is reduced is what is kept.
        width = 4.0 if work.training.precision == "fp32" else float(work.gradient_bytes)
        gradients = width + ddp_bucket_bytes(work, width)
        return _form((width, 0), (gradients, 0), (moments * width / 4, 0))
    if sharding == "zero1":
        return _form((4, 0), (4 + ddp_bucket_bytes(work, 4), 0), (0, moments))
    if not gathers_units(work):
        return _form((4, 0), (0, 4), (0, moments))
    weights = float(work.activation_bytes) if keeps_gathered(work) else 0.0
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


def fp8_weight_bytes(gpu: str | None, precision: str = "fp8") -> float:
    """Return bytes a weight kept in fp8: a second, transposed copy on Hopper and Ada.

    TransformerEngine ``float8_tensor.py``: a ``_transpose`` buffer only where
    ``is_non_tn_fp8_gemm_supported()`` is false; Blackwell per-tensor scaling needs none. MXFP8 keeps
    data by rows and by columns everywhere (and its scales, one byte for 32 values: not counted).
    """
    if precision == "mxfp8":
        return 2.0
    blackwell = gpu is not None and any(word in gpu.upper() for word in ("B200", "B300"))
    return 1.0 if blackwell else 2.0
