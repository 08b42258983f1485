"""Tools that print topology: each is run once, without a shell, within bounds of time and output."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

import msgspec

from meshwright.capture.document import Missing, Tool
from meshwright.capture.hwloc_text import WithheldError, without_private
from meshwright.capture.sysfs import printable

TIME_LIMIT_S = 10.0
START_LIMIT_S = 25.0
"""No tool is started later than this after the first, so that tools that hang do not add up: all
together end within this, ``TIME_LIMIT_S`` and what ending the last one takes."""
OUTPUT_LIMIT_BYTES = 2_000_000
_END_S = 2.0
_ERROR_BYTES = 2000
_READ_BYTES = 1 << 16
_KEPT_CONTROLS = frozenset("\t\n\r\x1b")


class Ran(msgspec.Struct, frozen=True):
    """What one run printed; ``failure`` says why nothing of it is to be kept."""

    output: str = ""
    failure: str | None = None
    installed: bool = True


Run = Callable[[Sequence[str]], Ran]


class Asked(msgspec.Struct, frozen=True):
    """One thing to ask tools for: the commands that may answer, the first that does is kept."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    remedy: str
    vendor: str | None = None
    """Whose GPUs it tells about: without them it is not missed."""
    edit: Callable[[str], str] = lambda text: text


_LSTOPO = ("--of", "xml", "--no-caches", "--ignore", "Core", "--ignore", "Misc")
ASKED = (
    Asked(
        "nvidia-smi topo -m",
        (("nvidia-smi", "topo", "-m"),),
        "it comes with the NVIDIA driver; in a container, mount the driver's utilities",
        "nvidia",
    ),
    Asked(
        "nvidia-smi nvlink -s",
        (("nvidia-smi", "nvlink", "-s"),),
        "it comes with the NVIDIA driver; in a container, mount the driver's utilities",
        "nvidia",
    ),
    Asked(
        "rocm-smi --showtopo",
        (("rocm-smi", "--showtopo"), ("/opt/rocm/bin/rocm-smi", "--showtopo")),
        "install rocm-smi-lib, or put /opt/rocm/bin in the PATH",
        "amd",
    ),
    Asked(
        "amd-smi topology",
        (("amd-smi", "topology"), ("/opt/rocm/bin/amd-smi", "topology")),
        "install amd-smi-lib, or put /opt/rocm/bin in the PATH",
        "amd",
    ),
    Asked(
        "lstopo --of xml",
        tuple((tool, *_LSTOPO) for tool in ("lstopo-no-graphics", "lstopo", "hwloc-ls")),
        "install hwloc (package hwloc or hwloc-nox); the PCI tree is captured without it",
        edit=without_private,
    ),
)


def ask_tools(
    run: Run, vendors: frozenset[str], clock: Callable[[], float] = time.monotonic
) -> tuple[tuple[Tool, ...], tuple[Missing, ...]]:
    """Run what is installed; return the texts, and what was missed.

    ``vendors`` (``nvidia``, ``amd``): whose GPUs the host has. Once ``START_LIMIT_S`` have passed
    by ``clock`` (in seconds), nothing more is run, and what was not is missing.
    """
    start_s = clock()

    def run_in_time(command: Sequence[str]) -> Ran:
        passed_s = clock() - start_s
        if passed_s >= START_LIMIT_S:
            return Ran(failure=f"not run: the tools before it took {passed_s:.0f} s")
        return run(command)

    tools, missing = [], []
    for asked in ASKED:
        answer = _answer(run_in_time, asked)
        if isinstance(answer, Tool):
            tools.append(answer)
        elif asked.vendor is None or asked.vendor in vendors:
            missing.append(answer)
    return tuple(tools), tuple(missing)


def _answer(run: Run, asked: Asked) -> Tool | Missing:
    why = "it is not installed"
    for command in asked.commands:
        ran = run(command)
        if not ran.installed:
            continue
        if ran.failure is None and ran.output.strip():
            try:
                text = asked.edit(_text(ran.output))
            except WithheldError as withheld:
                why = str(withheld)
                continue
            return Tool(name=asked.name, lines=tuple(text.split("\n")))
        why = ran.failure or "printed nothing"
    return Missing(what=asked.name, why=why, remedy=asked.remedy)


def _text(output: str) -> str:
    """Return the output as printed, with what no document can hold replaced."""
    if output.isprintable():
        return output
    return "".join(
        one if one.isprintable() or one in _KEPT_CONTROLS else "\ufffd" for one in output
    )


def run_tool(command: Sequence[str]) -> Ran:
    """Run one command and return what it printed.

    The environment is passed on unchanged, standard input is empty. A run beyond ``TIME_LIMIT_S``
    or ``OUTPUT_LIMIT_BYTES`` is ended, with its process group; a child that began a session of its
    own is not in it and is left running, as is one that no signal ends (stuck in a driver).
    """
    path = shutil.which(command[0])
    if path is None:
        return Ran(installed=False)
    try:
        process = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Ran(failure=f"cannot be run: {printable(str(error))}")
    output, errors, failure = _gather(process)
    if failure is not None:
        _end(process)
        return Ran(failure=failure)
    if process.returncode != 0:
        told = (errors or output).decode("utf-8", "replace").strip().split("\n")[0]
        return Ran(failure=f"ended with status {process.returncode}: {printable(told)}")
    return Ran(output.decode("utf-8", "replace"))


def _gather(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, str | None]:
    """Return standard output, the start of standard error, and which bound was broken."""
    deadline = time.monotonic() + TIME_LIMIT_S
    late = f"took over {TIME_LIMIT_S:g} s and was ended"
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector, _pipes(process) as (out, err):
        selector.register(out, selectors.EVENT_READ, output)
        selector.register(err, selectors.EVENT_READ, errors)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return b"", b"", late
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, _READ_BYTES)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.data is output or len(errors) < _ERROR_BYTES:
                    key.data.extend(chunk)
            if len(output) > OUTPUT_LIMIT_BYTES:
                return b"", b"", f"printed over {OUTPUT_LIMIT_BYTES:,} bytes and was ended"
    try:
        process.wait(max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        return b"", b"", late
    return bytes(output), bytes(errors), None


@contextmanager
def _pipes(process: subprocess.Popen[bytes]) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    if process.stdout is None or process.stderr is None:  # pragma: no cover - both are pipes
        raise ValueError("no pipes")
    with process.stdout as out, process.stderr as err:
        yield out, err


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its group (``start_new_session`` gave it its own); wait ``_END_S`` at most."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
