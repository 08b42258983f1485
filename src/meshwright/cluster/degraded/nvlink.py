"""NVLink that is degraded: a GPU with fewer links than its peers, or off the switch they share.

A matrix shows pairs. On a switch a pair has the smaller of its two GPUs' counts, so a GPU with a
link down is low in its whole row; the finding names the GPU, not its pairs. Directly joined GPUs
are compared by the sum over their peers: a cube mesh joins pairs unequally and is sound.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from meshwright.cluster.degraded.peers import PlaceOf, gpu_name, some
from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.gpus import GpuModel, common_gpu
from meshwright.cluster.nvlink_shape import NvlinkShape, PairCounts, nvlink_shape, pair_counts
from meshwright.cluster.vendor import AMD, Maker, maker_of
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural

_SHOWN = 20
_CELL = re.compile(r"(?:NV|MX)([0-9]{1,4})\Z")
_BRIDGED = 3
"""So many GPUs in pairs, at least, for each one without a bridge: else the box was bought so."""


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
    places = place_of or (lambda at: Place(facts.path, subject=gpus[at].name))
    box = _Box(gpus, shape, places, maker_of(facts))
    odd = box.on_switch(counts) if shape.is_switch else box.in_mesh(counts)
    return [*odd, *box.outside(counts), *box.without_bridge(counts)]


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

    def __init__(
        self, gpus: Sequence[Gpu], shape: NvlinkShape, place_of: PlaceOf, maker: Maker
    ) -> None:
        self._gpus = gpus
        self._maker = maker
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
        shown = self._maker.links(" or ".join(map(str, own)))
        message = (
            f"{self._names(low)} {_have(low)} {shown} into the switch where {peers} "
            f"peer{'s have' if peers > 1 else ' has'} {most}: to and from {_them(low)} "
            f"{self._maker.link} runs at {own[0]}/{most} of its rate"
        )
        numbers: dict[str, Number] = {
            "gpus": [*low[:_SHOWN]],
            "links": own[0],
            "most": most,
            "peers": peers,
        }
        place = self._place_of(self._position[low[0]])
        rule = "topology/nvlink-count-differs"
        return Finding(rule, Severity.WARNING, place, message, numbers, self._maker.link_remedy)

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
            f"{self._name(a)} and {self._name(b)} show {self._maker.links(count)} where both have {own}"
            for a, b, count, own in odd[:_SHOWN]
        ]
        message = f"{some(shown, 3)}: on one switch a pair has as many as the lower of its two GPUs"
        numbers: dict[str, Number] = {
            "count": len(odd),
            "pairs": [[*pair] for pair in odd[:_SHOWN]],
        }
        remedy = f"run {self._maker.matrix_tool} again; if it stays, look at {self._maker.link_tool} of both GPUs"
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
        others = len(links) - len(low)
        message = (
            f"{some(parts, 8)} {self._maker.one_link}s over all peers where "
            f"{plural(others, 'GPU')} {'has' if others == 1 else 'have'} {most}"
        )
        message += self._thin_pairs(counts, low)
        numbers: dict[str, Number] = {
            "gpus": [*low[:_SHOWN]],
            "links": [links[number] for number in low[:_SHOWN]],
            "most": most,
        }
        remedy = (
            f"look for links or bridges that are down ({self._maker.link_tool}); of a box of which only some "
            "GPUs are shown the counts may differ without a fault"
        )
        place = self._place_of(self._position[low[0]])
        rule = "topology/nvlink-count-differs"
        return [Finding(rule, Severity.WARNING, place, message, numbers, remedy)]

    def _thin_pairs(self, counts: PairCounts, low: Sequence[int]) -> str:
        """Name the pairs between low GPUs that have fewer links than any other pair, or none."""
        inside = {pair: n for pair, n in counts.items() if pair[0] in low and pair[1] in low}
        others = Counter(n for pair, n in counts.items() if pair not in inside)
        if not others:
            return ""
        rest, cell = min(others), self._maker.cell
        thin = [
            f"{self._name(a)}-{self._name(b)} {cell}{n}" for (a, b), n in inside.items() if n < rest
        ]
        if thin:
            return f" ({some(thin, 4)} where other pairs have at least {cell}{rest})"
        joined = self._shape.joined
        absent = [pair for pair in combinations(joined, 2) if pair not in counts]
        if len(absent) == 1 and len(joined) > _BRIDGED:
            a, b = absent[0]
            return f" ({self._name(a)} and {self._name(b)} have no link where all other pairs do)"
        return ""

    def outside(self, counts: PairCounts) -> list[Finding]:
        """Report GPUs without a link beside three or more that are all joined."""
        joined = self._shape.joined
        alone = [gpu.index for gpu in self._gpus if gpu.index not in self._shape.links]
        complete = len(counts) == len(joined) * (len(joined) - 1) // 2
        few = self._shape.is_switch or (complete and len(alone) < len(joined))
        if not alone or len(joined) < 3 or not few or not self._alike(joined, alone):
            return []
        how = "hang on one switch" if self._shape.is_switch else "are all joined"
        message = (
            f"{self._names(alone)} {_have(alone)} no {self._maker.link} while the other {len(joined)} GPUs "
            f"{how} ({len(counts)} pairs): everything to and from {_them(alone)} goes by PCIe"
        )
        numbers: dict[str, Number] = {"outside": [*alone[:_SHOWN]], "joined": len(joined)}
        place = self._place_of(self._position[alone[0]])
        rule = "topology/gpu-outside-nvlink"
        return [Finding(rule, Severity.WARNING, place, message, numbers, self._off_switch(alone))]

    def _off_switch(self, alone: Sequence[int]) -> str:
        gpus = ("this GPU", "the GPU") if len(alone) == 1 else ("these GPUs", "the GPUs")
        keep = f"until then keep jobs off {_them(alone)} ({self._maker.variable})"
        if self._maker is AMD:
            return f"{self._maker.link_remedy}; {keep}"
        return (
            f"look at nvidia-smi -q for the Fabric state of {gpus[0]}, restart the fabric manager, reset "
            f"{gpus[1]}; {keep}"
        )

    def without_bridge(self, counts: PairCounts) -> list[Finding]:
        """Report GPUs without a bridge beside others of which each has one to one peer."""
        joined = self._shape.joined
        alone = [gpu.index for gpu in self._gpus if gpu.index not in self._shape.links]
        in_pairs = len(counts) * 2 == len(joined)
        if len(alone) < 2 or not in_pairs or len(joined) < _BRIDGED * len(alone):
            return []
        if not self._alike(joined, alone):
            return []
        names = self._names(alone)
        if len(alone) == 2:
            names = " and ".join(self._name(number) for number in alone)
        message = (
            f"{names} have no {self._maker.link} bridge where the other {len(joined)} GPUs are joined in "
            f"pairs: what they send each other goes by PCIe"
        )
        numbers: dict[str, Number] = {
            "outside": [*alone[:_SHOWN]],
            "joined": len(joined),
            "pairs": len(counts),
        }
        remedy = (
            f"look whether a bridge is absent, loose or down ({self._maker.link_tool}); if these GPUs never "
            "had one, put groups that talk most on the pairs that have"
        )
        place = self._place_of(self._position[alone[0]])
        rule = "topology/nvlink-bridge-missing"
        return [Finding(rule, Severity.WARNING, place, message, numbers, remedy)]

    def _alike(self, joined: Sequence[int], alone: Sequence[int]) -> bool:
        """Tell whether the GPUs may be of one model: a display card has no NVLink to lose."""
        models: Mapping[int, str | None] = {gpu.index: gpu.model for gpu in self._gpus}
        mine = {models[number] for number in joined} - {None}
        theirs = {models[number] for number in alone} - {None}
        return not mine or not theirs or bool(mine & theirs)


def _have(gpus: Sequence[int]) -> str:
    return "has" if len(gpus) == 1 else "have"


def _them(gpus: Sequence[int]) -> str:
    return "it" if len(gpus) == 1 else "them"
