"""``scontrol show topology``: the tree and blocks as the running scheduler sees them.

One line a switch; ``Nodes=`` of an upper switch lists all hosts below it, so a host belongs to the
leaf that lists it. ``LinkSpeed`` is an arbitrary unit and is not kept. Block clusters print
``BlockName= BlockIndex= Nodes= BlockSize=``, and ``AggregatedBlock=`` lines that only sum blocks up.
"""

from __future__ import annotations

import re

import msgspec

from meshwright.cluster.facts import Block, Facts, TreeSwitch
from meshwright.cluster.readers.host_places_findings import warn
from meshwright.cluster.readers.named_tree import Hostlists, check_tree, named_switches
from meshwright.cluster.readers.slurm_topology_conf_lines import Line, logical_lines, read_pairs
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place

FORMAT = "scontrol_show_topology"

_LOOKS = re.compile(
    r"^[ \t]*(?:(?:Switch|Block)Name=[^\n]*[ \t](?:Level|Block(?:Index|Size))=|AggregatedBlock=)",
    re.M,
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_NOTHING = ("", "(null)", "(none)", "n/a")
_NO_SWITCH = ("unknown", "none", "n/a")
_KINDS = ("switchname", "blockname", "aggregatedblock")
_Pairs = dict[str, tuple[str, int]]


class _Record(msgspec.Struct, frozen=True):
    """One line of the output."""

    line: Line
    name: str
    level: int
    switches: tuple[str, ...]
    hosts: tuple[str, ...]
    size: int | None


def looks_like(text: str) -> bool:
    """Tell by content whether the text is ``scontrol`` output, not a ``topology.conf``."""
    return _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return the tree, the blocks and the hosts of ``scontrol show topology``.

    Raises ``InputError`` for a line that cannot be read, a hostlist that is none, a switch defined
    twice or its own ancestor, and a text without any switch or block.
    """
    bad = _CONTROL.search(text)
    if bad is not None:
        column = bad.start() - text.rfind("\n", 0, bad.start())
        place = Place(path, text.count("\n", 0, bad.start()) + 1, column)
        raise InputError(Problem(place, "the text holds binary data"))
    records = _records(text, path)
    tree = _tree(records["switchname"])
    blocks = [(Block(r.name, r.hosts, r.line.place(0)[0]), r.line) for r in records["blockname"]]
    if not tree and not blocks:
        message = "the text names no switch and no block: it is empty or cut off"
        raise InputError(Problem(Place(path, 1, 1), message))
    findings = (*check_tree(path, tree, blocks), *_unknown_leaves(path, tree))
    switches = tuple(switch for switch, _ in tree)
    hosts = dict.fromkeys(host for switch in switches for host in switch.hosts)
    hosts.update(dict.fromkeys(host for block, _ in blocks for host in block.hosts))
    children = {name for switch in switches for name in switch.switches}
    counts = {
        "roots": sum(switch.name not in children for switch in switches),
        "leaves": sum(bool(switch.hosts) for switch in switches),
    }
    sizes = {r.size for kind in _KINDS[1:] for r in records[kind] if r.size}
    return Facts(
        format=FORMAT,
        path=path,
        hosts=tuple(hosts),
        switches=named_switches(switches) if tree else None,
        tree=switches or None,
        blocks=tuple(block for block, _ in blocks) or None,
        block_sizes=tuple(sorted(sizes)) or None,
        counts=counts if tree else {"blocks": len(blocks)},
        findings=findings,
    )


def _records(text: str, path: str) -> dict[str, list[_Record]]:
    records: dict[str, list[_Record]] = {kind: [] for kind in _KINDS}
    hostlists = Hostlists()
    for line in logical_lines(text, path):
        pairs = read_pairs(line, path)
        kind = next(iter(pairs))
        if kind not in records:
            message = f"the line starts with {kind!r}, not with SwitchName or BlockName"
            raise line.error(path, pairs[kind][1], message)
        name, offset = pairs[kind]
        if not name:
            raise line.error(path, offset, f"{kind}= has no value")
        records[kind].append(
            _Record(
                line,
                name,
                _number(line, path, pairs, "level") or 0,
                _names(line, path, pairs, ("switches", hostlists)),
                # What an aggregate lists, its blocks list too.
                _names(line, path, pairs, ("nodes", hostlists)) if kind != _KINDS[2] else (),
                _number(line, path, pairs, "blocksize"),
            )
        )
    return records


def _names(line: Line, path: str, pairs: _Pairs, what: tuple[str, Hostlists]) -> tuple[str, ...]:
    key, hostlists = what
    text, offset = pairs.get(key, ("", 0))
    if text.lower() in _NOTHING:
        if key in pairs and line.ends_file:
            raise line.error(path, offset, f"{key}= has no value")
        return ()
    try:
        return tuple(hostlists.expand(text))
    except ValueError as error:
        raise line.error(path, offset, f"in {key}=, {error}") from None


def _number(line: Line, path: str, pairs: _Pairs, key: str) -> int | None:
    text, offset = pairs.get(key, ("", 0))
    if key not in pairs:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise line.error(path, offset, f"{key}= is no number")
    return int(text)


def _tree(records: list[_Record]) -> list[tuple[TreeSwitch, Line]]:
    """Give every host to the leaf that lists it, or to the lowest switch that does."""
    placed = {host for record in records if not record.switches for host in record.hosts}
    own: dict[int, tuple[str, ...]] = {}
    for index, record in sorted(enumerate(records), key=lambda pair: pair[1].level):
        if not record.switches:
            own[index] = record.hosts
        else:
            own[index] = tuple(host for host in record.hosts if host not in placed)
            placed.update(own[index])
    return [
        (TreeSwitch(r.name, r.switches, own[index], r.line.place(0)[0]), r.line)
        for index, r in enumerate(records)
    ]


def _unknown_leaves(path: str, tree: list[tuple[TreeSwitch, Line]]) -> list[Finding]:
    findings = []
    for switch, _ in tree:
        if switch.name.lower() in _NO_SWITCH and switch.hosts:
            message = (
                f"the leaf named {switch.name} is no switch: it holds {len(switch.hosts)} hosts "
                "whose place is not known, so no two of them need share a leaf"
            )
            place = Place(path, switch.line, 1, switch.name)
            remedy = "label these nodes with their switches, and print the topology again"
            findings.append(warn("topology/leaf-unknown", place, message, switch.hosts, remedy))
    return findings
