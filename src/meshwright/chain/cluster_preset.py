"""A cluster named in one line: ``dgx-h100 x 2`` (hosts), ``superpod-h100 x 4`` (units)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from meshwright.cluster.assembly.cluster_presets import (
    find_cluster_preset,
    section_of_preset,
    suggest_cluster_preset,
)
from meshwright.cluster.assembly.merge import parse_preset
from meshwright.cluster.nodes.presets import NodePreset, find_preset, suggest_preset
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

PlaceOf = Callable[[str], Place]


def expand_preset(section: ClusterSection, place: PlaceOf) -> tuple[ClusterSection, list[Finding]]:
    """Return the section with ``preset`` written out as node, nodes and fabric, and notes on it.

    Raises ``InputError`` for an unknown name, a count that does not exist, or keys that the preset
    itself says.
    """
    if section.preset is None:
        return section, []
    for key in ("node", "nodes", "fabric"):
        if getattr(section, key) is not None:
            message = f"{key} stands beside preset, which says it"
            raise InputError(Problem(place(key), message, remedy=f"leave out preset, or {key}"))
    parsed = parse_preset(section.preset)
    name, count = parsed or (section.preset, None)
    if parsed is not None:
        cluster = find_cluster_preset(name)
        if cluster is not None:
            units = 1 if count is None else count
            written, notes = section_of_preset(cluster, units, place("preset"))
            return _filled(section, written), notes
        node = find_preset(name)
        if node is not None:
            return _filled(section, _of_hosts(node, count, place)), []
    raise _unknown(section.preset, name, place)


def _unknown(text: str, name: str, place: PlaceOf) -> InputError:
    near = list(dict.fromkeys([*suggest_preset(name), *suggest_cluster_preset(name)]))[:4]
    hint = "dgx-h100 x 2 (hosts), superpod-h100 x 4 (units), or a cluster file"
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    message = f"{text[:200]!r} is no cluster preset and no file"
    return InputError(Problem(place("preset"), message, remedy=hint))


def _of_hosts(node: NodePreset, count: int | None, place: PlaceOf) -> ClusterSection:
    if count == 0:
        message = "0 hosts are no cluster"
        raise InputError(Problem(place("preset"), message, remedy=f"{node.name} x 1"))
    fabric = None
    if node.fabric_stated:
        fabric = FabricSection(preset=node.fabric, radix=node.radix)
    return ClusterSection(node=node.name, nodes=count, fabric=fabric)


def _filled(section: ClusterSection, written: ClusterSection) -> ClusterSection:
    """Return the written-out preset with the hosts, domains and allocation that stand beside it."""
    return msgspec.structs.replace(
        section, preset=None, node=written.node, nodes=written.nodes, fabric=written.fabric
    )


def node_notes(section: ClusterSection, place: PlaceOf) -> list[Finding]:
    """Return a note where the node preset rests on something that no source says."""
    node = find_preset(section.node) if isinstance(section.node, str) else None
    if node is None or not node.assumed:
        return []
    return [
        Finding(
            "assumed/node-preset",
            Severity.NOTE,
            place("node"),
            f"{node.name}: assumed: {node.assumed}.",
            {},
            "node: {from: …} with nvidia-smi topo -m or an NCCL topology XML of one host",
        )
    ]
