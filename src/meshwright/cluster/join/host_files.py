"""Merge what several sources say of one host (or one node type) into one ``Facts``.

Devices are joined first (``host_devices``), then each field is taken from the source that knows it
best: path classes from ``topo -m`` unless a virtual machine hides them, the PCIe tree and rates
from an XML or a capture, links that are up from ``nvlink -s``. The order in which sources are
given decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.host_devices import Joining
from meshwright.cluster.join.host_fields import links_agree, merged_gpus, merged_nics
from meshwright.cluster.join.host_matrices import (
    merged_access,
    merged_chains,
    merged_classes,
    merged_pairs,
)
from meshwright.cluster.join.kinds import in_order, without_copies
from meshwright.cluster.join.said import JoinMade, paths_of
from meshwright.findings import Finding

MERGED = "merged"
"""``Facts.format`` of what several sources say together."""


class HostMerge(msgspec.Struct, frozen=True):
    """One host's facts, the sources that could not be joined, and what was said on the way."""

    facts: Facts
    sources: tuple[str, ...]
    """Paths of the sources joined."""
    apart: tuple[Facts, ...] = ()
    joins: tuple[JoinMade, ...] = ()
    findings: tuple[Finding, ...] = ()


def merge_host(sources: Sequence[Facts]) -> HostMerge:
    """Return the facts of one host; a single source, or copies of one, come back as they are.

    The findings are those of the join alone. Raises ``ValueError`` without a source.
    """
    ordered = without_copies(in_order(sources))
    if not ordered:
        raise ValueError("no source")
    if len(ordered) == 1:
        return HostMerge(ordered[0], (ordered[0].path,))
    joining = Joining()
    for facts in ordered:
        joining.add(facts)
    if len(joining.sources) == 1:
        only = joining.sources[0]
        apart = tuple(joining.apart)
        return HostMerge(only, (only.path,), apart, (), tuple(joining.findings))
    return _merged(joining)


def _merged(joining: Joining) -> HostMerge:
    sources = joining.sources
    gpus, gpu_findings = merged_gpus(joining)
    nics, nic_findings = merged_nics(joining)
    indices = [gpu.index for gpu in gpus]
    classes, class_findings = merged_classes(joining)
    pairs, pair_findings = merged_pairs(joining, indices)
    link_findings: list[Finding] = []
    if pairs is not None:
        pairs, link_findings = links_agree(joining, gpus, pairs)
    names = ([gpu.name for gpu in gpus], [nic.name for nic in nics])
    numa_ids = sorted({numa for facts in sources for numa in facts.numa_ids or ()})
    facts = Facts(
        format=MERGED,
        path=paths_of(sources),
        host=next((facts.host for facts in sources if facts.host), None),
        gpus=gpus if any(facts.gpus is not None for facts in sources) else None,
        nics=nics if any(facts.nics is not None for facts in sources) else None,
        nvswitches=next((one.nvswitches for one in sources if one.nvswitches is not None), None),
        nvlink_pairs=pairs,
        numa_ids=tuple(numa_ids) or None,
        gpu_gpu_class=classes["gpu_gpu_class"],
        gpu_nic_class=classes["gpu_nic_class"],
        nic_nic_class=classes["nic_nic_class"],
        pcie_chains=merged_chains(joining, names),
        peer_access=merged_access(joining),
        places=next((one.places for one in sources if one.places), None),
        counts={key: value for one in reversed(sources) for key, value in one.counts.items()},
    )
    said = [*gpu_findings, *nic_findings, *class_findings, *pair_findings, *link_findings]
    return HostMerge(
        facts,
        tuple(facts.path for facts in sources),
        tuple(joining.apart),
        tuple(joining.joins),
        (*joining.findings, *said),
    )
