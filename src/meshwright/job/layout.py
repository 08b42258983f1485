"""The layout of a job: degrees, order, sharding, with every default made explicit.

``resolve_layout`` fills in what follows from the rest and remembers what was assumed. It judges
nothing: a degree that cannot be derived is 0 and ``rules/grid.py`` says why.
"""

from __future__ import annotations

import math

import msgspec

from meshwright.job.sections import LayoutSection

MEGATRON_ORDER = ("tp", "cp", "ep", "dp", "pp")
"""Default order of Megatron-Core, fastest axis first (``parallel_state.py``)."""
TORCHTITAN_ORDER = ("tp", "cp", "dp", "pp")
"""Order of torchtitan's mesh, fastest first (``distributed/parallel_dims.py``)."""
ASSUMED_VERSION = {
    "megatron": "megatron-core 0.16.1",
    "torch": "torch 2.13",
    "torchtitan": "torchtitan b5bcd76c",
    "deepspeed": "DeepSpeed edaa7221",
    "nanotron": "nanotron 2411b022",
    "maxtext": "MaxText e591f30c",
}
"""Version whose rules are applied, whatever the job names (a note says so where it differs)."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved layout. ``world_size`` ranks on two grids of equal size.

    The dense grid has axes tp, cp, dp, pp; the expert grid etp, ep, edp, pp. ``dp`` and ``edp``
    are 0 when the world size does not divide. ``order`` names axes fastest first, without the
    axes of degree 1 that the user left out. ``assumed`` holds the keys that were left out.
    """

    world_size: int
    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int
    edp: int
    vp: int
    order: tuple[str, ...]
    framework: str
    framework_version: str
    sequence_parallel: bool
    sharding: str
    shard_degree: int
    instances: int
    hierarchical_cp: tuple[int, ...]
    stages: tuple[int, ...] | None
    first_stage_layers: int | None
    last_stage_layers: int | None
    assumed: frozenset[str]

    @property
    def dp_shard(self) -> int:
        """Ranks that share one copy of the sharded state along dp."""
        return self.shard_degree

    @property
    def dp_replicate(self) -> int:
        """Copies of the sharded state along dp (0 when the degree does not divide)."""
        return self.dp // self.shard_degree if self.shard_degree > 0 else 0

    @property
    def has_experts(self) -> bool:
        """Tell whether an expert grid differs from the dense one."""
        return self.ep > 1 or self.etp != self.tp


def resolve_layout(section: LayoutSection, slots: int | None) -> Layout:
    """Return the layout with every default filled in.

    ``slots`` is the number of GPUs of the cluster (``None`` without one). The world size is, in
    this order: ``world_size``, the product of the degrees when ``dp`` is given, all slots. One
    degree left out follows from the world size.
    """
    degrees = {name: getattr(section, name) for name in ("tp", "cp", "pp", "dp")}
    world_size = section.world_size
    if world_size is None and degrees["dp"] is not None:
        world_size = math.prod(value if value is not None else 1 for value in degrees.values())
    if world_size is None:
        world_size = slots if slots is not None else _product_without_dp(section)
    _derive(degrees, world_size)
    tp, cp, pp, dp = (degrees[name] or 0 for name in ("tp", "cp", "pp", "dp"))
    ep = 1 if section.ep is None else section.ep
    framework = section.framework or "megatron"
    etp = _expert_tp(section, tp, framework)
    expert_block = etp * ep * pp
    edp = world_size // expert_block if expert_block > 0 and world_size % expert_block == 0 else 0
    sharding = section.sharding or "none"
    return Layout(
        world_size=world_size,
        tp=tp,
        cp=cp,
        pp=pp,
        dp=dp,
        ep=ep,
        etp=etp,
        edp=edp,
        vp=1 if section.vp is None else section.vp,
        order=_order(section, framework),
        framework=framework,
        framework_version=ASSUMED_VERSION[framework],
        sequence_parallel=bool(section.sequence_parallel),
        sharding=sharding,
        shard_degree=_shard_degree(section, sharding, dp),
        instances=_or(section.distributed_optimizer_instances, 1),
        hierarchical_cp=section.hierarchical_cp or (),
        stages=section.stages,
        first_stage_layers=section.first_stage_layers,
        last_stage_layers=section.last_stage_layers,
        assumed=frozenset(
            name for name in section.__struct_fields__ if getattr(section, name) is None
        ),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _product_without_dp(section: LayoutSection) -> int:
    """Return the smallest world the degrees allow: experts may need more ranks than tp·cp·pp."""
    dense = math.prod(_or(value, 1) for value in (section.tp, section.cp, section.pp))
    etp = _or(section.etp, _or(section.tp, 1))
    expert = math.prod((etp, _or(section.ep, 1), _or(section.pp, 1)))
    return math.lcm(dense, expert) if dense > 0 and expert > 0 else 0


def _derive(degrees: dict[str, int | None], world_size: int) -> None:
    """Fill in the one degree left out (dp first); what does not divide becomes 0."""
    given = math.prod(value for value in degrees.values() if value is not None)
    left_out = [name for name, value in degrees.items() if value is None]
    wanted = "dp" if "dp" in left_out else None
    if wanted is None and len(left_out) == 1 and given != world_size:
        wanted = left_out[0]
    for name in left_out:
        degrees[name] = 1
    if wanted is not None:
        divides = given > 0 and world_size > 0 and world_size % given == 0
        degrees[wanted] = world_size // given if divides else 0


def _expert_tp(section: LayoutSection, tp: int, framework: str) -> int:
    if section.etp is not None:
        return section.etp
    # Megatron-Core: etp defaults to tp; torchtitan removed etp, experts are not tensor-sharded.
    return tp if framework == "megatron" else 1


def _order(section: LayoutSection, framework: str) -> tuple[str, ...]:
    if section.order is not None:
        return tuple(token.strip() for token in section.order.split("-"))
    return MEGATRON_ORDER if framework == "megatron" else TORCHTITAN_ORDER


def _shard_degree(section: LayoutSection, sharding: str, dp: int) -> int:
    if section.shard_degree is not None:
        return section.shard_degree
    return 1 if sharding == "none" else dp
