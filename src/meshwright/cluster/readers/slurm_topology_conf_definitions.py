"""Slurm ``topology.conf``, second step: from logical lines to switches, blocks and rings.

topograph writes a switch's or block's real name in a comment just above: ``# sw1=leaf-1-1``.
``LinkSpeed`` is an arbitrary unit that Slurm itself does not use, so it is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from meshwright.cluster.facts import Block, TreeSwitch
from meshwright.cluster.hostlist import Hostlists
from meshwright.cluster.readers.slurm_topology_conf_lines import Line, read_pairs
from meshwright.findings import Finding, Number, Place, Severity

MAX_NAMES = 300_000
"""Names all hostlists of a file may stand for together: four tiers of 65,536 hosts and more."""
_KEYS = {
    "switchname": {"switches", "nodes", "linkspeed"},
    "blockname": {"nodes"},
    "blocksizes": set[str](),
    "ringname": {"nodes"},
}


class Definitions:
    """The definitions of one file, gathered line by line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.switches: dict[str, TreeSwitch] = {}
        self.blocks: dict[str, Block] = {}
        self.block_sizes: list[int] = []
        self.ring_hosts: list[str] = []
        self.has_ring = False
        self.findings: list[Finding] = []
        self.line_of: dict[str, Line] = {}
        """By ``switch NAME`` or ``block NAME``."""
        self._hostlists = Hostlists(MAX_NAMES)

    def take(self, line: Line) -> None:
        """Read one line into a switch, a block, a ring or block sizes.

        Raises ``InputError`` for a line of another form and for a second definition of a name.
        """
        pairs = read_pairs(line, self.path)
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

    def _names(self, line: Line, pairs: dict[str, tuple[str, int]], key: str) -> list[str]:
        if key not in pairs:
            return []
        text, offset = pairs[key]
        filler = next(iter(pairs)) == "blockname" and not line.ends_file
        if not text and not filler:
            raise line.error(self.path, offset, f"{key}= has no value")
        try:
            return self._hostlists.expand(text)
        except ValueError as error:
            remedy = "Write a hostlist such as node[01-16,20] or node1,node2."
            raise line.error(self.path, offset, f"in {key}=, {error}", remedy) from None

    def _define(self, line: Line, kind: str, name: str, offset: int) -> tuple[int, str | None]:
        """Remember the definition; return its line and the real name of the comment above."""
        first = self.line_of.setdefault(f"{kind} {name}", line)
        if first is not line:
            message = f"the {kind} {name!r} was already defined in line {first.starts[0][1]}"
            raise line.error(self.path, offset, message, "Keep one of the two lines.")
        label, mark, real = (line.comment or "").partition("=")
        return line.starts[0][1], real.strip() if mark and label.strip() == name else None

    def _take_switch(self, line: Line, name: str, pairs: dict[str, tuple[str, int]]) -> None:
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

    def _take_block(self, line: Line, name: str, pairs: dict[str, tuple[str, int]]) -> None:
        number, comment = self._define(line, "block", name, pairs["blockname"][1])
        hosts = self._names(line, pairs, "nodes")
        self.blocks[name] = Block(name, tuple(hosts), number, comment)

    def _take_sizes(self, line: Line, text: str, offset: int) -> None:
        for part in text.split(","):
            if not re.fullmatch(r"[1-9][0-9]{0,8}", part):
                raise line.error(self.path, offset, f"the block size {part[:40]!r} is no number")
            self.block_sizes.append(int(part))

    def _warn(
        self,
        rule: str,
        message: str,
        line: int | None = None,
        numbers: Mapping[str, Number] | None = None,
    ) -> None:
        place = Place(self.path, line)
        self.findings.append(Finding(rule, Severity.WARNING, place, message, numbers or {}))
