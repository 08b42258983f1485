"""Which source says what: a host, the fabric, a tree, places of hosts; and which one is asked first.

A source may be of several kinds (host labels give a tree, places and NVLink domains).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from meshwright.cluster.facts import Facts
from meshwright.cluster.natural_order import natural_key

NODE_FORMATS = (
    "meshwright_capture",
    "nccl_topo_xml",
    "hwloc_xml",
    "amd_smi_json",
    "amd_smi_topology",
    "nvidia_smi_topo_m",
    "rocm_smi_showtopo",
)
"""Formats that say how the devices of a host are joined: one of them is enough for a node type."""
HOST_FORMATS = (
    *NODE_FORMATS,
    "nvidia_smi_nvlink_s",
    "nvidia_smi_nvlink_r",
    "nvidia_smi_topo_p2p",
    "nccl_graph_xml",
)
"""Formats that describe one host, those with the surest keys first."""
_FABRIC_ORDER = (
    "ibnetdiscover",
    "ibnetdiscover_ports",
    "iblinkinfo",
    "ibsim_net",
    "netq_nmx",
    "opensm_lfts",
)
_TREE_ORDER = (
    "topograph_model",
    "slurm_topology_conf",
    "slurm_topology_yaml",
    "scontrol_show_topology",
    "scontrol_show_node",
    "k8s_node_labels",
    "aws_instance_topology",
    "oci_topology",
    "gcp_physical_host",
)
_DOMAIN_ORDER = (
    "meshwright_capture",
    "nvidia_smi_q_fabric",
    "k8s_node_labels",
    "netq_nmx",
    "oci_topology",
    "topograph_model",
)
_ORDER = {
    name: rank
    for rank, name in enumerate(
        dict.fromkeys((*HOST_FORMATS, *_FABRIC_ORDER, *_TREE_ORDER, *_DOMAIN_ORDER))
    )
}


def in_order(sources: Iterable[Facts]) -> list[Facts]:
    """Return sources in the order of precedence: by format, then by path, whatever order they had."""
    return sorted(
        sources,
        key=lambda facts: (
            _ORDER.get(facts.format, len(_ORDER)),
            natural_key(facts.path),
            facts.path,
        ),
    )


class _Source(Protocol):
    """What has a format and a path."""

    @property
    def format(self) -> str: ...
    @property
    def path(self) -> str: ...


SourceT = TypeVar("SourceT", bound=_Source)


def by_domain(sources: Iterable[SourceT]) -> list[SourceT]:
    """Return sources in the order in which their NVLink domains are taken."""
    rank = {name: at for at, name in enumerate(_DOMAIN_ORDER)}
    return sorted(
        sources,
        key=lambda facts: (rank.get(facts.format, len(rank)), natural_key(facts.path), facts.path),
    )


def without_copies(sources: Sequence[Facts]) -> list[Facts]:
    """Return the sources without those that say exactly what an earlier one says."""
    kept: list[Facts] = []
    said: dict[tuple[object, ...], list[Facts]] = {}
    for facts in sources:
        # Facts hold dicts and cannot be hashed; equal ones agree in these few fields.
        mark = (facts.format, facts.host, facts.gpus, facts.nics, facts.hosts)
        same = said.setdefault(mark, [])
        if not any(_equal(facts, other) for other in same):
            same.append(facts)
            kept.append(facts)
    return kept


def _equal(one: Facts, other: Facts) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in Facts.__struct_fields__
        if name not in ("path", "findings")
    )


def is_host(facts: Facts) -> bool:
    """Tell whether the source describes one host (or, an NCCL file, a few fused ones)."""
    return facts.format in HOST_FORMATS


def is_node(facts: Facts) -> bool:
    """Tell whether the source alone is enough for a node type."""
    return facts.format in NODE_FORMATS and bool(facts.gpus)


def is_fabric(facts: Facts) -> bool:
    """Tell whether the source lists cables."""
    return facts.cables is not None


def is_tables(facts: Facts) -> bool:
    """Tell whether the source gives forwarding tables and no cables."""
    return facts.tables is not None and facts.cables is None


def is_tree(facts: Facts) -> bool:
    """Tell whether the source puts hosts under switches."""
    return any(switch.hosts for switch in facts.tree or ())


def has_places(facts: Facts) -> bool:
    """Tell whether the source gives hosts a place in the network."""
    return any(place.tiers for place in facts.places or ())


def has_domains(facts: Facts) -> bool:
    """Tell whether the source names NVLink domains."""
    return any(place.nvlink_domain is not None for place in facts.places or ())
