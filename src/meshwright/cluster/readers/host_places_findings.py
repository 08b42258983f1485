"""What is missing in the places of hosts, as findings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from meshwright.cluster.facts import HostPlace, TreeSwitch
from meshwright.cluster.readers.document_values import shown
from meshwright.findings import Finding, Number, Place, Severity

_LISTED = 100
_SPINE_REMEDY = "add a source that names the switches above the leaves (ibnetdiscover, a full tree)"


def warn(
    rule: str, place: Place, message: str, names: Sequence[str], remedy: str | None = None
) -> Finding:
    """Return a warning about some names: their count, and the first ones."""
    numbers: dict[str, Number] = {"count": len(names), "names": [*names[:_LISTED]]}
    return Finding(rule, Severity.WARNING, place, message, numbers, remedy)


def list_incomplete(place: Place, key: str) -> Finding:
    """Say that a listing has further pages."""
    message = f"{key} is set: the list goes on in another page, and hosts are missing here"
    remedy = "fetch all pages into one file"
    return Finding("topology/list-incomplete", Severity.WARNING, place, message, {}, remedy)


def depth_findings(
    places: Sequence[HostPlace], broken: Collection[str], path: str
) -> Iterator[Finding]:
    """Say which hosts have no place, no known leaf, no spine, or another number of tiers.

    ``broken`` are hosts whose nearest tier is unknown although a farther one is given.
    """
    place, total = Place(path), len(places)
    if broken:
        names = tuple(one.host for one in places if one.host in broken)
        message = (
            f"{len(names)} of {total} hosts name a farther tier and not the nearest one "
            f"({shown(names)}): which of them share a leaf is unknown, so they get no place"
        )
        yield warn("topology/leaf-unknown", place, message, names)
    placed = any(one.tiers for one in places)
    lost = tuple(
        one.host
        for one in places
        if not one.tiers and one.host not in broken and (placed or one.nvlink_domain is None)
    )
    if lost:
        message = f"{len(lost)} of {total} hosts name no place in the network ({shown(lost)})"
        yield warn("topology/host-without-place", place, message, lost)
    alone = tuple(one.host for one in places if len(one.tiers) == 1)
    if alone:
        message = (
            f"{len(alone)} of {total} hosts name their leaf only ({shown(alone)}): the spine tier "
            "is absent, so paths above the leaf are unknown"
        )
        yield warn("topology/spine-tier-unknown", place, message, alone, _SPINE_REMEDY)
    depths = sorted({len(one.tiers) for one in places if len(one.tiers) > 1})
    if len(depths) > 1:
        fewer = tuple(one.host for one in places if 1 < len(one.tiers) < depths[-1])
        message = (
            f"hosts name between {depths[0]} and {depths[-1]} tiers; {len(fewer)} have fewer than "
            f"the others ({shown(fewer)})"
        )
        yield warn("topology/tiers-uneven", place, message, fewer)
    yield from _separate_trees(places, place)


def _separate_trees(places: Sequence[HostPlace], place: Place) -> Iterator[Finding]:
    """Say that nothing joins the farthest tiers; of hosts with a leaf only that is said already."""
    below: dict[str, list[str]] = {}
    for one in places:
        if len(one.tiers) > 1:
            below.setdefault(one.tiers[-1], []).append(one.host)
    if len(below) < 2:
        return
    parts = [f"{root[:60]} ({len(hosts)} hosts)" for root, hosts in below.items()]
    message = (
        f"the {len(below)} farthest places have no common root: {shown(parts)}. The path between "
        "hosts of different ones is unknown"
    )
    numbers: dict[str, Number] = {
        "roots": len(below),
        "hosts_by_root": {root: len(below[root]) for root in [*below][:_LISTED]},
    }
    remedy = "keep each group of ranks under one of them, or add the source of what joins them"
    yield Finding("topology/no-common-root", Severity.WARNING, place, message, numbers, remedy)


def leaf_only_tree(tree: Sequence[TreeSwitch], path: str) -> Finding | None:
    """Return a finding when a scheduler's tree holds leaves and no real switch above them.

    An operator that knows the leaf only puts all leaves under a switch named ``root``. (Leaves
    under nothing at all are reported with the definitions, ``slurm_topology_conf_checks``.)
    """
    above = [switch for switch in tree if switch.switches]
    leaves = tuple(switch.name for switch in tree if not switch.switches)
    if len(leaves) < 2 or not above or any(switch.name.lower() != "root" for switch in above):
        return None
    message = (
        f"the tree names {len(leaves)} leaves ({shown(leaves)}) and no switch above them: the "
        "spine tier is absent, so paths above the leaf are unknown"
    )
    return warn("topology/spine-tier-unknown", Place(path), message, leaves, _SPINE_REMEDY)
