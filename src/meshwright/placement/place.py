"""Where ranks sit: ``slot_by_rank[world_size]``, the slot (GPU) of every rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import Fabric
from meshwright.findings import Finding, Place, Severity
from meshwright.placement.rank_table import RankTable

Slots = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placement:
    """``slot_by_rank`` and the rule it follows (``hosts in order`` or ``table``)."""

    slot_by_rank: Slots
    rule: str


def nowhere() -> Placement:
    """Return the placement of a job that cannot run."""
    return Placement(np.empty(0, dtype=np.int64), "none")


def in_order(world_size: int) -> Placement:
    """Put rank r on slot r: hosts in the given order, GPUs in order."""
    return Placement(np.arange(world_size, dtype=np.int64), "hosts in order, GPUs in order")


def by_host_order(fabric: Fabric, hosts: Sequence[str], world_size: int) -> Placement:
    """Put ranks on hosts in the order given.

    Raises ``KeyError`` for a host that is not in the fabric, ``ValueError`` for a host named twice
    or where the hosts have fewer GPUs than there are ranks.
    """
    number = {name: index for index, name in enumerate(fabric.host_names)}
    order = np.array([number[name] for name in hosts], dtype=np.int64)
    if len(set(hosts)) != len(hosts):
        twice = next(name for name, count in Counter(hosts).items() if count > 1)
        raise ValueError(f"host {twice!r} is named twice; name each once, in rank order")
    counts = np.diff(fabric.slot_start)[order]
    if counts.sum() < world_size:
        raise ValueError(f"{len(hosts)} hosts have {counts.sum()} GPUs for {world_size} ranks")
    first = np.repeat(fabric.slot_start[order] - (np.cumsum(counts) - counts), counts)
    slots = first + np.arange(len(first))
    return Placement(slots[:world_size], "hosts in the order of placement.hosts, GPUs in order")


def by_table(fabric: Fabric, table: RankTable, place: Place) -> tuple[Placement, list[Finding]]:
    """Put ranks where a table says; unknown hosts and GPUs and GPUs used twice are findings."""
    number = {name: index for index, name in enumerate(fabric.host_names)}
    host = np.array([number.get(name, -1) for name in table.hosts], dtype=np.int64)
    gpu = np.array(table.gpus, dtype=np.int64)
    counts = np.diff(fabric.slot_start)
    wrong = (host < 0) | (gpu >= counts[np.maximum(host, 0)])
    findings = [
        Finding(
            "placement/no-such-gpu",
            Severity.ERROR,
            place,
            f"rank {rank} is on {table.hosts[rank]} GPU {table.gpus[rank]}, which the cluster does not have.",
            {"rank": int(rank), "host": table.hosts[rank], "gpu": table.gpus[rank]},
            "correct the table, or the cluster's hosts",
        )
        for rank in np.flatnonzero(wrong)[:10].tolist()
    ]
    slots = fabric.slot_start[np.maximum(host, 0)] + gpu
    values, uses = np.unique(slots[~wrong], return_counts=True)
    for slot in values[uses > 1][:10].tolist():
        ranks = np.flatnonzero((slots == slot) & ~wrong).tolist()
        name, index = fabric.slot_name(slot)
        findings.append(
            Finding(
                "placement/gpu-used-twice",
                Severity.ERROR,
                place,
                f"ranks {', '.join(map(str, ranks[:4]))} share {name} GPU {index}.",
                {"host": name, "gpu": index, "ranks": ranks[:4]},
                "one rank a GPU",
            )
        )
    return Placement(slots, "table of ranks"), findings


def grouped_by_host(fabric: Fabric, placement: Placement) -> Placement | None:
    """Return the same slots with ranks grouped by host (first appearance) and GPUs in order.

    ``None`` when they already are: the repair for a worker list that is not host by host.
    """
    host = fabric.host_of_slot[placement.slot_by_rank]
    _, first, where = np.unique(host, return_index=True, return_inverse=True)
    order = np.lexsort((fabric.gpu_of_slot[placement.slot_by_rank], first[where.ravel()]))
    slots = placement.slot_by_rank[order]
    if np.array_equal(slots, placement.slot_by_rank):
        return None
    return Placement(slots, "grouped by host, GPUs in order")
