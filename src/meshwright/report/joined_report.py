"""Several topology sources together: what was joined on which key, conflicts, hosts by tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.all_sources import Joined
from meshwright.cluster.join.host_groups import HostType
from meshwright.cluster.join.hosts_said import HostsSaid
from meshwright.cluster.join.said import JoinMade, some
from meshwright.cluster.join.tree_heights import edges_of, heights
from meshwright.cluster.switches.switch_levels import derive_levels
from meshwright.findings import Finding
from meshwright.report.text import paragraph, table
from meshwright.units import format_count, plural

_NAMED = 1000
"""Host names of a node type in the JSON."""
_ROWS = 24
"""Rows of a table in the text."""


def joined_json(joined: Joined) -> dict[str, Any]:
    """Return what the sources say together: node types, tiers, joins, conflicts (their rules)."""
    return {
        "node_types": [_type_json(one) for one in joined.hosts],
        "hosts": [_said_json(one) for one in joined.said],
        "tiers": tier_counts(joined),
        "joins": [_join_json(one) for one in joined.joins],
        "conflicts": [one.to_json() for one in conflicts(joined)],
        "apart": [facts.path for facts in joined.apart],
    }


def conflicts(joined: Joined) -> list[Finding]:
    """Return the findings of the joins on values that differ, and on joins that cannot be made."""
    marks = ("topology/conflict-", "topology/join-refused", "topology/nics-not-joined")
    return [one for one in joined.findings if one.rule.startswith(marks)]


def tier_counts(joined: Joined) -> list[dict[str, Any]]:
    """Return switches by tier: of the cables (0 is a leaf), and of the tree (0 holds hosts)."""
    found = []
    if joined.fabric is not None and joined.fabric.cables is not None:
        found.append({"source": joined.fabric.path, "kind": "cables"} | _cable_tiers(joined.fabric))
    if joined.tree is not None and joined.tree.tree:
        found.append({"source": joined.tree.path, "kind": "tree"} | _tree_tiers(joined.tree))
    return found


def _cable_tiers(fabric: Facts) -> dict[str, Any]:
    levels = derive_levels(fabric)
    counts: dict[int, int] = {}
    for level in levels.level_by_switch.values():
        counts[level] = counts.get(level, 0) + 1
    return {
        "hosts": len(fabric.hosts or ()),
        "switches_by_tier": [counts[level] for level in sorted(counts)],
        "units": len(set(levels.unit_of_leaf.values())),
        "cables": len(fabric.cables or ()),
    }


def _tree_tiers(facts: Facts) -> dict[str, Any]:
    tree = facts.tree or ()
    counts: dict[int, int] = {}
    for height in heights(len(tree), edges_of(tree)):
        counts[height] = counts.get(height, 0) + 1
    return {
        "hosts": len({host for switch in tree for host in switch.hosts}),
        "switches_by_tier": [counts[height] for height in sorted(counts)],
        "units": None,
        "cables": None,
    }


def _type_json(one: HostType) -> dict[str, Any]:
    facts = one.facts
    return {
        "name": one.name,
        "hosts": list(one.hosts[:_NAMED]),
        "count": len(one.hosts) or None,
        "sources": list(one.sources[:_NAMED]),
        "gpus": list(facts.gpus or ()),
        "nics": list(facts.nics or ()),
        "nvlink_pairs": None if facts.nvlink_pairs is None else len(facts.nvlink_pairs),
        "numa_nodes": facts.numa_ids,
        "gpu_gpu_class": facts.gpu_gpu_class,
        "gpu_nic_class": facts.gpu_nic_class,
        "has_pcie_tree": facts.pcie_chains is not None,
    }


def _said_json(one: HostsSaid) -> dict[str, Any]:
    return {
        "source": one.path,
        "kind": one.kind,
        "hosts": len(one.hosts),
        "leaves": len(set(one.leaf.values())) if one.leaf else None,
        "nvlink_domains": len(set(one.domain.values())) if one.domain else None,
        "blocks": len(set(one.block.values())) if one.block else None,
    }


def _join_json(one: JoinMade) -> dict[str, Any]:
    return {
        "left": one.left,
        "right": one.right,
        "key": one.key,
        "matched": one.matched,
        "only_left": one.only_left,
        "only_right": one.only_right,
        "first_left": list(one.first_left),
        "first_right": list(one.first_right),
    }


def joined_text(joined: Joined) -> str:
    """Return the page's part on several sources together; findings are printed elsewhere."""
    parts = ["Together"]
    if joined.hosts:
        parts.append(_types_text(joined.hosts))
    if joined.said:
        parts.append(_said_text(joined))
    if joined.joins:
        parts.append(_joins_text(joined.joins))
    found = conflicts(joined)
    if found:
        text = f"{len(found)} finding{'s' if len(found) > 1 else ''} on values that differ or joins that cannot be made: "
        parts.append(paragraph(text + some(list(dict.fromkeys(one.rule for one in found)), 6)))
    if joined.apart:
        text = f"Not joined with the others: {some([facts.path for facts in joined.apart])}"
        parts.append(paragraph(text))
    return "\n\n".join(parts)


def _types_text(types: Sequence[HostType]) -> str:
    rows = [
        (
            one.hosts[0] if len(one.hosts) == 1 else some(one.hosts, 1) or _short(one.name),
            format_count(len(one.hosts)) if one.hosts else "-",
            str(len(one.facts.gpus or ())),
            str(len(one.facts.nics or ())),
            format_count(len(one.sources)),
            _nvlink_text(one.facts),
        )
        for one in types[:_ROWS]
    ]
    return table(("node type", "hosts", "GPUs", "NICs", "files", "NVLink, xGMI"), rows)


def _nvlink_text(facts: Facts) -> str:
    if facts.nvlink_pairs is None:
        return "unknown"
    counts = sorted({pair.count for pair in facts.nvlink_pairs})
    if not counts:
        return "none"
    links = "/".join(str(count) for count in counts[:4])
    return f"{plural(len(facts.nvlink_pairs), 'pair')} of {links}"


def _said_text(joined: Joined) -> str:
    tiers = {
        one["source"]: "-".join(str(count) for count in one["switches_by_tier"])
        for one in tier_counts(joined)
    }
    rows = []
    for one in joined.said[:_ROWS]:
        document = _said_json(one)
        shown = [
            "-" if document[key] is None else format_count(document[key])
            for key in ("hosts", "leaves", "nvlink_domains", "blocks")
        ]
        rows.append((one.kind, *shown, tiers.get(one.path, "-"), one.path))
    header = ("source", "hosts", "units or leaves", "domains", "blocks", "by tier", "file")
    return table(header, rows)


def _joins_text(joins: Sequence[JoinMade]) -> str:
    rows = [
        (
            one.key,
            format_count(one.matched),
            format_count(one.only_left),
            format_count(one.only_right),
            f"{_short(one.left)} with {_short(one.right)}",
        )
        for one in joins[:_ROWS]
    ]
    more = f"\n… {len(joins) - _ROWS} more joins" if len(joins) > _ROWS else ""
    return table(("joined on", "both", "only left", "only right", "files"), rows) + more


def _short(paths: str) -> str:
    """Return the names of joined files without their folders."""
    names = [path.rpartition("/")[2] for path in paths.split(" + ")]
    return some(names, 2)
