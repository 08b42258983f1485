"""Node presets: every one complete, found by any of its names, wrong names get suggestions."""

from __future__ import annotations

import pytest

from meshwright.cluster.gpus import find_gpu
from meshwright.cluster.nodes.presets import (
    NodePreset,
    bare_node,
    find_preset,
    node_from_preset,
    node_presets,
    suggest_preset,
)
from meshwright.origin import Origin
from meshwright.units import gb_per_s, gbit_per_s

PRESETS = node_presets()


def test_names_and_aliases_are_unique() -> None:
    names = [name for preset in PRESETS for name in (preset.name, *preset.aliases)]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    assert len(PRESETS) >= 18


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
    assert node.nvlink_bytes_per_s == (
        gpu.nvlink_bytes_per_s if preset.nvlink == "switch" else None
    )
    # Each GPU sends by a NIC under its own switch, and the NICs serve equal numbers of GPUs.
    under = {gpu: switch.nics for switch in preset.pcie_switches for gpu in switch.gpus}
    for gpu_index, nic in enumerate(node.nic_of_gpu):
        assert nic in under[gpu_index] or (nic == -1 and not under[gpu_index])
    uses = [node.nic_of_gpu.count(nic) for nic in range(preset.num_nics)]
    assert not uses or max(uses) - min(uses) <= 1
    assert preset.hosts_per_unit % preset.nvlink_domain_hosts == 0


def test_rates_of_known_hosts() -> None:
    h100 = node_from_preset(find_preset("dgx-h100"))
    assert (h100.num_gpus, len(h100.nics), h100.nvlink) == (8, 8, "switch")
    assert h100.nvlink_bytes_per_s == gb_per_s(450)
    assert h100.nics[0].rate_bytes_per_s == gb_per_s(50)
    rack = node_from_preset(find_preset("gb200-nvl72"))
    assert (rack.num_gpus, rack.nvlink_domain_hosts) == (4, 18)
    assert rack.nvlink_bytes_per_s == gb_per_s(900)


def links(name: str) -> dict[tuple[str, str], tuple[str, float]]:
    """Links inside a preset's host, by their ends: kind and GB/s."""
    node = node_from_preset(find_preset(name))
    return {
        (one.tail, one.head): (one.kind, one.rate_bytes_per_s / gb_per_s(1))
        for one in node.graph.links
    }


def test_mi300x_is_a_mesh_of_xgmi_links() -> None:
    node = node_from_preset(find_preset("mi300x-8"))
    assert (node.nvlink, node.nvlink_bytes_per_s) == ("mesh", None)
    inside = links("mi300x-8")
    mesh = {ends: rate for ends, (kind, rate) in inside.items() if kind == "xgmi"}
    wanted = {(f"gpu{a}", f"gpu{b}") for a in range(8) for b in range(8) if a != b}
    assert set(mesh) == wanted
    assert set(mesh.values()) == {64.0}
    devices = len(node.graph.devices)
    assert [len(node.graph.paths[a * devices + b]) for a, b in ((0, 1), (7, 0), (3, 3))] == [
        1,
        1,
        0,
    ]
    # GPU to its NIC: under one switch.
    assert len(node.graph.path(5, 8 + 5)) == 2


@pytest.mark.parametrize(
    ("name", "gpu", "nics", "gbit", "ports"),
    [
        ("azure-nd-v4", "A100 SXM 40G", 8, 200, 0),
        ("azure-nd-v5", "H100 SXM 80G", 8, 400, 0),
        ("aws-p4d", "A100 SXM 40G", 4, 100, 0),
        ("aws-p5", "H100 SXM 80G", 8, 400, 4),
        ("gcp-a3-high", "H100 SXM 80G", 4, 200, 0),
        ("gcp-a3-mega", "H100 SXM 80G", 8, 200, 0),
        ("oci-bm-gpu-h100-8", "H100 SXM 80G", 8, 400, 2),
        ("mi300x-8", "MI300X", 8, 400, 0),
        ("dgx-b300", "B300 SXM 288G", 8, 800, 0),
        ("gb300-nvl72", "GB300", 4, 800, 0),
    ],
)
def test_nics_of_clouds_and_boxes(name: str, gpu: str, nics: int, gbit: int, ports: int) -> None:
    node = node_from_preset(find_preset(name))
    assert (node.gpu, len(node.nics)) == (gpu, nics)
    assert {nic.rate_bytes_per_s for nic in node.nics} == {gbit_per_s(gbit)}
    assert {len(nic.ports) for nic in node.nics} == {ports}
    names = [port for nic in node.nics for port in nic.ports or (nic.name,)]
    assert len(set(names)) == len(names)


def test_p5_has_four_efa_a_gpu_and_3200_gbit_in_all() -> None:
    node = node_from_preset(find_preset("p5.48xlarge"))
    assert sum(len(nic.ports) for nic in node.nics) == 32
    assert sum(nic.rate_bytes_per_s for nic in node.nics) == gbit_per_s(3200)
    inside = links("aws-p5")
    assert inside["gpu0", "pcie0"] == ("pcie", 64.0)
    assert inside["nic0", "pcie0"] == ("pcie", 64.0)
    assert inside["pcie0", "cpu0"] == ("pcie", 32.0)
    assert not any(kind == "cpu" for kind, _ in inside.values())


def test_pcie_and_sockets_differ_between_hosts() -> None:
    assert links("aws-p4d")["gpu0", "pcie0"] == ("pcie", 16.0)
    assert links("aws-p4d")["cpu0", "cpu1"] == ("cpu", 10.0)
    assert links("azure-nd-v4")["cpu0", "cpu3"] == ("cpu", 16.0)
    assert links("dgx-h100")["cpu0", "cpu1"] == ("cpu", 22.0)
    # A NIC of 800 Gbit/s needs PCIe 6.
    assert links("dgx-b300")["nic0", "pcie0"] == ("pcie", 128.0)


def test_what_no_source_says_is_marked() -> None:
    for preset in PRESETS:
        if not (preset.fabric_stated and preset.paths_stated):
            assert preset.assumed, preset.name
    origins = {one.name: node_from_preset(one).origins["paths"] for one in PRESETS}
    assert origins["pcie-box"] is Origin.ASSUMED
    assert origins["azure-nd-v5"] is Origin.STATED


def test_wrong_names_get_suggestions() -> None:
    assert find_preset("dgx-h10") is None
    assert "dgx-h100" in suggest_preset("DGX-H10")
    assert suggest_preset("zzzzzzzz") == []


def test_a_host_of_known_size_only() -> None:
    node = bare_node(5)
    assert (node.num_gpus, node.nics, node.nvlink) == (5, (), "unknown")
    assert node.nic_of_gpu == (-1,) * 5
