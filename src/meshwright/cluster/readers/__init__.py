"""One reader a format, each recognised by content, never by file name."""

from __future__ import annotations

import importlib
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from meshwright.cluster.facts import Facts
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

MAX_FILE_BYTES = 1 << 30
"""A topology file larger than this is refused: no fabric needs it."""
MAX_SMALL_CHARACTERS = 64 << 20
"""Only listings of fabrics (``FABRIC_FORMATS``) may be larger than this."""
MAX_LINE_BYTES = 2 << 20
"""A longer line is refused; a list of 131,072 hosts, one by one, takes three quarters of it."""
MAX_DOCUMENT_LINE_BYTES = 16 << 20
"""The same for a file that starts with ``{``, ``[`` or ``<``: JSON and XML may be one line."""
STANDARD_INPUT = "-"
"""The path that stands for it."""
_CHUNK_BYTES = 1 << 20
_FIRST_LINE = re.compile(r"\S.{0,119}")


FORMATS = (
    "meshwright_capture",  # first: it holds the text of other tools
    "nvidia_smi_topo_m",
    "nvidia_smi_nvlink_s",
    "nvidia_smi_nvlink_r",
    "nvidia_smi_q_fabric",
    "nvidia_smi_topo_p2p",
    "rocm_smi_showtopo",
    "amd_smi_topology",
    "amd_smi_json",
    "nccl_topo_xml",
    "nccl_graph_xml",
    "hwloc_xml",
    "ibnetdiscover",
    "ibnetdiscover_ports",
    "iblinkinfo",
    "ibsim_net",
    "opensm_lfts",
    "slurm_topology_conf",
    "slurm_topology_yaml",
    "scontrol_show_topology",
    "scontrol_show_node",
    "topograph_model",
    "k8s_node_labels",
    "aws_instance_topology",
    "gcp_physical_host",
    "oci_topology",
    "netq_nmx",
)
"""Every format read; no two recognise the same text (a test holds it)."""


FABRIC_FORMATS = ("ibnetdiscover", "ibnetdiscover_ports", "iblinkinfo", "ibsim_net", "opensm_lfts")
"""Formats with a line for every port of a cluster."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One format: its name, how to recognise it, how to read it."""

    format: str
    looks_like: Callable[[str], bool]
    read: Callable[[str, str], Facts]


def readers(names: Iterable[str] = FORMATS) -> Iterator[Reader]:
    """Yield the readers; each is imported when its turn comes."""
    for name in names:
        module = importlib.import_module(f"meshwright.cluster.readers.{name}")
        yield Reader(module.FORMAT, module.looks_like, module.read)


def read_topology(path: str | Path) -> Facts:
    """Read one topology file of any known format; ``-`` is standard input.

    Raises ``InputError`` when the file is missing, empty, binary, of no known format or broken.
    """
    name = str(path)
    text = _read_text(Path(path), name)
    large = len(text) > MAX_SMALL_CHARACTERS
    for reader in readers(FABRIC_FORMATS if large else FORMATS):
        if reader.looks_like(text):
            return reader.read(text, name)
    message = "not recognised as any topology format"
    remedy = f"meshwright topo --help names the {len(FORMATS)} formats that are read"
    if large:
        message = f"is larger than {MAX_SMALL_CHARACTERS >> 20} MiB and no listing of a fabric"
        remedy = f"formats read at this size: {', '.join(FABRIC_FORMATS)}"
    first = _FIRST_LINE.search(text)
    excerpt = first[0] if first else None
    raise InputError(Problem(Place(name, 1, 1), message, excerpt=excerpt, remedy=remedy))


def _read_text(path: Path, name: str) -> str:
    if name == STANDARD_INPUT:
        return _text_of(io.BytesIO(sys.stdin.buffer.read(MAX_FILE_BYTES + 1)), name)
    if not name:
        raise InputError(Problem(Place(subject="files"), "an empty name is no file"))
    try:
        if path.is_dir():
            raise InputError(Problem(Place(name), "is a directory, not a topology file"))
        if path.exists() and not path.is_file():
            message = "is no regular file; save the text to a file first"
            raise InputError(Problem(Place(name), message))
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _too_large(name)
        with path.open("rb") as stream:
            return _text_of(stream, name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(Problem(Place(name), f"cannot be read: {reason}")) from None
    except ValueError:
        raise InputError(Problem(Place(name), "no file can have this name")) from None


def _too_large(name: str) -> InputError:
    return InputError(Problem(Place(name), f"is larger than {MAX_FILE_BYTES >> 30} GiB"))


def _text_of(stream: BinaryIO, name: str) -> str:
    size = _check_lines(stream, name)
    if size > MAX_FILE_BYTES:
        raise _too_large(name)
    stream.seek(0)
    raw = stream.read(size)
    if not raw.strip():
        raise InputError(Problem(Place(name, 1, 1), "is empty"))
    return raw.decode("utf-8-sig", errors="replace")


def _check_lines(stream: BinaryIO, name: str) -> int:
    """Return the bytes of a file; refuse binary data and long lines before all is in memory."""
    allowed = length = position = 0
    line = 1
    while chunk := stream.read(_CHUNK_BYTES):
        nul = chunk.find(b"\0")
        if nul >= 0:
            place = Place(name, line + chunk.count(b"\n", 0, nul), 1)
            message = f"is a binary file (NUL at byte {position + nul})"
            raise InputError(Problem(place, message, remedy="give the tool's text output"))
        if not allowed:
            start = chunk.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            allowed = MAX_DOCUMENT_LINE_BYTES if start in (b"{", b"[", b"<") else MAX_LINE_BYTES
        end = chunk.find(b"\n")
        if length + (end if end >= 0 else len(chunk)) > allowed:
            message = f"a line of more than {allowed >> 20} MiB"
            remedy = "give the tool's output as it prints it, with its line ends"
            raise InputError(Problem(Place(name, line, 1), message, remedy=remedy))
        length = len(chunk) - chunk.rfind(b"\n") - 1 if end >= 0 else length + len(chunk)
        line += chunk.count(b"\n")
        position += len(chunk)
    return position
