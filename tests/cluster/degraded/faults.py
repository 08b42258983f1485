"""Faults put into a healthy fabric, and the one finding that they must give."""

from __future__ import annotations

import msgspec

from cluster.degraded.maker import Site, loud
from meshwright.cluster.facts import Facts
from meshwright.findings import Finding, Severity


def only_finding(facts: Facts, rule: str) -> Finding:
    """Return the one finding of a source: a warning of this rule, with a remedy."""
    (found,) = loud(facts)
    assert found.rule == f"topology/{rule}", found
    assert found.severity is Severity.WARNING
    assert found.remedy
    return found


def replaced(made: Site, at: int, **changes: object) -> Site:
    """Return the fabric with one port changed."""
    ports = list(made.ports)
    ports[at] = msgspec.structs.replace(ports[at], **changes)
    return Site(ports, list(made.trunks))


def swapped(made: Site, one: int, other: int) -> Site:
    """Exchange two cables at the leaves."""
    a, b = made.ports[one], made.ports[other]
    first = replaced(made, one, leaf=b.leaf, leaf_port=b.leaf_port)
    return replaced(first, other, leaf=a.leaf, leaf_port=a.leaf_port)
