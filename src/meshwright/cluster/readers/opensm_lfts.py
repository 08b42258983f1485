"""Unicast forwarding tables of an InfiniBand fabric, as its tools and opensm write them.

Grammars: ``dump_fts.c`` and ``ibroute.c`` of infiniband-diags (``dump_lfts``, ``dump_fts``,
``ibroute``), ``osm_dump.c`` of opensm (``opensm-lfts.dump``, ``opensm.fdbs``). A switch's block has
a header with its GUID, then a line a LID.
"""

from __future__ import annotations

import re

from meshwright.cluster.facts import NO_PORT, Facts, ForwardingTable, Switch
from meshwright.cluster.readers.ib_text import take_lines
from meshwright.cluster.readers.ibnetdiscover_listing import MAX_LID
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

FORMAT = "opensm_lfts"
_MAX_TABLE_BYTES = 1 << 28
"""All tables together, each up to its last LID: above 5,000 switches that know all 48 K LIDs."""
_TOOL = "dump_lfts, ibroute or an opensm dump"
_REMEDY = "save the whole output of dump_lfts again"
_GUID = r"0x([0-9a-fA-F]{1,16})"
_HEAD = re.compile(
    r"Unicast lids \[(0x[0-9a-fA-F]{1,8}|[0-9]{1,8})-(0x[0-9a-fA-F]{1,8}|[0-9]{1,8})\] "
    rf"of switch .{{0,400}}?guid {_GUID} \((.{{0,160}})\):\Z"
)
_ROW = re.compile(r"0x([0-9a-fA-F]{1,8})\s+([0-9]{1,8})(?:\s+[:#]\s.*)?\Z")
_FOOT = re.compile(r"([0-9]{1,8}) (?:valid )?lids dumped\Z")
_ROUTES_HEAD = re.compile(r"dump_ucast_routes: Switch 0x([0-9a-fA-F]{16})\Z")
_ROUTES_ROW = re.compile(
    r"0x([0-9a-fA-F]{1,8})\s*:\s*(?:UNREACHABLE|"
    r"([0-9]{1,8})\s*:\s*[0-9]{1,3}\s*:\s*(?:yes|No [0-9]{1,3} hop path possible via port [0-9]{1,3}!?))\Z"
)
_COLUMNS = re.compile(
    r"Lid\s+Out\s+Destination\Z|Port\s+Info\Z|LID\s*:\s*Port\s*:\s*Hops\s*:\s*Optimal\Z|\*\*\* WARNING \*\*\*"
)
_MULTICAST = re.compile(r"Multicast mlids \[|MLid\Z")
_LOOKS = re.compile(r"^[ \t]*(?:Unicast lids \[|dump_ucast_routes: Switch 0x)", re.M)


