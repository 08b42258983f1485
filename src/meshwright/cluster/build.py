"""Build the fabric's arrays from node types, NVLink domains and a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fabric import NONE, Fabric, Ints, inner_nodes
from meshwright.cluster.links import LinkClass, LinkTable, LinkTableBuilder
from meshwright.cluster.networks.network import Network
from meshwright.cluster.nodes.node import NodeType
from meshwright.origin import Origin


@dataclass(frozen=True, slots=True)
class Wiring:
    """Where NICs hang: one entry a NIC, numbered host by host in the order of the node type."""

    network: Network
    leaf_of_nic: Ints
    rail_of_nic: Ints


@dataclass(frozen=True, slots=True)
class HostSet:
    """The hosts: names, and the type of each."""

    names: Sequence[str]
    types: tuple[NodeType, ...]
    type_of_host: Ints

    def per_host(self, values: Sequence[int]) -> NDArray[np.int64]:
        """Return a per-type count as a running start, ``[H + 1]``."""
        counts = np.array(values, dtype=np.int64)[self.type_of_host]
        return np.concatenate([[0], np.cumsum(counts)])

    def per_gpu(self, values: Sequence[Sequence[object]], dtype: type) -> NDArray[Any]:
        """Return what each type says of its GPUs, for every slot: ``[S]``."""
        flat: NDArray[Any] = np.array([one for each in values for one in each], dtype=dtype)
        count = np.array([len(each) for each in values], dtype=np.int64)
        first = (np.cumsum(count) - count)[self.type_of_host]
        slots = count[self.type_of_host]
        start = np.cumsum(slots) - slots
        local = np.arange(int(slots.sum())) - np.repeat(start, slots)
        return flat[np.repeat(first, slots) + local]


def build_fabric(
    hosts: HostSet,
    nvlink_domain_of_host: Ints | None = None,
    domain_names: Sequence[str] | None = None,
    wiring: Wiring | None = None,
) -> Fabric:
    """Return the fabric. ``nvlink_domain_of_host`` joins hosts (default: each host its own)."""
    slot_start = hosts.per_host([one.num_gpus for one in hosts.types])
    nic_start = hosts.per_host([len(one.nics) for one in hosts.types])
    host_of_slot = _owner(slot_start)
    gpu_of_slot = (np.arange(len(host_of_slot)) - slot_start[host_of_slot]).astype(np.int32)
    host_of_nic = _owner(nic_start)
    if nvlink_domain_of_host is None:
        nvlink_domain_of_host = np.arange(len(hosts.names), dtype=np.int32)
        domain_names = hosts.names
    on_switch = hosts.per_gpu([one.on_switch() for one in hosts.types], bool)
    domain = np.where(on_switch, nvlink_domain_of_host[host_of_slot], NONE).astype(np.int32)
    leaf = wiring.leaf_of_nic if wiring else np.full(len(host_of_nic), NONE, dtype=np.int32)
    rail = wiring.rail_of_nic if wiring else np.full(len(host_of_nic), NONE, dtype=np.int32)
    frame = _Frame(hosts, slot_start, nic_start, domain, len(domain_names or ()))
    blocks = _link_blocks(frame, wiring)
    return Fabric(
        host_names=hosts.names,
        node_types=hosts.types,
        type_of_host=hosts.type_of_host,
        slot_start=slot_start,
        nic_start=nic_start,
        host_of_slot=host_of_slot,
        gpu_of_slot=gpu_of_slot,
        nic_of_slot=_nic_of_slot(hosts, slot_start, nic_start, leaf if wiring else None),
        nvlink_domain_of_slot=domain,
        island_of_slot=_islands(host_of_slot, domain, nvlink_domain_of_host),
        host_of_nic=host_of_nic,
        leaf_of_nic=leaf,
        rail_of_nic=rail,
        network=wiring.network if wiring else None,
        nvlink_domain_names=domain_names or (),
        links=blocks.links,
        nvlink_out=blocks.nvlink_out,
        nvlink_in=blocks.nvlink_in,
        local_base=blocks.local_base,
        nic_out=blocks.nic_out,
        nic_in=blocks.nic_in,
        cable_up0=blocks.cable_up0,
        cable_down0=blocks.cable_down0,
    )


def _owner(start: NDArray[np.int64]) -> Ints:
    """Return for each item the host it belongs to."""
    return np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start))


def _islands(host_of_slot: Ints, domain: Ints, domain_of_host: Ints) -> Ints:
    """Hosts that share an NVLink domain are one island; others are islands of their own.

    A GPU that has fallen off a switch of several hosts reaches its own host by PCIe and no other
    one, so it is no part of that island: it has one of its own, numbered after the hosts.
    """
    if len(host_of_slot) == 0:
        return host_of_slot
    first_host = np.full(int(domain.max(initial=-1)) + 2, np.iinfo(np.int32).max, dtype=np.int32)
    known = domain >= 0
    np.minimum.at(first_host, domain[known], host_of_slot[known])
    island = np.where(known, first_host[domain], host_of_slot).astype(np.int32)
    last_host = np.full(len(first_host), NONE, dtype=np.int32)
    np.maximum.at(last_host, domain[known], host_of_slot[known])
    apart = ~known & _has_known(host_of_slot, known, len(domain_of_host))
    apart[apart] = (first_host != last_host)[domain_of_host[host_of_slot[apart]]]
    island[apart] = len(domain_of_host) + host_of_slot[apart]
    return island


def _has_known(host_of_slot: Ints, known: NDArray[np.bool_], hosts: int) -> NDArray[np.bool_]:
    """Tell for each slot whether any slot of its host is ``known``."""
    any_known = np.zeros(hosts, dtype=bool)
    any_known[host_of_slot[known]] = True
    return any_known[host_of_slot]


def _nic_of_slot(
    hosts: HostSet,
    slot_start: NDArray[np.int64],
    nic_start: NDArray[np.int64],
    leaf: Ints | None,
) -> Ints:
    """Return each slot's NIC; a NIC the fabric does not show gives way to one it shows."""
    result = np.full(int(slot_start[-1]), NONE, dtype=np.int32)
    for kind, node in enumerate(hosts.types):
        mine = np.flatnonzero(hosts.type_of_host == kind)
        local = np.array(node.nic_of_gpu, dtype=np.int64)
        if not len(mine) or not len(local):
            continue
        nics = np.where(local >= 0, nic_start[mine][:, None] + local, NONE)
        if leaf is not None and len(leaf):
            shown = (nics >= 0) & (leaf[np.maximum(nics, 0)] >= 0)
            for row in np.flatnonzero((~shown & (nics >= 0)).any(axis=1)):
                nics[row] = _fall_back(nics[row], shown[row])
        result[(slot_start[mine][:, None] + np.arange(node.num_gpus)).ravel()] = nics.ravel()
    return result


