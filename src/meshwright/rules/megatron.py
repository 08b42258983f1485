"""Rules of Megatron-Core's two grids, its optimizer instances and its context parallelism."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.findings import Severity
from meshwright.groups.megatron import decoder_grid, expert_grid, hybrid_sizes
from meshwright.rules.arithmetic import divisors, shown_list
from meshwright.rules.degrees import order_missing_axis
from meshwright.rules.registry import Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree_of, first_that_hold, holds
from meshwright.rules.world import fills_world

_PARALLEL_STATE = "NVIDIA/Megatron-LM megatron/core/parallel_state.py"
_PRINTED = 1 << 64


@rule(
    "grid/world-divides-expert",
    source=f"{_PARALLEL_STATE} initialize_model_parallel",
    frameworks=("megatron",),
)
def world_divides_expert(context: RuleContext) -> Iterator[Violation]:
    """The world size is a multiple of etp · ep · pp."""
    layout = context.layout
    block = layout.etp * layout.ep * layout.pp
    if block < 1 or layout.world_size < 1 or layout.edp > 0 or not layout.has_experts:
        return
    if layout.world_size % layout.pp:
        return  # the dense grid cannot be cut into stages either, and says so
    others = layout.etp * layout.pp
    if layout.world_size % others == 0:
        remedy = degree_of(context, "ep", layout.world_size // others, layout.ep)
        alone = layout.world_size % (layout.ep * layout.pp) == 0
        remedy += "; or etp: 1" if layout.etp > 1 and alone else ""
    elif layout.world_size % (layout.ep * layout.pp) == 0:
        room = layout.world_size // (layout.ep * layout.pp)
        remedy = degree_of(context, "etp", room, layout.etp)
    else:
        remedy = "ep: 1 and etp: 1"
    dense = layout.tp * layout.cp * layout.pp
    both = math.lcm(dense, block)
    fitting = layout.world_size // both * both if both > 0 else 0
    free = fitting > 0 and "world_size" in layout.assumed and "dp" in layout.assumed
    if free and holds(context, {"layout.world_size": fitting}):
        remedy += f"; or world_size: {fitting} of the {layout.world_size} GPUs"
    yield Violation(
        "layout.etp" if "ep" in layout.assumed else "layout.ep",
        f"world size {layout.world_size} is not divisible by etp {layout.etp} × ep {layout.ep} × "
        f"pp {layout.pp} = {block}, the ranks that hold all experts once"
        + (" (etp left out: Megatron takes etp = tp)." if "etp" in layout.assumed else "."),
        {"world_size": layout.world_size, "etp": layout.etp, "ep": layout.ep, "pp": layout.pp},
        remedy,
    )


@rule(
    "grid/expert-dp-equals-dp-unless-pp-last",
    source=f"{_PARALLEL_STATE} initialize_model_parallel (assertion on pp-last ordering)",
    frameworks=("megatron",),
)
def expert_dp_equals_dp(context: RuleContext) -> Iterator[Violation]:
    """When the order does not end in pp, edp must equal dp: etp · ep = tp · cp."""
    layout = context.layout
    if layout.pp <= 1 or not layout.order or layout.order[-1] == "pp":
        return
    if layout.edp < 1 or layout.edp == layout.dp or not fills_world(layout):
        return
    dense, expert = layout.tp * layout.cp, layout.etp * layout.ep
    moved = "-".join([axis for axis in layout.order if axis != "pp"] + ["pp"])
    yield Violation(
        "layout.order",
        f"order {'-'.join(layout.order)} does not end in pp; then the data-parallel size of experts "
        f"({layout.edp}) must equal that of attention ({layout.dp}), i.e. etp × ep = tp × cp "
        f"({layout.etp} × {layout.ep} = {expert}, {layout.tp} × {layout.cp} = {dense}). "
        "It holds for models without experts too.",
        {"dp": layout.dp, "edp": layout.edp, "etp_ep": expert, "tp_cp": dense},
        f"order: {moved} (without --use-tp-pp-dp-mapping), or ep and etp with ep × etp = {dense}",
    )


@rule(
    "grid/pipeline-groups-equal",
    source=f"{_PARALLEL_STATE} initialize_model_parallel (assertion on both grids' pp groups)",
    frameworks=("megatron",),
)
def pipeline_groups_equal(context: RuleContext) -> Iterator[Violation]:
    """Attention and experts have the same pipeline groups."""
    layout = context.layout
    if layout.pp <= 1 or layout.edp < 1 or not fills_world(layout):
        return
    if any(order_missing_axis.check(context)):
        return
    if layout.order[-1] != "pp" and layout.edp != layout.dp:
        return  # the rule above says so
    dense, expert = decoder_grid(layout).stride("pp"), expert_grid(layout).stride("pp")
    if dense == expert:
        return
    moved = "-".join([axis for axis in layout.order if axis != "pp"] + ["pp"])
    yield Violation(
        "layout.order",
        f"order {'-'.join(layout.order)}: neighbouring stages are {dense} ranks apart for "
        f"attention and {expert} for experts, since other axes stand before pp in the two grids.",
        {"stride": dense, "expert_stride": expert},
        f"order: {moved}",
    )


@rule(
    "pipeline/vp-needs-pp",
    source=f"{_PARALLEL_STATE} initialize_model_parallel",
    frameworks=("megatron",),
)
def vp_needs_pp(context: RuleContext) -> Iterator[Violation]:
    """Interleaving needs more than one pipeline stage."""
    layout = context.layout
    # vp 1 is written as "no virtual stages" here; Megatron would refuse an explicit 1 with pp 1 too.
    if layout.vp > 1 and layout.pp == 1:
        yield Violation(
            "layout.vp",
            f"vp {layout.vp} with pp 1: interleaving needs at least two stages.",
            {"vp": layout.vp, "pp": layout.pp},
            first_that_hold(context, [{"layout.vp": None}, {"layout.pp": 2}]),
        )


@rule(
    "optimizer/instances-divide-dp",
    source=f"{_PARALLEL_STATE} initialize_model_parallel",
    frameworks=("megatron",),
)
def instances_divide_dp(context: RuleContext) -> Iterator[Violation]:
    """Distributed optimizer instances divide dp · cp, and edp."""
    layout = context.layout
    common = max(math.gcd(layout.dp * layout.cp, layout.edp), 1)
    for name, ranks in (("dp × cp", layout.dp * layout.cp), ("expert dp", layout.edp)):
        if layout.instances > 1 and ranks > 0 and ranks % layout.instances:
            yield Violation(
                "layout.distributed_optimizer_instances",
                f"{layout.instances} distributed optimizer instances do not divide {name} = {ranks}.",
                {"instances": layout.instances, name.replace(" × ", "_").replace(" ", "_"): ranks},
                degree_of(context, "distributed_optimizer_instances", common, layout.instances),
            )
            return


@rule("cp/hierarchical-sizes", source=f"{_PARALLEL_STATE} create_hierarchical_groups")
def hierarchical_sizes(context: RuleContext) -> Iterator[Violation]:
    """The sizes of hierarchical context parallelism multiply to cp."""
    layout = context.layout
    sizes = layout.hierarchical_cp
    if sizes and (min(sizes) < 1 or math.prod(sizes) != layout.cp):
        exact = math.prod(sizes)
        product = exact if abs(exact) < _PRINTED else "a number too long to print"
        yield Violation(
            "layout.hierarchical_cp",
            f"hierarchical_cp {shown_list(sizes)} multiplies to {product}, cp is {layout.cp}.",
            {"product": product, "cp": layout.cp},
            _hierarchy(layout.cp, sizes[0]),
        )


def _hierarchy(cp: int, inner: int) -> str:
    """Return two sizes that multiply to cp, the inner one as near to the given as can be."""
    whole = [one for one in divisors(cp) if 1 < one < cp] if cp > 1 else []
    if not whole:
        return "leave hierarchical_cp out"
    first = min(whole, key=lambda one: abs(one - inner))
    return f"hierarchical_cp: [{first}, {cp // first}]"


@rule(
    "cp/hybrid-sizes",
    source=f"{_PARALLEL_STATE} create_hybrid_dp_cp_groups",
    frameworks=("megatron",),
)
def hybrid_even(context: RuleContext) -> Iterator[Violation]:
    """Hybrid context parallelism needs an even number of ranks in dp × cp."""
    layout = context.layout
    ranks = layout.dp * layout.cp
    if not layout.hybrid_context_parallel or ranks < 1 or ranks % 2 == 0:
        return
    yield Violation(
        "layout.hybrid_context_parallel",
        f"hybrid_context_parallel over dp × cp = {ranks}: Megatron asserts an even number of ranks.",
        {"ranks": ranks},
        f"dp × cp of {1 << max(ranks.bit_length() - 1, 1)}, or hybrid_context_parallel: false",
    )


@rule(
    "cp/hybrid-slices-uneven",
    source=f"{_PARALLEL_STATE} create_hybrid_dp_cp_groups",
    severity=Severity.WARNING,
    frameworks=("megatron",),
)
def hybrid_slices_uneven(context: RuleContext) -> Iterator[Violation]:
    """Hybrid context parallelism leaves one group shorter than the others of its size."""
    layout = context.layout
    ranks = layout.dp * layout.cp
    uneven = hybrid_sizes(ranks)[1] if layout.hybrid_context_parallel and ranks > 0 else []
    if ranks % 2 == 0 and uneven:
        yield Violation(
            "layout.hybrid_context_parallel",
            f"hybrid_context_parallel over dp × cp = {ranks}: the last group of size {shown_list(uneven)} "
            "is shorter. Groups of such a size are not listed.",
            {"ranks": ranks, "sizes": uneven},
            f"dp × cp of {1 << (ranks.bit_length() - 1)}, where every size cuts evenly",
        )


MEGATRON_RULES: tuple[Rule, ...] = (
    world_divides_expert,
    expert_dp_equals_dp,
    pipeline_groups_equal,
    vp_needs_pp,
    instances_divide_dp,
    hierarchical_sizes,
    hybrid_even,
    hybrid_slices_uneven,
)
"""Rules of Megatron-Core (hierarchical sizes: of every framework)."""
