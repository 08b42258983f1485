"""NVLink that is degraded: a GPU with fewer links than its peers, or off the switch they share.

A matrix shows pairs. On a switch a pair has the smaller of its two GPUs' counts, so a GPU with a
link down is low in its whole row; the finding names the GPU, not its pairs. Directly joined GPUs
are compared by the sum over their peers: a cube mesh joins pairs unequally and is sound.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from meshwright.cluster.degraded.peers import PlaceOf, gpu_name, some
from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.gpus import GpuModel, common_gpu
from meshwright.cluster.nvlink_shape import NvlinkShape, PairCounts, nvlink_shape, pair_counts
from meshwright.findings import Finding, Number, Place, Severity

_SHOWN = 20
_CELL = re.compile(r"(?:NV|MX)([0-9]{1,4})\Z")
_LINKS_DOWN = (
    "look at nvidia-smi nvlink -s and -e on the host, and at dmesg for Xid 74; drain the host if the "
    "link stays down"
)
_OFF_SWITCH = (
    "look at nvidia-smi -q for the Fabric state of this GPU, restart the fabric manager, reset the GPU; "
    "until then keep jobs off it (CUDA_VISIBLE_DEVICES)"
)


def nvlink_findings(
    facts: Facts, place_of: PlaceOf | None = None, counts: PairCounts | None = None
) -> list[Finding]:
    """Return the findings on the NVLink pairs of a source.

    ``place_of`` gives the place of a GPU by its position in ``facts.gpus``. ``counts``: links by
    pair, the larger of the two directions (an asymmetric pair is a finding of its own); default:
    from the matrix, where there is one.
    """
    gpus = facts.gpus or ()
    if not facts.nvlink_pairs or len(gpus) < 3:
        return []
    via_switch = any(pair.via_switch for pair in facts.nvlink_pairs)
    counts = _larger_counts(facts) if counts is None else counts
    shape = nvlink_shape(counts, model_of(facts), via_switch=via_switch)
    box = _Box(gpus, shape, place_of or (lambda at: Place(facts.path, subject=gpus[at].name)))
    odd = box.on_switch(counts) if shape.is_switch else box.in_mesh(counts)
    return [*odd, *box.outside(counts)]


def _larger_counts(facts: Facts) -> PairCounts:
    """Return the links of each pair, of two unequal cells the larger count."""
    counts = pair_counts(facts.nvlink_pairs or ())
    numbers = [gpu.index for gpu in facts.gpus or ()]
    for row, cells in enumerate(facts.gpu_gpu_class or ()):
        for column, cell in enumerate(cells):
            match = _CELL.match(cell)
            pair = (min(numbers[row], numbers[column]), max(numbers[row], numbers[column]))
            if match is not None and pair in counts:
                counts[pair] = max(counts[pair], int(match[1]))
    return counts


def model_of(facts: Facts) -> GpuModel | None:
    """Return the model of the GPUs where the source names one that is known, for all the same."""
    return common_gpu(gpu.model for gpu in facts.gpus or ())


class _Box:
    """The GPUs of one source."""

    def __init__(self, gpus: Sequence[Gpu], shape: NvlinkShape, place_of: PlaceOf) -> None:
        self._gpus = gpus
        self._shape = shape
        self._place_of = place_of
        self._position = {gpu.index: at for at, gpu in enumerate(gpus)}

    def _name(self, number: int) -> str:
        return gpu_name(self._gpus[self._position[number]].name)

    def _names(self, numbers: Sequence[int]) -> str:
        return some([self._name(number) for number in numbers], _SHOWN)

    def on_switch(self, counts: PairCounts) -> list[Finding]:
        """Report each GPU with fewer links than the most, then the pairs that this leaves odd."""
        links, most = self._shape.links, self._shape.most
        low = [number for number in self._shape.joined if links[number] < most]
        peers = len(links) - len(low)
        if len(low) <= peers:
            found = [self._fewer([number], peers) for number in low]
        else:
            found = [self._fewer(low, peers)]
        return [*found, *self._odd_pairs(counts)]

    def _fewer(self, low: Sequence[int], peers: int) -> Finding:
        links, most = self._shape.links, self._shape.most
        own = sorted({links[number] for number in low})
        have = "has" if len(low) == 1 else "have"
        shown = " or ".join(map(str, own))
        plural = "" if own == [1] else "s"
        message = (
            f"{self._names(low)} {have} {shown} NVLink{plural} into the switch where {peers} "
            f"peer{'s have' if peers > 1 else ' has'} {most}: to and from {'it' if len(low) == 1 else 'them'} "
            f"NVLink runs at {own[0]}/{most} of its rate"
        )
        numbers: dict[str, Number] = {
            "gpus": [*low[:_SHOWN]],
            "links": own[0],
            "most": most,
            "peers": peers,
        }
        place = self._place_of(self._position[low[0]])
        rule = "topology/nvlink-count-differs"
        return Finding(rule, Severity.WARNING, place, message, numbers, _LINKS_DOWN)

    def _odd_pairs(self, counts: PairCounts) -> list[Finding]:
        """Report pairs whose count is not the smaller of their GPUs' own."""
        links, joined = self._shape.links, self._shape.joined
        odd = [
            (a, b, counts.get((a, b), 0), min(links[a], links[b]))
            for at, a in enumerate(joined)
            for b in joined[at + 1 :]
            if counts.get((a, b), 0) != min(links[a], links[b])
        ]
        if not odd:
            return []
        shown = [
            f"{self._name(a)} and {self._name(b)} show {count or 'no'} NVLink{'s' if count != 1 else ''} "
            f"where both have {own}"
            for a, b, count, own in odd[:_SHOWN]
        ]
        message = f"{some(shown, 3)}: on one switch a pair has as many as the lower of its two GPUs"
        numbers: dict[str, Number] = {
            "count": len(odd),
            "pairs": [[*pair] for pair in odd[:_SHOWN]],
        }
        remedy = (
            "run nvidia-smi topo -m again; if it stays, look at nvidia-smi nvlink -s of both GPUs"
        )
        place = self._place_of(self._position[odd[0][0]])
        rule = "topology/nvlink-pair-differs"
        return [Finding(rule, Severity.WARNING, place, message, numbers, remedy)]

    def in_mesh(self, counts: PairCounts) -> list[Finding]:
        """Report the GPUs whose links add up to fewer; a lost link has two ends, so together."""
        links, most = self._shape.links, self._shape.most
        low = [number for number in self._shape.joined if links[number] < most]
        if not low:
            return []
        parts = [f"{self._name(number)} has {links[number]}" for number in low]
        message = f"{some(parts, 8)} NVLinks over all peers where {len(links) - len(low)} GPUs have {most}"
        message += self._thin_pairs(counts, low)
        numbers: dict[str, Number] = {
            "gpus": [*low[:_SHOWN]],
            "links": [links[number] for number in low[:_SHOWN]],
            "most": most,
        }
        remedy = (
            "look for links or bridges that are down (nvidia-smi nvlink -s); of a box of which only some GPUs "
            "are shown the counts may differ without a fault"
        )
        place = self._place_of(self._position[low[0]])
        rule = "topology/nvlink-count-differs"
        return [Finding(rule, Severity.WARNING, place, message, numbers, remedy)]

    def _thin_pairs(self, counts: PairCounts, low: Sequence[int]) -> str:
        """Name the pairs between low GPUs that have fewer links than any other pair."""
        inside = {pair: n for pair, n in counts.items() if pair[0] in low and pair[1] in low}
        others = Counter(n for pair, n in counts.items() if pair not in inside)
        if not inside or not others:
            return ""
        rest = min(others)
        thin = [
            f"{self._name(a)}-{self._name(b)} NV{n}" for (a, b), n in inside.items() if n < rest
        ]
        return f" ({some(thin, 4)} where other pairs have at least NV{rest})" if thin else ""

    def outside(self, counts: PairCounts) -> list[Finding]:
        """Report GPUs without a link beside three or more that are all joined."""
        joined = self._shape.joined
        alone = [gpu.index for gpu in self._gpus if gpu.index not in self._shape.links]
        complete = len(counts) == len(joined) * (len(joined) - 1) // 2
        few = self._shape.is_switch or (complete and len(alone) < len(joined))
        if not alone or len(joined) < 3 or not few or not self._alike(joined, alone):
            return []
        have, it = ("has", "it") if len(alone) == 1 else ("have", "them")
        how = "hang on one switch" if self._shape.is_switch else "are all joined"
        message = (
            f"{self._names(alone)} {have} no NVLink while the other {len(joined)} GPUs {how} "
            f"({len(counts)} pairs): everything to and from {it} goes by PCIe"
        )
        numbers: dict[str, Number] = {"outside": [*alone[:_SHOWN]], "joined": len(joined)}
        place = self._place_of(self._position[alone[0]])
        rule = "topology/gpu-outside-nvlink"
        return [Finding(rule, Severity.WARNING, place, message, numbers, _OFF_SWITCH)]

    def _alike(self, joined: Sequence[int], alone: Sequence[int]) -> bool:
        """Tell whether the GPUs may be of one model: a display card has no NVLink to lose."""
        models: Mapping[int, str | None] = {gpu.index: gpu.model for gpu in self._gpus}
        mine = {models[number] for number in joined} - {None}
        theirs = {models[number] for number in alone} - {None}
        return not mine or not theirs or bool(mine & theirs)
