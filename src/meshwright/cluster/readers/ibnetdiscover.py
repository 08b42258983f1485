"""``ibnetdiscover``: the switches, adapters and cables of an InfiniBand fabric.

Grammar: ``man ibnetdiscover`` and ``infiniband-diags/src/ibnetdiscover.c``: one stanza a node,
``vendid=`` ... ``switchguid=``, then ``Switch P "S-guid" # "name" ...`` or ``Ca P "H-guid" #
"name"``, then one line a port that has a cable. ``ibnetdiscover -p`` is another format.

Rates: data rate of a lane by InfiniBand generation (IBTA; SDR to QDR after 8b/10b, FDR after
64b/66b, from EDR on the nominal figure), times the link's width.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from meshwright.cluster.facts import Cable, Facts, Nic, OtherDevice, Switch
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import gbit_per_s

FORMAT = "ibnetdiscover"

_LANE_GBIT_PER_S = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
_MAX_PROBLEMS = 20
_SHOWN = 5
_LISTED = 100
_LOOKS = re.compile(
    r"^(?:(?:Switch|Ca|Rt)[ \t]+[0-9]+[ \t]+\"[SHR]-[0-9a-fA-F]{1,16}\"|(?:switch|ca)guid=0x)", re.M
)
_IBSIM = re.compile(r"^Hca[ \t]", re.M)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_PORT = re.compile(
    r"\[([0-9]{1,4})\](?:\[ext [0-9]+\])?(?:\([0-9a-fA-F]{1,16}\))?\s+"
    r'"([SHR])-([0-9a-fA-F]{1,16})"\s*\[([0-9]{1,4})\](?:\[ext [0-9]+\])?'
    r"(?:\([0-9a-fA-F]{1,16}\))?\s*#\s*(?:lid [0-9]+ lmc [0-9]+\s+)?"
    r'"(.*)"\s+lid [0-9]+ ([0-9]{1,2})x(\S{1,20})(?=\s|\Z)'
)
"""Port, kind, GUID and port of the far end, its description, width, generation."""
_HEAD = re.compile(
    r'(Switch|Ca|Rt)\s+[0-9]{1,4}\s+"([SHR])-([0-9a-fA-F]{1,16})"\s*#\s*"(.*)"(?=\s|\Z)'
)
_KEY = re.compile(
    r"(?:vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x[0-9a-fA-F]{1,16}(?:\([0-9a-fA-F]+\))?\s*\Z"
)
_IGNORED = ("#", "Chassis", "Non-Chassis", "DR path", "Group")
"""Comments, and what ``-g`` and ``-v`` add."""
_DIGITS = re.compile(r"[0-9]+")
_KIND = {"Switch": "S", "Ca": "H", "Rt": "R"}

_DEFAULT_HOST = re.compile(
    r"localhost(?:\..*)?|ubuntu|debian|centos|rocky|linux|unknown|\(none\)", re.IGNORECASE
)
"""First words of a description that are an installer's default and name no host."""
_MODEL = re.compile(
    r"MT[0-9]{3,6}|mellanox|nvidia|infiniband|connect-?(?:x|ib).*|bluefield.*|HCA-[0-9]+|"
    r"(?:mlx[0-9]*|hfi1?|qib|ibp?|bnxt_re|irdma)[0-9]*_[0-9]+",
    re.IGNORECASE,
)
"""First words of a description that is a bare model or device name."""
_MANAGER = re.compile(r"(?:.*[-_.])?ufm(?:[-_.0-9].*)?", re.IGNORECASE)


def looks_like(text: str) -> bool:
    """Tell by content whether the text is a plain ``ibnetdiscover`` listing."""
    return _LOOKS.search(text) is not None and _IBSIM.search(text) is None


