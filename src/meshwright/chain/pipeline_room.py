"""Whether a pipeline's ranks fit their GPU: the memory of a job, with another schedule or microbatch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from meshwright.chain.kinds_of_job import add_training_kinds
from meshwright.chain.outlined import Outline
from meshwright.chain.plan import workload_of
from meshwright.groups.kinds import GroupKind
from meshwright.memory.communicators import communicators
from meshwright.memory.constants import Constants, default_constants
from meshwright.memory.device import device_of, domain_gpus
from meshwright.memory.job import Device, job_memory
from meshwright.schedules.orders import Orders
from meshwright.traffic.job import modelled_collectives
from meshwright.traffic.workload import Workload


@dataclass(frozen=True, slots=True)
class Room:
    """What a job's memory is counted with; see ``memory/job.py``.

    ``kinds``: groups of its ranks; ``opposed``: those of a schedule of two pipelines against each other.
    """

    work: Workload
    device: Device
    constants: Constants
    kinds: tuple[GroupKind, ...]
    opposed: tuple[GroupKind, ...]
    domain_gpus: int

    def total_bytes(
        self, orders: Orders, scale: float, stage_layers: tuple[int, ...], group: int | None
    ) -> float:
        """Return what the most loaded rank takes with a schedule.

        Parameters
        ----------
        scale
            Size of a microbatch against the job's; a microbatch is a whole number of sequences.
        stage_layers[pp]
            Layers of every rank.
        group
            Of an interleaved schedule; ``None``: the framework's.
        """
        work, batch = self.work, self.work.batch
        micro_batch = round((batch.micro_batch or 1) * scale)
        local = None if batch.local_batch is None else micro_batch * orders.microbatches
        batch = msgspec.structs.replace(
            batch,
            micro_batch=micro_batch,
            num_microbatches=orders.microbatches,
            local_batch=local,
        )
        changed = dataclasses.replace(
            work,
            batch=batch,
            layout=msgspec.structs.replace(work.layout, vp=orders.chunks),
            training=msgspec.structs.replace(
                work.training, schedule=orders.schedule, microbatch_group=group
            ),
            stage_layers=stage_layers,
        )
        kinds = self.opposed if changed.is_opposed else self.kinds
        said = modelled_collectives(changed)
        held = communicators(kinds, said, self.domain_gpus, self.constants)
        return float(job_memory(changed, self.device, self.constants, held).total.max())

    def fits(self, total_bytes: float) -> bool:
        """Tell whether a rank of so many bytes fits."""
        return total_bytes <= (self.device.capacity_bytes or 0.0)


def room_of(outline: Outline) -> Room | None:
    """Return how memory is counted; ``None`` where the GPU, the batch or the model are not known."""
    work, device = workload_of(outline), device_of(outline.fabric)
    if work is None or work.tokens is None or device.capacity_bytes is None:
        return None
    if work.model.unmodelled_layers or not outline.kinds:
        return None
    return Room(
        work=work,
        device=device,
        constants=default_constants(),
        kinds=_kinds(outline, "1f1b"),
        opposed=_kinds(outline, "dualpipe"),
        domain_gpus=domain_gpus(outline.fabric),
    )


def _kinds(outline: Outline, schedule: str) -> tuple[GroupKind, ...]:
    """Return the groups that the job would have with a schedule."""
    job = outline.job
    training = msgspec.structs.replace(job.file.training, schedule=schedule)
    other = dataclasses.replace(job, file=msgspec.structs.replace(job.file, training=training))
    twin = dataclasses.replace(outline, job=other, kinds=list(outline.kinds))
    add_training_kinds(twin)
    return tuple(twin.kinds)
