"""Make the tables of docs/presets.md from the data files: clusters, node types, link facts.

    python benchmarks/presets.py            # print
    python benchmarks/presets.py --write    # replace the tables

The switch counts are those of the fabrics the program builds, not copied from the data file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from meshwright.cluster.assembly.cluster_presets import (
    ClusterPreset,
    cluster_presets,
    section_of_preset,
)
from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.link_facts import (
    LinkFact,
    intel_p2p_pcie_cost,
    latency_source,
    link_facts,
    step_latencies,
)
from meshwright.cluster.nodes.presets import NodePreset, node_from_preset, node_presets
from meshwright.findings import Place
from meshwright.units import format_count, format_rate

DOCS = Path(__file__).resolve().parent.parent / "docs" / "presets.md"
MARK = "<!-- tables made by benchmarks/presets.py -->"


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _table(head: tuple[str, ...], rows: list[str]) -> list[str]:
    return [_row(*head), "|" + "---|" * len(head), *rows, ""]


def _built(preset: ClusterPreset, units: int) -> str:
    """Return a row: what the program builds for so many units."""
    section, _ = section_of_preset(preset, units, Place())
    fabric, _ = merge_cluster(section, Path(), lambda key: Place(subject=key))
    network = fabric.network
    if network is None:  # pragma: no cover - every preset has a fabric
        raise ValueError(preset.name)
    kinds = [name.partition("-")[0] for name in network.switch_names]
    between = [
        int((network.cables.tier == tier).sum()) // preset.links_per_cable for tier in (0, 1)
    ]
    counts = [
        fabric.num_hosts,
        fabric.num_slots,
        *(kinds.count(k) for k in ("leaf", "spine", "core")),
    ]
    return _row(f"`{preset.name} x {units}`", *map(format_count, [*counts, *between]))


def _clusters() -> list[str]:
    head = ("cluster", "hosts", "GPUs", "leaf", "spine", "core", "leaf-spine", "spine-core")
    rows = [_built(preset, row.units) for preset in cluster_presets() for row in preset.rows]
    lines = ["## Clusters by units", "", *_table(head, rows)]
    for preset in cluster_presets():
        text = f"- **{preset.name}** (1 to {preset.max_units} units; a {preset.unit}): {preset.source}."
        for part in (preset.note, f"assumed: {preset.assumed}" if preset.assumed else ""):
            text += f" {part[0].upper()}{part[1:]}." if part else ""
        lines.append(text)
    return [*lines, ""]


def _node(preset: NodePreset) -> str:
    node = node_from_preset(preset)
    ports = f" ({preset.nic_ports} ports)" if preset.nic_ports > 1 else ""
    rate = format_rate(node.nics[0].rate_bytes_per_s or 0)
    joined = {"switch": "NVLink switch", "mesh": "mesh", "none": "PCIe"}[preset.nvlink]
    if preset.nvlink_domain_hosts > 1:
        joined += f", {preset.nvlink_domain_hosts} hosts"
    fabric = preset.fabric if preset.fabric_stated else f"{preset.fabric} (assumed)"
    gpus = f"{preset.num_gpus} × {node.gpu}"
    nics = f"{preset.num_nics} × {rate}{ports}"
    return _row(f"`{preset.name}`", gpus, joined, nics, len(preset.pcie_switches), fabric)


def _nodes() -> list[str]:
    head = ("node type", "GPUs", "joined by", "NICs, one direction", "PCIe switches", "fabric")
    lines = ["## Node types", "", *_table(head, [_node(one) for one in node_presets()])]
    for preset in node_presets():
        names = f" (also {', '.join(preset.aliases)})" if preset.aliases else ""
        text = f"- **{preset.name}**{names}: {preset.source}."
        lines.append(text + (f" Assumed: {preset.assumed}." if preset.assumed else ""))
    return [*lines, ""]


def _fact(fact: LinkFact) -> str:
    rates = (
        "-" if rate is None else format_rate(rate)
        for rate in (fact.stated_bytes_per_s, fact.usable_bytes_per_s)
    )
    how = {"nccl": "NCCL's model", "measured": "measured", "": ""}[fact.usable_is]
    note = f"; {fact.note}" if fact.note else ""
    return _row(f"`{fact.name}`", fact.what, fact.per, *rates, how, fact.source + note)


def _links() -> list[str]:
    head = ("name", "link", "of a", "stated", "usable", "usable is", "source")
    lines = [
        "## Link facts, one direction",
        "",
        *_table(head, [_fact(one) for one in link_facts()]),
    ]
    cost = f"{intel_p2p_pcie_cost():g}"
    text = (
        f"Bytes between two GPUs that pass an Intel CPU count {cost} times on PCIe in NCCL's model."
    )
    lines += [text, "", "## Latency of a step, microseconds", ""]
    rows = []
    for row in step_latencies():
        cells = (row.seconds.get(one) for one in ("ll", "ll128", "simple"))
        rows.append(
            _row(row.algorithm, row.path, *("-" if s is None else f"{s * 1e6:g}" for s in cells))
        )
    return [
        *lines,
        *_table(("algorithm", "path", "LL", "LL128", "Simple"), rows),
        f"Source: {latency_source()}.",
    ]


def tables() -> str:
    """Return all tables as Markdown."""
    return "\n".join([*_clusters(), *_nodes(), *_links()])


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = tables()
    print(text)
    if options.write:
        before, _, _ = DOCS.read_text().partition(MARK)
        DOCS.write_text(f"{before}{MARK}\n\n{text}\n")


if __name__ == "__main__":
    main()