def looks_like(text: str) -> bool:
    """Tell by content whether the text holds unicast forwarding tables."""
    return _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return the forwarding tables and the switches that have them, in the order of the file.

    LIDs with port 255 or ``UNREACHABLE`` have no entry. Blocks of one switch (LID ranges of
    ``ibroute``) make one table.

    Raises ``InputError`` for lines of no known form, for LIDs above 0xBFFF or outside of the
    block's range, ports above 255, two ports for one LID, counts that do not fit, and for a file
    that is empty, binary, multicast or cut off.
    """
    tables = _Tables(path)
    take_lines(text, path, _TOOL, tables.take)
    tables.end(text)
    switches = tables.switches.values()
    return Facts(
        format=FORMAT,
        path=path,
        switches=tuple(Switch(one.guid, one.name or one.guid, one.guid) for one in switches),
        tables=tuple(one.finished() for one in switches),
    )


class _Table:
    """The table of one switch as it is gathered."""

    __slots__ = ("guid", "line", "name", "ports")

    def __init__(self, guid: str, name: str, line: int) -> None:
        self.guid = guid
        self.name = name
        self.line = line
        self.ports = bytearray()

    def finished(self) -> ForwardingTable:
        """Return the table; what it was gathered in is let go, so that memory is not needed twice."""
        ports, self.ports = bytes(self.ports), bytearray()
        return ForwardingTable(self.guid, self.name or self.guid, ports, self.line)


class _Block:
    """The block that is being read: what its header says, and its rows so far."""

    __slots__ = ("counts_lids", "first", "last", "line", "rows", "table", "top")

    def __init__(
        self, table: _Table, line: int, lids: tuple[int, int], *, counts_lids: bool
    ) -> None:
        self.table = table
        self.line = line
        self.first, self.last = lids
        self.counts_lids = counts_lids
        """opensm ends a block with its highest LID, the tools with the number of rows."""
        self.rows = 0
        self.top = 0


class _Tables:
    """Takes the lines of one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.switches: dict[str, _Table] = {}
        self._block: _Block | None = None
        self._routes: _Block | None = None
        self._routes_top = 0
        self._size_bytes = 0

    def take(self, line: str, number: int) -> bool:
        """Read a line; return whether it has a known form."""
        if line.startswith("0x"):
            return self._row(line, number)
        head = _HEAD.match(line)
        if head is not None:
            self._start(head, number)
            return True
        foot = _FOOT.match(line)
        if foot is not None:
            return self._foot(int(foot[1]), number)
        routes = _ROUTES_HEAD.match(line)
        if routes is not None:
            self._close(number)
            table = self._table(routes[1], "", number)
            self._routes = _Block(table, number, (0, MAX_LID), counts_lids=False)
            return True
        if _MULTICAST.match(line) is not None:
            message = "multicast forwarding tables say nothing about the paths of pairs"
            raise self._error(number, message, line, "run dump_lfts or ibroute without -M")
        return _COLUMNS.match(line) is not None

    def _start(self, head: re.Match[str], number: int) -> None:
        self._close(number)
        self._routes = None
        name = head[4]
        if len(name) > 1 and name[0] == name[-1] == "'":
            name = name[1:-1]
        lids = (_integer(head[1]), _integer(head[2]))
        table = self._table(head[3], name.strip(), number)
        self._block = _Block(table, number, lids, counts_lids=not head[2].startswith("0x"))

    def _table(self, guid: str, name: str, number: int) -> _Table:
        guid = guid.lower().zfill(16)
        return self.switches.setdefault(guid, _Table(guid, name, number))

    def _row(self, line: str, number: int) -> bool:
        block = self._block
        match = _ROW.match(line) if block is not None else _ROUTES_ROW.match(line)
        block = block or self._routes
        if block is None:
            return False
        block.rows += 1
        if match is None:
            return False
        lid, port = int(match[1], 16), int(match[2] or NO_PORT)
        if lid > MAX_LID:
            message = f"LID 0x{lid:x} is above 0x{MAX_LID:x}, the highest unicast LID"
            raise self._error(number, message, line)
        if port > NO_PORT:
            raise self._error(number, f"port {port} is above 254, the highest port", line)
        if not block.first <= lid <= block.last:
            span = f"0x{block.first:x} to 0x{block.last:x}"
            message = f"LID 0x{lid:x} lies outside of the block's range, {span} (line {block.line})"
            raise self._error(number, message, line)
        self._set(block.table, lid, port, number)
        block.top = max(block.top, lid)
        return True

    def _set(self, table: _Table, lid: int, port: int, number: int) -> None:
        ports = table.ports
        gap = lid + 1 - len(ports)
        if gap > 0:
            self._size_bytes += gap
            if self._size_bytes > _MAX_TABLE_BYTES:
                message = (
                    f"the tables of {len(self.switches):,} switches, each up to its last LID, need over "
                    f"{_MAX_TABLE_BYTES >> 20} MiB"
                )
                raise self._error(number, message, "", "keep the tables of one fabric")
            ports.extend(b"\xff" * gap)
        if ports[lid] not in (NO_PORT, port):
            message = (
                f"switch {table.name or table.guid} has two ports for LID 0x{lid:x}: "
                f"{ports[lid]} and {port}"
            )
            raise self._error(number, message, "", "keep one dump, of one time")
        ports[lid] = port

    def _foot(self, count: int, number: int) -> bool:
        block = self._block
        if block is None:
            return False
        if count != (block.last if block.counts_lids else block.rows):
            message = (
                f"the block of line {block.line} ends with {count} LIDs, and "
                f"{block.rows} lines are there: some are missing"
            )
            raise self._error(number, message, "")
        self._block = None
        return True

    def _close(self, number: int) -> None:
        """End the block before a header, or at the end of the file."""
        if self._block is not None:
            message = f'the block of line {self._block.line} has no last line "... lids dumped"'
            raise self._error(number, f"the file is cut off: {message}", "")
        if self._routes is not None:
            self._routes_top = max(self._routes_top, self._routes.top)

    def end(self, text: str) -> None:
        """Refuse a file without a table, or one that ends within a block."""
        last = text.rstrip().count("\n") + 1
        self._close(last)
        if not self.switches:
            raise self._error(last, "the file holds no forwarding table", "")
        # opensm lists the same LIDs, those it cannot reach too, under every switch.
        if self._routes is not None and self._routes.top < max(self._routes_top, 1):
            message = (
                f"the file is cut off: the last switch's block ends with LID 0x{self._routes.top:x}, "
                f"others go to 0x{max(self._routes_top, 1):x}"
            )
            raise self._error(last, message, "")

    def _error(
        self, number: int, message: str, excerpt: str, remedy: str | None = None
    ) -> InputError:
        place = Place(self.path, number, 1)
        return InputError(
            Problem(place, message, remedy=remedy or _REMEDY, excerpt=excerpt[:200] or None)
        )


def _integer(text: str) -> int:
    return int(text, 16) if text.startswith("0x") else int(text)
