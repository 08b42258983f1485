"""Make the table of docs/formats.md: each topology format, its samples, and what is met of them.

    python benchmarks/formats.py ../shared/data/topology            # print
    python benchmarks/formats.py ../shared/data/topology --write    # replace the table

The samples are captured files of other projects and are not part of this repository; the table says
how many cells of their manifest (counts, nearest NICs) a reading gives.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers import read_topology
from meshwright.report.topo_report import topo_json
from meshwright.report.topo_view import topo_view

DOCS = Path(__file__).resolve().parent.parent / "docs" / "formats.md"
MARK = "<!-- table made by benchmarks/formats.py -->"
COLUMNS = {
    "n_gpus": "gpus",
    "n_nics": "nics",
    "n_other_devices": "other_devices",
    "n_hosts": "hosts",
    "n_switches": "switches",
    "n_nvswitches": "nvswitches",
    "n_links": "links",
    "n_nvlink_pairs": "nvlink_pairs",
    "n_numa": "numa_nodes",
}


def met(facts: Facts, row: dict[str, str]) -> tuple[int, int]:
    """Return (cells met, cells) of one sample: filled counts, nearest NICs and their class."""
    document: dict[str, Any] = json.loads(
        json.dumps(topo_json(topo_view([facts]), full=True), default=str)
    )
    results = [
        document[key] is not None and len(document[key]) == int(row[column])
        for column, key in COLUMNS.items()
        if row[column]
    ]
    results += [
        document[column] == json.loads(row[column])
        for column in ("nearest_nic", "nearest_class")
        if row[column]
    ]
    return sum(results), len(results)


def table(folder: Path) -> str:
    """Return the table as Markdown."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    with (folder / "MANIFEST.csv").open() as file:
        for row in csv.DictReader(file):
            facts = read_topology(folder / row["file"])
            good, cells = met(facts, row)
            total = totals[row["format"]]
            total[0] += 1
            total[1] += facts.format == row["format"]
            total[2] += good
            total[3] += cells
    lines = ["| format | samples | recognised | cells met |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {samples} | {known} | {good} of {cells} |"
        for name, (samples, known, good, cells) in totals.items()
    ]
    sums = [sum(column) for column in zip(*totals.values(), strict=True)]
    lines.append(f"| all | {sums[0]} | {sums[1]} | {sums[2]} of {sums[3]} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = table(options.folder)
    print(text)
    if options.write:
        before, _, _ = DOCS.read_text().partition(MARK)
        DOCS.write_text(f"{before}{MARK}\n\n{text}\n")


if __name__ == "__main__":
    main()
