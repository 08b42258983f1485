"""What topology sources say: lists by kind, nearest NICs, a drawing of one host, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meshwright.cluster.facts import Facts, Nic, nearest_nics
from meshwright.cluster.join.all_sources import Joined
from meshwright.cluster.join.host_groups import HostType
from meshwright.cluster.join.host_places import names_of
from meshwright.cluster.join.keys import guid_key
from meshwright.cluster.join.kinds import is_host
from meshwright.cluster.nodes.choose import Choice
from meshwright.cluster.vendor import cell_text, maker_of
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.origin import Origin
from meshwright.report.allocation_report import allocation_json, allocation_text
from meshwright.report.joined_report import joined_json, joined_text
from meshwright.report.node_drawing import draw_node
from meshwright.report.text import counted, findings_text, paragraph, table
from meshwright.report.topo_tiers import domains_text, nvlink_domains, tiers_text
from meshwright.report.topo_view import TopoView
from meshwright.units import format_count, plural

SCHEMA = "meshwright/topo/1"
_WRITTEN = {
    "gpus": "GPUs",
    "nics": "NICs",
    "numa nodes": "NUMA nodes",
    "nvswitches": "NVSwitches",
}
_TYPES = 6
"""Node types drawn."""
_FILES = 12
"""Files named one by one, where there are several."""
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


def topo_json(view: TopoView, *, full: bool) -> dict[str, Any]:
    """Return the document of ``topo --json``: each source's lists, and all together at the top."""
    files = [_file(facts, full=full) for facts in view.sources]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "files": [{"path": one["path"], "format": one["format"]} for one in files],
    }
    if view.joined is None:
        document |= {key: value for key, value in files[0].items() if key not in ("path", "format")}
    else:
        document |= _together(view, full=full)
    document["nvlink_domains"] = _domains(view)
    document["sources"] = files
    document["joined"] = None if view.joined is None else joined_json(view.joined)
    document["choice"] = None if view.choice is None else _choice_json(view.choice)
    document["allocation"] = None if view.allocation is None else allocation_json(view.allocation)
    told = _told(view)
    document["findings"] = [finding.to_json() for finding in [*view.findings, *told]]
    document["origin"] = {
        "sources": Origin.PARSED.value,
        "choice": Origin.MODELLED.value,
        "allocation": Origin.MODELLED.value,
    }
    return document


def _told(view: TopoView) -> list[Finding]:
    """Return the reason of a choice as a note (the page prints it as its answer)."""
    return [] if view.choice is None else [_choice_finding(view.choice)]


def _domains(view: TopoView) -> list[dict[str, Any]] | None:
    domains = nvlink_domains(view.sources)
    if domains is None:
        return None
    return [{"name": name, "hosts": hosts} for name, hosts in domains.items()]


def _together(view: TopoView, *, full: bool) -> dict[str, Any]:
    """Return the lists of several sources, joined where they can be; null where none says."""
    result: dict[str, Any] = {}
    for name, of in {**_LISTS, "links": _network_cables}.items():
        given = [values for values in map(of, view.parts) if values is not None]
        every = [one for values in given for one in values]
        if name in ("hosts", "numa_nodes"):
            every = list(dict.fromkeys(every))
        if name == "hosts":
            every = _one_spelling(view, every)
        if name == "switches":
            every = list({one.id: one for one in reversed(every)}.values())[::-1]
        if name == "nics":
            every = _one_a_guid(every)
        result[name] = _cut(every, full=full) if given else None
    near = [facts for facts in view.parts if nearest_nics(facts) is not None]
    # GPU numbers of two hosts would mix: with several matrices each stands with its own source.
    nearest = _nearest(near[0]) if len(near) == 1 else (None, None)
    result["nearest_nic"], result["nearest_class"] = nearest
    return result


def _one_spelling(view: TopoView, hosts: list[str]) -> list[str]:
    """Return each host once, where sources spell it with its domain and without."""
    names = names_of(view.sources)
    return list({names.key(host): names.spelled(host) for host in hosts}.values())


def _one_a_guid(nics: list[Nic]) -> list[Nic]:
    """Return adapters of a fabric only where no file of a host has them: parts stand hosts first."""
    guids = {guid_key(nic.guid) for nic in nics if nic.pci and nic.guid}
    return [nic for nic in nics if nic.pci or guid_key(nic.guid) not in guids]


