"""Time the program as a user starts it, and print a table (docs/benchmarks.md holds one).

python benchmarks/run.py            # 16 to 131,072 ranks
python benchmarks/run.py --large    # and 1,048,576 ranks (about 20 s and 3 GiB)
python benchmarks/run.py --fabrics  # only the table of large fabric files
python benchmarks/run.py --write    # also replace the tables in docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from large_fabric import Shape, write_fabric

from meshwright.units import GIB, MIB, format_count

DOCS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
MARK = "<!-- table made by benchmarks/run.py -->"
FABRIC_MARK = "<!-- table of large fabric files made by benchmarks/run.py -->"
JOB = """\
model: gpt3-175b
cluster: {{node: dgx-h100, nodes: {hosts}, fabric: {{preset: rail-optimized}}}}
layout: {{tp: 8, cp: 2, pp: 16, dp: {dp}, framework: megatron, sequence_parallel: true, sharding: zero1}}
batch: {{global_batch: {batch}, micro_batch: 1, seq_len: 2048}}
training: {{gradient_dtype: fp32}}
"""


def job_file(folder: Path, dp: int) -> Path:
    """Write the job of ``256 · dp`` ranks and return its path."""
    path = folder / f"gpt3-{256 * dp}.yaml"
    path.write_text(JOB.format(hosts=32 * dp, dp=dp, batch=8 * dp))
    return path


def timed(arguments: list[str], runs: int) -> tuple[float, float, float]:
    """Return the medians of seconds and of processor seconds, and the largest resident size.

    The size is in bytes.
    """
    seconds, processor = [], []
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    most = 0
    for _ in range(runs + 1):  # the first run compiles bytecode and warms the disk
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "meshwright", *arguments],
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds.append(time.perf_counter() - start)
        processor.append(usage.ru_utime + usage.ru_stime)
        if status:
            raise SystemExit(f"{' '.join(arguments)} failed")
        most = max(most, usage.ru_maxrss * _maxrss_unit())
    return statistics.median(seconds[1:]), statistics.median(processor[1:]), float(most)


def _maxrss_unit() -> int:
    return 1 if platform.system() == "Darwin" else resource.getpagesize() // 4


def rows(*, large: bool, runs: int) -> list[tuple[str, str, str, str, str]]:
    """Run every benchmark: (what, ranks, seconds, GiB, wanted)."""
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases: list[tuple[str, list[str], int, str, int]] = [
            ("--help", ["--help"], 0, "0.1 s", runs)
        ]
        for dp in (16, 64, 512):
            job = str(job_file(folder, dp))
            last = dp == 512
            cases += [
                (
                    "groups --json",
                    ["groups", job, "--json"],
                    256 * dp,
                    "1.5 s" if last else "",
                    runs,
                ),
                ("map", ["map", job], 256 * dp, "3 s, 0.6 GiB" if last else "", runs),
                (
                    "map --json",
                    ["map", job, "--json"],
                    256 * dp,
                    "3 s, 0.6 GiB" if last else "",
                    runs,
                ),
            ]
        if large:
            job = str(job_file(folder, 4096))
            cases.append(("map", ["map", job], 256 * 4096, "20 s, 3 GiB", 1))
        for what, arguments, ranks, wanted, times in cases:
            seconds, _, size = timed(arguments, times)
            table.append(
                (
                    what,
                    format_count(ranks) if ranks else "",
                    f"{seconds:.2f}",
                    f"{size / GIB:.2f}",
                    wanted,
                )
            )
    return table


def markdown(table: list[tuple[str, str, str, str, str]]) -> str:
    """Return the table as Markdown."""
    lines = ["| command | ranks | seconds (median) | GiB | wanted |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table)])


def fabric_rows(runs: int) -> list[tuple[str, ...]]:
    """Read generated fabrics: (GPUs, cables, MiB, seconds, processor seconds, ratio, GiB, wanted)."""
    table: list[tuple[str, ...]] = []
    before = 0.0
    with tempfile.TemporaryDirectory() as name:
        for gpus in (8_192, 32_768, 131_072):
            path = Path(name) / f"fabric-{gpus}.txt"
            write_fabric(gpus, path)
            seconds, processor, size = timed(["topo", str(path), "--json"], runs)
            table.append(
                (
                    format_count(gpus),
                    format_count(Shape(gpus).cables),
                    f"{path.stat().st_size / MIB:.0f}",
                    f"{seconds:.2f}",
                    f"{processor:.2f}",
                    f"{processor / before:.1f}" if before else "",
                    f"{size / GIB:.2f}",
                    "20 s, 3 GiB" if gpus == 131_072 else "",
                )
            )
            before = processor
            path.unlink()
    return table


def fabric_markdown(table: list[tuple[str, ...]]) -> str:
    """Return the table of large fabric files as Markdown."""
    lines = [
        "| GPUs | cables | MiB | seconds (median) | processor seconds | ratio | GiB | wanted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table)])


def replace_table(document: str, mark: str, table: str) -> str:
    """Return the document with the table after a mark exchanged, up to the next heading."""
    before, _, after = document.partition(mark)
    _, heading, rest = after.partition("\n## ")
    return f"{before}{mark}\n\n{table}\n{heading}{rest}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--fabrics", action="store_true", help="only the large fabric files")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    tables = {}
    if not options.fabrics:
        tables[MARK] = markdown(rows(large=options.large, runs=options.runs))
    tables[FABRIC_MARK] = fabric_markdown(fabric_rows(min(options.runs, 3)))
    for mark, table in tables.items():
        print(table, end="\n\n")
        if options.write:
            DOCS.write_text(replace_table(DOCS.read_text(), mark, table))


if __name__ == "__main__":
    main()
