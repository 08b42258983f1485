"""The layout of a job: degrees, order, sharding, with every default made explicit.

``resolve_layout`` fills in what follows from the rest and remembers what was assumed. It judges
nothing: a degree that cannot be derived is 0 and ``rules/world.py`` says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from meshwright.job.jax_mesh import JaxMesh, least_world, mesh_of_axes, mesh_of_degrees
from meshwright.job.sections import LayoutSection

MEGATRON_ORDER = ("tp", "cp", "ep", "dp", "pp")
"""Default order of Megatron-Core, fastest axis first (``parallel_state.py``)."""
TORCHTITAN_ORDER = ("tp", "cp", "dp", "pp")
"""Order of torchtitan's mesh, fastest first (``distributed/parallel_dims.py``); DeepSpeed's
topologies (pipe, data, model) and nanotron's array (ep, pp, dp, cp, tp) have the same."""
MAXTEXT_ORDER = ("ep", "tp", "cp", "dp", "pp")
"""MaxText's mesh in our words, fastest first: expert, tensor, context, fsdp, stage, then data."""
ASSUMED_VERSION = {
    "megatron": "megatron-core 0.16.1",
    "torch": "torch 2.13",
    "torchtitan": "torchtitan b5bcd76c",
    "deepspeed": "DeepSpeed edaa7221",
    "nanotron": "nanotron 2411b022",
    "maxtext": "MaxText e591f30c",
}
"""Version whose rules are applied, whatever the job names (a note says so where it differs)."""
OTHER_VERSIONS = {"megatron": ("Megatron-LM main d98e8a64",)}
"""Versions whose rules are applied where the job names them: by the whole text or its last word."""
FSDP1_WORDS = {
    "NO_SHARD": "none",
    "SHARD_GRAD_OP": "zero2",
    "FULL_SHARD": "fsdp",
    "HYBRID_SHARD": "hsdp",
    "_HYBRID_SHARD_ZERO2": "hsdp",
}
"""What torch FSDP1's ``ShardingStrategy`` words mean here."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved layout. ``world_size`` ranks on two grids of equal size.

    The dense grid has axes tp, cp, dp, pp; the expert grid etp, ep, edp, pp. ``dp`` and ``edp``
    are 0 when the world size does not divide. ``order`` names axes fastest first, without the
    axes of degree 1 that the user left out. ``assumed`` holds the keys that were left out.
    ``fsdp1`` is the FSDP1 word that was given for ``sharding``; ``jax_mesh`` is MaxText's mesh, and
    ``device_order[position]`` the rank at a position of it (row-major), where the job gives it.
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
    hybrid_context_parallel: bool = False
    zero_hpz_partition_size: int = 1
    use_data_before_expert_parallel: bool = False
    mp_mode: str | None = None
    fsdp1: str | None = None
    jax_mesh: JaxMesh | None = None
    device_order: tuple[int, ...] | None = None

    @property
    def dp_shard(self) -> int:
        """Ranks that share one copy of the sharded state along dp."""
        return self.shard_degree

    @property
    def dp_replicate(self) -> int:
        """Copies of the sharded state along dp (0 when the degree does not divide)."""
        return self.replicas // self.shard_degree if self.shard_degree > 0 else 0

    @property
    def replicas(self) -> int:
        """Ranks over which a sharded state may be cut: dp, with cp in Megatron (its dp-cp groups)."""
        with_cp = self.framework == "megatron" and self.sharding == "hsdp"
        return self.dp * self.cp if with_cp else self.dp

    @property
    def has_experts(self) -> bool:
        """Tell whether an expert grid differs from the dense one."""
        return self.ep > 1 or ("etp" not in self.assumed and self.etp != self.tp)


def resolve_layout(
    section: LayoutSection,
    slots: int | None,
    gpus_per_host: int | None = None,
    chunks: int = 1,
) -> Layout:
    """Return the layout with every default filled in.

    ``slots`` is the number of GPUs of the cluster (``None`` without one). The world size is, in
    this order: ``world_size``, the product of the degrees when ``dp`` is given, all slots. One
    degree left out follows from the world size. ``gpus_per_host`` (``None`` where hosts differ or
    there are none) is the shard degree of FSDP1's HYBRID_SHARD; ``chunks`` is ``vp`` where it is left
    out (``schedules/left_out.py``).
    """
    framework = section.framework or "megatron"
    degrees: dict[str, int | None] = {
        name: getattr(section, name) for name in ("tp", "cp", "pp", "dp")
    }
    world_size = _world_size(section, degrees, slots)
    mesh = None
    if framework == "maxtext" and (section.ici is not None or section.dcn is not None):
        mesh = mesh_of_axes(section, world_size)
        # a degree given beside the axes is kept: a rule compares the two
        degrees = {n: mesh.degree(n) if given is None else given for n, given in degrees.items()}
    _derive(degrees, world_size)
    known = {name: degrees[name] or 0 for name in degrees}
    known["ep"] = _or(section.ep, mesh.degree("ep") if mesh is not None else 1)
    sharding, shard_degree = _sharding(section, mesh, (known["dp"], known["cp"]), gpus_per_host)
    if framework == "maxtext" and mesh is None:
        mesh = mesh_of_degrees(known, shard_degree, _or(section.num_slices, 1))
    etp = _expert_tp(section, known["tp"], framework)
    expert_block = etp * known["ep"] * known["pp"]
    divides = expert_block > 0 and world_size % expert_block == 0
    return Layout(
        world_size=world_size,
        tp=known["tp"],
        cp=known["cp"],
        pp=known["pp"],
        dp=known["dp"],
        ep=known["ep"],
        etp=etp,
        edp=world_size // expert_block if divides else 0,
        vp=_or(section.vp, chunks),
        order=_order(section, framework),
        framework=framework,
        sharding=sharding,
        shard_degree=shard_degree,
        instances=_instances(section, (known["dp"], known["cp"]), framework),
        jax_mesh=mesh,
        **_as_given(section, framework),
    )


def _as_given(section: LayoutSection, framework: str) -> dict[str, Any]:
    """Return the fields that nothing else follows into, with their defaults."""
    return {
        "framework_version": _version(section, framework),
        # torchtitan's own default; elsewhere it is off unless asked for.
        "sequence_parallel": _or(section.sequence_parallel, framework == "torchtitan"),
        "hierarchical_cp": section.hierarchical_cp or (),
        "stages": section.stages,
        "first_stage_layers": section.first_stage_layers,
        "last_stage_layers": section.last_stage_layers,
        "assumed": frozenset(
            name for name in section.__struct_fields__ if getattr(section, name) is None
        ),
        "hybrid_context_parallel": bool(section.hybrid_context_parallel),
        "zero_hpz_partition_size": _or(section.zero_hpz_partition_size, 1),
        "use_data_before_expert_parallel": bool(section.use_data_before_expert_parallel),
        "mp_mode": section.mp_mode,
        "fsdp1": section.sharding if section.sharding in FSDP1_WORDS else None,
        "device_order": section.device_order,
    }


def _world_size(
    section: LayoutSection, degrees: Mapping[str, int | None], slots: int | None
) -> int:
    if section.world_size is not None:
        return section.world_size
    if degrees["dp"] is not None:
        return math.prod(value if value is not None else 1 for value in degrees.values())
    if slots is not None:
        return slots
    if section.framework == "maxtext" and (section.ici is not None or section.dcn is not None):
        return least_world(section)
    return _product_without_dp(section)


def _version(section: LayoutSection, framework: str) -> str:
    """Return the version whose rules are applied: the one given, where it is known here."""
    given = (section.framework_version or "").strip().lower()
    for version in OTHER_VERSIONS.get(framework, ()):
        words = version.lower().split()
        if given in (version.lower(), words[-1], words[-2]):
            return version
    return ASSUMED_VERSION[framework]


def _instances(section: LayoutSection, replicas: tuple[int, int], framework: str) -> int:
    """Return the optimizer instances: given, or the copies that Megatron's HSDP makes."""
    given, shard = section.distributed_optimizer_instances, section.shard_degree
    if given is None and framework == "megatron" and section.sharding == "hsdp":
        ranks = math.prod(replicas)
        return ranks // shard if shard and shard > 0 and ranks % shard == 0 else 1
    return _or(given, 1)


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
    # Megatron-Core: etp defaults to tp, and MaxText shards expert weights over tensor too;
    # torchtitan removed etp, DeepSpeed's enable_expert_tensor_parallelism is false by default.
    return tp if framework in ("megatron", "maxtext", "nanotron") else 1


