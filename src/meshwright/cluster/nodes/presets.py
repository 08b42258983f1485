"""Node types that need no file: read from ``data/node_types.json``, each with its source."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import msgspec

from meshwright.cluster.facts import PcieChain
from meshwright.cluster.gpus import GpuModel, find_gpu
from meshwright.cluster.link_facts import usable_bytes_per_s
from meshwright.cluster.nodes.node import PCIE_RATE_BYTES_PER_S, NodeNic, NodeType
from meshwright.cluster.nodes.pcie import LocalGraph, LocalLink, local_graph
from meshwright.data.load import load_records
from meshwright.origin import Origin
from meshwright.units import gb_per_s, gbit_per_s


class PcieSwitch(msgspec.Struct, frozen=True):
    """Devices under one PCIe switch, and its CPU."""

    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    cpu: int


class NodePreset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node type as the data file states it."""

    name: str
    aliases: tuple[str, ...]
    gpu: str
    num_gpus: int
    num_nics: int
    nic_gbit_per_s: float
    """One NIC, all its ports together."""
    nvlink: Literal["switch", "mesh", "none"]
    """``switch``, ``none``, or ``mesh``: one link (the GPU model's) between any two GPUs."""
    pcie_switches: tuple[PcieSwitch, ...]
    fabric: Literal["rail-optimized", "rail-only", "leaf-spine", "none"]
    """Fabric preset that usually joins such hosts."""
    hosts_per_unit: int
    """Hosts under one set of leaves."""
    nvlink_domain_hosts: int
    source: str
    nic_ports: int = 1
    cpu: str = "cpu-intel-spr"
    """Row of ``data/link_facts.json`` for the link between two sockets."""
    pcie_gb_per_s: float | None = None
    """PCIe links, one direction, where they are slower than the GPU model's."""
    nic_pcie_gb_per_s: float | None = None
    """PCIe above one NIC (all ports), where it differs."""
    uplink_gb_per_s: float | None = None
    """PCIe between a switch and its CPU, where it differs."""
    radix: int | None = None
    """Ports of the switches such hosts hang on, where they are not the usual 64."""
    fabric_stated: bool = True
    """False: how such hosts are joined is an assumption."""
    paths_stated: bool = True
    """False: the PCIe tree is an assumption."""
    assumed: str = ""
    """What no source says; users are told."""


@functools.cache
def node_presets() -> tuple[NodePreset, ...]:
    """Return all presets."""
    return load_records("node_types.json", tuple[NodePreset, ...])


def find_preset(name: str) -> NodePreset | None:
    """Return the preset of a name or alias, whatever its case; ``None`` when there is none."""
    wanted = name.strip().lower()
    for preset in node_presets():
        if wanted == preset.name or wanted in preset.aliases:
            return preset
    return None


def suggest_preset(name: str) -> list[str]:
    """Return the names nearest to a misspelt one."""
    names = [one for preset in node_presets() for one in (preset.name, *preset.aliases)]
    return difflib.get_close_matches(name.lower()[:80], names, n=3, cutoff=0.5)


def node_from_preset(preset: NodePreset) -> NodeType:
    """Return the node type of a preset; GPU rates come from ``data/gpus.json``."""
    gpu = find_gpu(preset.gpu)
    nics = tuple(_nics(preset))
    return NodeType(
        name=preset.name,
        gpu=gpu.name,
        num_gpus=preset.num_gpus,
        nics=nics,
        nic_of_gpu=_nic_of_gpu(preset),
        nvlink=preset.nvlink,
        nvlink_bytes_per_s=gpu.nvlink_bytes_per_s if preset.nvlink == "switch" else None,
        graph=_graph(preset, gpu, nics),
        nvlink_domain_hosts=preset.nvlink_domain_hosts,
        origins={
            "nvlink": Origin.STATED,
            "nic": Origin.STATED,
            "pcie": Origin.STATED,
            "cpu": Origin.ASSUMED,
            "paths": Origin.STATED if preset.paths_stated else Origin.ASSUMED,
        },
    )


def _nics(preset: NodePreset) -> Iterator[NodeNic]:
    rate = gbit_per_s(preset.nic_gbit_per_s)
    for index in range(preset.num_nics):
        ports = tuple(f"nic{index}p{port}" for port in range(preset.nic_ports))
        yield NodeNic(f"nic{index}", rate, ports if len(ports) > 1 else ())


def _graph(preset: NodePreset, gpu: GpuModel, nics: tuple[NodeNic, ...]) -> LocalGraph:
    pcie_rate = gpu.pcie_bytes_per_s or PCIE_RATE_BYTES_PER_S
    if preset.pcie_gb_per_s is not None:
        pcie_rate = gb_per_s(preset.pcie_gb_per_s)
    nic_rate, up_rate = (
        pcie_rate if given is None else gb_per_s(given)
        for given in (preset.nic_pcie_gb_per_s, preset.uplink_gb_per_s)
    )
    chains = [
        PcieChain(device, (f"pcie{number}", f"cpu{switch.cpu}"), (rate, up_rate))
        for number, switch in enumerate(preset.pcie_switches)
        for device, rate in [(f"gpu{i}", pcie_rate) for i in switch.gpus]
        + [(f"nic{i}", nic_rate) for i in switch.nics]
    ]
    devices = [f"gpu{i}" for i in range(preset.num_gpus)] + [nic.name for nic in nics]
    mesh = full_mesh(gpu, preset.num_gpus) if preset.nvlink == "mesh" else []
    return local_graph(devices, chains, mesh, usable_bytes_per_s(preset.cpu), pcie_rate)


def full_mesh(gpu: GpuModel, num_gpus: int) -> list[LocalLink]:
    """Return one link of the GPU model between any two GPUs, both directions."""
    kind = "xgmi" if gpu.link_protocol == "xgmi" else "nvlink"
    rate = gpu.nvlink_link_bytes_per_s
    return [
        LocalLink(f"gpu{tail}", f"gpu{head}", kind, rate)
        for a, b in combinations(range(num_gpus), 2)
        for tail, head in ((a, b), (b, a))
    ]


def _nic_of_gpu(preset: NodePreset) -> tuple[int, ...]:
    chosen = [-1] * preset.num_gpus
    for switch in preset.pcie_switches:
        for position, gpu in enumerate(switch.gpus):
            if switch.nics:
                chosen[gpu] = switch.nics[position % len(switch.nics)]
    return tuple(chosen)


def bare_node(num_gpus: int, *, has_nic: bool = False) -> NodeType:
    """Return a host of which only the number of GPUs is known: spans work, loads do not.

    ``has_nic``: a fabric source says where the host hangs, so all its GPUs share one NIC of
    unknown rate.
    """
    nics = (NodeNic("nic", None),) if has_nic else ()
    devices = [f"gpu{i}" for i in range(num_gpus)] + [nic.name for nic in nics]
    return NodeType(
        name=f"{num_gpus} GPUs" if num_gpus > 1 else "1 GPU",
        gpu=None,
        num_gpus=num_gpus,
        nics=nics,
        nic_of_gpu=(0 if has_nic else -1,) * num_gpus,
        nvlink="unknown",
        nvlink_bytes_per_s=None,
        graph=local_graph(devices, [], [], 0.0, 0.0),
        origins={},
    )
