"""Whole clusters by number of units, from ``data/clusters.json``, each with its source.

A row of the file is a row of a reference architecture's table: what was published for one number
of units. The planner (``tiers.py``) meets every row (a test holds it); other numbers of units
follow the same rule, and a note says that no table has them.
"""

from __future__ import annotations

import difflib
import functools

import msgspec

from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.data.load import load_records
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

_FABRIC_PRESET = "roce-pod"
"""The cluster preset whose fabric ``fabric: {preset: roce-pod}`` takes."""


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published size. ``None`` is *not published*."""

    units: int
    hosts: int
    leaves: int
    spines: int | None = None
    cores: int = 0
    node_cables: int | None = None
    leaf_spine_cables: int | None = None
    spine_core_cables: int | None = None


class ClusterPreset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of clusters as the data file states it."""

    name: str
    aliases: tuple[str, ...]
    node: str
    """Node preset."""
    unit: str
    """What one unit is, in words."""
    hosts_per_cluster_unit: int
    hosts_less: int = 0
    """Hosts that the whole cluster has less (places that a manager takes)."""
    other_cables: int = 0
    """Cables of such managers, which the table counts among the nodes'."""
    links_per_cable: int = 1
    """Links in one cable of the table."""
    fabric: FabricSection
    max_units: int
    rows: tuple[ClusterRow, ...]
    assumed: str = ""
    """What no source says; users are told."""
    note: str = ""
    source: str

    def hosts(self, units: int) -> int:
        """Return the hosts of so many units."""
        return units * self.hosts_per_cluster_unit - self.hosts_less

    def row(self, units: int) -> ClusterRow | None:
        """Return the published row of so many units."""
        return next((row for row in self.rows if row.units == units), None)


@functools.cache
def cluster_presets() -> tuple[ClusterPreset, ...]:
    """Return all cluster presets."""
    return load_records("clusters.json", tuple[ClusterPreset, ...])


def find_cluster_preset(name: str) -> ClusterPreset | None:
    """Return the preset of a name or alias, whatever its case; ``None`` when there is none."""
    wanted = name.strip().lower()
    for preset in cluster_presets():
        if wanted == preset.name or wanted in preset.aliases:
            return preset
    return None


def suggest_cluster_preset(name: str) -> list[str]:
    """Return the names nearest to a misspelt one."""
    names = [one for preset in cluster_presets() for one in (preset.name, *preset.aliases)]
    return difflib.get_close_matches(name.lower()[:80], names, n=3, cutoff=0.5)


def section_of_preset(
    preset: ClusterPreset, units: int, place: Place
) -> tuple[ClusterSection, list[Finding]]:
    """Return the cluster section of so many units, and notes on what no table says.

    Raises ``InputError`` when there are no units, or more than the architecture has.
    """
    if not 1 <= units <= preset.max_units:
        message = f"{preset.name} has 1 to {preset.max_units} units, not {units:,}"
        remedy = (
            f"{preset.name} x {min(max(units, 1), preset.max_units)} (a unit: {preset.unit}), "
            "or node, nodes and fabric of your own"
        )
        raise InputError(Problem(place, message, remedy=remedy))
    section = ClusterSection(node=preset.node, nodes=preset.hosts(units), fabric=preset.fabric)
    return section, _notes(preset, units, place)


def _notes(preset: ClusterPreset, units: int, place: Place) -> list[Finding]:
    notes = []
    if preset.row(units) is None:
        rows = ", ".join(str(row.units) for row in preset.rows)
        notes.append(
            Finding(
                "assumed/cluster-units",
                Severity.NOTE,
                place,
                f"the source of {preset.name} has no row for {units} units (it has {rows}); the "
                "switches are counted by the rule that gives those rows.",
                {"units": units, "hosts": preset.hosts(units)},
                "a fabric file of your cluster, for its real switches",
            )
        )
    if preset.assumed:
        notes.append(
            Finding(
                "assumed/cluster-preset",
                Severity.NOTE,
                place,
                f"{preset.name}: assumed: {preset.assumed}.",
                {"units": units},
                "a fabric file of your cluster, for its real switches",
            )
        )
    return notes


def fabric_of_preset(fabric: FabricSection) -> FabricSection:
    """Return a fabric section with the figures of a named pod filled in where none are given."""
    if fabric.preset != _FABRIC_PRESET:
        return fabric
    preset = find_cluster_preset(_FABRIC_PRESET)
    if preset is None:  # pragma: no cover - the file ships with the program
        raise LookupError(_FABRIC_PRESET)
    filled = {
        name: getattr(preset.fabric, name)
        for name in fabric.__struct_fields__
        if getattr(fabric, name) is None and name != "source"
    }
    return msgspec.structs.replace(
        fabric, **filled, preset=preset.fabric.preset, full_units=preset.fabric.full_units
    )
