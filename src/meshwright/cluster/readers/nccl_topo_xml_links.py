"""NCCL topology XML, third step: NVLink and XGMI between GPUs, directly or through NVSwitches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

import msgspec

from meshwright.cluster.degraded.nvlink import nvlink_findings
from meshwright.cluster.facts import Facts, Gpu, NvlinkPair
from meshwright.cluster.readers.nccl_topo_xml_tree import (
    Tree,
    bad_element,
    class_kind,
    integer_attribute,
    normal_busid,
)
from meshwright.cluster.readers.safe_xml import Element
from meshwright.findings import Finding, Severity

_LINK_TAGS = ("nvlink", "xgmi")
_MAX_COUNT = 1024
_SHOWN = 20


class Links(msgspec.Struct, frozen=True):
    """GPU-GPU links of one file."""

    pairs: tuple[NvlinkPair, ...]
    nvswitches: tuple[str, ...]
    """PCI addresses of NVSwitches that a GPU reaches."""
    findings: tuple[Finding, ...]


class _Ends(msgspec.Struct):
    """Link counts by their ends; keys are positions in the list of GPUs."""

    direct: Counter[tuple[int, int]] = msgspec.field(default_factory=Counter)
    to_switch: Counter[int] = msgspec.field(default_factory=Counter)
    switches: set[str] = msgspec.field(default_factory=set)
    odd: defaultdict[str, list[Element]] = msgspec.field(default_factory=lambda: defaultdict(list))
    """Rule id -> elements that give no pair."""


def read_links(tree: Tree, elements: Sequence[Element], gpus: tuple[Gpu, ...]) -> Links:
    """Return the links of GPUs; ``elements[i]`` is the ``gpu`` element of ``gpus[i]``.

    GPUs that reach a switch are all paired: NCCL joins all NVSwitches into one node. The count of
    such a pair is the smaller of the two GPUs' sums, shared by all their peers.

    Raises
    ------
    InputError
        A ``count`` is no integer between 0 and 1024.
    """
    ends = _Ends()
    position = {(gpu.host, gpu.pci): at for at, gpu in reversed(list(enumerate(gpus)))}
    for at, (gpu, element) in enumerate(zip(gpus, elements, strict=True)):
        for link in element.children:
            if link.tag in _LINK_TAGS:
                target = normal_busid(link.attributes.get("target", ""))
                peer = position.get((gpu.host, target))
                _add(ends, at, peer, link, _count(link, tree.path))
    pairs = _pairs(ends, gpus)
    findings = [
        *_odd_findings(ends, tree.path),
        *_one_way_findings(ends, gpus, elements, tree.path),
        *_odd_gpus(ends, gpus, elements, tree.path),
    ]
    return Links(pairs, tuple(sorted(ends.switches)), tuple(findings))


def _count(link: Element, path: str) -> int:
    count = integer_attribute(link, "count", path)
    if count is None or not 0 <= count <= _MAX_COUNT:
        raise bad_element(link, path, f"count of {link.tag} must be 0 to {_MAX_COUNT}")
    return count


def _add(ends: _Ends, at: int, peer: int | None, link: Element, count: int) -> None:
    kind = class_kind(link.attributes.get("tclass", "").strip().lower())
    if kind == "nvswitch":
        ends.switches.add(normal_busid(link.attributes.get("target", "")))
        ends.to_switch[at] += count
    elif kind == "cpulink":
        return
    elif peer == at:
        ends.odd["topology/nvlink-self-loop"].append(link)
    elif peer is None:
        ends.odd["topology/nvlink-target-unknown"].append(link)
    elif count:
        ends.direct[at, peer] += count


def _pairs(ends: _Ends, gpus: tuple[Gpu, ...]) -> tuple[NvlinkPair, ...]:
    pairs: dict[tuple[int, int], NvlinkPair] = {}
    for (at, peer), count in ends.direct.items():
        back = ends.direct.get((peer, at), 0)
        a, b = sorted((gpus[at].index, gpus[peer].index))
        links = min(count, back) or max(count, back)
        pairs[a, b] = NvlinkPair(a, b, links, via_switch=False, both_ways=bool(back))
    on_switch = sorted(at for at, count in ends.to_switch.items() if count)
    for at, peer in combinations(on_switch, 2):
        a, b = sorted((gpus[at].index, gpus[peer].index))
        links = min(ends.to_switch[at], ends.to_switch[peer])
        pairs[a, b] = NvlinkPair(a, b, links, via_switch=True)
    return tuple(pairs[key] for key in sorted(pairs))


_ODD_MESSAGE = {
    "topology/nvlink-self-loop": "link elements whose target is their own GPU; they join no pair",
    "topology/nvlink-target-unknown": "link elements whose target is no GPU of the file",
}


def _odd_findings(ends: _Ends, path: str) -> list[Finding]:
    return [
        Finding(
            rule=rule,
            severity=Severity.NOTE,
            place=links[0].place(path),
            message=f"{len(links)} {_ODD_MESSAGE[rule]}",
            numbers={
                "count": len(links),
                "targets": [link.attributes.get("target", "") for link in links[:_SHOWN]],
            },
        )
        for rule, links in sorted(ends.odd.items())
    ]


def _one_way_findings(
    ends: _Ends, gpus: tuple[Gpu, ...], elements: Sequence[Element], path: str
) -> list[Finding]:
    unequal = sorted(
        (at, peer)
        for (at, peer), count in ends.direct.items()
        if count > ends.direct.get((peer, at), 0)
    )
    if not unequal:
        return []
    at, peer = unequal[0]
    there, back = ends.direct[at, peer], ends.direct.get((peer, at), 0)
    names = gpus[at].name, gpus[peer].name
    return [
        Finding(
            rule="topology/nvlink-asymmetric",
            severity=Severity.WARNING,
            place=elements[at].place(path),
            message=f"GPU {names[0]} lists {there} links to GPU {names[1]}, which lists {back} back"
            + (f" ({len(unequal) - 1} more such pairs)" if len(unequal) > 1 else ""),
            numbers={
                "pairs": [[gpus[a].name, gpus[b].name] for a, b in unequal[:_SHOWN]],
                "count": len(unequal),
            },
        )
    ]


def _odd_gpus(
    ends: _Ends, gpus: tuple[Gpu, ...], elements: Sequence[Element], path: str
) -> list[Finding]:
    """Compare the GPUs with their peers; a pair counts as the larger of its two ends says."""
    pairs = _pairs(ends, gpus)
    facts = Facts(format="nccl_topo_xml", path=path, gpus=gpus, nvlink_pairs=pairs)
    counts = {(pair.a, pair.b): pair.count for pair in pairs}
    for (at, peer), count in ends.direct.items():
        a, b = sorted((gpus[at].index, gpus[peer].index))
        counts[a, b] = max(counts.get((a, b), 0), count)
    return nvlink_findings(facts, lambda at: elements[at].place(path), counts)
