"""What can be said before anything is routed: layout, model, cluster and which groups exist."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from meshwright.chain.cluster_of_job import Cluster, cluster_of_job, rank_table_of
from meshwright.chain.context import trying
from meshwright.chain.explicit import explicit_kinds
from meshwright.chain.hosts_of_job import gpus_of_hosts
from meshwright.chain.jobfile import Job, job_model
from meshwright.chain.outlined import Outline
from meshwright.chain.unused_keys import unused_keys
from meshwright.errors import InputError, Problem
from meshwright.groups.table import group_kinds
from meshwright.job.batch import resolve_batch
from meshwright.job.layout import resolve_layout
from meshwright.job.model_findings import model_findings
from meshwright.job.sections import LayoutSection
from meshwright.placement.rank_table import check_table
from meshwright.rules.grid import check_grid
from meshwright.rules.job import check_job_rules
from meshwright.rules.registry import RuleContext
from meshwright.rules.told import framework_notes
from meshwright.schedules.left_out import chunks_left_out


def outline_job(job: Job) -> Outline:
    """Resolve a job as far as its groups. Raises ``InputError`` for what cannot be read."""
    model = job_model(job)
    table = rank_table_of(job)
    cluster = cluster_of_job(job, table)
    gpus = cluster.num_gpus if cluster is not None else None
    named = gpus_of_hosts(job, cluster.fabric) if cluster is not None else None
    gpus = gpus if named is None else named
    explicit = job.file.groups is not None
    slots = cluster.fabric.num_slots if cluster is not None else None
    section = _whole_cluster(job, slots) if explicit else job.file.layout
    layout = resolve_layout(
        section,
        len(table.hosts) if table is not None else gpus,
        _gpus_per_host(cluster),
        chunks_left_out(section.framework, job.file.training.schedule),
    )
    batch = resolve_batch(job.file.batch, layout.dp, layout.framework, layout.pp)
    outline = Outline(job, layout, model, batch, cluster, table, hosts_gpus=named)
    context = RuleContext(layout, job.place, slots) if explicit else trying(outline)
    outline.findings += check_grid(context)
    outline.findings += check_job_rules(context, model, batch)
    if model is not None:
        outline.findings += model_findings(model, job.place("model"))
    outline.findings += unused_keys(job, layout)
    if table is not None:
        outline.findings += check_table(table, layout.world_size, job.place("placement.ranks"))
    if cluster is not None:
        outline.findings += cluster.findings
    if not outline.is_legal:
        return outline
    if explicit and cluster is not None:
        outline.kinds = [
            replace(kind, oracle="given by the job") for kind in explicit_kinds(job, cluster.fabric)
        ]
    else:
        outline.kinds = group_kinds(layout)
        per_host = _gpus_per_host(cluster)
        outline.findings += framework_notes(layout, section.framework_version, job.place, per_host)
    return outline


def _gpus_per_host(cluster: Cluster | None) -> int | None:
    """Return the GPUs of a host, where all hosts have as many."""
    if cluster is None or not cluster.fabric.num_hosts:
        return None
    sizes = np.diff(cluster.fabric.slot_start)
    return int(sizes[0]) if sizes[0] > 0 and (sizes == sizes[0]).all() else None


def _whole_cluster(job: Job, gpus: int | None) -> LayoutSection:
    """With explicit groups there is no layout: every GPU of the cluster is a rank of its own."""
    if gpus is None:
        message = "explicit groups need a cluster"
        raise InputError(Problem(job.place("groups"), message, remedy="cluster: dgx-h100 x 2"))
    if job.file.layout != LayoutSection():
        message = "groups and layout are two ways to say who talks to whom; give one"
        raise InputError(Problem(job.place("groups"), message))
    return msgspec.structs.replace(job.file.layout, world_size=gpus)
