"""Node presets: every one complete, found by any of its names, wrong names get suggestions."""

from __future__ import annotations

import pytest

from meshwright.cluster.gpus import find_gpu
from meshwright.cluster.presets import (
    NodePreset,
    bare_node,
    find_preset,
    node_from_preset,
    node_presets,
    suggest_preset,
)
from meshwright.units import gb_per_s, gbit_per_s

PRESETS = node_presets()


def test_names_and_aliases_are_unique() -> None:
    names = [name for preset in PRESETS for name in (preset.name, *preset.aliases)]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    assert len(PRESETS) >= 6


@pytest.mark.parametrize("preset", PRESETS, ids=lambda one: one.name)
def test_every_preset_is_complete(preset: NodePreset) -> None:
    for name in (preset.name, *preset.aliases):
        assert find_preset(f" {name.upper()} ") == preset
    assert preset.source
    node = node_from_preset(preset)
    gpus = [gpu for switch in preset.pcie_switches for gpu in switch.gpus]
    nics = [nic for switch in preset.pcie_switches for nic in switch.nics]
    assert sorted(gpus) == list(range(preset.num_gpus))
    assert sorted(nics) == list(range(preset.num_nics))
    assert len(node.nic_of_gpu) == node.num_gpus
    assert len(node.nics) == preset.num_nics
    assert all(nic.rate_bytes_per_s == gbit_per_s(preset.nic_gbit_per_s) for nic in node.nics)
    gpu = find_gpu(preset.gpu)
    assert node.gpu == gpu.name
    assert preset.nvlink in ("switch", "mesh", "none")
    assert node.nvlink_bytes_per_s == (
        gpu.nvlink_bytes_per_s if preset.nvlink == "switch" else None
    )
    # Each GPU sends by a NIC under its own switch, and the NICs serve equal numbers of GPUs.
    under = {gpu: switch.nics for switch in preset.pcie_switches for gpu in switch.gpus}
    for gpu_index, nic in enumerate(node.nic_of_gpu):
        assert nic in under[gpu_index] or (nic == -1 and not under[gpu_index])
    uses = [node.nic_of_gpu.count(nic) for nic in range(preset.num_nics)]
    assert not uses or max(uses) - min(uses) <= 1
    assert preset.fabric in ("rail-optimized", "rail-only", "leaf-spine", "none")
    assert preset.hosts_per_unit % preset.nvlink_domain_hosts == 0


def test_rates_of_known_hosts() -> None:
    h100 = node_from_preset(find_preset("dgx-h100"))
    assert (h100.num_gpus, len(h100.nics), h100.nvlink) == (8, 8, "switch")
    assert h100.nvlink_bytes_per_s == gb_per_s(450)
    assert h100.nics[0].rate_bytes_per_s == gb_per_s(50)
    rack = node_from_preset(find_preset("gb200-nvl72"))
    assert (rack.num_gpus, rack.nvlink_domain_hosts) == (4, 18)
    assert rack.nvlink_bytes_per_s == gb_per_s(900)


def test_wrong_names_get_suggestions() -> None:
    assert find_preset("dgx-h10") is None
    assert "dgx-h100" in suggest_preset("DGX-H10")
    assert suggest_preset("zzzzzzzz") == []


def test_a_host_of_known_size_only() -> None:
    node = bare_node(5)
    assert (node.num_gpus, node.nics, node.nvlink) == (5, (), "unknown")
    assert node.nic_of_gpu == (-1,) * 5
