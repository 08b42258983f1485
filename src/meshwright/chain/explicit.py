"""Groups given as (host, GPU) pairs instead of a layout."""

from __future__ import annotations

from functools import partial

import numpy as np

from meshwright.chain.jobfile import Job
from meshwright.cluster.fabric import Fabric
from meshwright.errors import InputError, Problem
from meshwright.groups.grid import Ranks
from meshwright.groups.kinds import GroupKind, listed_kind


def explicit_kinds(job: Job, fabric: Fabric) -> list[GroupKind]:
    """Return each explicit group as a kind of its own; its ranks are slots of the cluster.

    Raises ``InputError`` for an unknown host or GPU, a GPU or a name given twice.
    """
    number = {name: host for host, name in enumerate(fabric.host_names)}
    kinds: dict[str, GroupKind] = {}
    for index, item in enumerate(job.file.groups or ()):
        place = f"groups[{index}]"
        slots = [
            _slot(job, fabric, number, (f"{place}.members[{position}]", member))
            for position, member in enumerate(item.members)
        ]
        if not slots or len(set(slots)) != len(slots):
            message = "names a GPU twice" if slots else "has no member"
            raise InputError(
                Problem(job.place(f"{place}.members"), f"group {item.name!r} {message}")
            )
        if not item.name.strip():
            raise InputError(Problem(job.place(f"{place}.name"), "a group needs a name"))
        if item.name in kinds:
            raise InputError(
                Problem(job.place(f"{place}.name"), f"two groups are called {item.name!r}")
            )
        ranks = np.array([slots], dtype=np.int32)
        kinds[item.name] = listed_kind(item.name, item.name, partial(_same, ranks), (1, len(slots)))
    return list(kinds.values())


def _same(ranks: Ranks) -> Ranks:
    return ranks


def _slot(
    job: Job, fabric: Fabric, number: dict[str, int], given: tuple[str, tuple[str | int, int]]
) -> int:
    key, (host, gpu) = given
    row = host if isinstance(host, int) else number.get(host, -1)
    if not 0 <= row < fabric.num_hosts:
        known = f"{fabric.host_names[0]} … {fabric.host_names[-1]}"
        raise InputError(Problem(job.place(key), f"no host {host!r} in the cluster", remedy=known))
    start, end = fabric.slot_start[row : row + 2].tolist()
    if not 0 <= gpu < end - start:
        message = f"host {host!r} has GPUs 0 … {end - start - 1}, not {gpu}"
        raise InputError(Problem(job.place(key), message))
    return int(start) + gpu
