"""The record of what can be said of a job before anything is routed."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.chain.cluster_of_job import Cluster
from meshwright.chain.jobfile import Job
from meshwright.cluster.fabric import Fabric
from meshwright.findings import Finding, has_errors
from meshwright.groups.kinds import GroupKind
from meshwright.job.batch import Batch
from meshwright.job.layout import Layout
from meshwright.job.model import Model
from meshwright.placement.rank_table import RankTable


@dataclass(slots=True)
class Outline:
    """Layout, model, batch, cluster and group kinds of a job.

    ``kinds`` is empty when a finding is an error: the groups do not exist then.
    """

    job: Job
    layout: Layout
    model: Model | None
    batch: Batch
    cluster: Cluster | None
    table: RankTable | None
    kinds: list[GroupKind] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    hosts_gpus: int | None = None
    """GPUs of the hosts that the job names, where it names some."""

    @property
    def fabric(self) -> Fabric | None:
        """The fabric, where the job names one."""
        return self.cluster.fabric if self.cluster is not None else None

    @property
    def num_gpus(self) -> int:
        """GPUs the job has (0 without a cluster): of its hosts, else of the cluster or its allocation."""
        if self.hosts_gpus is not None:
            return self.hosts_gpus
        return self.cluster.num_gpus if self.cluster is not None else 0

    @property
    def is_legal(self) -> bool:
        """Tell whether the groups exist."""
        return not has_errors(self.findings)
