"""What the tables of AMD's tools (``rocm-smi``, ``amd-smi``) say of pairs of GPUs.

Both print a link type (``XGMI``, ``PCIE``) and a weight for each pair. The weight adds up along
the way in the driver's tables: 15 an XGMI hop, 20 a PCIe segment (GPU to CPU), and between CPUs
their NUMA distance. So, in the words of ``nvidia-smi topo -m``:

==========  ==================  =======================================================
link type   weight              cell
==========  ==================  =======================================================
XGMI        15, 0 or unknown    ``NV<links>``, a pair joined directly
XGMI        30, 45, ...         ``unknown``: by way of another GPU, no link of the pair
PCIE        40                  ``PHB``: two PCIe segments that meet at one CPU
PCIE        41 to 295 (52, 72)  ``SYS``: two segments and a NUMA distance between
PCIE        else                ``unknown``
none        15, 40, 52, 72 ...  as above, where no XGMI way has the same weight
==========  ==================  =======================================================

Nothing is finer: a weight of 40 does not tell PIX from PHB. *Hops* are not used: the driver
prints 1 for every pair that XGMI joins, directly or not.
"""

from __future__ import annotations

import re
from itertools import combinations

import msgspec

from meshwright.cluster.facts import NvlinkPair

UNKNOWN = "unknown"
XGMI, PCIE = "XGMI", "PCIE"
XGMI_HOP_WEIGHT = 15
_ONE_SOCKET_WEIGHT = 40
_WEIGHT = re.compile("[0-9]{1,9}")
_MOST_NUMA_DISTANCE = 255
"""Largest entry of the firmware's distance table (ACPI SLIT)."""


Cells = tuple[tuple[str, ...], ...]


class AmdLinks(msgspec.Struct, frozen=True):
    """Tables of one machine, ``[gpu][gpu]``; a table is ``None`` where the text has none.

    Within a table, ``None`` is a cell that says nothing (``N/A``, the diagonal).
    """

    path: str
    labels: tuple[str, ...]
    numbers: tuple[int, ...]
    """GPU number of each label."""
    lines: tuple[int, ...]
    """Line (from 1) of each GPU's row in the first of the tables."""
    kinds: tuple[tuple[str | None, ...], ...] | None = None
    weights: tuple[tuple[int | None, ...], ...] | None = None
    bandwidths: tuple[tuple[tuple[int, int] | None, ...], ...] | None = None
    """Least and greatest, in MB/s, as printed."""

    def kind(self, a: int, b: int) -> str | None:
        """Return ``XGMI``, ``PCIE`` or ``None``."""
        return None if self.kinds is None else self.kinds[a][b]

    def weight(self, a: int, b: int) -> int | None:
        """Return the weight; 0 between two GPUs means unknown, so ``None``."""
        return None if self.weights is None else self.weights[a][b] or None

    def is_xgmi(self, a: int, b: int) -> bool:
        """Tell whether the row of ``a`` says that XGMI joins it to ``b``, directly or not."""
        kind = self.kind(a, b)
        return kind == XGMI or (kind is None and self.weight(a, b) == XGMI_HOP_WEIGHT)

    def is_indirect(self, a: int, b: int) -> bool:
        """Tell whether XGMI joins the two only by way of another GPU."""
        weight = self.weight(a, b) or 0
        several = weight > XGMI_HOP_WEIGHT and weight % XGMI_HOP_WEIGHT == 0
        least, greatest = self.bandwidth(a, b)
        return self.is_xgmi(a, b) and (several or (least > 0 and greatest == 0))

    def bandwidth(self, a: int, b: int) -> tuple[int, int]:
        """Return least and greatest bandwidth in MB/s; zeros where unknown."""
        return (None if self.bandwidths is None else self.bandwidths[a][b]) or (0, 0)

    def num_links(self, a: int, b: int) -> int:
        """Return the XGMI links of a direct pair; 1 where the text does not say.

        The driver's least bandwidth is that of one link and the greatest that of all links of the
        pair, 0 for a pair without (Linux, ``amdgpu_amdkfd_get_xgmi_bandwidth_mbytes``).
        """
        least, greatest = self.bandwidth(a, b)
        return greatest // least if least and greatest and greatest % least == 0 else 1


def nvlink_pairs(links: AmdLinks) -> tuple[NvlinkPair, ...] | None:
    """Return pairs (of positions) that XGMI joins directly; ``None`` where no cell says anything."""
    cells = gpu_classes(links)
    pairs = []
    said = len(links.labels) == 1
    for a, b in combinations(range(len(links.labels)), 2):
        known = links.kind(a, b) or links.kind(b, a)
        said = said or known is not None or (cells is not None and cells[a][b] != UNKNOWN)
        ways = [_is_direct(links, a, b), _is_direct(links, b, a)]
        if any(ways):
            count = min(links.num_links(a, b), links.num_links(b, a))
            pairs.append(NvlinkPair(a, b, count, via_switch=False, both_ways=all(ways)))
    return tuple(pairs) if said else None


def by_number(
    pairs: tuple[NvlinkPair, ...] | None, numbers: tuple[int, ...]
) -> tuple[NvlinkPair, ...] | None:
    """Return pairs of positions as pairs of GPU numbers."""
    if pairs is None:
        return None
    numbered = []
    for pair in pairs:
        a, b = sorted((numbers[pair.a], numbers[pair.b]))
        numbered.append(msgspec.structs.replace(pair, a=a, b=b))
    return tuple(sorted(numbered, key=lambda pair: (pair.a, pair.b)))


def gpu_classes(links: AmdLinks) -> tuple[tuple[str, ...], ...] | None:
    """Return the cells of the module's table, ``X`` on the diagonal; ``None`` without any table."""
    if links.kinds is None and links.weights is None:
        return None
    places = range(len(links.labels))
    return tuple(tuple("X" if a == b else _class(links, a, b) for b in places) for a in places)


def _is_direct(links: AmdLinks, a: int, b: int) -> bool:
    return links.is_xgmi(a, b) and not links.is_indirect(a, b)


def _class(links: AmdLinks, a: int, b: int) -> str:
    kind, weight = links.kind(a, b), links.weight(a, b)
    if links.is_xgmi(a, b):
        return UNKNOWN if links.is_indirect(a, b) else f"NV{links.num_links(a, b)}"
    if weight is None or (kind is None and weight % XGMI_HOP_WEIGHT == 0):
        return UNKNOWN
    if weight == _ONE_SOCKET_WEIGHT:
        return "PHB"
    if _ONE_SOCKET_WEIGHT < weight <= _ONE_SOCKET_WEIGHT + _MOST_NUMA_DISTANCE:
        return "SYS"
    return UNKNOWN


def kinds_of(cells: Cells | None) -> tuple[tuple[str | None, ...], ...] | None:
    """Return a table of link types; all but ``XGMI`` and ``PCIE`` says nothing."""
    if cells is None:
        return None
    return tuple(tuple(cell if cell in (XGMI, PCIE) else None for cell in row) for row in cells)


def weights_of(cells: Cells | None) -> tuple[tuple[int | None, ...], ...] | None:
    """Return a table of weights; what is no number says nothing."""
    if cells is None:
        return None
    return tuple(
        tuple(int(cell) if _WEIGHT.fullmatch(cell) else None for cell in row) for row in cells
    )