def read(text: str, path: str) -> Facts:
    """Return the switches, adapters, other devices, hosts and cables of a fabric.

    Ids are GUIDs of 16 hexadecimal digits, also in ``Cable.a`` and ``Cable.b``. A node without a
    stanza of its own counts, and its cables have ``listed_twice`` false.

    Raises ``InputError`` for lines of no known form (up to 20 are named) and for a file that is
    empty, binary or cut off within a line or a stanza.
    """
    bad = _CONTROL.search(text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        raise InputError(Problem(Place(path, line, column), "the file holds binary data"))
    reader = _Reader(path)
    reader.take_all(text)
    return reader.facts()


class _Node:
    """A switch, adapter or router, from its own stanza or as a far end."""

    __slots__ = ("guid", "kind", "line", "listed", "name")

    def __init__(self, kind: str, guid: str, name: str, line: int) -> None:
        self.kind = kind
        self.guid = guid
        self.name = name
        self.line = line
        self.listed = False


class _Link(msgspec.Struct):
    """A cable as it is gathered: how many sides show it, and its speed in words."""

    speed: tuple[str, str]
    sides: int = 1


_End = tuple[str, int]
"""Key of a node (kind and GUID) and port."""


class _Reader:
    """Gathers the nodes and cables of one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.nodes: dict[str, _Node] = {}
        self.links: dict[tuple[_End, _End], _Link] = {}
        self.problems: list[Problem] = []
        self.findings: list[Finding] = []
        self.again: list[_Node] = []
        self.stanza: _Node | None = None
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
        first = line[0]
        if first == "[":
            return self.stanza is not None and self._take_port(line, number)
        if line.startswith(_IGNORED):
            return True
        if first in "SCR":
            return self._take_head(line, number)
        if _KEY.match(line) is None:
            return False
        if self.header_line is None:
            self.header_line = number
        self.stanza = None
        return True

    def _take_head(self, line: str, number: int) -> bool:
        match = _HEAD.match(line)
        if match is None or _KIND[match[1]] != match[2]:
            return False
        node = self._node(match[2], match[3], match[4], number)
        self.stanza_repeats = node.listed
        if node.listed:
            self.again.append(_Node(node.kind, node.guid, match[4].strip(), number))
        else:
            node.name, node.line, node.listed = match[4].strip(), number, True
        self.stanza, self.header_line = node, None
        self.stanza_ports = set()
        return True

    def _node(self, kind: str, guid: str, name: str, number: int) -> _Node:
        key = kind + guid.lower().zfill(16)
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = _Node(kind, key[1:], name.strip(), number)
        return node

    def _take_port(self, line: str, number: int) -> bool:
        match = _PORT.match(line)
        if match is None or self.stanza is None:
            return False
        port, kind, guid, far_port, name, width, generation = match.groups()
        far = self._node(kind, guid, name, number)
        here = (self.stanza.kind + self.stanza.guid, int(port))
        there = (kind + far.guid, int(far_port))
        self.stanza_ports.add(here[1])
        link = self.links.get((there, here))
        if link is not None:
            link.sides = 2
        elif (here, there) not in self.links:
            self.links[here, there] = _Link((width, generation))
        return True

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
        key = stanza.kind + stanza.guid
        shown = (there[1] for _, there in self.links if there[0] == key)
        missing = sorted(set(shown) - self.stanza_ports) if not self.stanza_repeats else []
        if self.stanza_ports and not missing:
            return
        what = f"port {missing[0]}, which its far end shows," if missing else "every port"
        message = f"the file is cut off: {what} is missing in the last stanza, {stanza.name!r}"
        raise InputError(Problem(place, message, remedy="Save the whole output again."))

    def facts(self) -> Facts:
        """Sort the nodes into switches, adapters and others, and return everything."""
        nics, others = self._end_points()
        self._report(nics)
        return Facts(
            format=FORMAT,
            path=self.path,
            nics=tuple(nics),
            other_devices=tuple(others),
            hosts=tuple(dict.fromkeys(nic.host for nic in nics if nic.host is not None)),
            switches=tuple(
                Switch(node.guid, node.name or node.guid, node.guid)
                for node in self.nodes.values()
                if node.kind == "S"
            ),
            cables=tuple(
                Cable(a[0][1:], b[0][1:], a[1], b[1], _rate(*link.speed), link.sides == 2)
                for (a, b), link in self.links.items()
            ),
            findings=tuple(self.findings),
        )

    def _end_points(self) -> tuple[list[Nic], list[OtherDevice]]:
        first = self._first_links()
        nics: list[Nic] = []
        others: list[OtherDevice] = []
        for key, node in self.nodes.items():
            kind = "router" if node.kind == "R" else _other_kind(node.name)
            if node.kind == "S":
                continue
            if kind is not None:
                others.append(OtherDevice(node.guid, node.name, kind))
                continue
            host, name = _describe(node.name)
            port, rate = first.get(key, (None, None))
            nics.append(
                Nic(
                    index=len(nics),
                    name=name or node.guid,
                    host=host,
                    guid=node.guid,
                    port=port,
                    rate_bytes_per_s=rate,
                )
            )
        return nics, others

    def _first_links(self) -> dict[str, tuple[int, float | None]]:
        """Return for each node its lowest port with a cable, and that cable's rate."""
        first: dict[str, tuple[int, float | None]] = {}
        for ends, link in self.links.items():
            for key, port in ends:
                if key[0] != "S" and (key not in first or port < first[key][0]):
                    first[key] = (port, _rate(*link.speed))
        return first

    def _find(
        self, rule: str, severity: Severity, message: str, numbers: dict[str, Number]
    ) -> None:
        self.findings.append(Finding(rule, severity, Place(self.path), message, numbers))

    def _report(self, nics: list[Nic]) -> None:
        """Add the findings on the file as a whole."""
        self._report_guids()
        nameless = [nic for nic in nics if nic.host is None]
        if nameless:
            shown = _some(nic.name for nic in nameless)
            message = f"{len(nameless)} adapters name no host and cannot be placed: {shown}"
            numbers: dict[str, Number] = {
                "count": len(nameless),
                "guids": [nic.guid for nic in nameless[:_LISTED]],
            }
            self._find("topology/nic-without-host", Severity.NOTE, message, numbers)
        unlisted = [
            node
            for node in self.nodes.values()
            if not node.listed and not (node.kind == "H" and _other_kind(node.name))
        ]
        if unlisted:
            shown = _some(node.name for node in unlisted)
            message = (
                f"{len(unlisted)} switches or adapters are named as far ends and have no stanza "
                f"of their own, so the file may be cut off or filtered: {shown}"
            )
            numbers = {"count": len(unlisted), "guids": [n.guid for n in unlisted[:_LISTED]]}
            self._find("topology/node-not-listed", Severity.WARNING, message, numbers)
        once = sum(link.sides == 1 for link in self.links.values())
        if once:
            message = f"{once} of {len(self.links)} cables are shown by one of their ends only"
            numbers = {"count": once, "cables": len(self.links)}
            self._find("topology/cable-listed-once", Severity.NOTE, message, numbers)
        self._report_links()

    def _report_guids(self) -> None:
        kinds: dict[str, list[_Node]] = {}
        for node in (*self.nodes.values(), *self.again):
            kinds.setdefault(node.guid, []).append(node)
        for guid, nodes in kinds.items():
            if len(nodes) < 2:
                continue
            names = [node.name for node in nodes]
            lines = ", ".join(str(node.line) for node in nodes[:_SHOWN])
            message = f"{len(nodes)} nodes have the GUID {guid} ({_some(names)}; lines {lines})"
            place = Place(self.path, nodes[1].line)
            numbers: dict[str, Number] = {"guid": guid, "names": [*names[:_LISTED]]}
            self.findings.append(
                Finding("topology/duplicate-guid", Severity.WARNING, place, message, numbers)
            )

    def _report_links(self) -> None:
        """Report ports with two cables, and speeds of no known rate."""
        uses = Counter(end for ends in self.links for end in ends)
        busy = [end for end, count in uses.items() if count > 1]
        if busy:
            shown = _some(f"port {port} of {self.nodes[key].name}" for key, port in busy)
            message = f"{len(busy)} ports are shown with more than one far end: {shown}"
            numbers: dict[str, Number] = {"count": len(busy)}
            self._find("topology/port-listed-twice", Severity.WARNING, message, numbers)
        speeds = Counter(link.speed for link in self.links.values())
        unknown = {f"{w}x{g}": n for (w, g), n in speeds.items() if _rate(w, g) is None}
        if unknown:
            message = f"{sum(unknown.values())} cables have a speed of no known rate: "
            message += _some(unknown)
            counts: dict[str, Number] = dict(list(unknown.items())[:_LISTED])
            self._find("topology/rate-unknown", Severity.WARNING, message, {"cables": counts})


def _rate(width: str, generation: str) -> float | None:
    """Return the data rate of a link in bytes per second and direction."""
    lane = _LANE_GBIT_PER_S.get(generation)
    return gbit_per_s(int(width) * lane) if lane is not None and int(width) else None


def _other_kind(description: str) -> str | None:
    """Return the kind of a channel adapter that belongs to no host."""
    if "Aggregation Node" in description:
        return "sharp"
    first = description.split(None, 1)[0] if description else ""
    return "manager" if _MANAGER.fullmatch(first) else None


def _describe(description: str) -> tuple[str | None, str]:
    """Return host (if a real one is named) and device name of a node description."""
    first, _, rest = description.partition(" ")
    if not first or _MODEL.fullmatch(first):
        return None, description
    if _DEFAULT_HOST.fullmatch(first):
        return None, rest.strip()
    return first, rest.strip()


def _some(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:_SHOWN]) + (", ..." if len(distinct) > _SHOWN else "")


def _is_shorter(text: str) -> bool:
    """Tell whether the text's last port line stops before the one above it did."""
    lines = [line.strip() for line in text[-20_000:].split("\n")]
    last = _PORT.match(lines[-1])
    if last is None:
        return False
    if last[7] not in _LANE_GBIT_PER_S:
        return True
    before = next((m for m in map(_PORT.match, reversed(lines[:-1])) if m is not None), None)
    if before is None:
        return False
    tails = [_DIGITS.sub("0", match.string[match.end() :]) for match in (last, before)]
    return tails[0] != tails[1] and tails[1].startswith(tails[0])
