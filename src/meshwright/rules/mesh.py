"""Rules of sharded data parallelism and of torch's device meshes."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.job.layout import Layout
from meshwright.rules.arithmetic import divisors
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree_of, first_that_hold, holds

_HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
_PARALLEL_DIMS = "pytorch/torchtitan torchtitan/distributed/parallel_dims.py ParallelDims._validate"


@rule(
    "sharding/shard-degree-divides-dp",
    source=f"{_PARALLEL_DIMS}; torch HSDP mesh (dp_replicate, dp_shard)",
)
def shard_degree_divides(context: RuleContext) -> Iterator[Violation]:
    """The shard degree divides dp."""
    layout = context.layout
    ranks = layout.replicas
    if _is_one_of_hosts(layout) and layout.shard_degree < 1:
        return  # the GPUs of a host are not known, and another rule says so
    if ranks > 0 and (layout.shard_degree < 1 or ranks % layout.shard_degree):
        of = "dp" if ranks == layout.dp else "dp × cp"
        yield Violation(
            "layout.shard_degree" if not _is_one_of_hosts(layout) else "layout.sharding",
            f"shard_degree {layout.shard_degree} does not divide {of} {ranks}: copies of the "
            "sharded state would have unequal sizes.",
            {"shard_degree": layout.shard_degree, "dp": ranks},
            degree_of(context, "shard_degree", ranks, max(layout.shard_degree, 1)),
        )


def _is_one_of_hosts(layout: Layout) -> bool:
    """Tell whether the shard degree is that of FSDP1's HYBRID_SHARD: the GPUs of a host."""
    return layout.fsdp1 in _HYBRID and "shard_degree" in layout.assumed


@rule("sharding/hsdp-needs-shard-degree", source="torch HSDP mesh (dp_replicate, dp_shard)")
def hsdp_needs_shard_degree(context: RuleContext) -> Iterator[Violation]:
    """HSDP needs to know how many ranks share one copy."""
    layout = context.layout
    known = (
        "distributed_optimizer_instances" not in layout.assumed
        if layout.framework == "megatron"
        else layout.jax_mesh is not None and (layout.jax_mesh.given or "sharding" in layout.assumed)
    )
    if layout.sharding != "hsdp" or "shard_degree" not in layout.assumed or known:
        return
    if not _is_one_of_hosts(layout):
        yield Violation(
            "layout.sharding",
            f"sharding hsdp without shard_degree: dp {layout.dp} could be split in several ways.",
            {"dp": layout.dp},
            f"{degree_of(context, 'shard_degree', max(layout.dp, 1), 8)} (ranks that share one copy)",
        )


@rule("grid/ep-divides-sparse-region", source=_PARALLEL_DIMS, frameworks=("torch", "torchtitan"))
def ep_divides_sparse(context: RuleContext) -> Iterator[Violation]:
    """On a device mesh ep divides dp_shard · cp · tp."""
    layout = context.layout
    region = layout.dp_shard * layout.cp * layout.tp
    if layout.ep > 1 and region > 0 and region % layout.ep:
        yield Violation(
            "layout.ep",
            f"ep {layout.ep} does not divide dp_shard {layout.dp_shard} × cp {layout.cp} × "
            f"tp {layout.tp} = {region}.",
            {"ep": layout.ep, "region": region},
            degree_of(context, "ep", region, layout.ep),
        )


@rule("grid/etp-not-on-mesh", source=_PARALLEL_DIMS, frameworks=("torch", "torchtitan"))
def etp_not_on_mesh(context: RuleContext) -> Iterator[Violation]:
    """Torchtitan's mesh has no expert tensor parallelism."""
    layout = context.layout
    if layout.etp > 1:
        yield Violation(
            "layout.etp",
            f"etp {layout.etp}: the sparse mesh [pp, dp_replicate, efsdp, ep] has no such axis.",
            {"etp": layout.etp},
            "etp: 1",
        )


@rule("grid/order-fixed-by-framework", source=_PARALLEL_DIMS, frameworks=("torchtitan",))
def order_fixed(context: RuleContext) -> Iterator[Violation]:
    """Torchtitan's mesh order is fixed: pp, dp_replicate, dp_shard, cp, tp."""
    order = [axis for axis in context.layout.order if axis != "ep"]
    fixed = [axis for axis in ("tp", "cp", "dp", "pp") if axis in order]
    if sorted(order) == sorted(fixed) and order != fixed:
        yield Violation(
            "layout.order",
            f"order {'-'.join(order)} cannot be had in torchtitan: its mesh is (pp, dp, cp, tp), tp fastest.",
            {"order": "-".join(order)},
            "order: tp-cp-dp-pp, or framework: torch for a mesh of your own",
        )


@rule("grid/expert-mesh-order", source=_PARALLEL_DIMS, frameworks=("torch",))
def expert_mesh_order(context: RuleContext) -> Iterator[Violation]:
    """On a mesh with experts ep holds the fastest ranks, so the order is torchtitan's."""
    layout = context.layout
    order = [axis for axis in layout.order if getattr(layout, axis, 1) > 1 and axis != "ep"]
    fixed = [axis for axis in ("tp", "cp", "dp", "pp") if axis in order]
    if layout.ep > 1 and sorted(order) == sorted(fixed) and order != fixed:
        yield Violation(
            "layout.order",
            f"order {'-'.join(layout.order)} with ep {layout.ep}: the sparse mesh [pp, "
            "dp_replicate, efsdp, ep] covers the same ranks only when tp, cp, dp and pp stand in "
            "this order.",
            {"order": "-".join(layout.order), "ep": layout.ep},
            "order: tp-cp-dp-pp",
        )


