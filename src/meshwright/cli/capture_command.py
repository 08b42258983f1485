"""``meshwright capture``: what this node has, into one file that ``topo`` reads."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\Z")


@click.command(
    "capture",
    short_help="What this node has, into one file that topo reads.",
    epilog="""\b
Example: one file from each node of an allocation, then all of them read together:
  $ mkdir captures
  $ srun --ntasks-per-node=1 meshwright capture -o captures/
  $ meshwright topo captures/*.json
On one machine:
  $ meshwright capture > node.json""",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=str),
    help="A new file, or an existing folder: HOST.json in it. Default: standard output.",
)
@click.option("--json", "as_json", is_flag=True, help="The same: a capture is always JSON.")
def command(output: str | None, *, as_json: bool) -> None:
    """Capture what this node has: GPUs, adapters, PCIe tree, NVLink, NUMA nodes, as one JSON.

    Needs no root and writes nothing but its output. Reads sysfs, NVML (with the Python package
    nvidia-ml-py), and runs nvidia-smi, rocm-smi, amd-smi and lstopo where they are installed. What
    is missing is said on standard error and in the file. No serial numbers, IP or MAC addresses
    are kept; GUIDs of adapters and UUIDs of GPUs are, since files are joined by them.
    """
    del as_json
    from meshwright import __version__
    from meshwright.capture.collect import collect, to_json
    from meshwright.capture.nvml import load_nvml

    _check_output(output)
    document = collect(nvml=load_nvml(), version=__version__)
    host = document["host"]["name"]
    _write(to_json(document).encode("ascii"), output, host)
    _say_missing(host, document.get("missing", ()))


def _check_output(output: str | None) -> None:
    """Refuse a place that cannot be written before anything is asked."""
    from meshwright.errors import UsageError
    from meshwright.report.new_file import check_new_file

    if output is None or os.path.isdir(output):  # noqa: PTH112 - never raises
        return
    if output.endswith("/"):
        raise UsageError(f"{output}: no such folder; make it first: mkdir {output}")
    check_new_file(output)


def _write(content: bytes, output: str | None, host: str) -> None:
    from meshwright.report.new_file import check_new_file, new_file

    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    path = output
    if os.path.isdir(output):  # noqa: PTH112 - never raises
        name = host if _FILE_NAME.match(host) else "host"
        path = os.path.join(output, f"{name}.json")  # noqa: PTH118 - keeps the user's spelling
        check_new_file(path)
    with new_file(path) as file:
        file.write(content)
    click.echo(f"{host}: written to {path}", err=True)


def _say_missing(host: str, missing: Sequence[dict[str, Any]]) -> None:
    for one in missing:
        remedy = f"; {one['remedy']}" if one.get("remedy") else ""
        click.echo(f"{host}: no {one['what']}: {one['why']}{remedy}", err=True)
