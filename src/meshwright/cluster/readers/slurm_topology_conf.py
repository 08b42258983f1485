"""Slurm ``topology.conf``: the tree, block and ring plugins' ``Key=Value`` lines.

Grammar: ``man topology.conf`` and Slurm's ``parse_config.c``: keys in any case, blanks around
``=`` and quoted values allowed, ``#`` starts a comment, a backslash at a line's end continues it.
topograph writes a switch's or block's real name in a comment just above: ``# sw1=leaf-1-1``.
``LinkSpeed`` is an arbitrary unit that Slurm itself does not use, so it is not kept.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import msgspec

from meshwright.cluster.facts import Block, Facts, Switch, TreeSwitch
from meshwright.cluster.hostlist import compress_hostlist, expand_hostlist
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Number, Place, Severity

FORMAT = "slurm_topology_conf"

_MAX_NAMES = 2_000_000
"""Names all hostlists of a file may stand for together."""
_SHOWN = 5
_LOOKS = re.compile(r"^[ \t]*(?:SwitchName|BlockName|BlockSizes|RingName)[ \t]*=", re.I | re.M)
_SCONTROL = re.compile(
    r"^[ \t]*(?:Switch|Block)Name=[^\n]*[ \t](?:Level|Block(?:Index|Size))=", re.M
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_PAIR = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(?:\"([^\"]*)\"|([^\s\"=]*))(?=\s|\Z)", re.ASCII)
_KEYS = {
    "switchname": {"switches", "nodes", "linkspeed"},
    "blockname": {"nodes"},
    "blocksizes": set[str](),
    "ringname": {"nodes"},
}


def looks_like(text: str) -> bool:
    """Tell by content whether the text is a ``topology.conf`` (``scontrol`` output is not)."""
    return _LOOKS.search(text) is not None and _SCONTROL.search(text) is None


def read(text: str, path: str) -> Facts:
    """Return the tree, the blocks and the hosts of a ``topology.conf``.

    ``tree`` and ``switches`` are ``None`` without a ``SwitchName`` line, ``blocks`` without a
    ``BlockName`` line; ``switches`` also holds children that no line defines.

    Raises ``InputError`` for a line that cannot be read, a hostlist that is none, a switch or
    block defined twice, a switch that is its own ancestor, and a file without any definition.
    """
    bad = _CONTROL.search(text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        raise InputError(Problem(Place(path, line, column), "the file holds binary data"))
    reader = _Reader(path)
    for logical in _logical_lines(text, path):
        reader.take(logical)
    return reader.facts()


class _Line(msgspec.Struct, frozen=True):
    """A line with its continuations: text, and where each physical part starts in it."""

    text: str
    starts: list[tuple[int, int]]
    comment: str | None
    ends_file: bool = False

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column in the file, from 1."""
        start, line = self.starts[bisect_right(self.starts, (offset, sys.maxsize)) - 1]
        return line, offset - start + 1

    def error(self, path: str, offset: int, message: str, remedy: str | None = None) -> InputError:
        if self.ends_file:
            message += "; the file ends in this line without a line end, so it may be cut off"
        place = Place(path, *self.place(offset))
        return InputError(Problem(place, message, remedy=remedy, excerpt=self.text.strip()[:200]))


def _logical_lines(text: str, path: str) -> Iterator[_Line]:
    parts: list[str] = []
    starts: list[tuple[int, int]] = []
    length = 0
    comment: str | None = None
    physical = text.split("\n")
    for number, raw in enumerate(physical, 1):
        body, mark, remark = raw.rstrip("\r").partition("#")
        continued = not mark and body.rstrip().endswith("\\")
        if continued:
            body = body.rstrip()[:-1] + " "
        parts.append(body)
        starts.append((length, number))
        length += len(body)
        if continued and number < len(physical):
            continue
        line = _Line("".join(parts), starts, comment, number == len(physical))
        if continued:
            raise line.error(path, length - 1, "the last line is continued by a backslash")
        parts, starts, length = [], [], 0
        if line.text.strip():
            yield line
            comment = None
        else:
            comment = remark.strip() if mark else None


