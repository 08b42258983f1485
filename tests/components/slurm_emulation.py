"""A real Slurm controller with emulated nodes on this one machine, for tests.

No systemd, no munge, no cgroups: the daemons run in the foreground as children and are stopped
with the test. Settings as the documentation of slurm.conf gives them for multiple slurmd.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "scontrol", "sinfo")
_UP_S = 60.0


@dataclass(frozen=True)
class Slurm:
    """A running controller; ``call`` runs one of Slurm's commands against it."""

    folder: Path

    def call(self, *command: str) -> str:
        """Return what a command prints."""
        env = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout


def missing_programs() -> list[str]:
    """Return the programs that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@contextmanager
def slurm(folder: Path, nodes: list[str], topology: str) -> Iterator[Slurm]:
    """Run a controller and a daemon a node under this ``topology.conf``."""
    ports = _free_ports(len(nodes) + 1)
    for name in ("state", "log", *(f"spool/{node}" for node in nodes)):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(_settings(folder, nodes, ports))
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    (folder / "topology.conf").write_text(topology)
    conf = ["-D", "-f", str(folder / "slurm.conf")]
    started = [_start(folder, "slurmctld", [*conf, "-c"])]
    try:
        started += [_start(folder, "slurmd", [*conf, "-N", node]) for node in nodes]
        running = Slurm(folder)
        _wait(running, len(nodes))
        yield running
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(folder: Path, program: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    log = folder / "log" / f"{program}-{arguments[-1]}.out"
    with log.open("wb") as out:
        return subprocess.Popen(
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )


def _wait(running: Slurm, nodes: int) -> None:
    until = time.monotonic() + _UP_S
    idle = ""
    while time.monotonic() < until:
        with suppress(subprocess.CalledProcessError):
            idle = running.call("sinfo", "-h", "-N", "-t", "idle", "-o", "%N")
            if len(idle.split()) == nodes:
                return
        time.sleep(0.2)
    logs = "\n".join(log.read_text()[-300:] for log in (running.folder / "log").glob("slurmctld*"))
    raise TimeoutError(f"Slurm is not up: {len(idle.split())} of {nodes} nodes idle\n{logs}")


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _settings(folder: Path, nodes: list[str], ports: list[int]) -> str:
    here = socket.gethostname().split(".")[0]
    lines = [
        "ClusterName=emulated",
        f"SlurmctldHost={here}(127.0.0.1)",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/none",
        "CredType=cred/none",
        f"SlurmctldPort={ports[0]}",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool/%n",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "TopologyPlugin=topology/tree",
    ]
    for node, port in zip(nodes, ports[1:], strict=True):
        lines.append(
            f"NodeName={node} NodeHostname={here} NodeAddr=127.0.0.1 Port={port} CPUs=8 Boards=1 "
            "SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=1000"
        )
    lines.append(f"PartitionName=all Nodes={','.join(nodes)} Default=YES MaxTime=10 State=UP")
    return "\n".join(lines) + "\n"
