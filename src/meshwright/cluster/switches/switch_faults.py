"""Likely faults in a switched fabric's cabling, as findings.

What is usual decides: an adapter on another leaf than the same adapter of most hosts, a unit
without a leaf that like units have, a leaf-spine pair with fewer cables than most pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from meshwright.cluster.switch_names import short_name
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural

_FULL_MESH = 0.9
"""Share of leaf-spine pairs with a cable from which a pair without one counts as missing."""
_LISTED = 100


_REMEDY = {
    "topology/leaf-missing": "look whether the switch is down, or the listing was taken from one side of it",
    "topology/spine-cables-missing": "look for cables that are down on these ports (iblinkinfo)",
    "topology/plane-missing": "look at the switches of this plane there, and whether the listing holds this plane whole",
    "topology/units-not-judged": "compare the cables of these leaves with the cable plan",
    "topology/spine-unreached": "look for cables that are down, or for a design with fewer spines a leaf",
}
"""What to do about a fault, where something can be done."""


class MissingLeaf(msgspec.Struct, frozen=True):
    """A leaf that a unit lacks; ``rail`` and ``adapter`` are ``None`` where no one can tell."""

    unit: int
    rail: int | None
    adapter: str | None
    hosts: int
    first_host: str


class MissingPlane(msgspec.Struct, frozen=True):
    """A port of all its adapters for which a unit has no leaf; ``others``: units that have them."""

    unit: int
    port: int
    adapters: tuple[str, ...]
    hosts: tuple[str, ...]
    others: int


Pod = Mapping[tuple[str, str], int]
"""Number of cables by leaf and spine, of one connected part of the fabric."""


class FaultFinder:
    """Makes findings on the fabric of one file; ``names`` has each switch's name by its id."""

    def __init__(self, path: str, names: Mapping[str, str]) -> None:
        self._path = path
        self._names = names

    def _short(self, switch: str) -> str:
        return short_name(self._names[switch])

    def rails_unknown(self, unit: int, leaves: Sequence[str]) -> Finding:
        """Note a unit whose adapters do not tell its leaves (ids) apart."""
        names = [self._names[leaf] for leaf in leaves]
        message = (
            f"unit {unit}: the adapters of its hosts do not tell its {len(leaves)} leaves apart "
            f"({', '.join(map(short_name, names[:8]))}), so their rails are unknown"
        )
        numbers: dict[str, Number] = {"unit": unit, "leaves": [*names[:_LISTED]]}
        return self._finding("topology/rails-unknown", Severity.NOTE, message, numbers)

    def units_not_judged(self, leaves: Sequence[str]) -> list[Finding]:
        """Note leaves (ids) with two cables of which no one can tell whether they are as planned."""
        if not leaves:
            return []
        names = [self._names[leaf] for leaf in leaves]
        message = (
            f"{plural(len(leaves), 'leaf', 'leaves')} with two host cables each cannot be judged "
            f"({', '.join(map(short_name, names[:8]))}{', ...' if len(names) > 8 else ''}): with two hosts a leaf, "
            "swapped cables look like another plan"
        )
        numbers: dict[str, Number] = {"count": len(names), "leaves": [*names[:_LISTED]]}
        return [self._finding("topology/units-not-judged", Severity.NOTE, message, numbers)]

    def leaf_missing(self, missing: MissingLeaf) -> Finding:
        """Report a leaf that a unit lacks."""
        what = "a leaf fewer than most units"
        if missing.rail is not None:
            what = f"no leaf for rail {missing.rail} (adapter {missing.adapter})"
        message = (
            f"unit {missing.unit} ({missing.hosts} hosts, first {missing.first_host}) has {what}"
        )
        numbers: dict[str, Number] = {
            "unit": missing.unit,
            "rail": missing.rail,
            "adapter": missing.adapter,
            "hosts": missing.hosts,
            "first_host": missing.first_host,
        }
        return self._finding("topology/leaf-missing", Severity.WARNING, message, numbers)

    def plane_missing(self, missing: MissingPlane) -> Finding:
        """Report a plane that a unit lacks: one port of all its adapters."""
        hosts, adapters = missing.hosts, missing.adapters
        has = "another unit has" if missing.others == 1 else f"{missing.others} other units have"
        message = (
            f"unit {missing.unit} ({plural(len(hosts), 'host')}: {', '.join(hosts[:4])}"
            f"{', ...' if len(hosts) > 4 else ''}) has no leaf for port {missing.port} of its adapters "
            f"({', '.join(adapters[:8])}), which {has}: the whole plane is missing"
        )
        numbers: dict[str, Number] = {
            "unit": missing.unit,
            "port": missing.port,
            "adapters": [*adapters[:_LISTED]],
            "hosts": [*hosts[:_LISTED]],
            "hosts_of_unit": len(hosts),
            "units_with_plane": missing.others,
        }
        return self._finding("topology/plane-missing", Severity.WARNING, message, numbers)

    def spine_cables(self, pods: Iterable[Pod]) -> list[Finding]:
        """Report leaf-spine pairs with fewer cables than usual, or with none in a full mesh.

        Usual is what more than half of the pairs of the same pod have.
        """
        findings: list[Finding] = []
        for pod in pods:
            usual, frequency = Counter(pod.values()).most_common(1)[0]
            if frequency * 2 > len(pod):
                thin: dict[str, dict[str, int]] = defaultdict(dict)
                for (leaf, spine), count in pod.items():
                    if count < usual:
                        thin[leaf][spine] = count
                findings += [self._thin(thin, usual)] if thin else []
            findings += self._absent(pod)
        return findings

    def _thin(self, thin: Mapping[str, Mapping[str, int]], usual: int) -> Finding:
        """``thin``: cables by leaf and spine, where there are fewer than usual."""
        names = self._names
        listed = list(thin.items())[:_LISTED]
        shown = [
            f"{self._short(leaf)}: {', '.join(f'{n} to {self._short(spine)}' for spine, n in own.items())}"
            for leaf, own in listed
        ]
        have = "has" if len(thin) == 1 else "have"
        message = (
            f"{plural(len(thin), 'leaf', 'leaves')} {have} fewer cables than the usual {usual} to a spine: "
            f"{'; '.join(shown[:20])}{' …' if len(thin) > 20 else ''}"
        )
        numbers: dict[str, Number] = {
            "usual": usual,
            "count": len(thin),
            "leaves": [names[leaf] for leaf, _ in listed],
            "spines_by_leaf": {
                names[leaf]: {names[spine]: n for spine, n in own.items()} for leaf, own in listed
            },
        }
        return self._finding("topology/spine-cables-missing", Severity.WARNING, message, numbers)

    def _absent(self, pod: Pod) -> list[Finding]:
        """Report the pairs without a cable where nearly every leaf reaches every spine."""
        spines = dict.fromkeys(spine for _, spine in pod)
        reached: dict[str, set[str]] = defaultdict(set)
        for leaf, spine in pod:
            reached[leaf].add(spine)
        possible = len(spines) * len(reached)
        if len(pod) == possible or len(pod) < _FULL_MESH * possible:
            return []
        names = self._names
        absent = {
            leaf: [spine for spine in spines if spine not in own]
            for leaf, own in reached.items()
            if len(own) < len(spines)
        }
        listed = list(absent.items())[:_LISTED]
        shown = "; ".join(
            f"{self._short(leaf)} to {', '.join(map(self._short, far))}"
            for leaf, far in listed[:20]
        )
        count = possible - len(pod)
        have = "has" if count == 1 else "have"
        message = f"{count} of {possible} leaf-spine pairs {have} no cable: {shown}"
        numbers: dict[str, Number] = {
            "absent": count,
            "pairs": possible,
            "spines_by_leaf": {
                names[leaf]: [names[spine] for spine in far[:_LISTED]] for leaf, far in listed
            },
        }
        return [self._finding("topology/spine-unreached", Severity.WARNING, message, numbers)]

    def without_hosts(self, levels: Mapping[str, int]) -> list[Finding]:
        """Note the switches without a level, unless no switch has one."""
        apart = [name for switch, name in self._names.items() if switch not in levels]
        if not apart or not levels:
            return []
        shown = ", ".join(map(short_name, apart[:8])) + (", ..." if len(apart) > 8 else "")
        have = "has" if len(apart) == 1 else "have"
        count = plural(len(apart), "switch", "switches")
        message = f"{count} {have} no way to any host, so no level: {shown}"
        numbers: dict[str, Number] = {"count": len(apart), "switches": [*apart[:_LISTED]]}
        return [self._finding("topology/switch-without-hosts", Severity.NOTE, message, numbers)]

    def _finding(
        self, rule: str, severity: Severity, message: str, numbers: dict[str, Number]
    ) -> Finding:
        return Finding(rule, severity, Place(self._path), message, numbers, _REMEDY.get(rule))
