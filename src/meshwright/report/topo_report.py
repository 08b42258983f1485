"""What topology sources say: lists by kind, nearest NICs, a drawing of one host, findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshwright.cluster.choose import Choice
from meshwright.cluster.facts import Facts, Nic, nearest_nics
from meshwright.cluster.switch_levels import derive_levels
from meshwright.findings import Finding, Number, Place, Severity, by_severity
from meshwright.origin import Origin
from meshwright.report.text import counted, findings_text, paragraph, table
from meshwright.units import format_count

SCHEMA = "meshwright/topo/1"
LISTED = 10_000
"""Longer lists become ``{count}`` unless all is asked for."""
_LISTS: dict[str, Callable[[Facts], Sequence[Any] | None]] = {
    "gpus": lambda facts: facts.gpus,
    "nics": lambda facts: facts.nics,
    "other_devices": lambda facts: facts.other_devices,
    "hosts": lambda facts: facts.hosts,
    "switches": lambda facts: facts.switches,
    "nvswitches": lambda facts: facts.nvswitches,
    "nvlink_pairs": lambda facts: facts.nvlink_pairs,
    "numa_nodes": lambda facts: facts.numa_ids,
}


def topo_findings(sources: Sequence[Facts]) -> list[Finding]:
    """Return the findings of all sources, errors first."""
    found = [finding for facts in sources for finding in facts.findings]
    for facts in sources:
        if facts.cables:
            found += derive_levels(facts).findings
    return by_severity(found)


def topo_json(sources: Sequence[Facts], choice: Choice | None, *, full: bool) -> dict[str, Any]:
    """Return the document of ``topo --json``: each source's lists, and all together at the top."""
    files = [_file(facts, full=full) for facts in sources]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "files": [{"path": one["path"], "format": one["format"]} for one in files],
    }
    if len(files) == 1:
        document |= {key: value for key, value in files[0].items() if key not in ("path", "format")}
    else:
        document |= _together(sources, full=full)
    document["sources"] = files
    document["choice"] = None if choice is None else _choice_json(choice)
    told = [] if choice is None else [_choice_finding(choice, sources[0].path)]
    document["findings"] = [finding.to_json() for finding in [*topo_findings(sources), *told]]
    document["origin"] = {"sources": Origin.PARSED.value, "choice": Origin.MODELLED.value}
    return document


def _together(sources: Sequence[Facts], *, full: bool) -> dict[str, Any]:
    """Return the lists of several sources one after the other; null where none of them says."""
    result: dict[str, Any] = {}
    for name, of in {**_LISTS, "links": _network_cables}.items():
        given = [values for values in map(of, sources) if values is not None]
        result[name] = (
            _cut([one for values in given for one in values], full=full) if given else None
        )
    near = [facts for facts in sources if nearest_nics(facts) is not None]
    # GPU numbers of two hosts would mix: with several matrices each stands with its own source.
    nearest = _nearest(near[0]) if len(near) == 1 else (None, None)
    result["nearest_nic"], result["nearest_class"] = nearest
    return result


def _choice_json(choice: Choice) -> dict[str, Any]:
    return {
        "groups": [list(group) for group in choice.groups],
        "worst_class": choice.worst_class,
        "nic_class": choice.nic_class,
        "tried": choice.tried,
    }


def _file(facts: Facts, *, full: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"path": facts.path, "format": facts.format}
    for name, of in _LISTS.items():
        result[name] = _cut(of(facts), full=full)
    result["links"] = _cut(_network_cables(facts), full=full)
    result["nearest_nic"], result["nearest_class"] = _nearest(facts)
    result["tree"] = _cut(facts.tree, full=full)
    result["blocks"] = _cut(facts.blocks, full=full)
    result["places"] = _cut(facts.places, full=full)
    result["peer_access"] = facts.peer_access
    result["counts"] = facts.counts
    return result


def _cut(values: Sequence[Any] | None, *, full: bool) -> Any:
    if values is None:
        return None
    return list(values) if full or len(values) <= LISTED else {"count": len(values)}


def _network_cables(facts: Facts) -> list[Any] | None:
    """Return cables between adapters and switches or two switches, without those to other devices."""
    if facts.cables is None:
        return None
    others = {device.id for device in facts.other_devices or ()}
    return [cable for cable in facts.cables if cable.a not in others and cable.b not in others]


