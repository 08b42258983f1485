"""What is degraded in the hardware that a source shows: links down, cables wrong, things twice.

Peers decide: a GPU, a port or a host is odd where what is like it has more. Each finding says the
numbers, where, and what to do. One fault gives one finding.
"""

from __future__ import annotations

from meshwright.cluster.degraded.cable_rates import cable_rate_findings
from meshwright.cluster.degraded.duplicates import duplicate_findings
from meshwright.cluster.degraded.leaf_only import leaf_only_findings
from meshwright.cluster.degraded.nvlink import nvlink_findings
from meshwright.cluster.degraded.nvlink_model import below_model
from meshwright.cluster.degraded.one_fault import without_told
from meshwright.cluster.degraded.pcie_paths import far_nics, pcie_rate_findings
from meshwright.cluster.degraded.planes import plane_findings
from meshwright.cluster.facts import Facts
from meshwright.cluster.switches.switch_levels import Cabling, SwitchLevels, derive_levels
from meshwright.findings import Finding


def degradations(facts: Facts, levels: SwitchLevels | None = None) -> list[Finding]:
    """Return what is degraded in a source, beyond what its reader has found (``facts.findings``).

    ``levels``: those of the same facts, where they are known already; their findings are among
    the result. What a reader has reported is not reported again. Linear in the size of the facts.
    """
    rules = {finding.rule for finding in facts.findings}
    # Pairs that differ by direction are reported, and not to be compared with others.
    uneven = rules & {"topology/nvlink-asymmetric", "topology/matrix-asymmetric"}
    found = [
        *([] if uneven else nvlink_findings(facts)),
        *below_model(facts),
        *far_nics(facts),
        *pcie_rate_findings(facts),
        *duplicate_findings(facts),
    ]
    if facts.cables:
        levels = derive_levels(facts) if levels is None else levels
        cabling = Cabling(facts)
        found += [
            *levels.findings,
            *plane_findings(facts.path, cabling, levels),
            *cable_rate_findings(facts, cabling, levels),
        ]
    found += leaf_only_findings(facts, levels)
    return without_told(found, facts.findings)


__all__ = ["degradations", "without_told"]
