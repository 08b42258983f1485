"""The NVLink domain of a node from its labels.

``nvidia.com/gpu.clique`` is ``ClusterUUID.CliqueId``. The key is the pair: a clique id alone is
not unique (unrelated racks both report 0, or 32766), and a cluster UUID of zeros is no fabric.
(NVIDIA/nccl issue 1301 gives the same rule.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from meshwright.cluster.readers.document_values import known, shown
from meshwright.cluster.readers.host_places_findings import warn
from meshwright.cluster.readers.k8s_node_labels_documents import KubernetesNode
from meshwright.findings import Finding, Place

_CLIQUE = "nvidia.com/gpu.clique"
_NAMED = ("accelerator.topograph.run/domain", "network.topology.nvidia.com/accelerator")
_SUB_DOMAIN = "accelerator.topograph.run/sub-domain"
_NO_UUID = re.compile(r"[0-]*\Z")


def domains_of(
    nodes: Sequence[KubernetesNode], path: str
) -> tuple[list[str | None], list[Finding]]:
    """Return the NVLink domain of each node (``None``: none), and what is odd about them."""
    cliques = [_clique(node) for node in nodes]
    named = [_named(node) for node in nodes]
    findings = []
    bare = tuple(
        node.name
        for node, clique in zip(nodes, cliques, strict=True)
        if clique is None and re.match(r"\.?[0-9]+\Z", node.labels.get(_CLIQUE, "").strip())
    )
    if bare:
        message = (
            f"{len(bare)} hosts give a clique id without a cluster UUID ({shown(bare)}): two racks "
            "may have the same, so it is no NVLink domain"
        )
        findings.append(warn("topology/clique-without-uuid", Place(path), message, bare))
    domains = [clique or name for clique, name in zip(cliques, named, strict=True)]
    mixed = tuple(
        node.name
        for node, clique, domain in zip(nodes, cliques, domains, strict=True)
        if clique is None and domain is not None
    )
    if mixed and any(cliques):
        message = (
            f"{len(mixed)} hosts name their NVLink domain by another label than {_CLIQUE} "
            f"({shown(mixed)}): a domain they share with the others is not recognised"
        )
        findings.append(warn("topology/domain-labels-mixed", Place(path), message, mixed))
    return domains, findings


def sub_domain(node: KubernetesNode) -> str | None:
    """Return the part of its NVLink domain that a node says it is in."""
    return known(node.labels.get(_SUB_DOMAIN, ""))


def _clique(node: KubernetesNode) -> str | None:
    uuid, mark, clique = node.labels.get(_CLIQUE, "").strip().rpartition(".")
    cluster = known(uuid)
    if not mark or cluster is None or known(clique) is None or _NO_UUID.match(cluster):
        return None
    return f"{cluster.lower()}.{clique}"


def _named(node: KubernetesNode) -> str | None:
    return next((name for label in _NAMED if (name := known(node.labels.get(label, "")))), None)
