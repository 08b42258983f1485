"""What links carry: the rate their makers state, the rate that is left, steps' latencies.

Read from ``data/link_facts.json``, each row with its source. Rates are one direction.
"""

from __future__ import annotations

import functools
from typing import Literal

import msgspec

from meshwright.data.load import load_records
from meshwright.data.names import near_names
from meshwright.units import gb_per_s, microseconds

Protocol = Literal["ll", "ll128", "simple"]
Path = Literal["base", "nvlink", "pcie", "network"]
Algorithm = Literal["tree", "ring", "nvls", "nvls-tree"]


class LinkFact(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of link. ``None`` is *not stated*, or *no figure found*."""

    name: str
    what: str
    kind: str
    """As in ``LinkClass.kind``."""
    per: str
    """What a rate is of: ``link``, ``GPU`` (all its links), ``pair``, ``x16``, ``NIC``."""
    stated_bytes_per_s: float | None
    usable_bytes_per_s: float | None
    usable_is: str
    """``measured``, ``nccl`` (NCCL's own model), or empty."""
    source: str
    note: str


class StepLatency(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one step of an algorithm on one kind of path (``base``: once a call)."""

    path: Path
    algorithm: Algorithm
    seconds: dict[Protocol, float]


class _LinkRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    what: str
    kind: str
    per: str
    stated_gb_per_s: float | None = None
    usable_gb_per_s: float | None = None
    usable_is: Literal["measured", "nccl", ""] = ""
    source: str
    note: str = ""


class _LatencyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Path
    algorithm: Algorithm
    ll_us: float | None = None
    ll128_us: float | None = None
    simple_us: float | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    links: tuple[_LinkRow, ...]
    latencies: tuple[_LatencyRow, ...]
    latency_source: str
    intel_p2p_pcie_cost: float
    intel_p2p_source: str


@functools.cache
def _file() -> _File:
    return load_records("link_facts.json", _File)


def _rate(value: float | None) -> float | None:
    return None if value is None else gb_per_s(value)


@functools.cache
def link_facts() -> tuple[LinkFact, ...]:
    """Return all rows, in the order of the file."""
    return tuple(
        LinkFact(
            name=row.name,
            what=row.what,
            kind=row.kind,
            per=row.per,
            stated_bytes_per_s=_rate(row.stated_gb_per_s),
            usable_bytes_per_s=_rate(row.usable_gb_per_s),
            usable_is=row.usable_is,
            source=row.source,
            note=row.note,
        )
        for row in _file().links
    )


def find_link_fact(name: str) -> LinkFact:
    """Return the row of a name. Raises ``KeyError`` with the names that look like it."""
    for fact in link_facts():
        if fact.name == name:
            return fact
    near = ", ".join(near_names(name[:80], tuple(fact.name for fact in link_facts())))
    raise KeyError(f"no link fact {name[:80]!r}; near: {near}" if near else name[:80])


def usable_bytes_per_s(name: str) -> float:
    """Return what is left of a link's rate for data, one direction.

    Raises ``KeyError`` for an unknown name, ``ValueError`` where no figure was found.
    """
    rate = find_link_fact(name).usable_bytes_per_s
    if rate is None:
        raise ValueError(f"no usable rate of {name} was found")
    return rate


def step_latencies() -> tuple[StepLatency, ...]:
    """Return NCCL's latency table (``src/graph/tuning.cc``)."""
    return tuple(
        StepLatency(
            path=row.path,
            algorithm=row.algorithm,
            seconds={
                protocol: microseconds(value)
                for protocol, value in _protocols(row)
                if value is not None
            },
        )
        for row in _file().latencies
    )


def _protocols(row: _LatencyRow) -> tuple[tuple[Protocol, float | None], ...]:
    return (("ll", row.ll_us), ("ll128", row.ll128_us), ("simple", row.simple_us))


def step_latency_s(path: Path, algorithm: Algorithm, protocol: Protocol) -> float:
    """Return the seconds of one step. Raises ``KeyError`` where NCCL has no such figure."""
    for row in step_latencies():
        if (row.path, row.algorithm) == (path, algorithm):
            return row.seconds[protocol]
    raise KeyError(f"no latency of {algorithm} on {path}")


def latency_source() -> str:
    """Return where the latencies come from."""
    return _file().latency_source


def intel_p2p_pcie_cost() -> float:
    """Return NCCL's factor on PCIe bytes that pass an Intel CPU between two GPUs."""
    return _file().intel_p2p_pcie_cost