class _Reader:
    """Gathers the definitions of one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.switches: dict[str, TreeSwitch] = {}
        self.blocks: dict[str, Block] = {}
        self.ring_hosts: list[str] = []
        self.sizes: list[int] = []
        self.findings: list[Finding] = []
        self.lines: dict[str, _Line] = {}
        self.has_ring = False
        self.names_left = _MAX_NAMES

    def take(self, line: _Line) -> None:
        """Read one line into a switch, a block or block sizes."""
        pairs = self._pairs(line)
        kind = next(iter(pairs))
        allowed = _KEYS.get(kind)
        if allowed is None:
            message = f"the line starts with {kind!r}, not with SwitchName, BlockName or BlockSizes"
            raise line.error(self.path, pairs[kind][1], message)
        for key, (_, offset) in pairs.items():
            if key != kind and key not in allowed:
                message = f"the key {key!r} is unknown after {kind} and was not read"
                self._warn("topology/key-unknown", message, line.place(offset)[0], {"key": key})
        name, offset = pairs[kind]
        if not name:
            raise line.error(self.path, offset, f"{kind}= has no value")
        if kind == "blocksizes":
            self._take_sizes(line, name, offset)
        elif kind == "switchname":
            self._take_switch(line, name, pairs)
        elif kind == "blockname":
            self._take_block(line, name, pairs)
        else:
            self.has_ring = True
            self.ring_hosts += self._names(line, pairs, "nodes")

    def _pairs(self, line: _Line) -> dict[str, tuple[str, int]]:
        """Return key (lower case) to value and offset of the value."""
        pairs: dict[str, tuple[str, int]] = {}
        position, end = 0, len(line.text.rstrip())
        while position < end:
            match = _PAIR.match(line.text, position)
            if match is None:
                offset = position + len(line.text[position:]) - len(line.text[position:].lstrip())
                word = line.text[offset:].split(None, 1)[0]
                raise line.error(self.path, offset, f"{word[:60]!r} is not of the form Key=Value")
            key = match[1].lower()
            group = 2 if match[2] is not None else 3
            if key in pairs:
                raise line.error(self.path, match.start(1), f"{match[1]}= stands twice in the line")
            pairs[key] = (match[group], match.start(group))
            position = match.end()
        return pairs

    def _names(self, line: _Line, pairs: dict[str, tuple[str, int]], key: str) -> list[str]:
        if key not in pairs:
            return []
        text, offset = pairs[key]
        filler = next(iter(pairs)) == "blockname" and not line.ends_file
        if not text and not filler:
            raise line.error(self.path, offset, f"{key}= has no value")
        try:
            names = expand_hostlist(text, limit=self.names_left)
        except ValueError as error:
            remedy = "Write a hostlist such as node[01-16,20] or node1,node2."
            raise line.error(self.path, offset, f"in {key}=, {error}", remedy) from None
        self.names_left -= len(names)
        return names

    def _define(self, line: _Line, kind: str, name: str, offset: int) -> tuple[int, str | None]:
        """Remember the definition; return its line and the real name of the comment above."""
        first = self.lines.setdefault(f"{kind} {name}", line)
        if first is not line:
            message = f"the {kind} {name!r} was already defined in line {first.starts[0][1]}"
            raise line.error(self.path, offset, message, "Keep one of the two lines.")
        label, mark, real = (line.comment or "").partition("=")
        return line.starts[0][1], real.strip() if mark and label.strip() == name else None

    def _take_switch(self, line: _Line, name: str, pairs: dict[str, tuple[str, int]]) -> None:
        number, comment = self._define(line, "switch", name, pairs["switchname"][1])
        children = self._names(line, pairs, "switches")
        hosts = self._names(line, pairs, "nodes")
        if not children and not hosts:
            message = f"switch {name} has neither Switches= nor Nodes="
            self._warn("topology/switch-empty", message, number, {"switch": name})
        if children and hosts:
            message = f"switch {name} has both Switches= and Nodes=, which Slurm refuses"
            self._warn("topology/switch-mixed", message, number, {"switch": name})
        self.switches[name] = TreeSwitch(name, tuple(children), tuple(hosts), number, comment)

    def _take_block(self, line: _Line, name: str, pairs: dict[str, tuple[str, int]]) -> None:
        number, comment = self._define(line, "block", name, pairs["blockname"][1])
        hosts = self._names(line, pairs, "nodes")
        self.blocks[name] = Block(name, tuple(hosts), number, comment)

    def _take_sizes(self, line: _Line, text: str, offset: int) -> None:
        for part in text.split(","):
            if not re.fullmatch(r"[1-9][0-9]{0,8}", part):
                raise line.error(self.path, offset, f"the block size {part[:40]!r} is no number")
            self.sizes.append(int(part))

    def _warn(
        self,
        rule: str,
        message: str,
        line: int | None = None,
        numbers: Mapping[str, Number] | None = None,
    ) -> None:
        place = Place(self.path, line)
        self.findings.append(Finding(rule, Severity.WARNING, place, message, numbers or {}))

    def facts(self) -> Facts:
        """Check what was gathered as a whole and return it."""
        if not (self.switches or self.blocks or self.has_ring):
            message = "the file defines no switch and no block: it is empty or cut off"
            raise InputError(Problem(Place(self.path, 1, 1), message))
        names = self._check_children()
        self._check_cycles()
        self._check_roots()
        self._check_hosts("switch", self.switches.values())
        self._check_hosts("block", self.blocks.values())
        if self.has_ring:
            message = "RingName lines give hosts only: rings are not used for paths"
            self._warn("topology/ring-ignored", message, None, {"hosts": len(self.ring_hosts)})
        hosts: dict[str, None] = {}
        for switch in self.switches.values():
            hosts.update(dict.fromkeys(switch.hosts))
        for block in self.blocks.values():
            hosts.update(dict.fromkeys(block.hosts))
        hosts.update(dict.fromkeys(self.ring_hosts))
        return Facts(
            format=FORMAT,
            path=self.path,
            hosts=tuple(hosts),
            switches=tuple(Switch(name, name) for name in names) if self.switches else None,
            tree=tuple(self.switches.values()) if self.switches else None,
            blocks=tuple(self.blocks.values()) if self.blocks else None,
            block_sizes=tuple(self.sizes) if self.sizes else None,
            findings=tuple(self.findings),
        )

    def _check_children(self) -> list[str]:
        """Report undefined and twice-adopted children; return all names, defined ones first."""
        parent: dict[str, str] = {}
        shared: list[tuple[str, str, TreeSwitch]] = []
        for switch in self.switches.values():
            missing = [name for name in switch.switches if name not in self.switches]
            if missing:
                shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
                self._warn(
                    "topology/switch-undefined",
                    f"switch {switch.name} has children that no line defines: {shown}",
                    switch.line,
                    {"switch": switch.name, "count": len(missing), "undefined": [*missing[:100]]},
                )
            shared.extend(
                (child, parent[child], switch)
                for child in switch.switches
                if parent.setdefault(child, switch.name) != switch.name
            )
        if shared:
            child, one, two = shared[0]
            self._warn(
                "topology/switch-two-parents",
                f"{len(shared)} times a switch has a second parent, so this is no tree: "
                f"{child} is a child of both {one} and {two.name}",
                two.line,
                {"count": len(shared), "switches": [name for name, _, _ in shared[:100]]},
            )
        return list(dict.fromkeys((*self.switches, *parent)))

    def _check_cycles(self) -> None:
        """Refuse a switch that is its own ancestor."""
        below = {name: switch.switches for name, switch in self.switches.items()}
        try:
            TopologicalSorter(below).prepare()
        except CycleError as error:
            chain = [str(name) for name in reversed(error.args[1])]
            shown = " > ".join(chain if len(chain) < 8 else [*chain[:6], "...", chain[-1]])
            line = self.lines[f"switch {chain[0]}"]
            message = f"switch {chain[0]} is its own ancestor: {shown}"
            raise line.error(self.path, 0, message) from None

    def _check_roots(self) -> None:
        children = {child for switch in self.switches.values() for child in switch.switches}
        roots = [name for name in self.switches if name not in children]
        if len(roots) < 2:
            return
        seen: set[str] = set()
        below = [(root, self._hosts_below(root, seen)) for root in roots]
        parts = [f"{root} ({len(h)} hosts: {_short(h)})" for root, h in below[:_SHOWN]]
        more = f" and {len(roots) - _SHOWN} more" if len(roots) > _SHOWN else ""
        self._warn(
            "topology/no-common-root",
            f"the {len(roots)} trees have no common root: {'; '.join(parts)}{more}. "
            "The path between hosts of different trees is unknown",
            None,
            {
                "roots": len(roots),
                "hosts_by_root": {root: len(hosts) for root, hosts in below[:100]},
            },
        )

    def _hosts_below(self, root: str, seen: set[str]) -> list[str]:
        """Return the hosts under a root that no earlier root has."""
        hosts: list[str] = []
        stack = [root]
        while stack:
            name = stack.pop()
            if name in seen or name not in self.switches:
                continue
            seen.add(name)
            hosts += self.switches[name].hosts
            stack.extend(reversed(self.switches[name].switches))
        return hosts

    def _check_hosts(self, kind: str, owners: Iterable[TreeSwitch | Block]) -> None:
        first: dict[str, TreeSwitch | Block] = {}
        twice: list[tuple[str, TreeSwitch | Block, TreeSwitch | Block]] = []
        for owner in owners:
            for host in owner.hosts:
                if host in first:
                    twice.append((host, first[host], owner))
                else:
                    first[host] = owner
        if not twice:
            return
        names = list(dict.fromkeys(host for host, _, _ in twice))
        shown = "; ".join(
            f"{host} under {one.name} (line {one.line}) and {two.name} (line {two.line})"
            for host, one, two in twice[:_SHOWN]
        )
        self._warn(
            "topology/host-twice",
            f"{len(names)} hosts stand more than once under a {kind}: {shown}",
            twice[0][2].line,
            {"count": len(names), "hosts": [*names[:100]]},
        )


def _short(hosts: list[str]) -> str:
    text = compress_hostlist(hosts)
    return text if len(text) <= 80 else text[:80] + "..."
