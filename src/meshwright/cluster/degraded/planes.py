"""Planes and rails that a host lacks: an adapter that is absent, or one port of two without cable.

In a unit (hosts under one set of leaves) nearly every host has the same number of cables to each
leaf; a host with fewer there lacks one. What a whole unit lacks ``switch_levels`` finds, beside other units.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from meshwright.cluster.degraded.peers import some, usual
from meshwright.cluster.switch_names import short_name
from meshwright.cluster.switches.switch_levels import Cabling, SwitchLevels
from meshwright.cluster.switches.switch_swaps import Plug, doubled_hosts
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural, verb

_USUAL = 0.7
"""More than this share of a unit's hosts must have a cable for the others to lack it."""
_LEAST_HOSTS = 3
_LISTED = 100


def plane_findings(path: str, cabling: Cabling, levels: SwitchLevels) -> list[Finding]:
    """Return one finding for each host that lacks cables which its peers have.

    Where adapters without a host's name hang on the leaf, they may be the ones: only a leaf that
    has fewer cables than hosts is reported then. Linear in the number of cables.
    """
    plugs_of_host: dict[str, list[Plug]] = defaultdict(list)
    for plug in cabling.plugs:
        plugs_of_host[plug.host].append(plug)
    doubled = doubled_hosts(cabling.plugs)
    hosts_of_unit: dict[int, list[str]] = defaultdict(list)
    for host in plugs_of_host:
        if host not in doubled:
            hosts_of_unit[levels.unit_of_host[host]].append(host)
    leaves_of_unit: dict[int, list[str]] = defaultdict(list)
    for leaf, unit in levels.unit_of_leaf.items():
        leaves_of_unit[unit].append(leaf)
    found: list[Finding] = []
    for unit, hosts in hosts_of_unit.items():
        if len(hosts) >= _LEAST_HOSTS:
            own = {host: plugs_of_host[host] for host in hosts}
            found += _Unit(path, cabling, leaves_of_unit[unit], own).findings()
    return found


class _Unit:
    """The hosts of one unit, each with its cables."""

    def __init__(
        self, path: str, cabling: Cabling, leaves: Sequence[str], hosts: Mapping[str, list[Plug]]
    ) -> None:
        self._path = path
        self._names = cabling.names
        self._nameless = cabling.nameless
        self._leaves = leaves
        self._hosts = hosts
        self._count: dict[str, Counter[str]] = {leaf: Counter() for leaf in leaves}
        self._slots: dict[str, Counter[tuple[str, int | None]]] = defaultdict(Counter)
        for host, plugs in hosts.items():
            for plug in plugs:
                if plug.leaf in self._count:
                    self._count[plug.leaf][host] += 1
                    self._slots[plug.leaf][plug.name, plug.port] += 1

    def findings(self) -> list[Finding]:
        """Report what hosts of the unit lack."""
        lacking: dict[str, list[str]] = defaultdict(list)
        expected: dict[str, int] = {}
        found: list[Finding] = []
        for leaf in self._leaves:
            each = usual((self._count[leaf][host] for host in self._hosts), _USUAL)
            if not each:
                continue
            expected[leaf] = each
            lacks = [host for host in self._hosts if self._count[leaf][host] < each]
            hidden = self._nameless[leaf]
            if hidden:
                # Which of these hosts the nameless adapters are, no one can tell.
                missing = sum(each - self._count[leaf][host] for host in lacks) - hidden
                found += [self._leaf_lacks(leaf, lacks, missing)] if missing > 0 else []
                continue
            for host in lacks:
                lacking[host].append(leaf)
        for host, leaves in lacking.items():
            # Half of the planes or more are missing: another kind of host. A cable on the wrong
            # leaf is a finding of its own.
            own = len(expected) - sum(not self._count[leaf][host] for leaf in leaves)
            foreign = sum(plug.leaf not in self._count for plug in self._hosts[host])
            extra = sum(max(self._count[leaf][host] - n, 0) for leaf, n in expected.items())
            if own * 2 >= len(expected) and foreign + extra < len(leaves):
                found.append(self._host_lacks(host, leaves, expected))
        return found

    def _host_lacks(self, host: str, leaves: Sequence[str], expected: Mapping[str, int]) -> Finding:
        words, adapters = [], []
        for leaf in leaves:
            (name, port), _ = self._slots[leaf].most_common(1)[0]
            adapters.append(name)
            peers = sum(count >= expected[leaf] for count in self._count[leaf].values())
            words.append(
                f"{self._what(host, name, port)} to {short_name(self._names[leaf])} ({plural(peers, 'host')} of its unit {'has' if peers == 1 else 'have'} "
                f"{expected[leaf]} there, it has {self._count[leaf][host]})"
            )
        message = f"host {host} has no cable {'; '.join(words[:8])}"
        numbers: dict[str, Number] = {
            "host": host,
            "adapters": [*adapters],
            "leaves": [self._names[leaf] for leaf in leaves],
            "hosts_of_unit": len(self._hosts),
        }
        remedy = f"look at ibstat on {host}: is the adapter there, the port up, the cable in; then list the fabric again"
        place = Place(self._path, subject=host)
        return Finding("topology/plane-missing", Severity.WARNING, place, message, numbers, remedy)

    def _what(self, host: str, name: str, port: int | None) -> str:
        """Name what is missing, by the adapter that most hosts have on that leaf."""
        ports = sorted({plug.port or 0 for plug in self._hosts[host] if plug.name == name})
        if ports and port is not None and port not in ports:
            return f"from port {port} of {name} (only port {', '.join(map(str, ports))} is cabled)"
        return f"from {name}" if not ports else f"more from {name}"

    def _leaf_lacks(self, leaf: str, hosts: Sequence[str], missing: int) -> Finding:
        name = self._names[leaf]
        message = (
            f"leaf {short_name(name)} lacks {plural(missing, 'cable')}: {plural(len(hosts), 'host')} of its unit "
            f"{'has' if len(hosts) == 1 else 'have'} fewer by name than the others, and only "
            f"{plural(self._nameless[leaf], 'adapter')} there {verb(self._nameless[leaf])} without a host's name "
            f"({some(hosts, 8)})"
        )
        numbers: dict[str, Number] = {
            "leaf": name,
            "missing": missing,
            "nameless": self._nameless[leaf],
            "hosts": [*hosts[:_LISTED]],
        }
        remedy = "set the node description of the adapters (rdma-ndd), then list the fabric again"
        place = Place(self._path, subject=name)
        return Finding("topology/plane-missing", Severity.WARNING, place, message, numbers, remedy)
