"""Rules of the rank grid itself: may these degrees form these groups at all?

Each stands for one error of the original code, so that the user reads the very reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.findings import Finding, Severity
from meshwright.groups.megatron import decoder_grid, expert_grid, hybrid_sizes
from meshwright.job.layout import Layout
from meshwright.rules.arithmetic import nearest_divisors, shown_list
from meshwright.rules.deepspeed import DEEPSPEED_RULES
from meshwright.rules.maxtext import MAXTEXT_RULES
from meshwright.rules.mesh import MESH_RULES
from meshwright.rules.nanotron import NANOTRON_RULES
from meshwright.rules.registry import Rule, RuleContext, Violation, rule

_PARALLEL_STATE = "NVIDIA/Megatron-LM megatron/core/parallel_state.py"
_DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp", "vp")
_AXES = {"tp", "cp", "ep", "dp", "pp"}
_PRINTED = 1 << 64
MOST_RANKS = 1 << 24
"""Largest world whose groups are listed: far above any cluster, and still a small array."""


_OF_FRAMEWORK = {
    "hybrid_context_parallel": ("megatron",),
    "hierarchical_cp": ("megatron",),
    "distributed_optimizer_instances": ("megatron",),
    "zero_hpz_partition_size": ("deepspeed",),
    "use_data_before_expert_parallel": ("deepspeed",),
    "mp_mode": ("deepspeed",),
    "ici": ("maxtext",),
    "dcn": ("maxtext",),
    "num_slices": ("maxtext",),
    "device_order": ("maxtext",),
}
"""Keys of the layout that one framework alone reads."""


@rule("framework/key-without-effect", source="job/layout.py", severity=Severity.NOTE)
def key_without_effect(context: RuleContext) -> Iterator[Violation]:
    """A key of another framework changes nothing."""
    layout = context.layout
    for key, frameworks in _OF_FRAMEWORK.items():
        if key not in layout.assumed and layout.framework not in frameworks:
            yield Violation(
                f"layout.{key}",
                f"{key} is a key of {frameworks[0]}; with framework {layout.framework} it changes nothing.",
                {"key": key, "framework": layout.framework},
                f"leave {key} out",
            )


@rule("layout/degree-positive", source="every framework")
def degree_positive(context: RuleContext) -> Iterator[Violation]:
    """Every degree is at least 1."""
    layout = context.layout
    given = [name for name in _DEGREES if name not in layout.assumed]
    values = {name: getattr(layout, name) for name in given}
    values["distributed_optimizer_instances"] = layout.instances
    wrong = {name: value for name, value in values.items() if value < 1}
    # A world size nobody gave is wrong because of a degree, or because the cluster is empty.
    if layout.world_size < 1 and ("world_size" not in layout.assumed or not wrong):
        wrong["world_size"] = layout.world_size
    for name, value in wrong.items():
        yield Violation(
            f"layout.{name}",
            f"{name} is {value}; a degree counts ranks and is at least 1.",
            {name: value},
            f"{name}: 1, or leave the key out",
        )


@rule("grid/world-too-large", source="a rank is one GPU")
def world_too_large(context: RuleContext) -> Iterator[Violation]:
    """Groups are listed up to 16,777,216 ranks."""
    world_size = context.layout.world_size
    if world_size > MOST_RANKS:
        yield Violation(
            "layout.world_size" if "world_size" not in context.layout.assumed else "layout",
            f"{world_size} ranks: groups are listed up to {MOST_RANKS} ranks.",
            {"world_size": world_size, "most": MOST_RANKS},
            f"world_size: {MOST_RANKS} or less",
        )


@rule("grid/order-axes", source=f"{_PARALLEL_STATE} RankGenerator.__init__")
def order_axes(context: RuleContext) -> Iterator[Violation]:
    """The order string names known axes, each once."""
    order = context.layout.order
    unknown = [token for token in order if token not in _AXES]
    twice = sorted({token for token in order if order.count(token) > 1})
    if unknown or twice:
        what = [f"unknown axis {token!r}" for token in unknown]
        what += [f"axis {token!r} named twice" for token in twice]
        yield Violation(
            "layout.order",
            f"order {'-'.join(order)}: {', '.join(what)}.",
            {"order": "-".join(order)},
            "order: tp-cp-ep-dp-pp (each axis once, the fastest first)",
        )


@rule("grid/order-missing-axis", source=f"{_PARALLEL_STATE} RankGenerator.__init__")
def order_missing_axis(context: RuleContext) -> Iterator[Violation]:
    """An axis of more than one rank must stand in the order string."""
    layout = context.layout
    if layout.framework == "maxtext":
        return  # its mesh has an order of its own, and no string
    needed = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    if layout.framework == "megatron":  # elsewhere experts live on a mesh of their own
        needed["ep"] = layout.ep
        if "framework" not in layout.assumed or layout.has_experts:
            # One order string serves both grids: dp is also the place of edp, tp that of etp.
            # Where nobody named Megatron and there are no experts, only the dense grid counts.
            needed |= {"tp": max(layout.tp, layout.etp), "dp": max(layout.dp, layout.edp)}
    for axis, degree in needed.items():
        if axis not in layout.order and degree > 1:
            of = " of experts" if degree != getattr(layout, axis) else ""
            yield Violation(
                "layout.order",
                f"{axis}{of} has {degree} ranks a group but order {'-'.join(layout.order)} "
                "does not name it.",
                {"axis": axis, "degree": degree, "order": "-".join(layout.order)},
                f"order: {_with_axis(layout.order, axis)}, or the place where {axis} belongs",
            )


def _with_axis(order: tuple[str, ...], axis: str) -> str:
    """Return the order with an axis added: last, but before a closing pp."""
    tail = order[-1:] if order[-1:] == ("pp",) else ()
    return "-".join((*order[: len(order) - len(tail)], axis, *tail))


@rule("grid/world-divides", source=f"{_PARALLEL_STATE} initialize_model_parallel")
def world_divides(context: RuleContext) -> Iterator[Violation]:
    """The world size is a multiple of tp · pp · cp (of the degrees given, with dp given)."""
    layout = context.layout
    block = layout.tp * layout.cp * layout.pp
    if layout.world_size < 1 or _has_axes(layout):
        return
    if "dp" not in layout.assumed:
        yield from _derived_degree(layout)
        return
    if layout.dp > 0 or block < 1:
        return
    numbers = {"world_size": layout.world_size, "tp": layout.tp, "cp": layout.cp, "pp": layout.pp}
    if block == 1 or layout.world_size % block == 0:
        return
    rest = layout.world_size % block
    widest = max(("tp", "cp", "pp"), key=lambda name: getattr(layout, name))
    others = block // getattr(layout, widest)
    nearest = max(block, layout.world_size // block * block)
    remedy = f"a world size of {nearest} or {nearest + block}"
    if layout.world_size % others == 0:
        room = layout.world_size // others
        remedy = f"{widest}: {nearest_divisors(room, getattr(layout, widest))}; or {remedy}"
    yield Violation(
        f"layout.{widest}",
        f"world size {layout.world_size} is not divisible by tp {layout.tp} × cp {layout.cp} × "
        f"pp {layout.pp} = {block} ({layout.world_size} = {layout.world_size // block} × {block} + {rest}).",
        numbers | {"remainder": rest},
        remedy,
    )


def _has_axes(layout: Layout) -> bool:
    """Tell whether the degrees follow from mesh axes, whose own rules speak then."""
    return layout.jax_mesh is not None and layout.jax_mesh.given


def _derived_degree(layout: Layout) -> Iterator[Violation]:
    """Say why the degree left out beside a given dp (0 then) cannot be derived."""
    degrees = {name: getattr(layout, name) for name in ("tp", "cp", "pp", "dp")}
    given = {name: value for name, value in degrees.items() if name not in layout.assumed}
    block = math.prod(given.values())
    missing = next((name for name, value in degrees.items() if not value), None)
    if missing is None or missing in given or min(given.values()) < 1:
        return
    listed = " × ".join(f"{name} {value}" for name, value in given.items())
    nearest = max(block, layout.world_size // block * block)
    yield Violation(
        "layout.world_size",
        f"world size {layout.world_size} is not divisible by {listed} = {block}, so {missing} does "
        "not follow.",
        {"world_size": layout.world_size, **given, "remainder": layout.world_size % block},
        f"world_size: {nearest} or {nearest + block}",
    )


@rule("grid/world-product", source="rank = mixed-radix number over tp, cp, dp, pp")
def world_product(context: RuleContext) -> Iterator[Violation]:
    """The degrees given multiply to the world size given."""
    layout = context.layout
    product = layout.tp * layout.cp * layout.pp * layout.dp
    if min(layout.dp, product, layout.world_size) < 1 or product == layout.world_size:
        return
    if _has_axes(layout):
        return
    block = layout.tp * layout.cp * layout.pp
    fits = layout.world_size % block == 0
    yield Violation(
        "layout.dp" if "dp" not in layout.assumed else "layout.world_size",
        f"tp {layout.tp} × cp {layout.cp} × pp {layout.pp} × dp {layout.dp} = {product} ranks, "
        f"but the world size is {layout.world_size}.",
        {"product": product, "world_size": layout.world_size},
        f"dp: {layout.world_size // block}" if fits else f"world_size: {product}",
    )


def _fills_world(layout: Layout) -> bool:
    """Tell whether the dense degrees make the world: else a rule above has said why."""
    sizes = (layout.tp, layout.cp, layout.dp, layout.pp)
    return min(sizes) > 0 and math.prod(sizes) == layout.world_size


@rule("grid/world-fits-cluster", source="one rank a GPU")
def world_fits_cluster(context: RuleContext) -> Iterator[Violation]:
    """The cluster has a GPU for every rank."""
    layout, slots = context.layout, context.slots
    if slots is not None and layout.world_size > slots:
        block = layout.tp * layout.cp * layout.pp
        room = slots // block if block > 0 else 0
        change = {"world_size": room * block, "dp": room}
        keys = [f"{key}: {value}" for key, value in change.items() if key not in layout.assumed]
        smaller = " and ".join(keys) + ", or " if keys and room > 0 else ""
        yield Violation(
            "layout.world_size" if "world_size" not in layout.assumed else "cluster",
            f"{layout.world_size} ranks need as many GPUs; the cluster has {slots}.",
            {"world_size": layout.world_size, "gpus": slots},
            f"{smaller}a smaller layout, or more hosts",
        )


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
        remedy = f"ep: {nearest_divisors(layout.world_size // others, layout.ep)}"
        alone = layout.world_size % (layout.ep * layout.pp) == 0
        remedy += "; or etp: 1" if layout.etp > 1 and alone else ""
    elif layout.world_size % (layout.ep * layout.pp) == 0:
        room = layout.world_size // (layout.ep * layout.pp)
        remedy = f"etp: {nearest_divisors(room, layout.etp)}"
    else:
        remedy = "ep: 1 and etp: 1"
    dense = layout.tp * layout.cp * layout.pp
    both = math.lcm(dense, block)
    fitting = layout.world_size // both * both if both > 0 else 0
    if fitting > 0 and "world_size" in layout.assumed and "dp" in layout.assumed:
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
    if layout.edp < 1 or layout.edp == layout.dp or not _fills_world(layout):
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
    if layout.pp <= 1 or layout.edp < 1 or not _fills_world(layout):
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
            "leave vp out, or pp: 2",
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
                f"distributed_optimizer_instances: {nearest_divisors(common, layout.instances)}",
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
            f"sizes with a product of {layout.cp}",
        )


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


GRID_RULES: tuple[Rule, ...] = (
    key_without_effect,
    degree_positive,
    world_too_large,
    order_axes,
    order_missing_axis,
    world_divides,
    world_product,
    world_fits_cluster,
    world_divides_expert,
    expert_dp_equals_dp,
    pipeline_groups_equal,
    vp_needs_pp,
    instances_divide_dp,
    hierarchical_sizes,
    hybrid_even,
    hybrid_slices_uneven,
    *MESH_RULES,
    *DEEPSPEED_RULES,
    *NANOTRON_RULES,
    *MAXTEXT_RULES,
)
"""Rules that need nothing but the layout (and the number of GPUs)."""


_WITHOUT_DEGREES = (key_without_effect, degree_positive, world_too_large, order_axes)
"""Rules that can speak where a degree is no degree: products and divisions would only echo it."""


def check_grid(context: RuleContext) -> list[Finding]:
    """Return all findings of the grid rules; the groups exist only when none is an error."""
    findings: list[Finding] = []
    counted = not any(degree_positive.check(context))
    for one in GRID_RULES if counted else _WITHOUT_DEGREES:
        if one.applies_to(context.layout):
            findings += one.findings(context)
    return findings


def is_legal(context: RuleContext) -> bool:
    """Tell whether no grid rule gives an error."""
    return not any(finding.severity is Severity.ERROR for finding in check_grid(context))