def _nearest(facts: Facts) -> tuple[dict[str, list[int | str]] | None, dict[str, str] | None]:
    """Return GPU to NICs of its nearest class, and GPU to that class.

    GPUs by number (bus id in a skeleton), NICs by the number of their column or by device name.
    """
    near = nearest_nics(facts)
    if near is None:
        return None, None
    gpus, nics = facts.gpus or (), facts.nics or ()
    keys = [gpu.name.removeprefix("GPU") for gpu in gpus]
    names = [_column(nic) for nic in nics]
    found = {keys[gpu]: [names[nic] for nic in close] for gpu, (_, close) in near.items()}
    return found, {keys[gpu]: name for gpu, (name, _) in near.items()}


def _column(nic: Nic) -> int | str:
    number = (nic.label or "").removeprefix("NIC")
    return int(number) if number.isdigit() else nic.label or nic.name


def topo_text(sources: Sequence[Facts], choice: Choice | None) -> str:
    """Return the page of ``topo``."""
    findings = topo_findings(sources)
    parts = [f"{counted(findings)}."]
    loud = findings_text(findings, Severity.ERROR, Severity.WARNING)
    parts += [loud] if loud else []
    for facts in sources:
        parts.append(f"{facts.path}: {facts.format}\n{_counts(facts)}")
        parts += [text for text in (_near_text(facts), _tree_text(facts)) if text]
    if choice is not None:
        parts.append(_choice_text(choice))
    quiet = findings_text(findings, Severity.NOTE)
    parts += [quiet] if quiet else []
    return "\n\n".join(parts)


def _counts(facts: Facts) -> str:
    rows = []
    for name, of in (*_LISTS.items(), ("links", _network_cables)):
        values = of(facts)
        if values is not None:
            rows.append((name.replace("_", " "), format_count(len(values))))
    for name, blocks in (("blocks", facts.blocks), ("tree nodes", facts.tree)):
        if blocks:
            rows.append((name, format_count(len(blocks))))
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"  {name.ljust(width)}  {count}" for name, count in rows)


def _near_text(facts: Facts) -> str:
    """Draw one host: GPUs, what joins them, and the NICs nearest to each."""
    near = nearest_nics(facts)
    gpus, nics = facts.gpus or (), facts.nics or ()
    if not gpus:
        return ""
    rows = []
    for place, gpu in enumerate(gpus):
        joined = sorted(
            {cell for cell in (facts.gpu_gpu_class or ((),) * len(gpus))[place] if cell != "X"}
        )
        close = ""
        if near is not None:
            name, found = near[place]
            listed = " ".join(nics[nic].label or nics[nic].name for nic in found[:6])
            close = f"{name}: {listed}{' …' if len(found) > 6 else ''}"
        numa = ",".join(map(str, gpu.numa)) or "-"
        rows.append((gpu.name, numa, " ".join(joined) or "-", close or "-"))
    return table(("GPU", "NUMA", "to other GPUs", "nearest NICs"), rows)


def _tree_text(facts: Facts) -> str:
    if not facts.tree:
        return ""
    children = {child for switch in facts.tree for child in switch.switches}
    roots = [switch.comment or switch.name for switch in facts.tree if switch.name not in children]
    leaves = [switch for switch in facts.tree if switch.hosts]
    text = f"{len(roots)} root{'s' if len(roots) > 1 else ''} ({' '.join(roots[:4])}), {len(leaves)} leaves"
    if leaves:
        sizes = sorted({len(switch.hosts) for switch in leaves})
        text += f" of {sizes[0]}" + (f" to {sizes[-1]}" if len(sizes) > 1 else "") + " hosts"
    return paragraph(text)


def _choice_finding(choice: Choice, path: str) -> Finding:
    """Return the reason of a choice as a note."""
    numbers: dict[str, Number] = {"worst_class": choice.worst_class, "tried": choice.tried}
    remedy = (
        f"CUDA_VISIBLE_DEVICES={','.join(str(gpu) for group in choice.groups for gpu in group)}"
    )
    return Finding(
        "topology/choice", Severity.NOTE, Place(file=path), _reason(choice), numbers, remedy
    )


def _choice_text(choice: Choice) -> str:
    return paragraph(_reason(choice))


def _reason(choice: Choice) -> str:
    groups = "  ".join("{" + ", ".join(map(str, group)) + "}" for group in choice.groups)
    nic = f"; nearest NIC {choice.nic_class}" if choice.nic_class else ""
    return (
        f"Nearest paths: GPUs {groups}: {choice.worst_class} at worst inside a group{nic} "
        f"(all {format_count(choice.tried)} possibilities compared). NCCL does not choose GPUs: set CUDA_VISIBLE_DEVICES."
    )
