"""One tree of switches from what schedulers, labels and clouds say of hosts' places.

Leaf, spine, core of ``HostPlace.tiers`` become switches. A host whose leaf alone is known hangs on
it; all such leaves are put under one switch that stands for the unknown tiers, and a note says so.
A scheduler's own tree is taken as it is: no root is made up for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from meshwright.cluster.facts import Facts, HostPlace, TreeSwitch
from meshwright.cluster.join.host_files import MERGED
from meshwright.cluster.join.keys import HostNames
from meshwright.cluster.join.kinds import has_places, in_order, is_tree, without_copies
from meshwright.cluster.join.said import Difference, conflict, paths_of, some
from meshwright.findings import Finding, Place, Severity

UNKNOWN_TIER = "(unknown tier)"
"""The switch that stands for what is above leaves without a spine."""
_WHOLE_TREES = (
    "slurm_topology_conf",
    "slurm_topology_yaml",
    "scontrol_show_topology",
    "topograph_model",
)
"""Formats whose authors write the whole tree, its roots included."""
_NO_SWITCH = ("unknown", "none", "n/a")


def tree_of(facts: Facts) -> tuple[TreeSwitch, ...]:
    """Return the source's own tree without leaves that are none, else one made of its places."""
    if is_tree(facts):
        return _real(facts.tree or ())
    return _real(_of_places(facts.places or ()))


def network_tree(sources: Sequence[Facts]) -> tuple[Facts | None, list[Finding]]:
    """Return facts with one tree of all sources, and findings; ``None`` where none gives any.

    Sources of the first format that gives a tree are united switch by switch (pages, partitions);
    those of other formats name switches otherwise and only serve to check.
    """
    ordered = [
        facts for facts in without_copies(in_order(sources)) if is_tree(facts) or has_places(facts)
    ]
    if not ordered:
        return None, []
    used = [facts for facts in ordered if facts.format == ordered[0].format]
    names = HostNames(facts.hosts or () for facts in used)
    tree, findings = _united([(facts.path, _spelled(tree_of(facts), names)) for facts in used])
    hosts = list(dict.fromkeys(names.spelled(h) for facts in used for h in facts.hosts or ()))
    path = paths_of(used)
    findings += _lost(tree, hosts, path)
    first = used[0]
    if first.format not in _WHOLE_TREES:  # a root that such a tree lacks may not be there
        tree, said = _under_one(tree, path)
        findings += said
    if len(used) == 1 and first.tree == tree:
        return first, findings
    joined = msgspec.structs.replace(
        first,
        format=first.format if len(used) == 1 else MERGED,
        path=path,
        hosts=tuple(hosts),
        tree=tree,
        places=tuple(place for facts in used for place in facts.places or ()) or None,
        blocks=tuple(block for facts in used for block in facts.blocks or ()) or None,
        findings=(),
    )
    return joined, findings


def _spelled(tree: tuple[TreeSwitch, ...], names: HostNames) -> tuple[TreeSwitch, ...]:
    """Return the tree with each host under the one spelling that all sources get."""
    return tuple(
        msgspec.structs.replace(switch, hosts=tuple(map(names.spelled, switch.hosts)))
        for switch in tree
    )


def _real(tree: Iterable[TreeSwitch]) -> tuple[TreeSwitch, ...]:
    """Leave out a leaf named ``unknown``: its hosts need not share a switch."""
    return tuple(
        msgspec.structs.replace(
            switch, switches=tuple(one for one in switch.switches if not is_no_switch(one))
        )
        for switch in tree
        if not is_no_switch(switch.name)
    )


def is_no_switch(name: str) -> bool:
    """Tell whether the name says that the switch is not known."""
    return name.strip().lower() in _NO_SWITCH


def _of_places(places: Sequence[HostPlace]) -> tuple[TreeSwitch, ...]:
    children: dict[str, dict[str, None]] = {}
    hosts: dict[str, list[str]] = {}
    for place in places:
        above: str | None = None
        for name in reversed(place.tiers):
            children.setdefault(name, {})
            if above is not None:
                children[above][name] = None
            above = name
        if place.tiers:
            hosts.setdefault(place.tiers[0], []).append(place.host)
    return tuple(
        TreeSwitch(name, tuple(below), tuple(hosts.get(name, ())))
        for name, below in children.items()
    )


