"""The fabric of a file alone: all hosts it names, with the adapters it shows and nothing inside.

Enough for what concerns switches only (which hosts share leaves, a scheduler's topology file).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from meshwright.cluster.assembly.wiring import facts_wiring
from meshwright.cluster.build import HostSet, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.facts import Facts
from meshwright.cluster.nodes.node import NodeNic, NodeType
from meshwright.cluster.nodes.pcie import local_graph
from meshwright.cluster.sections import FabricSection
from meshwright.cluster.sizes import too_large
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place


def fabric_of_facts(facts: Facts) -> tuple[Fabric, list[Finding]]:
    """Return the fabric of a source with hosts and switches, and what was found on the way.

    Raises ``InputError`` where it is too large.
    """
    findings: list[Finding] = []
    names = list(facts.hosts or ())
    most = max(Counter(nic.host for nic in facts.nics or () if nic.host).values(), default=1)
    nics = tuple(NodeNic(f"nic{index}", None) for index in range(most))
    node = NodeType(
        name="host of unknown GPUs",
        gpu=None,
        num_gpus=1,
        nics=nics,
        nic_of_gpu=(0,),
        nvlink="unknown",
        nvlink_bytes_per_s=None,
        graph=local_graph(["gpu0", *(nic.name for nic in nics)], [], [], 0.0, 0.0),
    )
    place = Place(file=facts.path)
    too_many = too_large(len(names), node)
    if too_many is not None:
        raise InputError(Problem(place, too_many[0], remedy=too_many[1]))
    hosts = HostSet(names, (node,), np.zeros(len(names), dtype=np.int32))
    wiring = facts_wiring(facts, hosts, FabricSection(), findings, lambda _key: place)
    return build_fabric(hosts, wiring=wiring), findings
