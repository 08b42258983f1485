"""Tiers: arrays that say in which domain of each level every slot lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric

TIERS = ("gpu", "host", "nvlink_domain", "leaf", "unit", "pod", "fabric")
"""Levels, the nearest first. ``leaf`` goes by the GPU's NIC, so leaves do not nest in hosts."""
NETWORK_TIERS = ("leaf", "unit", "pod", "fabric")


@dataclass(frozen=True, slots=True)
class Tier:
    """One level: ``domain_of_slot[S]`` (no negative numbers)."""

    name: str
    domain_of_slot: NDArray[np.int64]


def tiers_of(fabric: Fabric) -> list[Tier]:
    """Return the tiers of which the fabric knows something.

    A slot whose domain of a tier is unknown is a domain of its own there; a tier on which every
    slot is unknown is left out (unknown is not *one each*).
    """
    slot = np.arange(fabric.num_slots, dtype=np.int64)
    found = [Tier("gpu", slot), Tier("host", fabric.host_of_slot.astype(np.int64))]
    leaf = fabric.leaf_of_slot.astype(np.int64)
    known = {"nvlink_domain": fabric.nvlink_domain_of_slot.astype(np.int64), "leaf": leaf}
    network = fabric.network
    if network is not None:
        for name, of_leaf in (
            ("unit", network.unit_of_leaf),
            ("pod", network.pod_of_leaf),
            ("fabric", network.component_of_leaf),
        ):
            known[name] = np.where(leaf >= 0, of_leaf[np.maximum(leaf, 0)], -1).astype(np.int64)
    if any(one.nvlink == "mesh" for one in fabric.node_types):
        known.pop("nvlink_domain")  # a mesh joins some pairs: no domain says it
    elif all(one.nvlink == "none" for one in fabric.node_types):
        known["nvlink_domain"] = slot  # no NVLink: each GPU alone
    for name in TIERS[2:]:
        domain = known.get(name)
        if domain is not None and (domain >= 0).any():
            found.append(Tier(name, np.where(domain >= 0, domain, domain.max() + 1 + slot)))
    return found
