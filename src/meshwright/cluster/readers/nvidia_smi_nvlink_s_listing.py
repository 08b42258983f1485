"""``nvidia-smi nvlink -s``, first step: from lines to GPUs and the state of their links."""

from __future__ import annotations

import re

import msgspec

from meshwright.cluster.readers.nvidia_smi_topo_m_grid import clean_lines
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

MAX_GPUS = 1024
MAX_LINKS = 256
LINK = re.compile(
    r"\bLink [0-9]{1,4}:[ \t]{0,8}(?:[0-9]{1,6}(?:\.[0-9]{1,6})? ?GB/s|<inactive>)", re.I
)
"""A link with its state; tells this listing from that of ``nvlink -R`` and others."""
NO_LINKS = re.compile(r"Unable to retrieve NVLink information", re.I)
_HEADER = re.compile(r"(?:^|(?<=\s))GPU ([0-9]{1,9}): (.*)")
_UUID = re.compile(r"\s*\(UUID: ?([^)\s]*).*")
_ANY_LINK = re.compile(r"\bLink ([0-9]{1,9}):(.*)")
_RATE = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?) ?GB/s\s*\Z")
_REMOTE = re.compile(r"\s*Remote Device\b")
_CUT = re.compile(
    r"\s*(?:L|Li|Lin|Link(?: [0-9]{0,9}(?:: ?[0-9.]{0,12} ?(?:G|GB|GB/|<[a-z]*)?)?)?)\Z"
)
_MODEL_CHARACTERS = 120
_REMEDY = "paste the whole output of nvidia-smi nvlink -s"


class Link(msgspec.Struct, frozen=True):
    """One link: ``up`` is ``None`` where the tool prints another word than a rate or inactive."""

    up: bool | None
    rate: float | None
    """As printed, for comparison only: the raw rate of the lanes."""
    line: int


class GpuLinks(msgspec.Struct):
    """One GPU as it is gathered."""

    index: int
    model: str | None
    uuid: str | None
    line: int
    links: dict[int, Link] = {}
    no_links: str | None = None
    """``inactive`` or ``unsupported``, where the tool says so in place of the links."""


def read_listing(text: str, path: str) -> list[GpuLinks]:
    """Return the GPUs of the text in their order; lines of other kinds are passed over.

    Raises
    ------
    InputError
        There is no GPU, one is listed twice, a link stands under none, a number is absurd, or the
        file ends within a line.
    """
    lines = clean_lines(text)
    listing = _Listing(lines, path)
    for at, line in enumerate(lines):
        listing.take(at, line[:1000])
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].strip()), 0)
    if listing.gpus and _CUT.match(lines[last]):
        raise listing.error(last, "the file is cut off within this line")
    if not listing.gpus:
        raise listing.error(0, "no GPU of nvidia-smi nvlink -s here: no line GPU 0: NAME")
    return list(listing.gpus.values())


class _Listing:
    """Gathers GPUs and links line by line."""

    def __init__(self, lines: tuple[str, ...], path: str) -> None:
        self._lines = lines
        self._path = path
        self._current: GpuLinks | None = None
        self.gpus: dict[int, GpuLinks] = {}

    def error(self, at: int, message: str) -> InputError:
        """Return the refusal of a line."""
        place = Place(self._path, at + 1, 1)
        excerpt = self._lines[at].strip()[:160] or None
        return InputError(Problem(place, message, remedy=_REMEDY, excerpt=excerpt))

    def take(self, at: int, line: str) -> None:
        """Take one line in, if it is of a known kind."""
        if header := _HEADER.search(line):
            self._open_gpu(at, header)
        elif link := _ANY_LINK.search(line):
            self._add_link(at, int(link[1]), link[2])
        elif self._current is not None and NO_LINKS.search(line):
            unsupported = "not supported" in line.lower()
            self._current.no_links = "unsupported" if unsupported else "inactive"

    def _open_gpu(self, at: int, header: re.Match[str]) -> None:
        index = int(header[1])
        if index >= MAX_GPUS:
            raise self.error(at, f"GPU number {index} is too large")
        model = _UUID.sub("", header[2]).strip()[:_MODEL_CHARACTERS] or None
        found = _UUID.search(header[2])
        uuid = found[1] if found else None
        known = self.gpus.get(index)
        if known is None:
            known = self.gpus[index] = GpuLinks(index, model, uuid, at + 1)
        elif uuid is None or uuid != known.uuid:
            message = f"a second GPU {index}; give each machine's output as a file of its own"
            raise self.error(at, message)
        # The same GPU again: nvidia-smi -L or nvlink -R in the same text.
        self._current = known

    def _add_link(self, at: int, number: int, state: str) -> None:
        if _REMOTE.match(state):
            return
        rate = _RATE.match(state)
        inactive = "inactive" in state.lower()
        if self._current is None:
            raise self.error(at, f"Link {number} stands under no GPU")
        if number >= MAX_LINKS:
            raise self.error(at, f"link number {number} is too large")
        if number in self._current.links:
            raise self.error(at, f"a second Link {number} of GPU {self._current.index}")
        value = float(rate[1]) if rate else None
        up = value > 0 if value is not None else (False if inactive else None)
        self._current.links[number] = Link(up, value, at + 1)