def _fall_back(nics: NDArray[np.int64], shown: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Send by the shown NICs in turn where a GPU's own is not in the fabric file."""
    others = nics[shown & (nics >= 0)]
    result = nics.copy()
    hidden = np.flatnonzero(~shown & (nics >= 0))
    for turn, gpu in enumerate(hidden):
        # The neighbour's NIC is nearest: same socket where the order follows the board.
        near = int(np.argmin(np.abs(np.flatnonzero(shown) - gpu))) if len(others) else 0
        result[gpu] = others[(near + turn) % len(others)] if len(others) else nics[gpu]
    return result


@dataclass(frozen=True, slots=True)
class _Frame:
    """What all link blocks need: starts and node id offsets."""

    hosts: HostSet
    slot_start: NDArray[np.int64]
    nic_start: NDArray[np.int64]
    domain: Ints
    num_domains: int

    @property
    def slots(self) -> int:
        return int(self.slot_start[-1])

    @property
    def nics(self) -> int:
        return int(self.nic_start[-1])


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The link table, and where each kind's links stand in it (see ``Fabric``)."""

    links: LinkTable
    nvlink_out: NDArray[np.int64]
    nvlink_in: NDArray[np.int64]
    local_base: NDArray[np.int64]
    nic_out: NDArray[np.int64]
    nic_in: NDArray[np.int64]
    cable_up0: int
    cable_down0: int


def _link_blocks(frame: _Frame, wiring: Wiring | None) -> _Blocks:
    builder = LinkTableBuilder()
    nvlink_out, nvlink_in = _nvlink_block(builder, frame)
    inner_start = frame.hosts.per_host([len(inner_nodes(one)) for one in frame.hosts.types])
    local_base = _local_block(builder, frame, inner_start)
    nic_out = np.full(frame.nics, NONE, dtype=np.int64)
    nic_in = np.full(frame.nics, NONE, dtype=np.int64)
    up = down = 0
    if wiring is not None:
        first_switch = frame.slots + frame.nics + frame.num_domains + int(inner_start[-1])
        connected = np.flatnonzero(wiring.leaf_of_nic >= 0)
        switch = first_switch + wiring.network.switch_of_leaf[wiring.leaf_of_nic[connected]]
        for ids, direction in ((nic_out, "out"), (nic_in, "in")):
            ends = (frame.slots + connected, switch)
            tail, head = ends if direction == "out" else ends[::-1]
            classes = _nic_classes(builder, frame, direction)[connected]
            ids[connected] = builder.add(classes, tail, head) + np.arange(len(connected))
        up, down = _cable_block(builder, wiring.network, first_switch)
    return _Blocks(builder.build(), nvlink_out, nvlink_in, local_base, nic_out, nic_in, up, down)


def _nvlink_block(
    builder: LinkTableBuilder, frame: _Frame
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    out = np.full(frame.slots, NONE, dtype=np.int64)
    into = np.full(frame.slots, NONE, dtype=np.int64)
    slots = np.flatnonzero(frame.domain >= 0)
    switch = frame.slots + frame.nics + frame.domain[slots]
    for ids, direction in ((out, "out"), (into, "in")):
        classes = frame.hosts.per_gpu(
            [_nvlink_classes(builder, node, direction) for node in frame.hosts.types], np.uint16
        )
        tail, head = (slots, switch) if direction == "out" else (switch, slots)
        ids[slots] = builder.add(classes[slots], tail, head) + np.arange(len(slots))
    return out, into


def _nvlink_classes(builder: LinkTableBuilder, node: NodeType, direction: str) -> list[int]:
    """Return the class of each GPU's links into the switch."""
    origin = node.origins.get("nvlink", Origin.ASSUMED)
    rates = node.switch_rates_bytes_per_s()
    by_rate = {
        rate: builder.class_id(LinkClass("nvlink", direction, None, rate, origin))
        for rate, hangs in zip(rates, node.on_switch(), strict=True)
        if hangs
    }
    return [by_rate.get(rate, 0) for rate in rates]


def _local_block(
    builder: LinkTableBuilder, frame: _Frame, inner_start: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Repeat each host type's links for all its hosts; return the first id of every host."""
    base = np.zeros(len(frame.hosts.names), dtype=np.int64)
    inner0 = frame.slots + frame.nics + frame.num_domains
    for kind, node in enumerate(frame.hosts.types):
        mine = np.flatnonzero(frame.hosts.type_of_host == kind)
        number = {name: index for index, name in enumerate(inner_nodes(node))}
        ends = np.zeros((2, len(node.graph.links), len(mine)), dtype=np.int64)
        classes = np.zeros(len(node.graph.links), dtype=np.uint16)
        for row, link in enumerate(node.graph.links):
            origin = node.origins.get("nvlink" if link.kind in ("nvlink", "xgmi") else link.kind)
            classes[row] = builder.class_id(
                LinkClass(
                    link.kind, "", None, _known(link.rate_bytes_per_s), origin or Origin.ASSUMED
                )
            )
            for side, name in enumerate((link.tail, link.head)):
                ends[side, row] = _device_ids(node, frame, mine, name)
                if name in number:
                    ends[side, row] = inner0 + inner_start[mine] + number[name]
        tail, head = ends.transpose(0, 2, 1).reshape(2, -1)
        start = builder.add(np.tile(classes, len(mine)), tail, head)
        base[mine] = start + np.arange(len(mine)) * len(node.graph.links)
    return base


def _known(rate: float) -> float | None:
    return None if math.isnan(rate) else rate


def _device_ids(
    node: NodeType, frame: _Frame, mine: NDArray[np.int64], name: str
) -> NDArray[np.int64]:
    if name not in node.graph.devices:
        return np.zeros(len(mine), dtype=np.int64)
    position = node.graph.devices.index(name)
    if position < node.num_gpus:
        return frame.slot_start[mine] + position
    return frame.slots + frame.nic_start[mine] + position - node.num_gpus


def _nic_classes(builder: LinkTableBuilder, frame: _Frame, direction: str) -> NDArray[np.uint16]:
    parts = [
        np.array(
            [
                builder.class_id(
                    LinkClass(
                        "nic",
                        direction,
                        None,
                        nic.rate_bytes_per_s,
                        node.origins.get("nic", Origin.ASSUMED),
                    )
                )
                for nic in node.nics
            ],
            dtype=np.uint16,
        )
        for node in frame.hosts.types
    ]
    if len(parts) == 1:
        return np.tile(parts[0], len(frame.hosts.names))
    return np.concatenate([parts[kind] for kind in frame.hosts.type_of_host])


def _cable_block(builder: LinkTableBuilder, network: Network, first_switch: int) -> tuple[int, int]:
    cables = network.cables
    starts = []
    rates, which = np.unique(cables.rate_bytes_per_s, return_inverse=True)
    key = cables.tier.astype(np.int64) * max(len(rates), 1) + which.ravel()
    for direction in ("up", "down"):
        table = np.zeros(len(cables.tier_names) * max(len(rates), 1), dtype=np.uint16)
        for one in np.unique(key):
            tier, rate = divmod(int(one), len(rates))
            capacity = None if np.isnan(rates[rate]) else float(rates[rate])
            table[one] = builder.class_id(
                LinkClass("fabric", direction, cables.tier_names[tier], capacity, cables.origin)
            )
        ends = (first_switch + cables.lower, first_switch + cables.upper)
        tail, head = ends if direction == "up" else ends[::-1]
        starts.append(builder.add(table[key], tail, head))
    return starts[0], starts[1]
