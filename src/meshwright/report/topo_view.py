"""What ``topo`` looks at: sources apart and together, and what is found in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from meshwright.cluster.allocations.allocation import Allocation
from meshwright.cluster.allocations.allocation_findings import allocation_findings
from meshwright.cluster.allocations.completeness import clique_findings, tier_findings
from meshwright.cluster.assembly.fabric_of_facts import fabric_of_facts
from meshwright.cluster.degraded import degradations, without_told
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.facts import Facts
from meshwright.cluster.join.adapter_hosts import still_unplaced
from meshwright.cluster.join.all_sources import Joined, join_sources
from meshwright.cluster.join.kinds import is_fabric, is_host, is_tables
from meshwright.cluster.join.places_tree import network_tree
from meshwright.cluster.join.same_findings import folded
from meshwright.cluster.networks.table_faults import table_findings
from meshwright.cluster.nodes.choose import Choice
from meshwright.cluster.nodes.rack_scale import of_sources
from meshwright.cluster.switches.switch_levels import SwitchLevels, derive_levels
from meshwright.errors import UsageError
from meshwright.findings import Finding, by_severity


@dataclass(frozen=True)
class TopoView:
    """The sources of one call of ``topo``, and the questions asked of them."""

    sources: tuple[Facts, ...]
    choice: Choice | None = None
    allocation: Allocation | None = None
    more: tuple[Finding, ...] = ()
    """Findings of what was written from the sources."""

    def with_findings(self, more: Sequence[Finding]) -> TopoView:
        """Return the view with findings of what was made from it."""
        return replace(self, more=(*self.more, *more))

    def fabric(self) -> Fabric:
        """Return the switches and hosts of the cables, else of the tree.

        Raises ``UsageError`` where no source joins hosts.
        """
        if self.joined is not None:
            facts = self.joined.fabric or self.joined.tree
        else:
            only = self.sources[0]
            facts = only if is_fabric(only) else network_tree([only])[0]
        if facts is None:
            raise UsageError("no source says which hosts share a switch")
        return fabric_of_facts(facts)[0]

    @cached_property
    def joined(self) -> Joined | None:
        """All sources together; ``None`` where there is one."""
        return join_sources(self.sources) if len(self.sources) > 1 else None

    @cached_property
    def parts(self) -> tuple[Facts, ...]:
        """What there is, each thing once: files of one host and of one fabric are one part."""
        if self.joined is None:
            return self.sources
        single = {one.name: one.facts for one in self.joined.hosts if len(one.hosts) <= 1}
        merged = {
            path for one in self.joined.hosts if len(one.hosts) <= 1 for path in one.sources
        } - {facts.path for facts in self.joined.apart}
        fabric = self.joined.fabric
        apart = {id(facts) for facts in self.joined.apart}
        rest = [
            facts
            for facts in self.sources
            if id(facts) in apart
            or not (
                (is_host(facts) and facts.path in merged)
                or (fabric is not None and (is_fabric(facts) or is_tables(facts)))
            )
        ]
        return (*single.values(), *([] if fabric is None else [fabric]), *rest)

    def levels(self, facts: Facts) -> SwitchLevels | None:
        """Return leaves, spines and rails of one of the parts or sources; ``None`` without cables."""
        if not facts.cables:
            return None
        known = self._levels.get(id(facts))
        if known is None:
            known = self._levels[id(facts)] = derive_levels(facts)
        return known

    @cached_property
    def _levels(self) -> dict[int, SwitchLevels]:
        return {}

    @cached_property
    def findings(self) -> list[Finding]:
        """Everything found: by the readers, in each part, between sources; errors first."""
        fabric = self.joined.fabric if self.joined is not None else None
        found = [one for facts in self.sources for one in still_unplaced(facts, fabric)]
        read = tuple(found)
        told = {(finding.rule, finding.place.file) for finding in read}
        given = {id(facts) for facts in self.sources}
        for facts in self.parts:
            degraded = degradations(facts, self.levels(facts))
            if id(facts) not in given:  # merged: its readers have looked at the parts
                degraded = without_told(degraded, read)
            found += [one for one in degraded if (one.rule, one.place.file) not in told]
            if facts.tables is not None and facts.cables is not None:
                found += table_findings(facts)
        found += self.joined.findings if self.joined is not None else ()
        found += tier_findings(self.sources)
        found += clique_findings(self.sources)
        hosts = self.sources if self.joined is None else [one.facts for one in self.joined.hosts]
        found += of_sources(self.sources, filter(is_host, hosts) if self.joined is None else hosts)
        found += allocation_findings(self.allocation) if self.allocation is not None else ()
        found += self.more
        return by_severity(folded(found, self.sources))


def topo_view(
    sources: Sequence[Facts], choice: Choice | None = None, allocation: Allocation | None = None
) -> TopoView:
    """Return the view of these sources."""
    return TopoView(tuple(sources), choice, allocation)
