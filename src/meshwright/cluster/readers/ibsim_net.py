"""``ibsim`` net files: a fabric written for the InfiniBand simulator.

Grammar: ``parse_netconf`` of ``ibsim/sim_net.c``: ``Switch|Hca|Ca|Rt ports "nodeid" [# "name"]``, then
``[port] "remoteid"[port]`` lines. There are no GUIDs: node ids are unique strings, and stand in
their place. Files state no rate that says anything about real cables.
"""

from __future__ import annotations

import re

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers import ibnetdiscover
from meshwright.cluster.readers.ib_fabric import Fabric, fabric_facts
from meshwright.cluster.readers.ib_text import take_lines
from meshwright.cluster.readers.ibnetdiscover_listing import End, Node
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

FORMAT = "ibsim_net"
_HEAD = re.compile(
    r'(Switch|Hca|Ca|Rt)\s*([0-9]{1,3})\s*"([^"]{1,128})"\s*(?:#\s*(?:"([^"]{0,160})")?.{0,400})?\Z'
)
_PORT = re.compile(
    r'\[\s*([0-9]{1,3})\s*\](?:\([0-9a-fA-F]{1,16}\))?\s*"([^"]{1,128})"'
    r"\s*(?:\[\s*([0-9]{1,3})\s*\])?(?:\([0-9a-fA-F]{1,16}\))?"
    r"(?:\s*#.{0,400}|(?:\s+[a-z]=[0-9]{1,4})*)\s*\Z"
)
_IGNORED = re.compile(
    r"#|(?:switchguid|hcaguids|caguid|rtguid|vendid|devid|sysimgguid|width|speed|pdebug)\s*[=+]|do\s"
)
_REFUSED = re.compile(r"include\b|module\b|@")
_LOOKS = re.compile(
    r'^(?:Hca[ \t]*[0-9]+[ \t]*"|(?:Switch|Ca|Rt)[ \t]*[0-9]+[ \t]*"(?![SHR]-[0-9a-fA-F]{1,16}"))',
    re.M,
)
_KIND = {"Switch": "S", "Hca": "H", "Ca": "H", "Rt": "R"}


def looks_like(text: str) -> bool:
    """Tell by content whether the text is an ibsim net file and no ``ibnetdiscover`` listing."""
    return _LOOKS.search(text) is not None and not ibnetdiscover.looks_like(text)


def read(text: str, path: str) -> Facts:
    """Return the switches, adapters and cables of a simulated fabric, each cable once.

    ``hosts`` is ``None`` unless descriptions are given after ``#``; rates are not stated.

    Raises ``InputError`` for lines of no known form, a node id used twice, a port beyond the
    node's number of ports, an ``include``, ``module`` or alias line, and a file that is empty,
    binary or cut off.
    """
    records = _Records(path)
    take_lines(text, path, "an ibsim net file", records.take)
    if not records.ports_of_node:
        raise InputError(Problem(Place(path, 1, 1), "the file holds no Switch or Hca record"))
    fabric = records.fabric
    missing = [key for key in records.far_ids if key not in records.key_of_id]
    if missing:
        line = records.far_ids[missing[0]]
        message = f"node {missing[0]!r} is named as a far end and has no record of its own"
        raise InputError(Problem(Place(path, line), message, remedy="the file may be cut off"))
    for here, far_id, far_port in records.ends:
        fabric.link(here, (records.key_of_id[far_id], far_port), ("0", ""))
    facts = fabric_facts(fabric.listing(), FORMAT, {})
    findings = [one for one in facts.findings if one.rule != "topology/rate-unknown"]
    findings.append(_no_rates(path, len(facts.cables or ())))
    if not records.described:
        findings = [one for one in findings if one.rule != "topology/nic-without-host"]
        facts = msgspec.structs.replace(facts, hosts=None)
    return msgspec.structs.replace(facts, findings=tuple(findings))


def _no_rates(path: str, cables: int) -> Finding:
    return Finding(
        rule="topology/rate-not-stated",
        severity=Severity.NOTE,
        place=Place(path),
        message=f"the rates of {cables} cables are not stated: this is a simulator's net file",
        numbers={"cables": cables},
        remedy="give ibnetdiscover or iblinkinfo output of the real fabric, or a preset's rates",
    )


class _Records:
    """Takes the lines of one file."""

    def __init__(self, path: str) -> None:
        self.fabric = Fabric(path)
        self.key_of_id: dict[str, str] = {}
        self.ports_of_node: dict[str, int] = {}
        self.ends: list[tuple[End, str, int]] = []
        self.far_ids: dict[str, int] = {}
        self.described = False
        self._node: Node | None = None

    def take(self, line: str, number: int) -> bool:
        """Read a line; return whether it has a known form."""
        if line.startswith("["):
            return self._node is not None and self._port(line, number)
        if _REFUSED.match(line):
            message = "includes, modules and aliases of ibsim are not read"
            place = Place(self.fabric.path, number, 1)
            remedy = "write the nodes out, each with its own id"
            raise InputError(Problem(place, message, remedy=remedy, excerpt=line[:200]))
        match = _HEAD.match(line)
        if match is not None:
            return self._head(match, number)
        return _IGNORED.match(line) is not None

    def _head(self, match: re.Match[str], number: int) -> bool:
        kind, node_id, description = _KIND[match[1]], match[3], (match[4] or "").strip()
        if node_id in self.key_of_id:
            place = Place(self.fabric.path, number, match.start(3) + 1)
            raise InputError(Problem(place, f"node id {node_id!r} is used twice"))
        self.described = self.described or bool(description)
        name = description or (node_id if kind == "S" else "")
        self._node = self.fabric.node(kind, node_id, name, number)
        self._node.listed = True
        self.key_of_id[node_id] = kind + node_id
        self.ports_of_node[node_id] = int(match[2])
        return True

    def _port(self, line: str, number: int) -> bool:
        match = _PORT.match(line)
        node = self._node
        if match is None or node is None:
            return False
        port, far_port = int(match[1]), int(match[3] or 1)
        if not 1 <= port <= self.ports_of_node[node.guid]:
            place = Place(self.fabric.path, number, 1)
            message = f"port {port} of {node.guid!r}, which has {self.ports_of_node[node.guid]}"
            raise InputError(Problem(place, message, excerpt=line[:200]))
        self.far_ids.setdefault(match[2], number)
        self.ends.append(((node.kind + node.guid, port), match[2], far_port))
        return True
