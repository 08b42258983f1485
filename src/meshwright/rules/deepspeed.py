"""Rules of DeepSpeed's groups; each stands for an assertion or a branch of its code."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.groups.deepspeed import expert_convention
from meshwright.rules.arithmetic import nearest_divisors
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree_of, first_that_hold

_GROUPS = "deepspeedai/DeepSpeed deepspeed/utils/groups.py"
_ONLY = ("deepspeed",)
_GRADIENTS_SHARDED = ("zero2", "zero3", "fsdp")
"""ZeRO stages from ``ZeroStageEnum.gradients`` on; fsdp is stage 3 by another name."""


@rule("deepspeed/experts-divide", source=f"{_GROUPS} _ensure_divisibility", frameworks=_ONLY)
def experts_divide(context: RuleContext) -> Iterator[Violation]:
    """EP divides the ranks it is cut from: a stage's, or dp with tensor-sharded experts."""
    layout = context.layout
    sharded = expert_convention(layout) == "mpu"
    ranks = layout.dp if sharded else layout.tp * layout.cp * layout.dp
    if layout.ep < 2 or ranks < 1 or ranks % layout.ep == 0:
        return
    what = f"dp {layout.dp}" if sharded else f"the {ranks} ranks of a pipeline stage"
    yield Violation(
        "layout.ep",
        f"ep {layout.ep} does not divide {what}.",
        {"ep": layout.ep, "ranks": ranks},
        degree_of(context, "ep", ranks, layout.ep),
    )


@rule(
    "deepspeed/expert-tensor-size",
    source="deepspeedai/DeepSpeed deepspeed/moe/layer.py enable_expert_tensor_parallelism",
    frameworks=_ONLY,
)
def expert_tensor_size(context: RuleContext) -> Iterator[Violation]:
    """Experts are whole (etp 1) or sharded like the dense part (etp = tp)."""
    layout = context.layout
    if layout.etp in (1, layout.tp):
        return
    yield Violation(
        "layout.etp",
        f"etp {layout.etp} with tp {layout.tp}: DeepSpeed shards experts over tp or not at all.",
        {"etp": layout.etp, "tp": layout.tp},
        "etp: 1",
    )


@rule("deepspeed/mp-mode", source="deepspeedai/DeepSpeed runtime/engine.py", frameworks=_ONLY)
def mp_mode(context: RuleContext) -> Iterator[Violation]:
    """The expert mode ``tp`` needs tp above 1; ``sp`` needs tp 1; experts are whole in both."""
    layout = context.layout
    if layout.mp_mode is None:
        return
    right = "tp" if layout.tp > 1 else "sp"
    if layout.mp_mode != right and max(layout.tp, layout.cp) > 1:
        yield Violation(
            "layout.mp_mode",
            f"mp_mode {layout.mp_mode} with tp {layout.tp}: DeepSpeed takes tp where tp is above 1, else sp.",
            {"tp": layout.tp, "mp_mode": layout.mp_mode},
            f"mp_mode: {right}",
        )
    if layout.etp > 1:
        yield Violation(
            "layout.etp",
            f"etp {layout.etp} with mp_mode: on this path experts are replicated over tp, not sharded.",
            {"etp": layout.etp},
            "etp: 1, or leave mp_mode out",
        )


@rule(
    "deepspeed/data-before-expert-with-mp-mode",
    source=f"{_GROUPS} _create_expert_and_data_parallel (NotImplementedError)",
    frameworks=_ONLY,
)
def data_before_expert(context: RuleContext) -> Iterator[Violation]:
    """``use_data_before_expert_parallel`` is not supported with mp_mode."""
    layout = context.layout
    if layout.use_data_before_expert_parallel and expert_convention(layout) == "mp_size":
        yield Violation(
            "layout.use_data_before_expert_parallel",
            f"use_data_before_expert_parallel with mp_mode {layout.mp_mode}: DeepSpeed raises "
            "NotImplementedError where mp_size is above 1.",
            {"mp_mode": layout.mp_mode},
            "use_data_before_expert_parallel: false",
        )


@rule(
    "deepspeed/sequence-with-model",
    source="deepspeedai/Megatron-DeepSpeed megatron/core/parallel_state.py initialize_model_parallel",
    frameworks=_ONLY,
)
def sequence_with_model(context: RuleContext) -> Iterator[Violation]:
    """Ulysses sequence parallelism works with neither tensor nor pipeline parallelism."""
    layout = context.layout
    if layout.cp > 1 and (layout.tp > 1 or layout.pp > 1):
        yield Violation(
            "layout.cp",
            f"cp {layout.cp} (Ulysses) with tp {layout.tp} and pp {layout.pp}: DeepSpeed's sequence "
            "parallelism works with neither tensor nor pipeline parallelism.",
            {"cp": layout.cp, "tp": layout.tp, "pp": layout.pp},
            "cp: 1",
        )


@rule(
    "deepspeed/zero-with-pipeline",
    source="deepspeedai/DeepSpeed deepspeed/runtime/pipe/engine.py PipelineEngine.__init__ (assertion)",
    frameworks=_ONLY,
)
def zero_with_pipeline(context: RuleContext) -> Iterator[Violation]:
    """The pipeline engine takes ZeRO stage 1 at most."""
    layout = context.layout
    if layout.pp <= 1 or layout.sharding not in _GRADIENTS_SHARDED:
        return
    without: dict[str, object] = {"layout.pp": 1}
    if "dp" not in layout.assumed:
        without["layout.dp"] = layout.dp * layout.pp
    yield Violation(
        "layout.sharding",
        f"sharding {layout.sharding} with pp {layout.pp}: DeepSpeed's pipeline engine refuses a ZeRO stage that "
        "shards gradients (2, 3); it takes none or stage 1.",
        {"sharding": layout.sharding, "pp": layout.pp},
        first_that_hold(context, [{"layout.sharding": "zero1"}, without]),
    )


