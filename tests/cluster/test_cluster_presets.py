"""Clusters by units: every published row, sizes between rows, limits, pods and planes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from meshwright.cluster.assembly.cluster_presets import (
    ClusterPreset,
    ClusterRow,
    cluster_presets,
    fabric_of_preset,
    find_cluster_preset,
    section_of_preset,
    suggest_cluster_preset,
)
from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.nodes.presets import find_preset
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.errors import InputError
from meshwright.findings import Finding, Place
from meshwright.units import gbit_per_s

HERE = Place(subject="cluster")
ROWS = [
    pytest.param(preset, row, id=f"{preset.name} x {row.units}")
    for preset in cluster_presets()
    for row in preset.rows
]


def build(name: str, units: int) -> tuple[Fabric, list[Finding]]:
    """Build a preset as the chain does."""
    preset = find_cluster_preset(name)
    assert preset is not None
    section, notes = section_of_preset(preset, units, HERE)
    fabric, findings = merge_cluster(section, Path(), lambda key: Place(subject=key))
    return fabric, notes + findings


def switches(fabric: Fabric) -> dict[str, int]:
    """Count switches by the kind in their names."""
    assert fabric.network is not None
    kinds = [name.partition("-")[0] for name in fabric.network.switch_names]
    return {kind: kinds.count(kind) for kind in ("leaf", "spine", "core")}


@pytest.mark.parametrize(("preset", "row"), ROWS)
def test_every_row_of_the_tables(preset: ClusterPreset, row: ClusterRow) -> None:
    fabric, findings = build(preset.name, row.units)
    assert fabric.num_hosts == row.hosts
    counts = switches(fabric)
    assert counts["leaf"] == row.leaves
    if row.spines is not None:
        assert (counts["spine"], counts["core"]) == (row.spines, row.cores)
    cables = fabric.network.cables
    per_tier = np.bincount(cables.tier, minlength=2).tolist()
    links = preset.links_per_cable
    if row.node_cables is not None:
        planes = preset.fabric.planes or 1
        ports = len(fabric.host_of_nic) * planes
        assert ports + preset.other_cables * links == row.node_cables * links
    if row.leaf_spine_cables is not None:
        assert per_tier == [row.leaf_spine_cables * links, (row.spine_core_cables or 0) * links]
    # Every leaf and every spine is wired, and none needs more ports than it has.
    used = np.bincount(cables.upper, minlength=len(fabric.network.switch_names))
    assert (used[counts["leaf"] :] > 0).all()
    assert used.max() <= (preset.fabric.radix or 64)
    assert "assumed/cluster-units" not in {one.rule for one in findings}
    assert not {one.rule for one in findings} & {"fabric/leaf-ports", "fabric/spine-ports"}


def test_the_rows_are_those_of_the_reference_architectures() -> None:
    """What was read there, written a second time."""
    tables = {
        "superpod-h100": {1: (8, 4, 0), 2: (16, 8, 0), 3: (24, 16, 0), 4: (32, 16, 0)},
        "superpod-b200": {
            2: (16, 8, 0),
            4: (32, 16, 0),
            8: (64, 32, 0),
            16: (128, 128, 64),
            32: (256, 256, 128),
            64: (512, 512, 256),
        },
        "superpod-b300-spectrumx": {
            1: (16, 8, 0),
            2: (32, 16, 0),
            4: (64, 32, 0),
            8: (128, 64, 0),
            16: (256, 128, 0),
        },
        "superpod-b300-xdr": {
            1: (8, 4, 0),
            2: (16, 8, 0),
            4: (32, 18, 0),
            8: (64, 36, 0),
            18: (144, 72, 0),
        },
        "superpod-gb200": {1: (32, 9, 0)},
    }
    for name, rows in tables.items():
        preset = find_cluster_preset(name)
        found = {row.units: (row.leaves, row.spines, row.cores) for row in preset.rows}
        assert found == rows, name
    h100 = find_cluster_preset("superpod-h100")
    assert [row.hosts for row in h100.rows] == [31, 63, 95, 127]
    assert [row.node_cables for row in h100.rows] == [252, 508, 764, 1020]


@pytest.mark.parametrize("preset", cluster_presets(), ids=lambda one: one.name)
def test_every_preset_is_complete(preset: ClusterPreset) -> None:
    for name in (preset.name, *preset.aliases):
        assert find_cluster_preset(f" {name.upper()} ") == preset
        assert find_preset(name) is None
    assert preset.source
    assert find_preset(preset.node) is not None
    assert all(1 <= row.units <= preset.max_units for row in preset.rows)
    assert all(row.hosts == preset.hosts(row.units) for row in preset.rows)


def test_a_size_between_rows_is_noted() -> None:
    fabric, findings = build("superpod-b200", 3)
    note = next(one for one in findings if one.rule == "assumed/cluster-units")
    assert "has no row for 3 units (it has 2, 4, 8, 16, 32, 64)" in note.message
    assert (fabric.num_hosts, switches(fabric)) == (96, {"leaf": 24, "spine": 16, "core": 0})


@pytest.mark.parametrize(("name", "units"), [("superpod-h100", 5), ("roce-pod", 9)])
def test_more_units_than_the_architecture_has(name: str, units: int) -> None:
    with pytest.raises(InputError, match=rf"{name} has 1 to {units - 1} units, not {units}"):
        build(name, units)
    with pytest.raises(InputError, match="not 0"):
        build(name, 0)


def test_two_planes_carry_half_each() -> None:
    fabric, findings = build("superpod-b300-spectrumx", 2)
    note = next(one for one in findings if one.rule == "fabric/planes-even")
    assert note.numbers == {"planes": 2, "leaves": 32, "spines": 16}
    network = fabric.network
    assert set(network.cables.rate_bytes_per_s.tolist()) == {gbit_per_s(400)}
    rates = fabric.links.capacity_bytes_per_s()
    assert (rates[fabric.nic_out] == gbit_per_s(800)).all()
    # A cable stays on its plane, and what a leaf sends fills both planes alike.
    names = network.switch_names
    for low, high in zip(network.cables.lower, network.cables.upper, strict=True):
        assert names[int(low)][-1] == names[int(high)][-1]
    src, dst = np.array([0], np.int32), np.array([9], np.int32)
    up, down = network.cable_loads(src, dst, np.array([128.0]))
    for loads in (up, down):
        assert sorted(set(loads.tolist())) == [0.0, 1.0]
        by_plane = [
            sum(loads[i] for i, low in enumerate(network.cables.lower) if names[int(low)][-1] == p)
            for p in "01"
        ]
        assert by_plane == [64.0, 64.0]


def pods(core: float | None, hosts: int = 28, rails: str = "rail-optimized") -> Fabric:
    """A pod holds 14 hosts of 8 NICs."""
    section = ClusterSection(
        node="dgx-h100",
        nodes=hosts,
        fabric=FabricSection(
            preset=rails, hosts_per_unit=7, hosts_per_pod=14, core_oversubscription=core
        ),
    )
    fabric, findings = merge_cluster(section, Path(), lambda key: Place(subject=key))
    assert findings == []
    return fabric


def seconds_between_pods(fabric: Fabric) -> tuple[float, float]:
    """Time of every NIC of pod 0 sending 1 GB to pod 1: busiest cable leaf-spine, spine-core."""
    network = fabric.network
    sends = fabric.host_of_nic < 14
    src = fabric.leaf_of_nic[sends]
    dst = fabric.leaf_of_nic[np.flatnonzero(sends) + len(fabric.host_of_nic) // 2]
    assert set(network.pod_of_leaf[src].tolist()) == {0}
    assert set(network.pod_of_leaf[dst].tolist()) == {1}
    up, _ = network.cable_loads(src, dst, np.full(len(src), 1e9))
    times = up / network.cables.rate_bytes_per_s
    return float(times[network.cables.tier == 0].max()), float(
        times[network.cables.tier == 1].max()
    )


def test_traffic_across_pods_takes_seven_times_as_long() -> None:
    leaf, core = seconds_between_pods(pods(None))
    assert (leaf, core) == (pytest.approx(0.02), pytest.approx(0.02))
    leaf, core = seconds_between_pods(pods(7))
    assert (leaf, core) == (pytest.approx(0.02), pytest.approx(0.14))
    # 112 NICs a pod, seven to one: sixteen cables.
    assert int((pods(7).network.cables.tier == 1).sum()) == 32
    assert seconds_between_pods(pods(2))[1] == pytest.approx(0.04)


def test_the_roce_pod_has_seven_to_one_between_pods() -> None:
    fabric, findings = build("roce-pod", 2)
    network = fabric.network
    assert fabric.num_slots == 2 * 3072
    nics = np.bincount(network.pod_of_leaf[fabric.leaf_of_nic])
    to_core = np.diff(network.pod_cable_start)
    assert nics.tolist() == [3072, 3072]
    # Whole cables: 3072 / 7 is 438.9.
    assert to_core.tolist() == [439, 439]
    # Leaf uplinks 2:1 in favour of the network.
    assert np.diff(network.leaf_cable_start).tolist() == [32] * 384
    assert {one.rule for one in findings} >= {"assumed/cluster-units", "assumed/cluster-preset"}


def test_a_fabric_can_take_the_figures_of_the_pod_and_change_one() -> None:
    given = FabricSection(preset="roce-pod", core_oversubscription=3.0)
    filled = fabric_of_preset(given)
    assert (filled.preset, filled.hosts_per_unit, filled.hosts_per_pod) == ("leaf-spine", 2, 384)
    assert (filled.oversubscription, filled.core_oversubscription) == (0.5, 3.0)
    other = FabricSection(preset="rail-only")
    assert fabric_of_preset(other) is other
    section = ClusterSection(node="dgx-h100", nodes=768, fabric=given)
    fabric, _ = merge_cluster(section, Path(), lambda key: Place(subject=key))
    assert np.diff(fabric.network.pod_cable_start).tolist() == [1024, 1024]


def test_oversubscription_without_a_core_is_noted() -> None:
    section = ClusterSection(
        node="dgx-h100",
        nodes=64,
        fabric=FabricSection(preset="rail-optimized", core_oversubscription=7),
    )
    _, findings = merge_cluster(section, Path(), lambda key: Place(subject=key))
    assert [one.rule for one in findings] == ["fabric/no-core"]


def test_pods_too_large_for_their_spines_are_noted() -> None:
    section = ClusterSection(
        node="dgx-h100",
        nodes=256,
        fabric=FabricSection(preset="rail-optimized", hosts_per_pod=128, radix=64),
    )
    fabric, findings = merge_cluster(section, Path(), lambda key: Place(subject=key))
    assert fabric.network.num_leaves == 64
    assert [one.rule for one in findings] == []
    small = msgspec.structs.replace(
        section, fabric=FabricSection(preset="rail-optimized", hosts_per_pod=256, radix=16)
    )
    _, findings = merge_cluster(small, Path(), lambda key: Place(subject=key))
    assert "fabric/spine-ports" in {one.rule for one in findings}


def test_wrong_names_get_suggestions() -> None:
    assert find_cluster_preset("superpod-h10") is None
    assert "superpod-h100" in suggest_cluster_preset("superpod-h10")
    assert suggest_cluster_preset("zzzzzzzz") == []
