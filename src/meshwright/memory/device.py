"""What a job's memory has to fit into: the smallest GPU of the cluster, or one by name."""

from __future__ import annotations

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.gpus import UnknownGpuError, find_gpu
from meshwright.errors import UsageError
from meshwright.memory.job import Device

ASSUMED_DOMAIN_GPUS = 8
"""GPUs of one NVLink domain where no cluster says."""


def device_of(
    fabric: Fabric | None, gpu: str | None = None, capacity: float | None = None
) -> Device:
    """Return the GPU a job must fit: ``gpu`` by name, else the smallest of the fabric's.

    With ``capacity`` (bytes) the fabric's GPU is not named: its memory is not what counts. Raises
    ``UsageError`` for an unknown name.
    """
    if gpu is not None:
        try:
            found = find_gpu(gpu)
        except UnknownGpuError as error:
            raise UsageError(str(error)) from None
        return Device(found.name, capacity or float(found.capacity_bytes))
    known = [] if fabric is None else [node.gpu for node in fabric.node_types if node.gpu]
    models = []
    for name in known:
        try:
            models.append(find_gpu(name))
        except UnknownGpuError:
            continue
    if not models:
        return Device(known[0] if known and capacity is None else None, capacity)
    smallest = min(models, key=lambda model: model.capacity_bytes)
    if capacity is not None:
        return Device(None, capacity, board=smallest.name)
    return Device(smallest.name, float(smallest.capacity_bytes))


def domain_gpus(fabric: Fabric | None) -> int:
    """Return the GPUs of one NVLink domain: of the smallest host, or rack where one spans hosts."""
    if fabric is None or not fabric.node_types:
        return ASSUMED_DOMAIN_GPUS
    return min(node.num_gpus * node.nvlink_domain_hosts for node in fabric.node_types)
