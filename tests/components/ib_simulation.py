"""A simulated InfiniBand fabric: ibsim, routed by opensm, asked by infiniband-diags.

Everything runs as processes of this test, on a private socket, bounded in time, and is stopped.
Debian packages: ibsim-utils, opensm, infiniband-diags. No kernel module and no service is needed.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "dump_lfts", "ibroute", "ibtracert")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
_START_S = 30
_RUN_S = 90
_ENGINE = re.compile(r"(\w+) tables configured on all switches")
_numbers = itertools.count()


@dataclass(frozen=True)
class FatTree:
    """Two levels: each rail of each unit of hosts has a leaf, each leaf has cables to all spines."""

    spines: int
    units: int
    hosts: int
    """Hosts of a unit."""
    cables: int = 1
    """Cables between each leaf and each spine."""
    rails: int = 1
    swapped: tuple[tuple[int, int], tuple[int, int]] | None = None
    """Two adapters (host, rail) whose cables are exchanged at the leaves."""

    def adapter(self, host: int, rail: int) -> str:
        """Return the node description, as drivers set it: host and device."""
        return f"host{host:03d} mlx5_{rail}"

    def places(self) -> dict[tuple[int, int], tuple[str, int]]:
        """Return leaf and port of every adapter."""
        place = {
            (host, rail): (f"leaf{host // self.hosts}-{rail}", host % self.hosts + 1)
            for host in range(self.units * self.hosts)
            for rail in range(self.rails)
        }
        if self.swapped is not None:
            one, other = self.swapped
            place[one], place[other] = place[other], place[one]
        return place

    def net(self) -> str:
        """Return the net file; the first record is the one that opensm speaks from."""
        place = self.places()
        leaves = {
            f"leaf{unit}-{rail}": [] for unit in range(self.units) for rail in range(self.rails)
        }
        text = []
        for (host, rail), (leaf, port) in place.items():
            name = self.adapter(host, rail)
            text += [f'Hca\t1 "{name}"\t# "{name}"', f'[1]\t"{leaf}"[{port}]\t# "" lid 0 4xHDR', ""]
            leaves[leaf].append(f'[{port}]\t"{name}"[1]\t# "" lid 0 4xHDR')
        spines: dict[str, list[str]] = {f"spine{one}": [] for one in range(self.spines)}
        for number, (leaf, ports) in enumerate(leaves.items()):
            for index, spine in enumerate(spines):
                for cable in range(self.cables):
                    up = self.hosts + index * self.cables + cable + 1
                    down = number * self.cables + cable + 1
                    ports.append(f'[{up}]\t"{spine}"[{down}]\t# "" lid 0 4xHDR')
                    spines[spine].append(f'[{down}]\t"{leaf}"[{up}]\t# "" lid 0 4xHDR')
        for switch, ports in (*leaves.items(), *spines.items()):
            text += [f'Switch\t{len(ports)} "{switch}"', *ports, ""]
        return "\n".join(text)


def missing_parts() -> list[str]:
    """Return what is not installed here."""
    lost = [one for one in PROGRAMS if shutil.which(one, path=_PATH) is None]
    return lost if _preload() is not None else [*lost, "libumad2sim.so"]


def _preload() -> Path | None:
    return next(iter(sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))), None)


class Simulation:
    """A running fabric; see ``simulated``."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment

    def run(self, *command: str) -> str:
        """Return what a program prints; it must end well."""
        program = shutil.which(command[0], path=_PATH)
        assert program is not None, command[0]
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            check=False,
        )
        assert done.returncode == 0, (
            f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr[-500:]}"
        )
        return done.stdout

    def route(self, engine: str, *options: str) -> None:
        """Let opensm give LIDs and tables, by this engine and no other, and end."""
        log = self.folder / "opensm.log"
        self.run("opensm", "-R", engine, "-o", "-f", str(log), "-D", "0x43", *options)
        used = _ENGINE.findall(log.read_text())
        # opensm falls back to another engine without failing.
        assert used == [engine], f"opensm used {used}, not {engine}: {log.read_text()[-800:]}"

    def save(self, name: str, *command: str) -> Path:
        """Write what a program prints to a file."""
        path = self.folder / name
        path.write_text(self.run(*command))
        return path

    def trace(self, pairs: Sequence[tuple[int, int]]) -> list[list[tuple[str, int]]]:
        """Return by ``ibtracert`` the way of each LID pair: GUID and out port of each switch."""
        file = self.folder / "pairs"
        file.write_text("".join(f"{src} {dst}\n" for src, dst in pairs))
        return list(_ways(self.run("ibtracert", "-n", "--ports-file", str(file))))


def _ways(text: str) -> Iterator[list[tuple[str, int]]]:
    """Read ``From {guid}[port]``, ``[out port] -> {guid}[in port]`` a hop, ``To {guid}[port]``."""
    way: list[tuple[str, int]] = []
    at = ""
    for line in text.splitlines():
        hop = re.match(r"\[(\d+)\] -> \{0x([0-9a-f]{16})\}\[\d+\]$", line)
        if line.startswith("From "):
            way, at = [], ""
        elif hop is not None:
            if at:
                way.append((at, int(hop[1])))
            at = hop[2]
        elif line.startswith("To "):
            yield way


@contextmanager
def simulated(tree: FatTree, folder: Path) -> Iterator[Simulation]:
    """Start ibsim on a fabric; stop it at the end, whatever happened."""
    preload = _preload()
    program = shutil.which("ibsim", path=_PATH)
    assert preload is not None
    assert program is not None
    (folder / "fabric.net").write_text(tree.net())
    environment = {
        "PATH": _PATH,
        "IBSIM_SOCKNAME": f"meshwright-{os.getpid()}-{next(_numbers)}",
    }
    log = folder / "ibsim.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [program, "-n", "-s", "fabric.net"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait(process, log)
        environment |= {
            "LD_PRELOAD": str(preload),
            "SIM_HOST": tree.adapter(0, 0),
            "OSM_CACHE_DIR": str(folder),
            "OSM_TMP_DIR": str(folder),
        }
        yield Simulation(folder, environment)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_S
    while "Network simulator ready" not in log.read_text():
        assert process.poll() is None, f"ibsim ended: {log.read_text()[-500:]}"
        assert time.monotonic() < end, f"ibsim is not ready: {log.read_text()[-500:]}"
        time.sleep(0.02)
