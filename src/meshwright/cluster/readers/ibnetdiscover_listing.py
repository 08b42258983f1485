"""``ibnetdiscover``: from the lines of a listing to its nodes and cables.

Grammar: ``man ibnetdiscover`` and ``infiniband-diags/src/ibnetdiscover.c``: one stanza a node,
``vendid=`` ... ``switchguid=``, then ``Switch P "S-guid" # "name" ...`` or ``Ca P "H-guid" #
"name"``, then one line a port that has a cable.
"""

from __future__ import annotations

import re

import msgspec

from meshwright.cluster.readers.ibnetdiscover_rates import is_generation
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

MAX_LID = 0xBFFF
"""The highest unicast LID (InfiniBand architecture 1.4, 4.1.1)."""
_LID_DIGITS = 6
_MAX_PROBLEMS = 20
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_PORT = re.compile(
    r"\[([0-9]{1,4})\](?:\[ext [0-9]+\])?(?:\([0-9a-fA-F]{1,16}\))?\s+"
    r'"([SHR]-[0-9a-fA-F]{1,16})"\s*\[([0-9]{1,4})\](?:\[ext [0-9]+\])?'
    r"(?:\([0-9a-fA-F]{1,16}\))?\s*#\s*(?:lid ([0-9]+) lmc [0-9]+\s+)?"
    r'"([^"]*|.*)"\s+lid ([0-9]+) ([0-9]{1,2}x\S{1,20})(?=\s|\Z)'
)
"""Port, id and port of the far end, LID of an adapter's own port, the far end's description and LID,
width and generation."""
_HEAD = re.compile(
    r'(Switch|Ca|Rt)\s+[0-9]{1,4}\s+"(([SHR])-[0-9a-fA-F]{1,16})"\s*#\s*"([^"]*|.*)"(?=\s|\Z)'
)
_KEY = re.compile(
    r"(?:vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x[0-9a-fA-F]{1,16}(?:\([0-9a-fA-F]+\))?\s*\Z"
)
_IGNORED = ("#", "Chassis", "Non-Chassis", "DR path", "Group")
"""Comments, and what ``-g`` and ``-v`` add."""
_DIGITS = re.compile(r"[0-9]+")
_KIND = {"Switch": "S", "Ca": "H", "Rt": "R"}


class Node:
    """A switch, adapter or router, from its own stanza or as a far end."""

    __slots__ = ("guid", "key", "kind", "lid", "lid_port", "line", "listed", "name")

    def __init__(self, kind: str, guid: str, name: str, line: int) -> None:
        self.kind = kind
        self.guid = guid
        self.key = kind + guid
        self.name = name
        self.line = line
        self.listed = False
        self.lid: int | None = None
        self.lid_port = 0
        """The lowest port of an adapter that shows a LID, and which (see ``lid``)."""

    def port_lid(self, port: int, lid: str | int) -> None:
        """Keep the LID of the lowest port; 0 and what is above 0xBFFF (no unicast LID) are none."""
        if self.lid is not None and self.lid_port <= port:
            return
        number = int(lid) if len(str(lid)) <= _LID_DIGITS else 0
        if 0 < number <= MAX_LID:
            self.lid, self.lid_port = number, port


class Link(msgspec.Struct):
    """A cable as it is gathered: how many sides show it, and its speed in words."""

    speed: tuple[str, str]
    sides: int = 1


End = tuple[str, int]
"""Key of a node (kind and GUID) and port."""


class Listing(msgspec.Struct, frozen=True):
    """The nodes and cables of one file, in the order of the file."""

    path: str
    nodes: dict[str, Node]
    """By kind and GUID (16 hexadecimal digits in small letters)."""
    links: dict[tuple[End, End], Link]
    repeats: list[Node]
    """Later stanzas of a node that already had one."""


