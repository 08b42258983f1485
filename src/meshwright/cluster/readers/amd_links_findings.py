"""Tables of AMD's tools: cells that contradict each other, and what was taken as given."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from meshwright.cluster.facts import NvlinkPair
from meshwright.cluster.readers.amd_links import PCIE, XGMI, XGMI_HOP_WEIGHT, AmdLinks
from meshwright.findings import Finding, Place, Severity

_SHOWN = 20
_Pairs = list[tuple[int, int]]


def amd_link_findings(links: AmdLinks, pairs: tuple[NvlinkPair, ...] | None) -> list[Finding]:
    """Return what is odd in the tables; ``pairs`` are those that XGMI joins directly."""
    direct = pairs or ()
    return [
        *_asymmetric(links),
        *_contradicting(links),
        *_outside(links, direct),
        *_hives(links, direct),
        *_indirect(links),
        *_taken_as_direct(links, direct),
        *_bandwidth_unknown(links, direct),
    ]


def _such_pairs(links: AmdLinks, holds: Callable[[int, int], bool]) -> _Pairs:
    """Return the pairs of which at least one cell has the property."""
    places = range(len(links.labels))
    return [(a, b) for a, b in combinations(places, 2) if holds(a, b) or holds(b, a)]


def _finding(
    links: AmdLinks, rule: str, severity: Severity, pairs: _Pairs, text: tuple[str, str | None]
) -> list[Finding]:
    """Return a finding on pairs, or none; ``text`` is its message and remedy."""
    if not pairs:
        return []
    first = pairs[0][0]
    message, remedy = text
    return [
        Finding(
            rule=f"topology/{rule}",
            severity=severity,
            place=Place(links.path, links.lines[first], 1, links.labels[first]),
            message=_pairs_named(links, pairs) + message,
            numbers={
                "count": len(pairs),
                "pairs": [[links.labels[p], links.labels[q]] for p, q in pairs[:_SHOWN]],
            },
            remedy=remedy,
        )
    ]


def _pairs_named(links: AmdLinks, pairs: _Pairs) -> str:
    """Return the one pair, or how many there are, with a blank behind."""
    a, b = pairs[0]
    names = f"{links.labels[a]} and {links.labels[b]}"
    return f"{names} " if len(pairs) == 1 else f"{len(pairs)} GPU pairs (the first: {names}) "


def _asymmetric(links: AmdLinks) -> list[Finding]:
    def differ(a: int, b: int) -> bool:
        return (links.kind(a, b), links.weight(a, b)) != (links.kind(b, a), links.weight(b, a))

    pairs = _such_pairs(links, differ)
    message = "differ by direction in link type or weight"
    if pairs:
        a, b = pairs[0]
        message += f": {_cell(links, a, b)} there, {_cell(links, b, a)} back"
    return _finding(
        links,
        "matrix-asymmetric",
        Severity.WARNING,
        pairs,
        (message, "run the tool again; if it stays, look for links that are down"),
    )


def _cell(links: AmdLinks, a: int, b: int) -> str:
    """Return link type and weight of one direction, as far as they are given."""
    parts = [links.kind(a, b) or "", f"weight {links.weight(a, b)}"]
    return " ".join(part for part in parts if part and not part.endswith("None"))


def _contradicting(links: AmdLinks) -> list[Finding]:
    def contradict(a: int, b: int) -> bool:
        kind, weight = links.kind(a, b), links.weight(a, b)
        if weight is None:
            return False
        if kind == PCIE:
            return weight == XGMI_HOP_WEIGHT
        return kind == XGMI and weight % XGMI_HOP_WEIGHT != 0

    message = f"have a weight that is not of their link type (XGMI: {XGMI_HOP_WEIGHT} a hop); "
    return _finding(
        links,
        "link-type-contradicts-weight",
        Severity.WARNING,
        _such_pairs(links, contradict),
        (message + "the link type is believed", "give the topology file that RCCL dumps"),
    )


def _indirect(links: AmdLinks) -> list[Finding]:
    message = (
        "are joined by XGMI only by way of other GPUs (weight above one hop): they have no link "
        "of their own and share those of the GPUs between"
    )
    return _finding(
        links,
        "xgmi-indirect",
        Severity.NOTE,
        _such_pairs(links, links.is_indirect),
        (message, None),
    )


def _taken_as_direct(links: AmdLinks, direct: tuple[NvlinkPair, ...]) -> list[Finding]:
    unsaid = [
        (pair.a, pair.b)
        for pair in direct
        if links.weight(pair.a, pair.b) is None and links.weight(pair.b, pair.a) is None
    ]
    message = "have link type XGMI and no weight: each is taken as joined directly"
    return _finding(
        links,
        "xgmi-taken-as-direct",
        Severity.NOTE,
        unsaid,
        (message, "give the weights too (rocm-smi --showtopoweight), or the file that RCCL dumps"),
    )


def _bandwidth_unknown(links: AmdLinks, direct: tuple[NvlinkPair, ...]) -> list[Finding]:
    if links.bandwidths is None:
        return []
    unsaid = [(pair.a, pair.b) for pair in direct if not any(links.bandwidth(pair.a, pair.b))]
    message = "have no bandwidth or 0-0 in NUMA BW: that is unknown, not zero"
    return _finding(links, "xgmi-bandwidth-unknown", Severity.NOTE, unsaid, (message, None))


def _sets(num_gpus: int, direct: tuple[NvlinkPair, ...]) -> list[list[int]]:
    """Return the sets of GPUs that XGMI joins, also by way of others, each in index order."""
    root = list(range(num_gpus))

    def find(gpu: int) -> int:
        while root[gpu] != gpu:
            root[gpu] = root[root[gpu]]
            gpu = root[gpu]
        return gpu

    for pair in direct:
        low, high = sorted((find(pair.a), find(pair.b)))
        root[high] = low
    members: dict[int, list[int]] = {}
    for gpu in range(num_gpus):
        members.setdefault(find(gpu), []).append(gpu)
    return list(members.values())


def _hives(links: AmdLinks, direct: tuple[NvlinkPair, ...]) -> list[Finding]:
    """Name hives whose GPUs do not follow each other: a group of neighbours would cross them."""
    several = [hive for hive in _sets(len(links.labels), direct) if len(hive) > 1]
    apart = [hive for hive in several if hive[-1] - hive[0] >= len(hive)]
    if len(several) < 2 or not apart:
        return []
    named = "; ".join(" ".join(links.labels[gpu] for gpu in hive) for hive in several[:_SHOWN])
    return [
        Finding(
            rule="topology/xgmi-hives-interleaved",
            severity=Severity.WARNING,
            place=Place(links.path, links.lines[0], 1, links.labels[0]),
            message=f"XGMI joins the GPUs in {len(several)} sets that do not follow the GPU "
            f"numbers ({named}): a group of consecutive GPUs crosses between them over PCIe",
            numbers={"hives": [[links.numbers[gpu] for gpu in hive] for hive in several[:_SHOWN]]},
            remedy="order the GPUs by set, where HIP numbers them alike: HIP_VISIBLE_DEVICES="
            + ",".join(str(links.numbers[gpu]) for hive in several for gpu in hive),
        )
    ]


def _outside(links: AmdLinks, direct: tuple[NvlinkPair, ...]) -> list[Finding]:
    """Report GPUs without XGMI beside three or more that are all joined."""
    sets = _sets(len(links.labels), direct)
    alone = [hive[0] for hive in sets if len(hive) == 1]
    joined = max((len(hive) for hive in sets), default=0)
    complete = joined >= 3 and len(direct) == joined * (joined - 1) // 2
    if not alone or not complete or len(sets) != len(alone) + 1:
        return []
    names = ", ".join(links.labels[gpu] for gpu in alone[:_SHOWN])
    return [
        Finding(
            rule="topology/gpu-outside-nvlink",
            severity=Severity.WARNING,
            place=Place(links.path, links.lines[alone[0]], 1, links.labels[alone[0]]),
            message=f"{names}: no XGMI, while the other {joined} GPUs are all joined",
            numbers={"outside": [links.numbers[gpu] for gpu in alone], "joined": joined},
            remedy="look at amd-smi xgmi and at dmesg for link training errors",
        )
    ]
