"""Attach forwarding tables (from files of their own) to the switches of a fabric, by GUID."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import Facts, ForwardingTable
from meshwright.cluster.join.fabric_nodes import node_id
from meshwright.cluster.join.keys import guid_key
from meshwright.cluster.join.said import (
    Difference,
    JoinMade,
    conflict,
    join_made,
    paths_of,
    some,
    told,
)
from meshwright.findings import Finding, Severity


def attach_tables(
    fabric: Facts | None, sources: Sequence[Facts]
) -> tuple[Facts, list[JoinMade], list[Finding]]:
    """Return the fabric with tables; without a fabric the tables alone, all in one.

    Every table is kept, also those of switches that the fabric does not have.
    """
    tables, findings = _together(sources)
    if fabric is None:
        first = sources[0]
        if len(sources) == 1:
            return first, [], []
        merged = msgspec.structs.replace(
            first, path=paths_of(sources), tables=tuple(tables.values()), findings=()
        )
        return merged, [], findings
    sides = (fabric.path, paths_of(sources))
    name_of = {node_id(switch.id): switch.name for switch in fabric.switches or ()}
    without = [name for one, name in name_of.items() if one not in tables]
    strange = [table.name or one for one, table in tables.items() if one not in name_of]
    matched = len(name_of) - len(without)
    findings += _left_over(sides, matched, without, strange)
    findings += _lids(sides, fabric)
    merged = msgspec.structs.replace(
        fabric,
        path=f"{fabric.path} + {sides[1]}",
        tables=(*(fabric.tables or ()), *tables.values()),
        findings=(),
    )
    return merged, [join_made(sides, "guid", matched, (without, strange))], findings


def _together(sources: Sequence[Facts]) -> tuple[dict[str, ForwardingTable], list[Finding]]:
    """Return the tables of all sources by GUID; two unequal ones of a switch are a conflict."""
    tables: dict[str, ForwardingTable] = {}
    path_of: dict[str, str] = {}
    found: dict[tuple[str, str], list[Difference]] = {}
    for facts in sources:
        for table in facts.tables or ():
            one = guid_key(table.guid) or table.guid
            kept = tables.setdefault(one, table)
            path_of.setdefault(one, facts.path)
            if kept.ports != table.ports:
                differ = sum(a != b for a, b in zip(kept.ports, table.ports, strict=False))
                differ += abs(len(kept.ports) - len(table.ports))
                shown = Difference(table.name or one, f"{len(kept.ports)} LIDs", f"{differ} others")
                found.setdefault((path_of[one], facts.path), []).append(shown)
    findings = [
        conflict("table", "the forwarding table", sides, differences, f"{sides[0]} is taken")
        for sides, differences in found.items()
    ]
    return tables, findings


def _left_over(
    sides: tuple[str, str], matched: int, without: Sequence[str], strange: Sequence[str]
) -> list[Finding]:
    findings = []
    if strange:
        message = (
            f"{len(strange)} forwarding tables in {sides[1]} are of switches that {sides[0]} does "
            f"not have ({some(strange, 4)}); {matched} fit"
        )
        remedy = "take both on the same subnet at the same time"
        findings.append(
            told(
                "table-without-switch",
                Severity.WARNING,
                sides,
                message,
                remedy,
                count=len(strange),
            )
        )
    if without:
        message = (
            f"{len(without)} switches of {sides[0]} have no forwarding table in {sides[1]} "
            f"({some(without, 4)}); {matched} have one"
        )
        remedy = "dump the tables of every switch: dump_fts, or opensm's lfts file"
        findings.append(
            told(
                "switch-without-table",
                Severity.WARNING,
                sides,
                message,
                remedy,
                count=len(without),
            )
        )
    return findings


def _lids(sides: tuple[str, str], fabric: Facts) -> list[Finding]:
    """Say when two adapters have one LID: tables of two subnets cannot be followed together."""
    lids = Counter(nic.lid for nic in fabric.nics or () if nic.lid is not None)
    twice = sorted(lid for lid, count in lids.items() if count > 1)
    if not twice:
        return []
    message = (
        f"{len(twice)} LIDs belong to two adapters of {sides[0]} each (LID {twice[0]}): the fabric "
        "is of two subnets, and a table speaks of one"
    )
    remedy = "give the listing and the tables of one subnet at a time"
    return [told("lid-twice", Severity.WARNING, sides, message, remedy, count=len(twice))]
