"""InfiniBand samples: cables counted by the kinds of their ends, as the manifest does."""

from __future__ import annotations

import json
from collections import Counter

from meshwright.cluster.facts import Facts


def link_counts(facts: Facts) -> Counter[str]:
    """Return cables by kind; every end must be an id of the facts."""
    kind = {nic.guid: "nic" for nic in facts.nics or ()}
    kind |= {switch.id: "switch" for switch in facts.switches or ()}
    kind |= {device.id: "other" for device in facts.other_devices or ()}
    counts: Counter[str] = Counter()
    for cable in facts.cables or ():
        ends = {kind[cable.a], kind[cable.b]}
        name = "links_nic" if "nic" in ends else "links_switch_switch"
        counts["links_to_other_devices" if "other" in ends else name] += 1
    return counts


def check_x_info(facts: Facts, row: dict[str, str]) -> None:
    """Compare the further counts of a sample."""
    expected = json.loads(row["x_info"])
    counts = link_counts(facts)
    assert {key: counts[key] for key in expected} == expected, row["file"]
