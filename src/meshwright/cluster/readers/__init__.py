"""One reader a format, each recognised by content, never by file name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from meshwright.cluster.facts import Facts
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

MAX_FILE_BYTES = 1 << 30
"""A topology file larger than this is refused: no fabric needs it."""


FORMATS = (
    "nvidia_smi_topo_m",
    "nvidia_smi_nvlink_s",
    "nvidia_smi_topo_p2p",
    "rocm_smi_showtopo",
    "amd_smi_topology",
    "nccl_topo_xml",
    "nccl_graph_xml",
    "hwloc_xml",
    "ibnetdiscover",
    "ibnetdiscover_ports",
    "iblinkinfo",
    "ibsim_net",
    "slurm_topology_conf",
    "slurm_topology_yaml",
    "scontrol_show_topology",
    "topograph_model",
    "k8s_node_labels",
    "aws_instance_topology",
    "gcp_physical_host",
    "oci_topology",
    "netq_nmx",
)
"""Every format read; no two recognise the same text (a test holds it)."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One format: its name, how to recognise it, how to read it."""

    format: str
    looks_like: Callable[[str], bool]
    read: Callable[[str, str], Facts]


def readers() -> Iterator[Reader]:
    """Yield the readers; each is imported when its turn comes."""
    for name in FORMATS:
        module = importlib.import_module(f"meshwright.cluster.readers.{name}")
        yield Reader(module.FORMAT, module.looks_like, module.read)


def read_topology(path: str | Path) -> Facts:
    """Read one topology file of any known format.

    Raises ``InputError`` when the file is missing, empty, binary, of no known format or broken.
    """
    name = str(path)
    text = _read_text(Path(path), name)
    for reader in readers():
        if reader.looks_like(text):
            return reader.read(text, name)
    known = ", ".join(FORMATS)
    first = next((line for line in text.splitlines() if line.strip()), "")
    raise InputError(
        Problem(
            Place(name, 1, 1),
            "not recognised as any topology format",
            excerpt=first[:120],
            remedy=f"formats read so far: {known}",
        )
    )


def _read_text(path: Path, name: str) -> str:
    try:
        if path.is_dir():
            raise InputError(Problem(Place(name), "is a directory, not a topology file"))
        if path.exists() and not path.is_file():
            message = "is no regular file; save the text to a file first"
            raise InputError(Problem(Place(name), message))
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(Problem(Place(name), f"is larger than {MAX_FILE_BYTES >> 30} GiB"))
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(Problem(Place(name), f"cannot be read: {reason}")) from None
    if not raw.strip():
        raise InputError(Problem(Place(name, 1, 1), "is empty"))
    nul = raw.find(b"\0")
    if nul >= 0:
        line = raw.count(b"\n", 0, nul) + 1
        message = f"is a binary file (NUL at byte {nul})"
        raise InputError(
            Problem(Place(name, line, 1), message, remedy="give the tool's text output")
        )
    return raw.decode("utf-8-sig", errors="replace")
