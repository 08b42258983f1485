"""The rule of number formats and GPUs: what the hardware multiplies in."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.cluster.gpus import GpuModel
from meshwright.rules.registry import RuleContext, Violation, rule
from meshwright.rules.remedies import holds

_REFUSES = ("megatron", "torch", "torchtitan", "deepspeed", "nanotron")
"""Frameworks whose matrices are multiplied by kernels of the format; XLA (MaxText) may widen them."""
_WIDER = {"nvfp4": ("mxfp8", "fp8", "bf16"), "mxfp8": ("fp8", "bf16"), "fp8": ("bf16",)}
"""What to take instead, the nearest first."""
_NEEDS = {"fp8": "8.9", "mxfp8": "10.0", "nvfp4": "10.0"}
"""Compute capability asked for on NVIDIA GPUs, as the source has it."""
_HALF_DONE = "RTX PRO 6000"
"""Capability 12.0: FP8, and no MXFP8 in every layout of a GEMM yet (same source)."""


def can_multiply(gpu: GpuModel, precision: str) -> bool | None:
    """Tell whether a GPU has matrix units for a format; ``None`` where its figures do not say.

    A data sheet that states 16-bit rates and no rate of a narrow format has none. MXFP8 came with
    the generation that has FP4, of NVIDIA as of AMD.
    """
    if precision not in _NEEDS:
        return True
    if gpu.bf16_flops_per_s is None and gpu.fp16_flops_per_s is None:
        return False if precision == "mxfp8" and gpu.name.startswith(_HALF_DONE) else None
    if precision == "fp8":
        return gpu.fp8_flops_per_s is not None
    if precision == "nvfp4" and gpu.link_protocol == "xgmi" and gpu.fp4_flops_per_s is not None:
        return None  # FP4 of another block than NVIDIA's
    return gpu.fp4_flops_per_s is not None


@rule(
    "precision/gpu-cannot",
    source="NVIDIA/TransformerEngine transformer_engine/pytorch/quantization.py check_recipe_support; "
    "pytorch/torchtitan torchtitan/components/quantization; data/gpus.json",
    frameworks=_REFUSES,
)
def gpu_cannot(context: RuleContext) -> Iterator[Violation]:
    """The GPUs have matrix units for the number format."""
    precision = context.training.precision or "bf16"
    gpus = context.hardware.gpus if context.hardware is not None else ()
    lacking = [gpu for gpu in gpus if can_multiply(gpu, precision) is False]
    if not lacking:
        return
    others = [
        one
        for one in _WIDER[precision]
        if all(can_multiply(gpu, one) for gpu in gpus)
        and holds(context, {"training.precision": one})
    ]
    names = ", ".join(gpu.name for gpu in lacking)
    need = _NEEDS[precision]
    amd = all(gpu.link_protocol == "xgmi" for gpu in lacking)
    asked = "" if amd else f"; Transformer Engine asks for compute capability {need}"
    yield Violation(
        "training.precision",
        f"{precision} on {names}: no matrix units for it{asked}.",
        {
            "precision": precision,
            "gpus": [gpu.name for gpu in lacking],
            "compute_capability": None if amd else need,
        },
        f"precision: {others[0] if others else 'bf16'}, or GPUs that have {precision}",
    )
