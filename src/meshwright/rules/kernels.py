"""Rules of dispatchers and kernels, with the version they were read in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from meshwright.findings import Severity
from meshwright.rules.arithmetic import divisors
from meshwright.rules.registry import Hardware, Rule, RuleContext, Violation, rule
from meshwright.rules.remedies import degree, degree_of

_DEEPEP = (
    "deepseek-ai/DeepEP csrc/legacy/buffer.hpp, csrc/kernels/configs.cuh; deepseek-ai/DeepEP#464"
)
_VERSIONS = "DeepEP's legacy buffer, normal mode; not its elastic buffer, nor low-latency mode"
NVL_PEERS = 8
"""``NUM_MAX_NVL_PEERS``."""
RDMA_PEERS = 20
"""``NUM_MAX_RDMA_PEERS``."""
RDMA_RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 18, 20)
"""Numbers of RDMA ranks (ep / 8) that kernels were seen to be compiled for (``SWITCH_RDMA_RANKS``)."""
INSIDE_HOST = 8
"""Up to this ep inside one host plain all-to-all or all-gather wins (NVIDIA/Megatron-LM#1456)."""


def _ep_of_deepep(context: RuleContext) -> int | None:
    """Return ep where DeepEP's legacy buffer in normal mode dispatches."""
    moe = context.moe
    mode, buffer = getattr(moe, "deepep_mode", None), getattr(moe, "deepep_buffer", None)
    if moe.dispatcher != "deepep" or mode == "low_latency" or buffer == "elastic":
        return None
    # Megatron's flex dispatcher runs over etp and ep together (EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP).
    etp = context.layout.etp if context.layout.framework == "megatron" else 1
    return context.layout.ep * max(etp, 1)


def _ep_of_ranks(context: RuleContext, ranks: Iterable[int], most: int = 4) -> str:
    """Return ep that make expert groups of one of these sizes."""
    layout = context.layout
    etp = max(layout.etp, 1) if layout.framework == "megatron" else 1
    return degree(context, "ep", [one // etp for one in ranks if one % etp == 0], layout.ep, most)


@rule("dispatcher/deepep-peers", source=_DEEPEP, versions=_VERSIONS)
def deepep_peers(context: RuleContext) -> Iterator[Violation]:
    """An expert group of DeepEP has at most 8 × 20 ranks."""
    ranks, most = _ep_of_deepep(context), NVL_PEERS * RDMA_PEERS
    if ranks is not None and ranks > most:
        yield Violation(
            "layout.ep",
            f"an expert group of {ranks} ranks: DeepEP's legacy buffer in normal mode takes {NVL_PEERS} NVLink × "
            f"{RDMA_PEERS} RDMA peers = {most} ranks a group (the group, not the job). The elastic buffer and the "
            "low-latency mode have no such limit.",
            {"ep": ranks, "limit": most, "nvl_peers": NVL_PEERS, "rdma_peers": RDMA_PEERS},
            f"{_ep_of_ranks(context, [NVL_PEERS * one for one in RDMA_RANKS])}, or DeepEP's elastic buffer",
        )


@rule("dispatcher/deepep-whole-hosts", source=_DEEPEP, versions=_VERSIONS)
def deepep_whole_hosts(context: RuleContext) -> Iterator[Violation]:
    """An expert group of DeepEP is smaller than 8, or a multiple of 8."""
    ranks = _ep_of_deepep(context)
    if ranks is not None and ranks > NVL_PEERS and ranks % NVL_PEERS:
        yield Violation(
            "layout.ep",
            f"an expert group of {ranks} ranks is no multiple of {NVL_PEERS} NVLink peers.",
            {"ep": ranks, "nvl_peers": NVL_PEERS, "remainder": ranks % NVL_PEERS},
            _ep_of_ranks(context, range(NVL_PEERS, NVL_PEERS * (RDMA_PEERS + 1), NVL_PEERS), 2),
        )


@rule(
    "dispatcher/deepep-compiled",
    source=f"{_DEEPEP} (csrc/kernels/launch.cuh SWITCH_RDMA_RANKS)",
    severity=Severity.WARNING,
    versions=_VERSIONS,
)
def deepep_compiled(context: RuleContext) -> Iterator[Violation]:
    """DeepEP's kernels are compiled for some numbers of RDMA ranks only."""
    ranks = _ep_of_deepep(context)
    if ranks is None or ranks <= NVL_PEERS or ranks % NVL_PEERS or ranks > NVL_PEERS * RDMA_PEERS:
        return
    rdma = ranks // NVL_PEERS
    if rdma not in RDMA_RANKS:
        yield Violation(
            "layout.ep",
            f"{ranks} ranks are {rdma} RDMA ranks of {NVL_PEERS}; kernels were seen compiled for "
            f"{', '.join(map(str, RDMA_RANKS[1:]))} (it differs by version).",
            {"ep": ranks, "rdma_ranks": rdma},
            f"{_ep_of_ranks(context, [NVL_PEERS * one for one in RDMA_RANKS], 2)}, or add the case to "
            "csrc/kernels/launch.cuh",
        )


def _inside_host(context: RuleContext) -> bool | None:
    """Tell whether every ep group lies in one host; ``None`` where that is not known."""
    hardware, layout = context.hardware, context.layout
    if hardware is None:
        return None
    if "ep" in hardware.hosts_of_axis:
        return hardware.hosts_of_axis["ep"] == 1
    if hardware.gpus_per_host is not None and layout.ep > hardware.gpus_per_host:
        return False
    return None


@rule(
    "dispatcher/inside-host",
    source="NVIDIA/Megatron-LM#1456",
    severity=Severity.WARNING,
)
def dispatcher_inside_host(context: RuleContext) -> Iterator[Violation]:
    """A dispatcher made for many hosts is slower inside one."""
    layout, given = context.layout, context.moe.dispatcher
    if given not in ("deepep", "hybridep") or layout.ep <= 1 or not _inside_host(context):
        return
    if layout.ep <= INSIDE_HOST:
        yield Violation(
            "moe.dispatcher",
            f"dispatcher {given} with ep {layout.ep} inside one host: for ep up to {INSIDE_HOST} in a host "
            "all-to-all or all-gather is quicker; the specialised one pays with large top-k and ep over hosts.",
            {
                "dispatcher": given,
                "ep": layout.ep,
                "ep_inside_one_host": True,
                "choice": ["alltoall", "allgather"],
            },
            "moe: {dispatcher: alltoall}",
        )


@rule(
    "dispatcher/choice",
    source="NVIDIA/Megatron-LM#1456",
    severity=Severity.NOTE,
    frameworks=("megatron",),
)
def dispatcher_choice(context: RuleContext) -> Iterator[Violation]:
    """Which dispatcher suits where the job names none."""
    model, layout, inside = context.model, context.layout, _inside_host(context)
    if model is None or not model.is_moe or layout.ep <= 1 or inside is None:
        return
    if context.moe.dispatcher is not None:
        return
    near = inside and layout.ep <= INSIDE_HOST
    choice = ["alltoall", "allgather"] if near else ["deepep", "hybridep", "alltoall"]
    where = "inside one host" if inside else "over several hosts"
    why = (
        "all-to-all or all-gather is quicker there; a specialised dispatcher pays over hosts"
        if near
        else f"a specialised dispatcher sends a token once to each host (top-k {model.top_k}), all-to-all once "
        "to each expert"
    )
    yield Violation(
        "moe.dispatcher",
        f"no dispatcher named; ep {layout.ep} lies {where}: {why}.",
        {
            "ep": layout.ep,
            "top_k": model.top_k,
            "ep_inside_one_host": bool(inside),
            "choice": choice,
        },
        f"moe: {{dispatcher: {choice[0]}}}",
    )


@rule(
    "dispatcher/pad-to-capacity",
    source="NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py",
    frameworks=("megatron",),
)
def pad_to_capacity(context: RuleContext) -> Iterator[Violation]:
    """Padding to capacity needs a capacity, and a dispatcher that pads."""
    moe = context.moe
    if not moe.pad_to_capacity:
        return
    if moe.capacity_factor is None:
        yield Violation(
            "moe.pad_to_capacity",
            "pad_to_capacity without capacity_factor: there is no capacity to pad to.",
            {"pad_to_capacity": True},
            "moe: {capacity_factor: 1.0}",
        )
    if moe.dispatcher == "deepep":
        yield Violation(
            "moe.pad_to_capacity",
            "pad_to_capacity with deepep: the flex dispatcher refuses it.",
            {"dispatcher": "deepep"},
            "pad_to_capacity: false, or dispatcher: alltoall",
        )


@rule(
    "dispatcher/shared-overlap",
    source="NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py",
    frameworks=("megatron",),
)
def shared_overlap(context: RuleContext) -> Iterator[Violation]:
    """Only the all-to-all dispatcher runs shared experts beside dispatch."""
    moe = context.moe
    if moe.overlap == "shared_expert" and moe.dispatcher not in (None, "alltoall"):
        yield Violation(
            "moe.overlap",
            f"overlap shared_expert with dispatcher {moe.dispatcher}: only alltoall has it.",
            {"dispatcher": moe.dispatcher},
            "dispatcher: alltoall, or overlap: none",
        )


@rule(
    "placement/tp-exceeds-nvlink-domain",
    source="tensor parallelism sends every layer's activations; traffic/tensor.py",
    severity=Severity.WARNING,
)
def tp_exceeds_domain(context: RuleContext) -> Iterator[Violation]:
    """A tensor-parallel group fits into one NVLink domain (or host without NVLink)."""
    hardware, tp = context.hardware, context.layout.tp
    if hardware is None or hardware.domain_gpus is None or tp <= hardware.domain_gpus:
        return
    domain = hardware.domain_gpus
    inside = [
        one for one in divisors(context.model.heads if context.model else tp) if one <= domain
    ]
    yield Violation(
        "layout.tp",
        f"tp {tp} exceeds the {domain} GPUs of an NVLink domain or host: every layer's activations go over "
        "the network. map shows what that costs.",
        {"tp": tp, "domain_gpus": domain},
        f"{degree(context, 'tp', inside, tp, 2)}, and pp or dp for the other ranks",
    )


@rule(
    "placement/tp-group-apart",
    source="traffic/tensor.py; routes/spans.py",
    severity=Severity.WARNING,
)
def tp_group_apart(context: RuleContext) -> Iterator[Violation]:
    """Tensor-parallel groups that would fit into one NVLink domain lie in several."""
    hardware, layout = context.hardware, context.layout
    if hardware is None or hardware.domain_gpus is None or layout.tp > hardware.domain_gpus:
        return
    islands = hardware.islands_of_axis.get("tp", 1)
    if islands > 1:
        yield Violation(
            "layout.order" if "order" not in layout.assumed else "layout.tp",
            f"some tp group of {layout.tp} ranks lies in {islands} NVLink domains or hosts, though one holds "
            f"{hardware.domain_gpus} GPUs. map shows what that costs.",
            {"tp": layout.tp, "islands": islands, "domain_gpus": hardware.domain_gpus},
            _together_remedy(context, hardware),
        )


def _together_remedy(context: RuleContext, hardware: Hardware) -> str:
    """Return an order with tp first, or where it is first a tp that divides a host."""
    layout = context.layout
    if layout.order and layout.order[0] != "tp":
        rest = [axis for axis in ("cp", "ep", "dp", "pp") if axis in layout.order]
        return f"order: {'-'.join(['tp', *rest])}, with tp as the fastest axis"
    if not hardware.gpus_per_host or hardware.gpus_per_host % layout.tp == 0:
        return "ranks of a group on one host (placement: hosts or ranks)"
    return degree_of(context, "tp", hardware.gpus_per_host, layout.tp)


KERNEL_RULES: tuple[Rule, ...] = (
    deepep_peers,
    deepep_whole_hosts,
    deepep_compiled,
    dispatcher_inside_host,
    dispatcher_choice,
    pad_to_capacity,
    shared_overlap,
    tp_exceeds_domain,
    tp_group_apart,
)
"""Rules of dispatchers, kernels and what must stay inside an NVLink domain."""
