"""Read mutated topology files and say which make a reader fail, hang or eat memory.

    python benchmarks/fuzz_topology.py tests/fixtures/topology ../shared/data/topology

Each file is mutated, read and reported as ``meshwright topo`` does it. Allowed ends: facts, or a
refusal with a message. An exception, more than ``--seconds`` of processor time and more than
``--memory-mib`` of further memory are failures: the limits are set on worker processes, so that
nothing a reader does can pass them. Failing files are made smaller and put in ``--keep``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import msgspec
from fuzz_mutations import Mutator, Seed, seeds_of

from meshwright.cluster.readers import read_topology
from meshwright.errors import InputError
from meshwright.report.topo_report import topo_json, topo_text
from meshwright.report.topo_view import topo_view

MIB = 1 << 20
_WALL = 15
"""Wall-clock seconds allowed for one second of processor time: the machine may be busy."""
_SHOWN = 20
"""Failures named while it runs."""
_SMALLER_TRIES = 400
_SMALLER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Limits:
    """What one file may cost."""

    seconds: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file: ``read``, ``refused``, or why it failed."""

    end: str
    detail: str = ""
    seconds: float = 0.0
    mib: float = 0.0

    @property
    def failed(self) -> bool:
        """Tell whether the end is none of the two allowed."""
        return self.end not in ("read", "refused")


def judge(path: Path) -> Outcome:
    """Read a file and report it as ``topo`` does; an exception is a failure with its place."""
    try:
        try:
            facts = read_topology(path)
        except InputError as error:
            str(error).encode()
            return Outcome("refused" if error.problems else "refused without a message")
        view = topo_view([facts])
        topo_text(view).encode()
        msgspec.json.encode(topo_json(view, full=True))
    except MemoryError:
        return Outcome("memory")
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        return Outcome(place, traceback.format_exc(limit=-4))
    return Outcome("read")


def _measured(path: Path) -> Outcome:
    """Judge a file and measure processor seconds and the further memory at its highest."""
    before = _resident(reset=True)
    start = time.process_time()
    outcome = judge(path)
    seconds = time.process_time() - start
    return Outcome(outcome.end, outcome.detail, seconds, max(_resident() - before, 0.0))


def _resident(*, reset: bool = False) -> float:
    """Return the highest resident size in MiB since the last reset (where the system has one)."""
    if not sys.platform.startswith("linux"):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    with Path("/proc/self/status").open() as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return float(line.split()[1]) / 1024


