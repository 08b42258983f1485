"""Rules of sharded data parallelism and of torch's device meshes."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.rules.arithmetic import nearest_divisors
from meshwright.rules.registry import Rule, RuleContext, Violation, rule

_PARALLEL_DIMS = "pytorch/torchtitan torchtitan/distributed/parallel_dims.py ParallelDims._validate"


@rule(
    "sharding/shard-degree-divides-dp",
    source=f"{_PARALLEL_DIMS}; torch HSDP mesh (dp_replicate, dp_shard)",
)
def shard_degree_divides(context: RuleContext) -> Iterator[Violation]:
    """The shard degree divides dp."""
    layout = context.layout
    if layout.dp > 0 and (layout.shard_degree < 1 or layout.dp % layout.shard_degree):
        yield Violation(
            "layout.shard_degree",
            f"shard_degree {layout.shard_degree} does not divide dp {layout.dp}: copies of the "
            "sharded state would have unequal sizes.",
            {"shard_degree": layout.shard_degree, "dp": layout.dp},
            f"shard_degree: {nearest_divisors(layout.dp, max(layout.shard_degree, 1))}",
        )


@rule("sharding/hsdp-needs-shard-degree", source="torch HSDP mesh (dp_replicate, dp_shard)")
def hsdp_needs_shard_degree(context: RuleContext) -> Iterator[Violation]:
    """HSDP needs to know how many ranks share one copy."""
    layout = context.layout
    if layout.sharding == "hsdp" and "shard_degree" in layout.assumed:
        yield Violation(
            "layout.sharding",
            f"sharding hsdp without shard_degree: dp {layout.dp} could be split in several ways.",
            {"dp": layout.dp},
            f"shard_degree: {nearest_divisors(max(layout.dp, 1), 8)} (ranks that share one copy)",
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
            f"ep: {nearest_divisors(region, layout.ep)}",
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


@rule("sharding/hsdp-on-mesh-only", source="groups/megatron.py", frameworks=("megatron",))
def hsdp_on_mesh_only(context: RuleContext) -> Iterator[Violation]:
    """The groups of HSDP are those of a device mesh; Megatron-FSDP's are not modelled yet."""
    layout = context.layout
    if layout.sharding == "hsdp":
        yield Violation(
            "layout.sharding",
            "sharding hsdp in Megatron (Megatron-FSDP) forms groups that are not modelled yet.",
            {"sharding": layout.sharding},
            "framework: torch or torchtitan, or sharding: zero1 (the distributed optimizer)",
        )


MESH_RULES: tuple[Rule, ...] = (
    shard_degree_divides,
    hsdp_needs_shard_degree,
    hsdp_on_mesh_only,
    ep_divides_sparse,
    etp_not_on_mesh,
    order_fixed,
    expert_mesh_order,
)
"""Rules of meshes and of what is sharded over data parallelism."""
