"""``ibnetdiscover -p``: one port a line, with both ends where a cable is in it.

Grammar: ``dump_ports_report`` of ``infiniband-diags/src/ibnetdiscover.c``.
"""

from __future__ import annotations

import re

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.ib_fabric import Fabric, fabric_facts
from meshwright.cluster.readers.ib_text import take_lines
from meshwright.cluster.readers.ibnetdiscover_listing import End, Node
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

FORMAT = "ibnetdiscover_ports"
_PORT = r"(SW|CA|RT)\s+([0-9]{1,6})\s+([0-9]{1,4})\s+0x([0-9a-fA-F]{1,16})"
_LINE = re.compile(
    rf"{_PORT}\s+([0-9]{{1,2}}|\?\?)x?\s+(\S{{1,12}})"
    rf"(?:\s+-\s+{_PORT}\s+\(\s*'(.{{0,160}})'\s+-\s+'(.{{0,160}})'\s*\)|\s+'(.{{0,160}})')\Z"
)
"""Kind, LID, port, GUID; width, generation; the same of the far end, both names; or one name."""
_LOOKS = re.compile(rf"^{_PORT}[ \t]+(?:[0-9]{{1,2}}x|\?\?)[ \t]", re.M)
_KIND = {"SW": "S", "CA": "H", "RT": "R"}


def looks_like(text: str) -> bool:
    """Tell by content whether the text is the ports report of ``ibnetdiscover -p``."""
    return _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return the switches, adapters, hosts and cables of a fabric, each cable once.

    Ids are GUIDs of 16 hexadecimal digits: of the node for a switch, of the lowest port for an
    adapter. Ports without a far end are counted in ``counts["ports_without_cable"]``.

    Raises ``InputError`` for lines of no known form and for an empty, binary or cut-off file.
    """
    report = _Report(path)
    take_lines(text, path, "ibnetdiscover -p", report.take)
    if not report.fabric.nodes:
        raise InputError(Problem(Place(path, 1, 1), "the file lists no port"))
    counts = {"ports_without_cable": report.unused}
    return fabric_facts(report.fabric.listing(), FORMAT, counts)


class _Report:
    """Takes the lines of one report."""

    def __init__(self, path: str) -> None:
        self.fabric = Fabric(path)
        self.unused = 0

    def take(self, line: str, number: int) -> bool:
        """Read a line; return whether it has a known form."""
        if line.startswith("#"):
            return True
        match = _LINE.match(line)
        if match is None:
            return False
        kind, lid, port, guid, width, generation = match.groups()[:6]
        far_kind, far_lid, far_port, far_guid, name, far_name, lone_name = match.groups()[6:]
        here = self._end((kind, guid, port), name if lone_name is None else lone_name, number)
        self._node(here).listed = True
        self._node(here).port_lid(here[1], lid)
        if far_kind is None:
            self.unused += 1
            return True
        there = self._end((far_kind, far_guid, far_port), far_name, number)
        self._node(there).port_lid(there[1], far_lid)
        self.fabric.link(here, there, (width if width.isdecimal() else "0", generation))
        return True

    def _end(self, fields: tuple[str, str, str], name: str, number: int) -> End:
        kind, guid, port = _KIND[fields[0]], fields[1].lower().zfill(16), int(fields[2])
        if kind == "H":
            node = self.fabric.adapter(guid, port, name.strip(), number)
        else:
            node = self.fabric.node(kind, guid, name.strip(), number)
        return (node.kind + node.guid, port)

    def _node(self, end: End) -> Node:
        return self.fabric.nodes[end[0]]