@rule(
    "deepspeed/expert-order",
    source=f"{_GROUPS} (stages are blocks of W/pp ranks, tp is the fastest)",
    frameworks=_ONLY,
)
def expert_order(context: RuleContext) -> Iterator[Violation]:
    """With experts the order is DeepSpeed's own: model, data, pipe."""
    layout = context.layout
    order = [axis for axis in layout.order if getattr(layout, axis, 1) > 1 and axis != "ep"]
    fixed = [axis for axis in ("tp", "cp", "dp", "pp") if axis in order]
    if layout.ep > 1 and sorted(order) == sorted(fixed) and order != fixed:
        yield Violation(
            "layout.order",
            f"order {'-'.join(layout.order)} with ep {layout.ep}: expert groups take tp as the fastest "
            "axis and a stage as a block of consecutive ranks.",
            {"order": "-".join(layout.order), "ep": layout.ep},
            "order: tp-cp-dp-pp",
        )


@rule(
    "deepspeed/hpz-divides-world",
    source=f"{_GROUPS} _create_zero_param_parallel_group",
    frameworks=_ONLY,
)
def hpz_divides(context: RuleContext) -> Iterator[Violation]:
    """The secondary partition of ZeRO++ divides the world."""
    layout = context.layout
    size, world = layout.zero_hpz_partition_size, layout.world_size
    if size < 0 or (1 < size < world and world % size):
        yield Violation(
            "layout.zero_hpz_partition_size",
            f"zero_hpz_partition_size {size} does not divide the world size {world}.",
            {"zero_hpz_partition_size": size, "world_size": world},
            f"zero_hpz_partition_size: {nearest_divisors(max(world, 1), max(size, 1))}",
        )


@rule(
    "deepspeed/hpz-needs-zero3",
    source="deepspeedai/DeepSpeed runtime/zero/stage3.py",
    severity=Severity.WARNING,
    frameworks=_ONLY,
)
def hpz_needs_zero3(context: RuleContext) -> Iterator[Violation]:
    """Only ZeRO stage 3 has a secondary partition."""
    layout = context.layout
    if layout.zero_hpz_partition_size > 1 and layout.sharding != "zero3":
        yield Violation(
            "layout.zero_hpz_partition_size",
            f"zero_hpz_partition_size {layout.zero_hpz_partition_size} with sharding {layout.sharding}: "
            "only ZeRO stage 3 makes and uses these groups.",
            {"sharding": layout.sharding},
            first_that_hold(
                context,
                [{"layout.sharding": "zero3"}, {"layout.zero_hpz_partition_size": None}],
                most=1,
            ),
        )


_AUTO_TP = "deepspeedai/DeepSpeed deepspeed/module_inject/tp_shard.py get_shard_size"


@rule(
    "deepspeed/heads-fewer-than-tp", source=_AUTO_TP, versions="DeepSpeed 0.19.8", frameworks=_ONLY
)
def heads_fewer_than_tp(context: RuleContext) -> Iterator[Violation]:
    """Every tp rank gets a key/value head."""
    model, tp = context.model, context.layout.tp
    if model is None or model.is_mla or tp <= model.kv_heads:
        return
    yield Violation(
        "layout.tp",
        f"{model.kv_heads} KV heads over tp {tp}: AutoTP cuts attention by KV heads, so {tp - model.kv_heads} "
        "ranks would get none; Megatron-DeepSpeed refuses it too.",
        {"kv_heads": model.kv_heads, "tp": tp, "without": tp - model.kv_heads},
        degree_of(context, "tp", model.kv_heads, tp),
    )


@rule(
    "deepspeed/heads-uneven",
    source=f"{_AUTO_TP}; deepspeedai/Megatron-DeepSpeed megatron/core/utils.py divide; deepspeedai/DeepSpeed#3634",
    severity=Severity.WARNING,
    versions="DeepSpeed 0.19.8",
    frameworks=_ONLY,
)
def heads_uneven(context: RuleContext) -> Iterator[Violation]:
    """Tp divides the key/value heads, else some ranks hold one more."""
    model, tp = context.model, context.layout.tp
    if model is None or tp < 1 or tp > model.kv_heads or model.kv_heads % tp == 0:
        return
    least, rest = divmod(model.kv_heads, tp)
    group = model.heads // model.kv_heads
    yield Violation(
        "layout.tp",
        f"{model.kv_heads} KV heads (each with {group} query heads) over tp {tp}: AutoTP gives {rest} ranks "
        f"{least + 1} and the others {least}, and the largest sets the pace. Megatron-DeepSpeed refuses it.",
        {
            "kv_heads": model.kv_heads,
            "heads": model.heads,
            "tp": tp,
            "most": least + 1,
            "ranks": rest,
        },
        degree_of(context, "tp", model.kv_heads, tp),
    )


DEEPSPEED_MODEL_RULES: tuple[Rule, ...] = (heads_fewer_than_tp, heads_uneven)
"""Rules of DeepSpeed that need the model."""
DEEPSPEED_RULES: tuple[Rule, ...] = (
    experts_divide,
    expert_tensor_size,
    mp_mode,
    data_before_expert,
    sequence_with_model,
    zero_with_pipeline,
    expert_order,
    hpz_divides,
    hpz_needs_zero3,
)
"""Rules of DeepSpeed."""
