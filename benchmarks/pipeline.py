"""Time the simulation of pipelines in processor seconds, and print a table (docs/benchmarks.md holds one).

python benchmarks/pipeline.py            # up to 64 ranks, 1,024 microbatches, 4 chunks: 524,288 operations
python benchmarks/pipeline.py --write    # also replace the table in docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from run import DOCS, replace_table

from meshwright.schedules.loops import interleaved
from meshwright.timeline.blocking import run_blocking
from meshwright.timeline.contended import run_contended
from meshwright.timeline.core import run
from meshwright.timeline.idle import idle_by_cause
from meshwright.timeline.measure import measure
from meshwright.timeline.program import Messages, Program, StageTimes, program_of
from meshwright.units import format_count

MARK = "<!-- table made by benchmarks/pipeline.py -->"
SIZES = [
    (35, 280, 3, "0.1 s"),
    (64, 64, 4, ""),
    (64, 128, 4, ""),
    (64, 256, 4, ""),
    (64, 512, 4, ""),
    (64, 1024, 4, "1 s, shared 2 s"),
]
"""Ranks, microbatches, chunks; what is wanted of the plain run, and of shared links."""
SEND_S = 0.6
"""Of a forward's 1 and a backward's 2: long enough that two ranks' messages meet on one link."""
HEADER = [
    "ranks × microbatches × chunks",
    "operations",
    "schedule",
    "lowering",
    "run",
    "a link a rank",
    "a link for two ranks",
    "blocking",
    "measure, idle",
    "plain in all",
    "µs an operation: plain, shared",
    "wanted",
]
Result = TypeVar("Result")


def timed(work: Callable[[], Result], runs: int) -> tuple[float, Result]:
    """Return the median of processor seconds and the last result."""
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds), result


def on_links(program: Program, ranks_to_a_link: int) -> Program:
    """Return the program with one link for the sends of so many ranks."""
    sender = program.orders.rank[np.maximum(program.need, 0)]
    return replace(program, link=np.where(program.need >= 0, sender // ranks_to_a_link, -1))


def row(size: tuple[int, int, int, str], runs: int) -> list[str]:
    """Time one size."""
    pp, microbatches, chunks, wanted = size
    times = StageTimes.equal(pp * chunks)
    made_s, orders = timed(lambda: interleaved(pp, microbatches, chunks), runs)
    messages = Messages.uniform(pp, SEND_S)
    lowered_s, program = timed(lambda: program_of(orders, times, messages), runs)
    run_s, ran = timed(lambda: run(program), runs)
    own, shared = on_links(program, 1), on_links(program, 2)
    own_s, _ = timed(lambda: run_contended(own), runs)
    shared_s, _ = timed(lambda: run_contended(shared), runs)
    blocking_s, _ = timed(lambda: run_blocking(program), runs)
    measure_s, _ = timed(lambda: (measure(program, ran), idle_by_cause(program, ran)), runs)
    around_s, count = made_s + lowered_s + measure_s, len(orders.kind)
    seconds = [made_s, lowered_s, run_s, own_s, shared_s, blocking_s, measure_s, around_s + run_s]
    per_operation = [(around_s + part_s) / count / 1e-6 for part_s in (run_s, shared_s)]
    return [
        f"{pp} × {format_count(microbatches)} × {chunks}",
        format_count(count),
        *(f"{value:.3f}" for value in seconds),
        ", ".join(f"{value:.1f}" for value in per_operation),
        wanted,
    ]


def markdown(table: list[list[str]]) -> str:
    """Return the table as Markdown; all times in processor seconds."""
    lines = [f"| {' | '.join(HEADER)} |", "|" + "---|" * len(HEADER)]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in table)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    table = markdown([row(size, options.runs) for size in SIZES])
    print(table)
    if options.write:
        DOCS.write_text(replace_table(DOCS.read_text(), MARK, table))


if __name__ == "__main__":
    main()