def _order(section: LayoutSection, framework: str) -> tuple[str, ...]:
    if section.order is not None:
        return tuple(token.strip() for token in section.order.split("-"))
    if framework == "maxtext":
        return MAXTEXT_ORDER
    return MEGATRON_ORDER if framework == "megatron" else TORCHTITAN_ORDER


def _sharding(
    section: LayoutSection,
    mesh: JaxMesh | None,
    replicas: tuple[int, int],
    gpus_per_host: int | None,
) -> tuple[str, int]:
    """Return the kind of sharding and the ranks of dp that share one copy."""
    dp, cp = replicas
    word: str | None = section.sharding
    if mesh is not None:
        shard, copies = mesh.degree("dp_shard"), mesh.degree("dp_replicate")
        kind = "none" if shard == 1 else ("fsdp" if copies == 1 else "hsdp")
        return word or kind, _or(section.shard_degree, shard)
    if word is None and section.framework == "maxtext":
        # ici_fsdp_parallelism and dcn_data_parallelism are -1: shards in a slice, copies across
        slices = max(_or(section.num_slices, 1), 1)
        word = "fsdp" if slices == 1 else "hsdp"
        if section.shard_degree is None:
            return word, dp // slices
    sharding = FSDP1_WORDS.get(word or "none", word or "none")
    if section.shard_degree is not None:
        return sharding, section.shard_degree
    if word in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        return sharding, gpus_per_host or 0
    if sharding == "hsdp" and section.framework in (None, "megatron"):
        instances = section.distributed_optimizer_instances
        if instances is not None and instances > 0 and dp * cp % instances == 0:
            return sharding, dp * cp // instances
        return sharding, dp * cp
    return sharding, 1 if sharding == "none" else dp
