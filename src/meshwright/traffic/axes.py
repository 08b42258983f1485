"""Which axis a strategy uses, and how many ranks its groups have."""

from __future__ import annotations

from meshwright.job.layout import Layout
from meshwright.traffic.workload import MESH


def gradient_axis(cp: int) -> str:
    """Return the axis dense gradients are reduced over: cp replicates parameters too."""
    return "dp-cp" if cp > 1 else "dp"


def shard_axis(layout: Layout) -> str:
    """Return the axis over which parameters are sharded; on torch's meshes cp shards them too."""
    if layout.framework in MESH:
        return "dp_shard-cp" if layout.cp > 1 else "dp_shard"
    named = layout.sharding == "hsdp" or layout.framework == "maxtext"
    return "dp_shard" if named else gradient_axis(layout.cp)


def expert_axis(layout: Layout) -> str:
    """Return the axis of a dispatch over all ranks that hold experts of one copy (etp and ep)."""
    if layout.etp > 1:
        return "ep-etp" if layout.ep > 1 else "etp"
    return "ep"


def dispatch_ranks(layout: Layout) -> int:
    """Return the ranks of the groups a dispatch runs over."""
    return layout.ep if layout.framework in MESH else layout.ep * layout.etp


def model_axis(layout: Layout) -> str:
    """Return the axis of one replica of the model: tp and pp."""
    if layout.tp > 1:
        return "tp-pp" if layout.pp > 1 else "tp"
    return "pp"


def degree_of_axis(layout: Layout, axis: str) -> int | None:
    """Return the ranks of a group along an axis; ``None`` for one this program knows no size of."""
    shard = layout.dp_shard * layout.cp
    sparse = shard * layout.tp // layout.ep if layout.ep else 0
    instances = max(layout.instances, 1)
    known = {
        "tp": layout.tp,
        "cp": layout.cp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.ep,
        "etp": layout.etp,
        "edp": sparse if layout.framework in MESH else layout.edp,
        "dp-cp": layout.dp * layout.cp,
        "dp-cp-tp": layout.dp * layout.cp * layout.tp,
        "tp-pp": layout.tp * layout.pp,
        "ep-etp": layout.ep * layout.etp,
        "dp_shard": layout.dp_shard,
        "dp_shard-cp": shard,
        "dp_replicate": layout.dp_replicate,
        "embedding": 2 if layout.pp > 1 else 1,
        "pp_mirror": 2,
        "intra_dp-cp": layout.dp * layout.cp // instances,
        "intra_edp": layout.edp // instances,
        "inter_edp": instances,
        "instance": layout.world_size // instances,
        "hpz": min(layout.zero_hpz_partition_size, layout.world_size),
    }
    if "/" in axis:  # of FSDP's reshard_after_forward: so many consecutive ranks of the axis
        return int(axis.split("/")[1])
    known |= {f"cp_l{level}": size for level, size in enumerate(layout.hierarchical_cp)}
    return known.get(axis)