def _choice_json(choice: Choice) -> dict[str, Any]:
    return {
        "groups": [list(group) for group in choice.groups],
        "worst_class": choice.worst_class,
        "nic_class": choice.nic_class,
        "tried": choice.tried,
        "numbers": "driver" if choice.pci is None else "pci order",
        "pci": None if choice.pci is None else [list(group) for group in choice.pci],
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


def topo_text(view: TopoView) -> str:
    """Return the page of ``topo``: what is wrong, all files together, then each file shortly."""
    findings = view.findings
    parts = [
        f"{counted([*findings, *_told(view)])}.",
        findings_text(findings, Severity.ERROR, Severity.WARNING),
    ]
    if view.joined is None:
        facts = view.sources[0]
        parts.append(f"{facts.path}: {facts.format}\n{_counts(facts)}")
        parts += [draw_node(facts), _near_text(facts), tiers_text(facts, view.levels(facts))]
        parts.append(domains_text(nvlink_domains(view.sources)))
    else:
        parts += [joined_text(view.joined), *_several(view, view.joined)]
    if view.choice is not None:
        parts.append(_choice_text(view.choice))
    if view.allocation is not None:
        parts.append(allocation_text(view.allocation))
    parts.append(findings_text(findings, Severity.NOTE))
    return "\n\n".join(part for part in parts if part)


def _several(view: TopoView, joined: Joined) -> Iterator[str]:
    """Yield a drawing of each node type, domains, and what each file holds."""
    for one in joined.hosts[:_TYPES]:
        drawing = draw_node(one.facts)
        if drawing:
            yield f"{_type_heading(one)}\n\n{drawing}"
            yield _near_text(one.facts)
    if len(joined.hosts) > _TYPES:
        yield f"… and {len(joined.hosts) - _TYPES} more node types"
    yield domains_text(nvlink_domains(view.sources))
    apart = {id(facts) for facts in joined.apart}
    networks = [facts for facts in view.sources if not is_host(facts)]
    for facts in networks[:_FILES]:
        tiers = tiers_text(facts, view.levels(facts))
        yield f"{_short_counts(facts)}\n\n{tiers}" if tiers else _short_counts(facts)
    lines = [
        _short_counts(facts) for facts in view.sources if is_host(facts) and id(facts) not in apart
    ]
    lines += [
        _short_counts(facts) for facts in view.sources if is_host(facts) and id(facts) in apart
    ]
    lines += [_short_counts(facts) for facts in networks[_FILES:]]
    more = f"\n… and {format_count(len(lines) - _FILES)} more files" if len(lines) > _FILES else ""
    yield "\n".join(lines[:_FILES]) + more


def _type_heading(one: HostType) -> str:
    if not one.hosts:
        return f"Node type {one.name}"
    more = f" and {plural(len(one.hosts) - 1, 'host')} like it" if len(one.hosts) > 1 else ""
    return f"Node type of {one.hosts[0]}{more}"


def _short_counts(facts: Facts) -> str:
    """Return a file, its format and how many of each thing it lists, in a line."""
    rows = [row for row in _count_rows(facts) if row[1] != "0" and row != ("hosts", "1")]
    listed = ", ".join(f"{count} {_WRITTEN.get(name, name)}" for name, count in rows)
    return paragraph(f"{facts.path}: {facts.format}: {listed or 'nothing'}", hanging="  ")


def _counts(facts: Facts) -> str:
    rows = _count_rows(facts)
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"  {name.ljust(width)}  {count}" for name, count in rows)


def _count_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return name and number of each kind of thing that the file lists."""
    rows = []
    for name, of in (*_LISTS.items(), ("links", _network_cables)):
        values = of(facts)
        if values is not None:
            shown = name.replace("_", " ").replace("nvlink", maker_of(facts).link)
            rows.append((shown, format_count(len(values))))
    for name, blocks in (("blocks", facts.blocks), ("tree nodes", facts.tree)):
        if blocks:
            rows.append((name, format_count(len(blocks))))
    return rows


def _near_text(facts: Facts) -> str:
    """Return a table of GPUs, what joins them, and the NICs nearest to each."""
    near = nearest_nics(facts)
    gpus, nics = facts.gpus or (), facts.nics or ()
    if not facts.gpu_gpu_class and near is None:
        return ""
    maker = maker_of(facts)
    rows = []
    for place, gpu in enumerate(gpus):
        cells = (facts.gpu_gpu_class or ((),) * len(gpus))[place]
        joined = [cell_text(cell, maker) for cell in sorted({*cells} - {"X"})]
        close = ""
        if near is not None:
            name, found = near[place]
            listed = " ".join(nics[nic].label or nics[nic].name for nic in found[:6])
            close = f"{name}: {listed}{' …' if len(found) > 6 else ''}"
        numa = ",".join(map(str, gpu.numa)) or "-"
        rows.append((gpu.name, numa, " ".join(joined) or "-", close or "-"))
    return table(("GPU", "NUMA", "to other GPUs", "nearest NICs"), rows)


def _choice_finding(choice: Choice) -> Finding:
    """Return the reason of a choice as a note."""
    numbers: dict[str, Number] = {"worst_class": choice.worst_class, "tried": choice.tried}
    place = Place(file=choice.path)
    remedy = _choice_remedy(choice)
    return Finding("topology/choice", Severity.NOTE, place, _choice_reason(choice), numbers, remedy)


def _choice_text(choice: Choice) -> str:
    return f"{paragraph(_choice_reason(choice))}\n{_choice_remedy(choice)}"


def _choice_remedy(choice: Choice) -> str:
    """Return the environment that gives a job these GPUs, those of a group next to each other."""
    gpus = ",".join(str(gpu) for group in choice.groups for gpu in group)
    return choice.maker.visible.format(gpus=gpus)


def _choice_reason(choice: Choice) -> str:
    groups = "  ".join("{" + ", ".join(map(str, group)) + "}" for group in choice.groups)
    nic = f"; nearest NIC {choice.nic_class}" if choice.nic_class else ""
    compared = "the only possibility"
    if choice.tried > 1:
        compared = f"all {format_count(choice.tried)} possibilities compared"
    worst = cell_text(choice.worst_class, choice.maker)
    text = (
        f"Nearest paths: GPUs {groups}: {worst} at worst inside a group{nic} ({compared}). "
        f"{choice.maker.library} does not choose GPUs: set {choice.maker.variable}."
    )
    if choice.pci is None:
        return text
    listed = "  ".join("{" + ", ".join(group) + "}" for group in choice.pci)
    return f"{text} The file has no driver's numbers: these are the order of the PCI addresses, {listed}"