def read_listing(text: str, path: str) -> Listing:
    """Return the nodes and cables of a plain ``ibnetdiscover`` listing.

    Raises ``InputError`` for lines of no known form (up to 20 are named) and for a file that is
    empty, binary or cut off within a line or a stanza.
    """
    bad = _CONTROL.search(text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        raise InputError(Problem(Place(path, line, column), "the file holds binary data"))
    stanzas = _Stanzas(path)
    stanzas.take_all(text)
    return Listing(path, stanzas.nodes, stanzas.links, stanzas.repeats)


class _Stanzas:
    """Gathers nodes and cables, line by line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.nodes: dict[str, Node] = {}
        self._node_of_id: dict[str, Node] = {}
        """By the id as written: millions of port lines look here first."""
        self._speeds: dict[str, tuple[str, str]] = {}
        self.links: dict[tuple[End, End], Link] = {}
        self.repeats: list[Node] = []
        self.problems: list[Problem] = []
        self.stanza: Node | None = None
        self.stanza_ports: set[int] = set()
        self.stanza_repeats = False
        self.header_line: int | None = None

    def take_all(self, text: str) -> None:
        """Read every line; raise when some cannot be read or the end is missing."""
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if line and not self._take(line, number):
                self._problem(line, number, raw)
                if len(self.problems) >= _MAX_PROBLEMS:
                    break
        if self.problems:
            last = self.problems[-1]
            rest = text.rstrip()
            if last.place.line == rest.count("\n") + 1 and "\n" not in text[len(rest) :]:
                last.message = f"the file is cut off within this line ({last.message})"
            raise InputError(*self.problems)
        self._check_end(text)

    def _take(self, line: str, number: int) -> bool:
        """Read a line; return whether it has a known form."""
        if line[0] == "[":
            return self.stanza is not None and self._take_port(line, number)
        if _KEY.match(line) is None:
            return line.startswith(_IGNORED) or self._take_head(line, number)
        if self.header_line is None:
            self.header_line = number
        self.stanza = None
        return True

    def _take_head(self, line: str, number: int) -> bool:
        match = _HEAD.match(line)
        if match is None or _KIND[match[1]] != match[3]:
            return False
        node = self._node(match[2], match[4], number)
        self.stanza_repeats = node.listed
        if node.listed:
            self.repeats.append(Node(node.kind, node.guid, match[4].strip(), number))
        else:
            node.name, node.line, node.listed = match[4].strip(), number, True
        self.stanza, self.header_line = node, None
        self.stanza_ports = set()
        return True

    def _node(self, identity: str, name: str, number: int) -> Node:
        """Return the node of an id as written (``S-0002c9…``), made on first sight."""
        node = self._node_of_id.get(identity)
        if node is None:
            kind, guid = identity[0], identity[2:].lower().zfill(16)
            node = self.nodes.get(kind + guid) or Node(kind, guid, name.strip(), number)
            self.nodes[node.key] = self._node_of_id[identity] = node
        return node

    def _take_port(self, line: str, number: int) -> bool:
        match = _PORT.match(line)
        if match is None or self.stanza is None:
            return False
        port, identity, far_port, lid, name, far_lid, speed = match.groups()
        far = self._node_of_id.get(identity) or self._node(identity, name, number)
        here, there = (self.stanza.key, int(port)), (far.key, int(far_port))
        self.stanza_ports.add(here[1])
        if lid is not None:
            self.stanza.port_lid(here[1], lid)
        if far.kind == "H":
            far.port_lid(there[1], far_lid)
        link = self.links.get((there, here))
        if link is not None:
            link.sides = 2
        elif (here, there) not in self.links:
            self.links[here, there] = Link(self._speed(speed))
        return True

    def _speed(self, text: str) -> tuple[str, str]:
        """Return width and generation of ``4xNDR``."""
        speed = self._speeds.get(text)
        if speed is None:
            width, _, generation = text.partition("x")
            speed = self._speeds[text] = (width, generation)
        return speed

    def _problem(self, line: str, number: int, raw: str) -> None:
        column = len(raw) - len(raw.lstrip()) + 1
        if line[0] == "[" and self.stanza is None:
            message = "a port line stands outside of any Switch or Ca stanza"
        elif line[0] == "[":
            message = 'this is no port line such as [1] "S-..."[2] # "name" lid 3 4xNDR'
        else:
            message = "this is no line of an ibnetdiscover listing"
        place = Place(self.path, number, column)
        remedy = "Save the whole output of ibnetdiscover again."
        self.problems.append(Problem(place, message, remedy=remedy, excerpt=line[:200]))

    def _check_end(self, text: str) -> None:
        """Refuse a file whose last line or last stanza is incomplete."""
        end = text.rstrip()
        place = Place(self.path, end.count("\n") + 1, max(len(end) - end.rfind("\n") - 1, 1))
        stanza = self.stanza
        if stanza is None:
            what = "the file holds no Switch or Ca stanza: it is empty or cut off"
            if self.nodes or self.header_line is not None:
                what = "the file is cut off: the last stanza has no Switch or Ca line"
            raise InputError(Problem(place, what))
        if "\n" not in text[len(end) :] and _is_shorter(end):
            what = "the file is cut off within this line"
            raise InputError(Problem(place, what, excerpt=end[end.rfind("\n") + 1 :][:200]))
        shown = (there[1] for _, there in self.links if there[0] == stanza.key)
        missing = sorted(set(shown) - self.stanza_ports) if not self.stanza_repeats else []
        if self.stanza_ports and not missing:
            return
        what = f"port {missing[0]}, which its far end shows," if missing else "every port"
        message = f"the file is cut off: {what} is missing in the last stanza, {stanza.name!r}"
        raise InputError(Problem(place, message, remedy="Save the whole output again."))


def _is_shorter(text: str) -> bool:
    """Tell whether the text's last port line stops before the one above it did."""
    lines = [line.strip() for line in text[-20_000:].split("\n")]
    last = _PORT.match(lines[-1])
    if last is None:
        return False
    if not is_generation(last[7].partition("x")[2]):
        return True
    before = next((m for m in map(_PORT.match, reversed(lines[:-1])) if m is not None), None)
    if before is None:
        return False
    tails = [_DIGITS.sub("0", match.string[match.end() :]) for match in (last, before)]
    return tails[0] != tails[1] and tails[1].startswith(tails[0])