def work(pipe: Connection, mutator: Mutator, limits: Limits) -> None:
    """Answer each request, a mutation's number or a content, with its outcome.

    The kernel ends the process at the limit of processor time, also inside compiled code.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        most = pages * resource.getpagesize() + limits.memory_mib * MIB
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        while (request := pipe.recv()) is not None:
            content = mutator.make(request)[1] if isinstance(request, int) else request
            path.write_bytes(content)
            signal.setitimer(signal.ITIMER_PROF, limits.seconds)
            outcome = _measured(path)
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.send(outcome)


class Worker:
    """A process that reads files; started again when a file ends it."""

    def __init__(self, mutator: Mutator, limits: Limits) -> None:
        self._mutator = mutator
        self._limits = limits
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=work, args=(theirs, self._mutator, self._limits), daemon=True
        )
        self._process.start()
        theirs.close()
        self.asked_at = time.monotonic()

    def ask(self, request: int | bytes) -> None:
        """Send a request; ``answer`` waits for its outcome."""
        self.pipe.send(request)
        self.asked_at = time.monotonic()

    def answer(self) -> Outcome:
        """Return the outcome of the last request."""
        allowed = _WALL * self._limits.seconds + 30
        try:
            if self.pipe.poll(max(self.asked_at + allowed - time.monotonic(), 0)):
                outcome: Outcome = self.pipe.recv()
                if outcome.mib > self._limits.memory_mib:
                    return Outcome("memory", "", outcome.seconds, outcome.mib)
                return outcome
            end = "hangs"
        except (EOFError, ConnectionError):
            self._process.join(10)
            code = self._process.exitcode or 0
            end = "too slow" if code == -signal.SIGPROF else f"ended by signal or exit {code}"
        self.stop()
        self._start()
        return Outcome(end, "", self._limits.seconds)

    def stop(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self.pipe.close()
        self._process.kill()
        self._process.join()


@dataclass(slots=True)
class Row:
    """Counts of one format."""

    mutations: int = 0
    read: int = 0
    refused: int = 0
    seconds: float = 0.0
    mib: float = 0.0
    failures: list[tuple[int, Outcome]] = field(default_factory=list)

    def take(self, number: int, outcome: Outcome) -> None:
        """Count one outcome."""
        self.mutations += 1
        self.read += outcome.end == "read"
        self.refused += outcome.end == "refused"
        self.seconds = max(self.seconds, outcome.seconds)
        self.mib = max(self.mib, outcome.mib)
        if outcome.failed:
            self.failures.append((number, outcome))


def run(mutator: Mutator, limits: Limits, count: int, workers: int) -> dict[str, Row]:
    """Judge mutations 0 to ``count``; return the rows of the table by format."""
    rows: dict[str, Row] = {name: Row() for name in sorted({one.format for one in mutator.seeds})}
    numbers = iter(range(count))
    pool = [Worker(mutator, limits) for _ in range(workers)]
    asked: list[int | None] = [next(numbers, None) for _ in pool]
    for worker, number in zip(pool, asked, strict=True):
        if number is not None:
            worker.ask(number)
    while any(number is not None for number in asked):
        for place, worker in enumerate(pool):
            number = asked[place]
            if number is None:
                continue
            outcome = worker.answer()
            rows[sorted(rows)[number % len(rows)]].take(number, outcome)
            if outcome.failed and sum(len(row.failures) for row in rows.values()) <= _SHOWN:
                print(f"seed {mutator.seed} mutation {number}: {outcome.end}", flush=True)
            asked[place] = following = next(numbers, None)
            if following is not None:
                worker.ask(following)
    for worker in pool:
        worker.stop()
    return rows


def smaller(content: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Return a part of the content that still fails, within a bounded number of tries."""
    until = time.monotonic() + _SMALLER_SECONDS
    tries = iter(range(_SMALLER_TRIES))
    for separator in (b"\n", b""):
        size = max(len(_parts(content, separator)) // 2, 1)
        while size >= 1:
            for candidate in _without(content, separator, size):
                if next(tries, None) is None or time.monotonic() > until:
                    return content
                if fails(candidate):
                    content = candidate
                    break
            else:
                size //= 2
    return content


def _parts(content: bytes, separator: bytes) -> list[bytes]:
    return content.split(separator) if separator else [bytes([byte]) for byte in content]


def _without(content: bytes, separator: bytes, size: int) -> Iterator[bytes]:
    parts = _parts(content, separator)
    for at in range(0, len(parts), size):
        if len(parts) > size:
            yield separator.join(parts[:at] + parts[at + size :])


def keep_failures(mutator: Mutator, limits: Limits, rows: dict[str, Row], folder: Path) -> None:
    """Write one file for each kind of failure, made smaller, and say where it came from."""
    folder.mkdir(parents=True, exist_ok=True)
    worker = Worker(mutator, limits)
    kinds: set[str] = set()
    for name, row in rows.items():
        for number, outcome in row.failures:
            if (kind := f"{name}: {outcome.end}") in kinds:
                continue
            kinds.add(kind)

            def fails(content: bytes, end: str = outcome.end) -> bool:
                worker.ask(content)
                return worker.answer().end == end

            content = smaller(mutator.make(number)[1], fails)
            path = folder / f"{name}-{mutator.seed}-{number}"
            path.write_bytes(content)
            print(f"{kind} (seed {mutator.seed}, mutation {number}): {path}\n{outcome.detail}")
    worker.stop()


def table(rows: dict[str, Row]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| format | mutations | read | refused | failed | worst seconds | worst MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    total = Row()
    for row in rows.values():
        total.mutations += row.mutations
        total.read += row.read
        total.refused += row.refused
        total.seconds, total.mib = max(total.seconds, row.seconds), max(total.mib, row.mib)
        total.failures += row.failures
    for name, row in [*rows.items(), ("all", total)]:
        lines.append(
            f"| {name} | {row.mutations:,} | {row.read:,} | {row.refused:,} | {len(row.failures)} "
            f"| {row.seconds:.2f} | {row.mib:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run, print the table, and exit with 1 when anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0, help="of processor time, a file")
    parser.add_argument("--memory-mib", type=int, default=512, help="more than before, a file")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="folder for failing files, made smaller")
    options = parser.parse_args()
    seeds: list[Seed] = seeds_of(options.folders)
    if not seeds:
        raise SystemExit("no file in these folders is of a known format")
    mutator = Mutator(seeds, options.seed)
    limits = Limits(options.seconds, options.memory_mib)
    rows = run(mutator, limits, options.mutations, options.workers)
    if options.keep is not None:
        keep_failures(mutator, limits, rows, options.keep)
    print(table(rows))
    sys.exit(1 if any(row.failures for row in rows.values()) else 0)


if __name__ == "__main__":
    main()