def _united(
    trees: Sequence[tuple[str, tuple[TreeSwitch, ...]]],
) -> tuple[tuple[TreeSwitch, ...], list[Finding]]:
    """Return the switches of all trees; a host or switch keeps the first parent it is given."""
    if len(trees) == 1:
        return trees[0][1], []
    switches: dict[str, TreeSwitch] = {}
    parent: dict[tuple[str, str], tuple[str, str]] = {}
    found: dict[tuple[str, str, str], list[Difference]] = {}
    for path, tree in trees:
        for switch in tree:
            kept: dict[str, list[str]] = {"switch": [], "host": []}
            for kind, names in (("switch", switch.switches), ("host", switch.hosts)):
                for name in names:
                    above, where = parent.setdefault((kind, name), (switch.name, path))
                    if above == switch.name:
                        kept[kind].append(name)
                        continue
                    rule = "leaf" if kind == "host" else "parent"
                    shown = Difference(name, above, switch.name)
                    found.setdefault((rule, where, path), []).append(shown)
            known = switches.get(switch.name, TreeSwitch(switch.name, line=switch.line))
            switches[switch.name] = msgspec.structs.replace(
                known,
                switches=tuple(dict.fromkeys((*known.switches, *kept["switch"]))),
                hosts=tuple(dict.fromkeys((*known.hosts, *kept["host"]))),
                comment=known.comment or switch.comment,
            )
    findings = [
        conflict(rule, "the switch above", (left, right), differences, f"{left} is taken")
        for (rule, left, right), differences in found.items()
    ]
    return tuple(switches.values()), findings


def _lost(tree: Sequence[TreeSwitch], hosts: Sequence[str], path: str) -> list[Finding]:
    """Say which hosts hang on no leaf."""
    placed = {host for switch in tree for host in switch.hosts}
    lost = [host for host in hosts if host not in placed]
    if not lost or len(lost) == len(hosts):
        return []
    return [
        Finding(
            "topology/host-without-leaf",
            Severity.WARNING,
            Place(path),
            f"{len(lost)} of {len(hosts)} hosts hang on no known leaf ({some(lost)}): paths to them "
            "are unknown, and loads of their NICs are not counted",
            {"count": len(lost), "hosts": [*lost[:100]]},
            "allocation: without these hosts, or a source that says their switch",
        )
    ]


def _under_one(
    tree: tuple[TreeSwitch, ...], path: str
) -> tuple[tuple[TreeSwitch, ...], list[Finding]]:
    """Put leaves that nothing is said to be above under one switch, so that they can be reached.

    Where other leaves do have a spine, they go under its root, if there is only one.
    """
    below = {name for switch in tree for name in switch.switches}
    roots = [switch for switch in tree if switch.name not in below]
    alone = [switch for switch in roots if switch.hosts and not switch.switches]
    others = [switch for switch in roots if switch not in alone]
    if not alone or len(roots) == 1:
        return tree, []
    names = tuple(switch.name for switch in alone)
    if len(others) > 1:
        return tree, [_leaves_apart(alone, len(others), path)]
    if others:
        top = msgspec.structs.replace(others[0], switches=(*others[0].switches, *names))
        grown = tuple(top if switch is others[0] else switch for switch in tree)
    else:
        top = TreeSwitch(UNKNOWN_TIER, names)
        grown = (*tree, top)
    finding = Finding(
        "topology/leaf-only",
        Severity.NOTE,
        Place(path),
        f"{len(alone)} leaves ({some(names)}) have no spine above them: that tier is unknown, so "
        f"they are put under one switch ({top.name}), and leaves under one spine look as far apart "
        "as any two",
        {"leaves": len(alone), "hosts": sum(len(switch.hosts) for switch in alone)},
        "add a source that names the switches above the leaves (ibnetdiscover, a full tree)",
    )
    return grown, [finding]


def _leaves_apart(alone: Sequence[TreeSwitch], roots: int, path: str) -> Finding:
    names = [switch.name for switch in alone]
    return Finding(
        "topology/leaf-only",
        Severity.WARNING,
        Place(path),
        f"{len(alone)} leaves ({some(names)}) have no spine above them, and there are {roots} roots: "
        "which of them they belong to is unknown, so no path leads to their hosts",
        {"leaves": len(alone), "hosts": sum(len(switch.hosts) for switch in alone)},
        "add a source that names the switches above the leaves (ibnetdiscover, a full tree)",
    )
