"""Path classes, NVLink pairs, PCIe chains and peer access of one host from several sources."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import PATH_CLASSES, Facts, NvlinkPair, PcieChain
from meshwright.cluster.join.host_devices import Joining, Member
from meshwright.cluster.join.said import Difference, conflict, told
from meshwright.findings import Finding, Severity

UNKNOWN = "unknown"
_FAR = ("PHB", "NODE", "SYS")
_MATRIX_FIRST = (
    "nvidia_smi_topo_m",
    "meshwright_capture",
    "nccl_topo_xml",
    "hwloc_xml",
    "amd_smi_json",
    "amd_smi_topology",
    "rocm_smi_showtopo",
)
_CHAINS_FIRST = ("meshwright_capture", "nccl_topo_xml", "hwloc_xml")

Rows = tuple[tuple[str, ...], ...]
_Pairs = dict[tuple[int, int], NvlinkPair]


def hides_pcie(facts: Facts) -> bool:
    """Tell whether the driver's matrix shows no PCIe switch: in a virtual machine it says nothing."""
    if facts.format not in ("nvidia_smi_topo_m", "meshwright_capture"):
        return False
    rows = (*(facts.gpu_gpu_class or ()), *(facts.gpu_nic_class or ()))
    cells = {cell for row in rows for cell in row if cell in PATH_CLASSES}
    return bool(cells) and cells <= set(_FAR)


def _order(joining: Joining, formats: Sequence[str]) -> list[int]:
    rank = {name: at for at, name in enumerate(formats)}
    return sorted(
        range(len(joining.sources)),
        key=lambda number: rank.get(joining.sources[number].format, len(rank)),
    )


def class_order(joining: Joining) -> tuple[list[int], list[int]]:
    """Return source numbers in the order their classes count, and those whose matrix hides PCIe."""
    order = _order(joining, _MATRIX_FIRST)
    shown = any(
        facts.pcie_chains is not None and _has_near(facts)
        for facts in joining.sources
        if not hides_pcie(facts)
    )
    hidden = [number for number in order if shown and hides_pcie(joining.sources[number])]
    return [number for number in order if number not in hidden] + hidden, hidden


def _has_near(facts: Facts) -> bool:
    rows = (*(facts.gpu_gpu_class or ()), *(facts.gpu_nic_class or ()))
    return any(cell in ("PIX", "PXB") for row in rows for cell in row)


def merged_classes(joining: Joining) -> tuple[dict[str, Rows | None], list[Finding]]:
    """Return the three class matrices of the joined devices, and where sources disagree."""
    order, hidden = class_order(joining)
    found: dict[tuple[int, int], list[Difference]] = {}
    result: dict[str, Rows | None] = {}
    for name, rows, columns in (
        ("gpu_gpu_class", joining.gpus, joining.gpus),
        ("gpu_nic_class", joining.gpus, joining.nics),
        ("nic_nic_class", joining.nics, joining.nics),
    ):
        givers = [n for n in order if getattr(joining.sources[n], name) is not None]
        result[name] = _matrix(joining, name, (rows, columns), givers, found) if givers else None
    return result, [
        _disagree(joining, pair, differences, hidden) for pair, differences in found.items()
    ]


def _matrix(
    joining: Joining,
    name: str,
    ends: tuple[list[Member], list[Member]],
    givers: Sequence[int],
    found: dict[tuple[int, int], list[Difference]],
) -> Rows:
    tables = [(number, getattr(joining.sources[number], name)) for number in givers]
    same = ends[0] is ends[1]
    rows = []
    for y, row in enumerate(ends[0]):
        cells = []
        for x, column in enumerate(ends[1]):
            if same and x == y:
                cells.append("X")
                continue
            said = [
                (number, table[row[number]][column[number]])
                for number, table in tables
                if number in row and number in column
            ]
            cells.append(_cell(said))
            if not same or x > y:
                what = f"{_label(name, 0)}{y} and {_label(name, 1)}{x}"
                _compare(said, what, found)
        rows.append(tuple(cells))
    return tuple(rows)


def _label(name: str, side: int) -> str:
    return name.split("_")[side].upper()


def _cell(said: Sequence[tuple[int, str]]) -> str:
    """Return an NVLink cell before a path class: NVLink hides the path in print only."""
    known = [cell for _, cell in said if cell != UNKNOWN]
    linked = next((cell for cell in known if cell not in PATH_CLASSES), None)
    return linked or next(iter(known), UNKNOWN)


def _compare(
    said: Sequence[tuple[int, str]], what: str, found: dict[tuple[int, int], list[Difference]]
) -> None:
    paths = [(number, cell) for number, cell in said if cell in PATH_CLASSES]
    for number, cell in paths[1:]:
        if cell != paths[0][1]:
            pair = (paths[0][0], number)
            found.setdefault(pair, []).append(Difference(what, paths[0][1], cell))


