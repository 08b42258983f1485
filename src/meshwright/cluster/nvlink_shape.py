"""How NVLink joins the GPUs of one source: through a switch or directly, and with how many links.

On a switch all of a GPU's links lead into it, so a pair shows the smaller of its two ends' counts.
Where the counts of a GPU's pairs add up to more links than any GPU has, they are shared: a switch
is there, also when links are down or a GPU has fallen off it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from meshwright.cluster.facts import NvlinkPair
from meshwright.cluster.gpus import GpuModel

MOST_NVLINKS = 18
"""Links of a GPU: no generation up to Blackwell has more, so more to all others means a switch."""
_NEARLY_ALL = 0.75
"""Share of pairs from which a lone pair without NVLink is odd, and not the way GPUs are joined."""

PairCounts = Mapping[tuple[int, int], int]
"""Links by pair of GPU numbers, the lower first; a pair without a link is left out."""


class NvlinkShape(msgspec.Struct, frozen=True):
    """See the module docstring; GPUs by number."""

    is_switch: bool
    joined: tuple[int, ...]
    """GPUs with a link, in order."""
    links: dict[int, int]
    """Of each joined GPU: its links into the switch, or the sum over its peers."""

    @property
    def most(self) -> int:
        """Return the links of the GPUs that have the most."""
        return max(self.links.values(), default=0)


def pair_counts(pairs: Sequence[NvlinkPair]) -> dict[tuple[int, int], int]:
    """Return the links of each pair as the source counts them."""
    return {(pair.a, pair.b): pair.count for pair in pairs if pair.count > 0}


def nvlink_shape(counts: PairCounts, gpu: GpuModel | None, *, via_switch: bool) -> NvlinkShape:
    """Return how the pairs are joined; ``via_switch``: the source itself shows NVSwitches.

    Linear in the number of pairs.
    """
    sums: Counter[int] = Counter()
    most: dict[int, int] = {}
    for (a, b), count in counts.items():
        for end in (a, b):
            sums[end] += count
            most[end] = max(most.get(end, 0), count)
    joined = tuple(sorted(sums))
    possible = len(joined) * (len(joined) - 1) // 2
    full = gpu.nvlink_links if gpu is not None else MOST_NVLINKS
    may = gpu is None or gpu.link_protocol == "nvlink"
    shared = via_switch or (may and 0 < full < max(sums.values(), default=0))
    is_switch = shared and len(counts) >= _NEARLY_ALL * possible > 0
    return NvlinkShape(is_switch, joined, most if is_switch else dict(sums))
