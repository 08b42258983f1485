"""Faults of a fabric's forwarding tables, as findings: pairs cut off, loops, uneven loads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.facts import Facts
from meshwright.cluster.networks.table_graph import (
    LOOP,
    MAX_ENTRIES,
    NO_CABLE,
    NO_ENTRY,
    OTHER_END,
    TableGraph,
    Target,
)
from meshwright.cluster.networks.table_loads import LostPairs, PairLoads, all_pairs_loads
from meshwright.findings import Finding, Number, Place, Severity

UNEVEN = 1.25
"""Load of the busiest cable over the mean of its group, above which a group counts as uneven."""
_LOST = 0.01
"""Share of pairs without a way above which loads are not compared."""
_SHOWN = 4
_LISTED = 20
_DUMP_AGAIN = "run ibnetdiscover and dump_lfts again, one after the other, and give both files"
_REASONS = {
    NO_ENTRY: "the table has no entry",
    NO_CABLE: "the table names a port without a cable",
    OTHER_END: "the table names a port that leads to another adapter",
}


def table_findings(facts: Facts, graph: TableGraph | None = None) -> list[Finding]:
    """Return what is wrong with the tables of a fabric's facts (none where there are no tables).

    ``graph`` as made from the same facts, where it is there already. Uneven: of the uplinks (or
    the downlinks) of a switch, or of parallel cables of one level, one carries more than ``UNEVEN``
    times the mean, and more than the mean and one destination's flows, which some assignment
    of destinations to cables always meets (Graham 1969, list scheduling).
    """
    if facts.tables is None or not facts.switches:
        return []
    graph = graph or TableGraph.of(facts)
    findings = _joins(facts, graph)
    if not graph.is_routed:
        return findings
    loads = all_pairs_loads(facts, graph)
    stopped = {end: lost for end, lost in loads.lost.items() if end != LOOP}
    if stopped:
        findings.append(_no_route(facts, graph, loads, stopped))
    if LOOP in loads.lost:
        findings.append(_loop(facts, graph, loads.lost[LOOP]))
    lost = sum(one.count for one in loads.lost.values())
    if lost > _LOST * loads.pairs:
        return findings  # what is left of the traffic says nothing of its balance
    return findings + _unbalanced(facts, graph, loads)


def _joins(facts: Facts, graph: TableGraph) -> list[Finding]:
    """Report tables that fit no switch, and adapters without a LID (the join reports the rest)."""
    findings = []
    place = Place(facts.path)
    tables = facts.tables or ()
    unused = None
    if not len(graph.table):
        unused = "none has an entry for a switch that the fabric file lists"
    elif graph.is_too_large:
        count = len(graph.switch_names) * len(graph.targets)
        unused = (
            f"{count:,} ways from switches to adapters are more than are followed ({MAX_ENTRIES:,})"
        )
    elif not graph.targets:
        unused = "no adapter of the fabric file has a LID"
    if unused is not None:
        message = (
            f"the {len(tables)} forwarding tables are not used: {unused}; paths are spread evenly, "
            "as without tables"
        )
        findings.append(_finding("topology/tables-unused", place, message, {"tables": len(tables)}))
    if graph.bare:
        names = [f"{nic.host or nic.guid} {nic.name}" for nic in graph.bare]
        message = (
            f"{len(names)} adapters have no LID in the fabric file, so no table says how to reach "
            f"them: {_some(names)}"
        )
        numbers: dict[str, Number] = {"count": len(names), "names": [*names[:_LISTED]]}
        findings.append(_finding("topology/nic-without-lid", place, message, numbers))
    return findings


def _no_route(
    facts: Facts, graph: TableGraph, loads: PairLoads, stopped: dict[int, LostPairs]
) -> Finding:
    total = sum(lost.count for lost in stopped.values())
    parts = []
    for end, lost in stopped.items():
        switch, target = lost.examples[0]
        steps, _ = graph.walk(switch, target)
        last, port = steps[-1]
        where = f" port {port}" if end != NO_ENTRY else ""
        parts.append(
            f"{lost.count} because {_REASONS[end]} (from {graph.switch_names[switch]} to "
            f"{_name(target)}: {graph.switch_names[last]}{where})"
        )
    message = (
        f"by the forwarding tables {total} of {loads.pairs} ordered pairs of adapters have no way "
        f"to each other: {'; '.join(parts)}"
    )
    numbers: dict[str, Number] = {"pairs": total, "of_pairs": loads.pairs}
    numbers["reasons"] = {_REASONS[end]: lost.count for end, lost in stopped.items()}
    return _finding("topology/no-route", Place(facts.path), message, numbers)


def _loop(facts: Facts, graph: TableGraph, lost: LostPairs) -> Finding:
    ways = []
    for switch, target in lost.examples:
        steps, _ = graph.walk(switch, target)
        first = [one for one, _ in steps].index(steps[-1][0])
        ring = [f"{graph.switch_names[one]} port {port}" for one, port in steps[first:-1]]
        ways.append(f"to {_name(target)}: {', '.join(ring[:_LISTED])}, and again")
    message = (
        f"the forwarding tables send {lost.count} ordered pairs of adapters in circles, "
        f"for example {ways[0]}"
    )
    numbers: dict[str, Number] = {"pairs": lost.count, "loops": [*ways]}
    remedy = "let the subnet manager route again (opensm writes errors to its log), and dump the tables again"
    return _finding("topology/routing-loop", Place(facts.path), message, numbers, remedy)


def _unbalanced(facts: Facts, graph: TableGraph, loads: PairLoads) -> list[Finding]:
    """Compare the cables of each group, up and down apart."""
    number = {switch.id: index for index, switch in enumerate(facts.switches or ())}
    lower = np.array([number[cable.a] for cable in loads.cables], dtype=np.int64)
    upper = np.array([number[cable.b] for cable in loads.cables], dtype=np.int64)
    # A switch's uplinks share a group; between switches of one level, only parallel cables do.
    pair = np.minimum(lower, upper) * len(number) + np.maximum(lower, upper)
    key = np.where(graph.rises, lower, len(number) + pair)
    keys, group = np.unique(key, return_inverse=True)
    group = group.ravel()
    cables = np.bincount(group, minlength=len(keys))
    uneven = np.zeros(len(keys), dtype=np.bool_)
    worst: list[tuple[float, int, bool, float]] = []
    for flows, largest, up in (
        (loads.up, loads.up_largest, True),
        (loads.down, loads.down_largest, False),
    ):
        mean = np.bincount(group, weights=flows, minlength=len(keys)) / np.maximum(cables, 1)
        item = np.zeros(len(keys), dtype=np.int64)
        np.maximum.at(item, group, largest)
        limit = np.maximum(mean[group] * UNEVEN, mean[group] + item[group])
        over = np.flatnonzero((flows > limit) & (cables[group] > 1))
        uneven[group[over]] = True
        worst += [
            (float(flows[c] / mean[group[c]]), c, up, float(mean[group[c]])) for c in over.tolist()
        ]
    if not worst:
        return []
    worst.sort(key=lambda one: (-one[0], one[1], not one[2]))
    return [_uneven_finding(facts, graph, loads, (worst, group, uneven))]


def _uneven_finding(
    facts: Facts,
    graph: TableGraph,
    loads: PairLoads,
    found: tuple[list[tuple[float, int, bool, float]], NDArray[np.int64], NDArray[np.bool_]],
) -> Finding:
    worst, group, uneven = found
    ratio, first, up, mean = worst[0]
    flows = loads.up if up else loads.down
    mates = flows[group == group[first]]
    listed: list[Number] = []
    for _, index, rising, usual in worst[:_LISTED]:
        own = loads.up if rising else loads.down
        listed.append(
            {
                "cable": _cable(facts, loads, index, up=rising),
                "flows": int(own[index]),
                "mean": usual,
            }
        )
    top = int(flows[first])
    message = (
        f"with one flow between every two of {len(graph.plug_by_nic)} adapters, the forwarding tables "
        f"put {top} flows on {_cable(facts, loads, first, up=up)}; the {len(mates)} cables "
        f"{_group(facts, graph, loads, first, up=up)} carry {mean:.4g} on average and "
        f"{int(mates.min())} at least, so all-to-all traffic takes {ratio:.1f} times as long there as "
        f"with even tables. {int(uneven.sum())} of {len(uneven)} groups of cables are uneven"
    )
    numbers: dict[str, Number] = {
        "max_flows": top,
        "min_flows": int(mates.min()),
        "mean_flows": mean,
        "ratio": ratio,
        "uneven_groups": int(uneven.sum()),
        "groups": len(uneven),
        "uneven_cables": len(worst),
        "cables": listed,
    }
    remedy = (
        "use another routing engine of the subnet manager (opensm -R ftree, updn or minhop for fat "
        "trees), and dump the tables again"
    )
    return _finding("topology/routing-unbalanced", Place(facts.path), message, numbers, remedy)


def _cable(facts: Facts, loads: PairLoads, index: int, *, up: bool) -> str:
    names = {switch.id: switch.name for switch in facts.switches or ()}
    cable = loads.cables[index]
    ends = (f"{names[cable.a]} port {cable.a_port}", f"{names[cable.b]} port {cable.b_port}")
    tail, head = ends if up else ends[::-1]
    return f"{tail} to {head}"


def _group(facts: Facts, graph: TableGraph, loads: PairLoads, index: int, *, up: bool) -> str:
    names = {switch.id: switch.name for switch in facts.switches or ()}
    cable = loads.cables[index]
    if not graph.rises[index]:
        return f"between {names[cable.a]} and {names[cable.b]}"
    return f"{'up from' if up else 'down to'} {names[cable.a]}"


def _name(target: Target) -> str:
    nic = target.nic
    return f"{nic.host or nic.guid} {nic.name}".strip() + f" (LID {target.lid})"


def _finding(
    rule: str,
    place: Place,
    message: str,
    numbers: dict[str, Number],
    remedy: str = _DUMP_AGAIN,
) -> Finding:
    return Finding(rule, Severity.WARNING, place, message, numbers, remedy)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