def _disagree(
    joining: Joining,
    pair: tuple[int, int],
    differences: Sequence[Difference],
    hidden: Sequence[int],
) -> Finding:
    left, right = (joining.sources[number].path for number in pair)
    if pair[1] in hidden:
        first = differences[0]
        return told(
            "path-class-hidden",
            Severity.NOTE,
            (left, right),
            f"{right} shows no PCIe switch (PHB, NODE and SYS only), as in a virtual machine; "
            f"{left} shows them, so its path classes count: {first.what} {first.left}, not "
            f"{first.right} ({len(differences)} pairs differ)",
            count=len(differences),
            values=[[one.what, one.left, one.right] for one in differences[:100]],
        )
    return conflict("path-class", "the path class", (left, right), differences, f"{left} is taken")


def merged_pairs(
    joining: Joining, indices: Sequence[int]
) -> tuple[tuple[NvlinkPair, ...] | None, list[Finding]]:
    """Return NVLink pairs by merged GPU number; a source that lists pairs speaks for all its GPUs."""
    order = [
        number
        for number in _order(joining, _MATRIX_FIRST)
        if joining.sources[number].nvlink_pairs is not None
    ]
    if not order:
        return None, []
    taken: dict[tuple[int, int], NvlinkPair] = {}
    findings: list[Finding] = []
    covered: list[tuple[int, set[int], _Pairs]] = []
    for number in order:
        facts = joining.sources[number]
        merged_of = {
            (facts.gpus or ())[group[number]].index: index
            for group, index in zip(joining.gpus, indices, strict=True)
            if number in group
        }
        own = _renumbered(facts.nvlink_pairs or (), merged_of)
        here = set(merged_of.values())
        findings += _pairs_differ(joining, (number, here, own), covered)
        for (a, b), pair in own.items():
            if not any(a in there and b in there for _, there, _ in covered):
                taken[a, b] = pair
            elif (a, b) in taken and taken[a, b].via_switch is None:
                taken[a, b] = msgspec.structs.replace(taken[a, b], via_switch=pair.via_switch)
        covered.append((number, here, own))
    return tuple(taken[key] for key in sorted(taken)), findings


def _renumbered(
    pairs: Sequence[NvlinkPair], merged_of: dict[int, int]
) -> dict[tuple[int, int], NvlinkPair]:
    found = {}
    for pair in pairs:
        if pair.a in merged_of and pair.b in merged_of:
            a, b = sorted((merged_of[pair.a], merged_of[pair.b]))
            found[a, b] = msgspec.structs.replace(pair, a=a, b=b)
    return found


def _pairs_differ(
    joining: Joining,
    new: tuple[int, set[int], _Pairs],
    covered: Sequence[tuple[int, set[int], _Pairs]],
) -> list[Finding]:
    """Compare the pairs of a source with those of the first source that has both GPUs."""
    number, here, own = new
    findings = []
    compared: set[tuple[int, int]] = set()
    for other, there, theirs in covered:
        common = here & there
        pairs = {(a, b) for a, b in theirs.keys() | own.keys() if a in common and b in common}
        differences = []
        for a, b in sorted(pairs - compared):
            counts = [table[a, b].count if (a, b) in table else 0 for table in (theirs, own)]
            if counts[0] != counts[1]:
                what = f"GPU{a} and GPU{b}"
                differences.append(Difference(what, str(counts[0]), str(counts[1])))
        compared |= pairs
        if differences:
            sides = (joining.sources[other].path, joining.sources[number].path)
            taken = f"{sides[0]} is taken"
            subject = "the number of NVLinks"
            findings.append(conflict("nvlink-pairs", subject, sides, differences, taken))
    return findings


def merged_chains(
    joining: Joining, names: tuple[Sequence[str], Sequence[str]]
) -> tuple[PcieChain, ...] | None:
    """Return the PCIe tree of the one source that shows it best; ``names``: merged GPUs and NICs."""
    for number in _order(joining, _CHAINS_FIRST):
        facts = joining.sources[number]
        if not facts.pcie_chains:
            continue
        renamed: dict[str, str] = {}
        for groups, devices, merged in (
            (joining.gpus, facts.gpus or (), names[0]),
            (joining.nics, facts.nics or (), names[1]),
        ):
            for group, name in zip(groups, merged, strict=True):
                if number in group:
                    renamed[devices[group[number]].name] = name
        return tuple(
            msgspec.structs.replace(chain, device=renamed[chain.device])
            for chain in facts.pcie_chains
            if chain.device in renamed
        )
    return None


def merged_access(joining: Joining) -> Rows | None:
    """Return the first source's matrix of peer access; ``U`` for GPUs that it does not have."""
    for number, facts in enumerate(joining.sources):
        access = facts.peer_access
        if access is not None:
            return tuple(
                tuple(
                    "X"
                    if one is other
                    else access[one[number]][other[number]]
                    if number in one and number in other
                    else "U"
                    for other in joining.gpus
                )
                for one in joining.gpus
            )
    return None
