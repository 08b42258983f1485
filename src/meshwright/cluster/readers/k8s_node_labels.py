"""Kubernetes nodes and their topology labels, as YAML, JSON or ``--show-labels`` text.

Read are ``kubectl get node(s) -o yaml|json`` (one Node, a List, several documents), a kind cluster
file, and lines of a node name with ``label=value`` pairs. A Kueue ``Topology`` in the same file
names the labels of its levels, farthest first. ``k8s_node_labels_families`` knows the labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.document_values import is_json
from meshwright.cluster.readers.host_places import RawPlace, settle
from meshwright.cluster.readers.host_places_findings import list_incomplete, warn
from meshwright.cluster.readers.k8s_node_labels_documents import KubernetesNode, read_documents
from meshwright.cluster.readers.k8s_node_labels_domains import domains_of, sub_domain
from meshwright.cluster.readers.k8s_node_labels_families import (
    KNOWN_LABEL,
    Family,
    family_of,
    other_families,
    unordered_labels,
)
from meshwright.cluster.readers.k8s_node_labels_lines import looks_like_lines, read_lines
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place

FORMAT = "k8s_node_labels"

_NODE = re.compile(
    r"(?:^|[{,\s])[\"']?kind[\"']?[ \t]*:[ \t]*[\"']?(?:Node|NodeList)[\"']?[ \t]*(?=[,}\r\n]|\Z)"
)
_KIND_CLUSTER = re.compile(r"^apiVersion[ \t]*:[ \t]*[\"']?kind\.x-k8s\.io/", re.M)


def looks_like(text: str) -> bool:
    """Tell by content whether the text lists Kubernetes nodes."""
    return (
        _NODE.search(text) is not None
        or _KIND_CLUSTER.search(text) is not None
        or looks_like_lines(text)
    )


def read(text: str, path: str) -> Facts:
    """Return the workers, their places and their NVLink domains.

    Tiers that are switches (leaf, spine, core; AWS network nodes) also give ``switches`` and
    ``tree``; blocks and racks are places only. A control-plane node without topology labels is no
    host, and is counted.

    Raises ``InputError`` for a text of another form and one without any node.
    """
    by_lines = not is_json(text) and looks_like_lines(text) and _NODE.search(text) is None
    listing = read_lines(text, path) if by_lines else read_documents(text, path)
    workers = [
        node for node in listing.nodes if not node.is_control_plane or _is_placed(node.labels)
    ]
    if not listing.nodes:
        raise InputError(Problem(Place(path, 1, 1), "the text names no node"))
    others = other_families(listing.kueue_levels, {name for one in workers for name in one.labels})
    families = [family_of(node.labels, others) for node in workers]
    domains, odd = domains_of(workers, path)
    raw = [
        RawPlace(
            node.name,
            family.tiers(node.labels) if family else (),
            node.place,
            domain,
            whole=family is not None and family.whole,
            switches=family is not None and family.switches,
        )
        for node, family, domain in zip(workers, families, domains, strict=True)
    ]
    settled = settle(raw, path)
    continued = [list_incomplete(place, "continue") for place in listing.continued]
    by_switch = any(one.switches for one in raw)
    counts = _counts(families, raw)
    counts["control_plane_nodes"] = len(listing.nodes) - len(workers)
    subs = {(domain, sub_domain(node)) for node, domain in zip(workers, domains, strict=True)}
    counts["accelerator_domains"] = len({domain for domain in domains if domain})
    counts["sub_domains"] = sum(sub is not None for _, sub in subs)
    return Facts(
        format=FORMAT,
        path=path,
        hosts=settled.hosts,
        switches=settled.switches if by_switch else None,
        tree=settled.tree if by_switch else None,
        places=settled.places,
        counts=counts,
        findings=(*continued, *_unordered(workers, families, path), *odd, *settled.findings),
    )


def _is_placed(labels: dict[str, str]) -> bool:
    return any(KNOWN_LABEL.match(label) for label in labels)


def _counts(families: Sequence[Family | None], raw: Sequence[RawPlace]) -> dict[str, int]:
    """Count the places of every level by its name (blocks, racks)."""
    places: dict[str, set[tuple[str | None, ...]]] = {}
    for family, one in zip(families, raw, strict=True):
        if family is None or family.switches:
            continue
        for level, name in enumerate(family.level_names[: len(one.tiers)]):
            if one.tiers[level] is not None:
                places.setdefault(f"{name}s", set()).add(one.tiers[level:])
    return {name: len(found) for name, found in places.items()}


def _unordered(
    workers: Sequence[KubernetesNode], families: Sequence[Family | None], path: str
) -> list[Finding]:
    labels: dict[str, None] = {}
    for node, family in zip(workers, families, strict=True):
        if family is None:
            labels.update(dict.fromkeys(unordered_labels(node.labels)))
    if not labels:
        return []
    message = (
        f"{len(labels)} topology labels have no known order ({', '.join([*labels][:4])}), so they "
        "place no host"
    )
    remedy = "put the Kueue Topology that lists these labels into the same file"
    return [warn("topology/label-order-unknown", Place(path), message, [*labels], remedy)]
