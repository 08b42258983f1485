"""The hosts that a job names in rank order."""

from __future__ import annotations

import numpy as np

from meshwright.chain.jobfile import Job
from meshwright.cluster.assembly.merging import MAX_NAMED
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.hostlist import Hostlists
from meshwright.errors import InputError, Problem


def hosts_of_job(job: Job) -> list[str] | None:
    """Return ``placement.hosts`` name by name; ``None`` where nothing is placed by it.

    Raises ``InputError`` for a list that cannot be read.
    """
    placement = job.file.placement
    hosts = placement.hosts
    if hosts is None or placement.ranks is not None or job.file.groups is not None:
        return None
    try:
        texts = [hosts] if isinstance(hosts, str) else list(hosts)
        return list(Hostlists(MAX_NAMED).expand(*texts))
    except ValueError as error:
        raise InputError(Problem(job.place("placement.hosts"), str(error))) from None


def gpus_of_hosts(job: Job, fabric: Fabric) -> int | None:
    """Return the GPUs of the hosts named; ``None`` where the job names none.

    Raises ``InputError`` for a host that the cluster does not have or that is named twice.
    """
    names = hosts_of_job(job)
    if names is None:
        return None
    number = {name: index for index, name in enumerate(fabric.host_names)}
    place = job.place("placement.hosts")
    unknown = next((name for name in names if name not in number), None)
    if unknown is not None:
        raise InputError(Problem(place, f"no host {unknown!r} in the cluster"))
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(
            Problem(place, f"host {twice!r} is named twice; name each once, in rank order")
        )
    return int(np.diff(fabric.slot_start)[[number[name] for name in names]].sum())
