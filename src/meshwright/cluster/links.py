"""The link table: every direction of every link as one row of parallel arrays.

Rows stand in blocks (NVLink of all GPUs, inside of all hosts, NICs, cables of the fabric), so ids
are arithmetic; names are made when printed. Rate, latency and origin belong to a *class* of equal
links, a row holds only its class and its two ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.link_facts import step_latency_s
from meshwright.origin import Origin

LATENCY_S = {
    "nvlink": step_latency_s("nvlink", "ring", "ll") / 2,
    "xgmi": step_latency_s("nvlink", "ring", "ll"),
    "c2c": step_latency_s("nvlink", "ring", "ll") / 2,
    "pcie": step_latency_s("pcie", "ring", "ll") / 2,
    "cpu": step_latency_s("pcie", "ring", "ll") / 2,
    "nic": step_latency_s("network", "ring", "ll") / 2,
    "fabric": 0.0,
}
"""One link's part of a step: NCCL's figure (``data/link_facts.json``) over the links of the shortest
such path. Switches of the fabric count nothing: the vendors' figures disagree."""


class LinkClass(msgspec.Struct, frozen=True):
    """What equal links share."""

    kind: str
    """``nvlink``, ``xgmi``, ``pcie``, ``cpu``, ``nic`` or ``fabric``."""
    direction: str
    """``out``/``in`` of a GPU or NIC, ``up``/``down`` in the fabric, empty inside a host."""
    tier: str | None
    """``leaf-spine`` or ``spine-core`` for cables of the fabric."""
    capacity_bytes_per_s: float | None
    """One direction of one link; ``None`` is unknown."""
    origin: Origin

    @property
    def latency_s(self) -> float:
        """Seconds a byte spends on the link besides its transmission."""
        return LATENCY_S[self.kind]


@dataclass(frozen=True, slots=True)
class LinkTable:
    """Parallel arrays, one entry a link (one direction): ``tail`` and ``head`` are node ids."""

    classes: tuple[LinkClass, ...]
    class_of_link: NDArray[np.uint16]
    tail: NDArray[np.int32]
    head: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.class_of_link)

    def capacity_bytes_per_s(self) -> NDArray[np.float64]:
        """Return the capacity of every link; NaN where it is unknown."""
        by_class = [
            np.nan if one.capacity_bytes_per_s is None else one.capacity_bytes_per_s
            for one in self.classes
        ]
        return np.array(by_class, dtype=np.float64)[self.class_of_link]


class LinkTableBuilder:
    """Collects blocks of links; ``add`` returns the id of a block's first link."""

    def __init__(self) -> None:
        self._classes: dict[LinkClass, int] = {}
        self._blocks: list[tuple[NDArray[np.uint16], NDArray[np.int32], NDArray[np.int32]]] = []
        self._count = 0

    def class_id(self, link_class: LinkClass) -> int:
        """Return the number of a class, new or known."""
        return self._classes.setdefault(link_class, len(self._classes))

    def add(
        self,
        link_class: LinkClass | NDArray[np.uint16],
        tail: NDArray[np.integer],
        head: NDArray[np.integer],
    ) -> int:
        """Append a block: one class for all, or a class number each."""
        if isinstance(link_class, LinkClass):
            classes = np.full(len(tail), self.class_id(link_class), dtype=np.uint16)
        else:
            classes = link_class
        start = self._count
        self._blocks.append((classes, tail.astype(np.int32), head.astype(np.int32)))
        self._count += len(tail)
        return start

    def build(self) -> LinkTable:
        """Return the finished table."""
        columns = list(zip(*self._blocks, strict=True)) or [(), (), ()]
        class_of_link, tail, head = (
            np.concatenate([*column, np.empty(0, dtype)]).astype(dtype, copy=False)
            for column, dtype in zip(columns, (np.uint16, np.int32, np.int32), strict=True)
        )
        return LinkTable(tuple(self._classes), class_of_link, tail, head)
