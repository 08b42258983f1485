"""``scontrol show node``: where the running scheduler puts each node, its GPUs and its state.

A record begins with ``NodeName=``. ``Topology=`` (dynamic nodes, Slurm 25.05 or later) is
``<topology>:<switch near the root>:...:<leaf>``, ``<topology>:<block>``, or
``<topology>:<torus>:x:y:z``; several topologies are parted by commas (Slurm ``topology.html``,
section on dynamic nodes). A path of one name may be a leaf or a block; the text does not say which.
``-o`` prints a record as one line; a lone ``Topology=`` line is accepted too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

import msgspec

from meshwright.cluster.facts import Facts, HostPlace
from meshwright.cluster.readers.document_values import known, shown
from meshwright.cluster.readers.host_places import RawPlace, settle
from meshwright.cluster.readers.host_places_findings import warn
from meshwright.cluster.readers.named_tree import Hostlists
from meshwright.cluster.readers.nvidia_smi_q_fabric_findings import host_assumed
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Number, Place, Severity

FORMAT = "scontrol_show_node"
_LOOKS = re.compile(
    r"^[ \t]{0,16}NodeName=\S{1,255}[ \t]{1,16}(?:Arch|CoresPerSocket)="
    r"|(?:^|(?<=\s))Topology=[^\s:,=]{1,255}:[^\s=]",
    re.M,
)
_FIELD = re.compile(r"(?:^|(?<=\s))(NodeName|Topology|Gres|State|Partitions)=(\S*)")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]{1,64})?:([0-9]{1,4})(?=[,(]|\Z)")
_TORUS = re.compile(r"[^:]+(?::[0-9]{1,5}){3}")
_UNUSABLE = ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "MAINT", "POWERED_DOWN", "INVAL")
_ROOT = "root"
"""What operators call a switch that stands for all that they do not know (nebius/soperator)."""
_MAX_PARTS = 16


class SlurmPlace(HostPlace, frozen=True):
    """A host's place with the scheduler's own words for it."""

    text: str = ""
    """As printed: ``default:root:leaf07``."""


class _Node(msgspec.Struct):
    name: str | None
    line: int
    topology: str = ""
    gpus: int | None = None
    state: str = ""


def looks_like(text: str) -> bool:
    """Tell by content whether the text is ``scontrol show node``, or its ``Topology=`` alone."""
    return _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return hosts with their places; ``counts`` holds the GPUs that ``Gres=`` gives in all.

    The tree holds only hosts whose path has more than one name. A root above leaves alone is no
    tier.

    Raises ``InputError`` for a text without a node and a ``NodeName`` that is no hostlist.
    """
    nodes = list(_nodes(text, path))
    if not nodes:
        raise InputError(Problem(Place(path, 1, 1), "the text names no node: no NodeName="))
    assumed = []
    if any(node.name is None for node in nodes):
        called = PurePath(path).name.partition(".")[0] or "host"
        first = next(node for node in nodes if node.name is None)
        assumed.append(host_assumed(called, path, first.line))
        for node in nodes:
            node.name = node.name or called
    raw = [_raw(node, path) for node in nodes]
    settled = settle(raw, path)
    text_of = {node.name: node.topology for node in reversed(nodes)}
    places = tuple(
        SlurmPlace(one.host, one.tiers, one.nvlink_domain, text_of[one.host])
        for one in settled.places
    )
    has_tree = bool(settled.tree)
    gpus = [node.gpus for node in nodes if node.gpus is not None]
    return Facts(
        format=FORMAT,
        path=path,
        hosts=settled.hosts,
        switches=settled.switches if has_tree else None,
        tree=settled.tree if has_tree else None,
        places=places,
        counts={"gpus_in_gres": sum(gpus)} if gpus else {},
        findings=(*assumed, *_odd(nodes, path), *settled.findings),
    )


def _nodes(text: str, path: str) -> Iterator[_Node]:
    """Yield the nodes of a text; a hostlist as name gives one node a host."""
    hostlists = Hostlists()
    records: list[_Node] = []
    for number, line in enumerate(text.split("\n"), 1):
        for match in _FIELD.finditer(line):
            key, value = match[1], match[2]
            if key == "NodeName" or (key == "Topology" and not records):
                records.append(_Node(value if key == "NodeName" else None, number))
            if records:
                _set(records[-1], key, value)
    for record in records:
        if record.name is None:
            yield record
            continue
        try:
            names = hostlists.expand(record.name)
        except ValueError as error:
            raise InputError(Problem(Place(path, record.line, 1), f"NodeName=: {error}")) from None
        for name in names:
            yield msgspec.structs.replace(record, name=name)


def _set(node: _Node, key: str, value: str) -> None:
    if key == "Topology":
        node.topology = "" if value.lower() in ("(null)", "none", "n/a") else value
    elif key == "State":
        node.state = value.upper()
    elif key == "Gres":
        node.gpus = sum(int(count) for count in _GPUS.findall(value[:4000]))


def _paths(topology: str) -> list[list[str]]:
    """Return the path of every topology that is no torus, nearest the root first."""
    paths = []
    for one in topology.split(","):
        _, mark, path = one.partition(":")
        if mark and path and not _TORUS.fullmatch(path):
            paths.append(path.split(":")[:_MAX_PARTS])
    return paths


def _raw(node: _Node, path: str) -> RawPlace:
    paths = _paths(node.topology)
    tiers = max(paths, key=len) if paths else []
    above = [name for name in tiers[:-1] if name.lower() != _ROOT]
    if not above:
        tiers = tiers[-1:]
    return RawPlace(
        node.name or "",
        tuple(known(name) for name in reversed(tiers)),
        Place(path, node.line, 1, node.name),
        switches=bool(paths) and len(max(paths, key=len)) > 1,
    )


def _odd(nodes: list[_Node], path: str) -> Iterator[Finding]:
    """Say which nodes no job can have, which have other GPUs than most, which path says little."""
    down = [node for node in nodes if any(word in node.state for word in _UNUSABLE)]
    if down:
        names = [node.name or "" for node in down]
        message = f"{len(down)} of {len(nodes)} nodes cannot be allocated ({shown(names)}: {down[0].state[:60]})"
        place = Place(path, down[0].line, 1, names[0])
        yield warn(
            "topology/nodes-not-usable", place, message, names, "scontrol show node; sinfo -R"
        )
    counts = Counter(node.gpus for node in nodes if node.gpus)
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0] or 0
        odd = [node for node in nodes if node.gpus and node.gpus < usual]
        if odd:
            names = [node.name or "" for node in odd]
            message = f"{len(odd)} nodes have fewer GPUs than the usual {usual} ({shown(names)}: {odd[0].gpus})"
            place = Place(path, odd[0].line, 1, names[0])
            remedy = f"scontrol show node {names[0]}; nvidia-smi -L on it; then gres.conf"
            yield warn("topology/gres-fewer-gpus", place, message, names, remedy)
    single = [node for node in nodes if any(len(one) == 1 for one in _paths(node.topology))]
    if single:
        names = [node.name or "" for node in single]
        message = (
            f"Topology= of {len(single)} nodes has one name ({single[0].topology[:60]}): a leaf of a "
            "tree or a block; the text does not say which"
        )
        place = Place(path, single[0].line, 1, names[0])
        numbers: dict[str, Number] = {"count": len(single), "names": [*names[:100]]}
        yield Finding("topology/leaf-or-block", Severity.NOTE, place, message, numbers)
