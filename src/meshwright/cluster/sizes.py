"""How large a cluster may be: bounds on memory, far above what is built."""

from __future__ import annotations

from meshwright.cluster.nodes.node import NodeType

MAX_GPUS = 1 << 20
"""GPUs of one cluster: eight times the largest planned for."""
_MAX_PARTS = 1 << 24
"""GPUs, NICs and links inside all hosts together. A host has 5 to 16 a GPU, most of them 8."""


def too_large(num_hosts: int, node: NodeType) -> tuple[str, str] | None:
    """Return why so many hosts of a type are too many, and what is allowed; ``None`` if they are not."""
    gpus = num_hosts * node.num_gpus
    if gpus > MAX_GPUS:
        message = (
            f"{num_hosts:,} hosts of {node.num_gpus:,} GPUs are too many: {gpus:,} GPUs, and a cluster "
            f"has at most {MAX_GPUS:,}"
        )
        return message, _at_most(MAX_GPUS // node.num_gpus)
    each = node.num_gpus + len(node.nics) + len(node.graph.links)
    parts = num_hosts * each
    if parts > _MAX_PARTS:
        message = (
            f"{num_hosts:,} hosts have {parts:,} GPUs, NICs and links inside them ({each:,} each: "
            f"{len(node.nics):,} NICs, {len(node.graph.links):,} links); at most {_MAX_PARTS:,} are kept"
        )
        return message, _at_most(_MAX_PARTS // each)
    return None


def _at_most(hosts: int) -> str:
    return f"at most {hosts:,} hosts of this type" if hosts else "a host with fewer parts"
