"""Sources that show leaves and nothing above them: every two leaves look equally far."""

from __future__ import annotations

from meshwright.cluster.degraded.peers import some
from meshwright.cluster.facts import Facts
from meshwright.cluster.switch_names import short_name
from meshwright.cluster.switches.switch_levels import SwitchLevels
from meshwright.findings import Finding, Number, Place, Severity

_LISTED = 100
_RULE = "topology/spine-tier-unknown"


def leaf_only_findings(facts: Facts, levels: SwitchLevels | None) -> list[Finding]:
    """Report a fabric, or a scheduler's tree, of several leaves without a switch above them."""
    if levels is not None and facts.cables:
        return _of_cables(facts, levels)
    return []


def leaf_only(path: str, names: list[str], line: int | None, why: str, remedy: str) -> Finding:
    """Return the finding on leaves of these names."""
    message = (
        f"{len(names)} leaves ({some([short_name(name) for name in names], 4)}) and no switch above them: the spine tier is unknown, so all "
        f"leaves look equally far from each other{why}"
    )
    numbers: dict[str, Number] = {"count": len(names), "names": [*names[:_LISTED]]}
    return Finding(_RULE, Severity.WARNING, Place(path, line), message, numbers, remedy)


def _of_cables(facts: Facts, levels: SwitchLevels) -> list[Finding]:
    leaves = [switch for switch, level in levels.level_by_switch.items() if level == 0]
    names = {switch.id: switch.name for switch in facts.switches or ()}
    joined = any(
        cable.a in names and cable.b in names and cable.a != cable.b for cable in facts.cables or ()
    )
    if len(leaves) < 2 or joined:
        return []
    # Rails that do not meet look the same: then hosts have a cable to each leaf.
    units = len({levels.unit_of_leaf[leaf] for leaf in leaves})
    why = "; of a rail-only fabric this is the whole" if units == 1 else ""
    remedy = (
        "list the fabric from a port that sees the spines (ibnetdiscover without a filter), or write "
        "fabric: {preset: rail-only} where rails do not meet"
    )
    return [leaf_only(facts.path, [names[leaf] for leaf in leaves], None, why, remedy)]