@rule(
    "sharding/hsdp-not-in-framework",
    source="deepspeedai/DeepSpeed deepspeed/utils/groups.py; "
    "huggingface/nanotron src/nanotron/parallel/context.py (2411b022)",
    frameworks=("deepspeed", "nanotron"),
)
def hsdp_not_in_framework(context: RuleContext) -> Iterator[Violation]:
    """DeepSpeed and nanotron have no sharding over a part of dp with copies."""
    layout = context.layout
    if layout.sharding == "hsdp":
        yield Violation(
            "layout.sharding",
            f"sharding hsdp: {layout.framework} makes no such groups.",
            {"sharding": layout.sharding},
            _without_hsdp(context),
        )


def _without_hsdp(context: RuleContext) -> str:
    """Return the sharding to take instead: ZeRO++ is what DeepSpeed has of that kind."""
    if context.layout.framework != "deepspeed":
        return "sharding: zero1"
    if not holds(context, {"layout.sharding": "zero3"}):
        return "sharding: zero1"
    return "sharding: zero3, with zero_hpz_partition_size (ZeRO++)"


@rule(
    "sharding/hsdp-instances",
    source="NVIDIA/Megatron-LM megatron/core/distributed/fsdp/mcore_fsdp_adapter.py",
    frameworks=("megatron",),
)
def hsdp_instances(context: RuleContext) -> Iterator[Violation]:
    """Megatron-FSDP makes as many copies as there are distributed optimizer instances."""
    layout = context.layout
    if layout.sharding != "hsdp" or min(layout.replicas, layout.shard_degree) < 1:
        return
    if layout.replicas % layout.shard_degree or layout.instances == layout.dp_replicate:
        return
    yield Violation(
        "layout.distributed_optimizer_instances",
        f"shard_degree {layout.shard_degree} of dp × cp {layout.replicas} makes {layout.dp_replicate} "
        f"copies, distributed_optimizer_instances is {layout.instances}.",
        {"shard_degree": layout.shard_degree, "instances": layout.instances},
        f"distributed_optimizer_instances: {layout.dp_replicate}"
        + ("" if "shard_degree" in layout.assumed else ", or leave shard_degree out"),
    )


@rule("sharding/fsdp1-word-elsewhere", source="torch.distributed.fsdp.ShardingStrategy")
def fsdp1_word_elsewhere(context: RuleContext) -> Iterator[Violation]:
    """The words of FSDP1 belong to torch."""
    layout = context.layout
    if layout.fsdp1 is not None and layout.framework != "torch":
        yield Violation(
            "layout.sharding",
            f"sharding {layout.fsdp1} is a word of torch's FSDP1; here the framework is {layout.framework}.",
            {"sharding": layout.fsdp1, "framework": layout.framework},
            _own_word(context),
        )


def _own_word(context: RuleContext) -> str:
    """Return what the framework calls it, or torch."""
    layout, hardware = context.layout, context.hardware
    host = hardware.gpus_per_host if hardware is not None else None
    options: list[dict[str, object]] = [{"layout.sharding": layout.sharding}]
    if layout.sharding == "hsdp" and host:
        shard = max((one for one in divisors(max(layout.dp, 1)) if one <= host), default=1)
        options.append({"layout.sharding": "hsdp", "layout.shard_degree": shard})
    if layout.framework == "maxtext":  # its mesh says what is sharded
        options += [{"layout.sharding": None}, {"layout.framework": "torch"}]
        return first_that_hold(context, options)
    options += [{"layout.framework": "torch"}, {"layout.sharding": "zero1"}]
    return first_that_hold(context, options)


@rule(
    "sharding/hybrid-shard-hosts",
    source="torch 2.13 torch/distributed/fsdp/_init_utils.py",
    frameworks=("torch",),
)
def hybrid_shard_hosts(context: RuleContext) -> Iterator[Violation]:
    """HYBRID_SHARD shards over the GPUs of a host, so they must be known."""
    layout = context.layout
    if _is_one_of_hosts(layout) and layout.shard_degree < 1:
        yield Violation(
            "layout.sharding",
            f"{layout.fsdp1} shards over the GPUs of one host, and the job does not say how many they are.",
            {"sharding": str(layout.fsdp1)},
            "shard_degree: 8 (the GPUs of a host), or a cluster of equal hosts",
        )


@rule(
    "sharding/hybrid-shard-world",
    source="torch 2.13 torch/distributed/fsdp/_init_utils.py",
    frameworks=("torch",),
)
def hybrid_shard_world(context: RuleContext) -> Iterator[Violation]:
    """HYBRID_SHARD without a mesh takes the whole world."""
    layout = context.layout
    if layout.fsdp1 in _HYBRID and max(layout.tp, layout.cp, layout.pp, layout.ep) > 1:
        yield Violation(
            "layout.sharding",
            f"{layout.fsdp1} without a mesh takes the whole world; with tp {layout.tp}, cp {layout.cp}, "
            f"pp {layout.pp}, ep {layout.ep} the copies need a mesh.",
            {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp, "ep": layout.ep},
            "FSDP2's mesh (dp_replicate, dp_shard): sharding hsdp with a shard_degree",
        )


MESH_RULES: tuple[Rule, ...] = (
    shard_degree_divides,
    hsdp_needs_shard_degree,
    hsdp_not_in_framework,
    hsdp_instances,
    fsdp1_word_elsewhere,
    hybrid_shard_hosts,
    hybrid_shard_world,
    ep_divides_sparse,
    etp_not_on_mesh,
    order_fixed,
    expert_mesh_order,
)
"""Rules of meshes and of what is sharded over data parallelism."""
