"""Whether two sources put the same hosts under the same leaves, and which hosts are odd.

A host has a leaf for each rail, so cables give it a unit: the hosts under one set of leaves. Names
of leaves differ between sources; what is compared is who is together. Where both use the same names,
a host under a leaf that the other source has too, with other hosts, is a conflict as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from meshwright.cluster.join.groupings import Split, shown, splits
from meshwright.cluster.join.hosts_said import HostsSaid
from meshwright.cluster.join.said import some, told
from meshwright.cluster.natural_order import natural_key
from meshwright.findings import Finding, Number, Severity

_LISTED = 100
_SHOWN = 3


class Misplaced(msgspec.Struct, frozen=True):
    """One host that the second source puts with the hosts of another leaf."""

    host: str
    there: str
    """Its leaf in the second source."""
    here: tuple[str, ...]
    """Its leaves in the first one."""
    usual: str | None
    """The second source's leaf of the hosts that are under these leaves."""


def leaf_findings(said: Sequence[HostsSaid]) -> list[Finding]:
    """Compare each source's leaves with those of the first source that has any."""
    placed = [one for one in said if one.leaf]
    return [finding for other in placed[1:] for finding in _compare(placed[0], other)]


def _compare(first: HostsSaid, other: HostsSaid) -> list[Finding]:
    sides = (first.path, other.path)
    kind = "units of the cables" if first.kind == "fabric" else "leaves"
    found = splits(other.leaf, first.leaf)
    odd = _misplaced(first, other)
    if odd or found:
        return [_conflict(first, other, found, odd)]
    finer = splits(first.leaf, other.leaf)
    if not finer:
        return []
    message = (
        f"{other.path} divides {len(finer)} {kind.partition(' of')[0]} of {first.path} further: "
        f"{shown(finer, 'leaves')}"
    )
    return [told("leaf-finer", Severity.NOTE, sides, message, None, count=len(finer))]


def _misplaced(first: HostsSaid, other: HostsSaid) -> list[Misplaced]:
    """Return the hosts that are not where most hosts of their leaf are, or not where their leaf's name is."""
    common = [key for key in other.leaf if key in first.leaf]
    unit_of = _most({key: other.leaf[key] for key in common}, first.leaf)
    odd = [key for key in common if first.leaf[key] != unit_of[other.leaf[key]]]
    known = set(odd)
    odd += [key for key in _other_names(first, other, common) if key not in known]
    known.update(odd)
    leaf_of = _most({key: first.leaf[key] for key in common if key not in known}, other.leaf)
    odd.sort(key=natural_key)
    result = []
    for key in odd:
        usual = leaf_of.get(first.leaf[key])
        there = other.leaf[key]
        here = first.leaves.get(key, (first.leaf[key],))
        name = other.hosts.get(key, key)
        result.append(Misplaced(name, there, here, usual if usual != there else None))
    return result


def _most(groups: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Return for each group the other source's group in which most of its hosts are."""
    counts: dict[str, Counter[str]] = {}
    for key, group in groups.items():
        counts.setdefault(group, Counter())[others[key]] += 1
    return {
        group: min(found, key=lambda one: (-found[one], one)) for group, found in counts.items()
    }


def _other_names(first: HostsSaid, other: HostsSaid, common: Sequence[str]) -> list[str]:
    """Return hosts under a leaf that the first source has too and does not put them under.

    Only where the names are the same ones in both: at least half the hosts under a leaf of such a
    name are under it in the first source as well.
    """
    here = {key: first.leaves.get(key, (first.leaf[key],)) for key in common}
    names = {name for leaves in first.leaves.values() for name in leaves}
    names |= set() if first.kind == "fabric" else set(first.leaf.values())
    same = [key for key in common if other.leaf[key] in names]
    odd = [key for key in same if other.leaf[key] not in here[key]]
    return odd if odd and 2 * (len(same) - len(odd)) >= len(same) else []


def _conflict(
    first: HostsSaid, other: HostsSaid, found: Sequence[Split], odd: Sequence[Misplaced]
) -> Finding:
    sides = (first.path, other.path)
    cables = first.kind == "fabric"
    said = "; ".join(_words(one, other.path, first.path, cables=cables) for one in odd[:_SHOWN])
    more = f"; {len(odd) - _SHOWN} more hosts" if len(odd) > _SHOWN else ""
    leaves = ""
    if found:
        kind = "units of the cables" if cables else "leaves"
        verb = "leaf" if len(found) == 1 else "leaves"
        holds = "holds" if len(found) == 1 else "hold"
        leaves = (
            f"{len(found)} {verb} of {other.path} {holds} hosts that {first.path} puts apart: "
            f"{shown(found, kind)}"
        )
    numbers: dict[str, Number] = {
        "count": len(found),
        "hosts": len(odd),
        "leaves": [[one.group, [list(part) for part in one.parts[:16]]] for one in found[:_LISTED]],
        "misplaced": [
            {"host": one.host, "there": one.there, "here": [*one.here[:16]], "usual": one.usual}
            for one in odd[:_LISTED]
        ],
    }
    names = some([one.host for one in odd], 4)
    remedy = (
        f"correct {names} in {_name(other.path)}, or look where their cables are plugged"
        if cables
        else f"correct {names} in one of the two files; a listing of the fabric (ibnetdiscover) "
        "says which is right"
    )
    message = f"{said}{more}{'. ' if leaves else ''}{leaves}".strip()
    return told("conflict-leaf", Severity.WARNING, sides, message, remedy, **numbers)


def _words(one: Misplaced, other: str, first: str, *, cables: bool) -> str:
    """Return ``n02 is in u1 by labels.json; its cables are on leaf-00, leaf-01 with the hosts of u0``."""
    leaves = some(one.here, 8)
    company = f" with the hosts of {one.usual}" if one.usual else ""
    if cables:
        return f"{one.host} is in {one.there} by {other}; its cables are on {leaves}{company}"
    return f"{one.host} is in {one.there} by {other} and in {leaves} by {first}"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
