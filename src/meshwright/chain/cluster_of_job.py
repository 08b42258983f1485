"""The cluster of a job: inline, a file of its own, a preset by name, or only a rank table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshwright.chain.cluster_preset import expand_preset, node_notes
from meshwright.chain.jobfile import ALIASES, Job, is_there
from meshwright.cluster.assembly.merge import allocated, merge_cluster, merge_network
from meshwright.cluster.build import HostSet, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.nodes.presets import bare_node
from meshwright.cluster.sections import ClusterSection
from meshwright.documents import decode, read_document
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity
from meshwright.placement.rank_table import RankTable, read_rank_table, table_of_rows
from meshwright.placement.section import RankRow

PlaceOf = Callable[[str], Place]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The fabric of a job, a short description and the findings made on the way.

    ``allocation``: the hosts the job has, in rank order, where the fabric holds others too.
    """

    fabric: Fabric
    description: str
    findings: tuple[Finding, ...]
    allocation: tuple[str, ...] | None = None

    @property
    def num_gpus(self) -> int:
        """GPUs the job has."""
        if self.allocation is None:
            return self.fabric.num_slots
        wanted = set(self.allocation)
        counts = np.diff(self.fabric.slot_start).tolist()
        return sum(
            count
            for name, count in zip(self.fabric.host_names, counts, strict=True)
            if name in wanted
        )


def load_cluster(path: Path, *, needs_node: bool = True) -> Cluster:
    """Read a cluster file. Raises ``InputError``.

    ``needs_node``: refuse a file without a node type; else its network stands alone.
    """
    problems: list[Problem] = []
    decoded = decode(read_document(path, problems=problems), ClusterSection, aliases=ALIASES)
    if problems:
        raise InputError(*problems, *decoded.problems)
    section, folder = decoded.required(), path.resolve().parent
    if not needs_node and section.node is None and section.preset is None:
        network = merge_network(section, folder, decoded.place)
        if network is not None:
            fabric, findings = network
            names = allocated(section, fabric)
            allocation = tuple(names) if names else None
            return Cluster(fabric, describe(fabric), tuple(findings), allocation)
    return _merge(section, folder, decoded.place)


def _merge(section: ClusterSection, folder: Path, place: PlaceOf) -> Cluster:
    section, notes = expand_preset(section, place)
    fabric, findings = merge_cluster(section, folder, place)
    names = allocated(section, fabric)
    found = (*notes, *node_notes(section, place), *findings)
    return Cluster(fabric, describe(fabric), found, tuple(names) if names else None)


def cluster_of_job(job: Job, table: RankTable | None) -> Cluster | None:
    """Return the cluster of a job; ``None`` when the job names none and no rank table."""
    given = job.file.cluster
    if given is None:
        return _cluster_of_table(job, table) if table is not None else None
    if isinstance(given, ClusterSection):
        return _merge(
            given, job.folder, lambda key: job.place(f"cluster.{key}" if key else "cluster")
        )
    path = job.folder / given
    if is_there(path):
        if not path.is_file():
            message = f"{given[:200]!r} is no file: a cluster file or a preset is meant"
            raise InputError(Problem(job.place("cluster"), message, remedy="cluster: dgx-h100 x 2"))
        return load_cluster(path)
    section = ClusterSection(preset=given)
    return _merge(section, job.folder, lambda _key: job.place("cluster"))


def _cluster_of_table(job: Job, table: RankTable) -> Cluster:
    """Return bare hosts as a rank table names them: spans work, loads do not."""
    names = list(dict.fromkeys(table.hosts))
    most = max(table.gpus, default=0) + 1
    if most > 1 << 16:
        raise InputError(
            Problem(job.place("placement.ranks"), f"GPU {most - 1} is no GPU of a host")
        )
    hosts = HostSet(names, (bare_node(most),), np.zeros(len(names), dtype=np.int32))
    note = Finding(
        "topology/only-rank-table",
        Severity.NOTE,
        job.place("placement.ranks"),
        f"no cluster is given: {len(names)} hosts of {most} GPUs are taken from the rank table; "
        "paths and loads are unknown.",
        {"hosts": len(names), "gpus_per_host": most},
        f"cluster: {{node: dgx-h100, hosts: [{', '.join(names[:8])}{', …' if len(names) > 8 else ''}]}}",
    )
    fabric = build_fabric(hosts)
    return Cluster(fabric, describe(fabric), (note,))


def rank_table_of(job: Job) -> RankTable | None:
    """Return the rank table of a job, where it has one. Raises ``InputError``."""
    ranks = job.file.placement.ranks
    if ranks is None:
        return None
    if isinstance(ranks, str):
        path = job.folder / ranks
        if not is_there(path):
            raise InputError(Problem(job.place("placement.ranks"), f"no such file: {ranks[:200]}"))
        if not path.is_file():
            message = f"{ranks[:200]!r} is no file"
            raise InputError(Problem(job.place("placement.ranks"), message))
        if path.suffix in (".json", ".yaml", ".yml"):
            return _rank_rows(path)
        return read_rank_table(path)
    if not ranks:
        raise InputError(Problem(job.place("placement.ranks"), "names no rank"))
    return table_of_rows(
        [(job.place(f"placement.ranks[{index}]"), row) for index, row in enumerate(ranks)]
    )


def _rank_rows(path: Path) -> RankTable:
    """Read a list of ``[rank, host, gpu]`` (or ``[host, gpu]``) from a JSON or YAML file."""
    decoded = decode(read_document(path), tuple[RankRow, ...])
    rows = decoded.required()
    if not rows:
        raise InputError(Problem(decoded.place(""), "names no rank"))
    return table_of_rows([(decoded.place(f"[{index}]"), row) for index, row in enumerate(rows)])


def describe(fabric: Fabric) -> str:
    """Return ``2 × dgx-h100``, by node type."""
    counts = np.bincount(fabric.type_of_host, minlength=len(fabric.node_types))
    parts = [
        f"{count} × {node.name}"
        for count, node in zip(counts.tolist(), fabric.node_types, strict=True)
        if count
    ]
    return ", ".join(parts)
