"""Node types that need no file: read from ``data/node_types.json``, each with its source."""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from meshwright.cluster.facts import PcieChain
from meshwright.cluster.gpus import find_gpu
from meshwright.cluster.node import CPU_RATE_BYTES_PER_S, PCIE_RATE_BYTES_PER_S, NodeNic, NodeType
from meshwright.cluster.pcie import local_graph
from meshwright.data.load import load_json
from meshwright.origin import Origin
from meshwright.units import gbit_per_s


class PcieSwitch(msgspec.Struct, frozen=True):
    """Devices under one PCIe switch, and its CPU."""

    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    cpu: int


class NodePreset(msgspec.Struct, frozen=True):
    """One node type as the data file states it."""

    name: str
    aliases: tuple[str, ...]
    gpu: str
    num_gpus: int
    num_nics: int
    nic_gbit_per_s: float
    nvlink: str
    pcie_switches: tuple[PcieSwitch, ...]
    fabric: str
    """Fabric preset that usually joins such hosts."""
    hosts_per_unit: int
    """Hosts under one set of leaves."""
    nvlink_domain_hosts: int
    source: str


def node_presets() -> tuple[NodePreset, ...]:
    """Return all presets."""
    data: Any = load_json("node_types.json")
    return tuple(msgspec.convert(entry, NodePreset) for entry in data)


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
    return difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)


def node_from_preset(preset: NodePreset) -> NodeType:
    """Return the node type of a preset; GPU rates come from ``data/gpus.json``."""
    gpu = find_gpu(preset.gpu)
    pcie_rate = gpu.pcie_bytes_per_s or PCIE_RATE_BYTES_PER_S
    nics = tuple(
        NodeNic(f"nic{index}", gbit_per_s(preset.nic_gbit_per_s))
        for index in range(preset.num_nics)
    )
    chains = [
        PcieChain(device, (f"pcie{number}", f"cpu{switch.cpu}"), (pcie_rate, pcie_rate))
        for number, switch in enumerate(preset.pcie_switches)
        for device in [f"gpu{i}" for i in switch.gpus] + [f"nic{i}" for i in switch.nics]
    ]
    devices = [f"gpu{i}" for i in range(preset.num_gpus)] + [nic.name for nic in nics]
    return NodeType(
        name=preset.name,
        gpu=gpu.name,
        num_gpus=preset.num_gpus,
        nics=nics,
        nic_of_gpu=_nic_of_gpu(preset),
        nvlink=preset.nvlink,
        nvlink_bytes_per_s=gpu.nvlink_bytes_per_s if preset.nvlink == "switch" else None,
        graph=local_graph(devices, chains, [], CPU_RATE_BYTES_PER_S, pcie_rate),
        nvlink_domain_hosts=preset.nvlink_domain_hosts,
        origins={
            "nvlink": Origin.STATED,
            "nic": Origin.STATED,
            "pcie": Origin.STATED,
            "cpu": Origin.ASSUMED,
            "paths": Origin.STATED,
        },
    )


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
