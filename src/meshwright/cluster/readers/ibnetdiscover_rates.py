"""``ibnetdiscover``: the speeds of links, such as ``4xNDR``.

Data rate of a lane by InfiniBand generation (IBTA; SDR to QDR after 8b/10b, FDR after 64b/66b,
from EDR on the nominal figure), times the link's width.
"""

from __future__ import annotations

from functools import lru_cache

from meshwright.units import gbit_per_s

_LANE_GBIT_PER_S = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}


def is_generation(word: str) -> bool:
    """Tell whether the word is an InfiniBand generation of known rate (``NDR``)."""
    return word in _LANE_GBIT_PER_S


@lru_cache(maxsize=256)
def link_rate(width: str, generation: str) -> float | None:
    """Return the data rate of a link in bytes per second and direction; ``None`` if unknown."""
    lane = _LANE_GBIT_PER_S.get(generation)
    return gbit_per_s(int(width) * lane) if lane is not None and int(width) else None
