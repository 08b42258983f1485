"""``iblinkinfo``: one port a line under a header a node, or with ``-l`` all on one line.

The headers are often lost (``iblinkinfo | grep Up``): ends are joined by LID and port. The grammar
stands in ``iblinkinfo_lines``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.ib_fabric import Fabric, fabric_facts
from meshwright.cluster.readers.ib_text import take_lines
from meshwright.cluster.readers.iblinkinfo_lines import Lines, PortLine, is_port_line
from meshwright.cluster.readers.ibnetdiscover_listing import End
from meshwright.cluster.readers.ibnetdiscover_names import other_kind
from meshwright.cluster.switch_names import short_name
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Number, Place, Severity

FORMAT = "iblinkinfo"
_SHOWN = 5
_MOST_ADAPTER_PORTS = 2
_ADAPTER = re.compile(
    r"(?:.*\s)?(?:HCA-?[0-9]+|(?:mlx[0-9]|hfi[0-9]|qib[0-9]|ib[psw][0-9]|irdma|bnxt)\S*)|.*ConnectX.*",
    re.IGNORECASE,
)
"""Descriptions that end in an adapter's device name, or name an adapter's model."""


def looks_like(text: str) -> bool:
    """Tell by content whether the text is output of ``iblinkinfo``, filtered or not."""
    return is_port_line(text)


def read(text: str, path: str) -> Facts:
    """Return the switches, adapters, hosts and cables of a fabric, each cable once.

    Ids are GUIDs where the file gives them, else ``lid-`` and the LID. Rates are lane rate times
    width, bytes per second in one direction. Ports without a far end are counted in
    ``counts["ports_without_cable"]``.

    Raises ``InputError`` for lines of no known form and for an empty, binary or cut-off file.
    """
    lines = Lines()
    take_lines(text, path, "iblinkinfo", lines.take)
    if not lines.ports:
        raise InputError(Problem(Place(path, 1, 1), "the file lists no port"))
    joined = _Joined(lines.ports, path)
    unused = sum(port.far_lid is None for port in lines.ports)
    facts = fabric_facts(joined.fabric.listing(), FORMAT, {"ports_without_cable": unused})
    found = (*facts.findings, *joined.findings, *_weak_links(lines.ports, joined, path))
    return msgspec.structs.replace(facts, findings=found)


class _Joined:
    """Joins the ends of port lines into one fabric."""

    def __init__(self, ports: Sequence[PortLine], path: str) -> None:
        self.fabric = Fabric(path)
        self.findings: list[Finding] = []
        self._id_of_lid: dict[int, str] = {}
        self._kind_of_id: dict[str, str] = {}
        self._ports_of_id: defaultdict[str, set[int]] = defaultdict(set)
        self._name_of_id: dict[str, str] = {}
        self._learn(ports)
        guessed = self._guess(ports)
        if guessed:
            names = [self._name_of_id.get(one) or one for one in guessed]
            message = (
                f"{len(guessed)} nodes are taken as switch or adapter by their description, "
                f"ports and neighbours, for the header lines are missing: {_some(names)}"
            )
            numbers: dict[str, Number] = {"count": len(guessed), "names": [*names[:100]]}
            place = Place(path)
            self.findings.append(
                Finding("topology/node-kind-guessed", Severity.NOTE, place, message, numbers)
            )
        for port in ports:
            self._add(port)

    def _learn(self, ports: Sequence[PortLine]) -> None:
        """Take what lines say for certain: GUIDs of LIDs, kinds by header or by form."""
        for port in ports:
            for lid, guid in ((port.lid, port.guid), (port.far_lid or 0, port.far_guid)):
                if guid is not None and lid:
                    self._id_of_lid.setdefault(lid, guid)
        for port in ports:
            here = self._id(port.lid, port.guid)
            self._ports_of_id[here].add(port.port)
            if port.kind is not None:
                self._kind_of_id[here] = port.kind
            if port.far_lid is not None and port.far_port is not None:
                there = self._id(port.far_lid, port.far_guid)
                self._ports_of_id[there].add(port.far_port)
                if port.far_name:
                    self._name_of_id.setdefault(there, port.far_name)
        # A far end is named on its own line, which no filter separates from its name.
        for port in ports:
            if port.name:
                self._name_of_id.setdefault(self._id(port.lid, port.guid), port.name)

    def _id(self, lid: int, guid: str | None) -> str:
        return guid or self._id_of_lid.get(lid) or f"lid-{lid}"

    def ends(self, port: PortLine) -> tuple[tuple[str, int], tuple[str, int]] | None:
        """Return both ends of a port's cable (id and port); ``None`` where no cable is in it."""
        if port.far_lid is None or port.far_port is None:
            return None
        here = (self._id(port.lid, port.guid), port.port)
        return here, (self._id(port.far_lid, port.far_guid), port.far_port)

    def name(self, one: str) -> str:
        """Return what people call the switch or adapter of an id."""
        return short_name(self._name_of_id.get(one) or one.replace("lid-", "LID "))

    def _guess(self, ports: Sequence[PortLine]) -> list[str]:
        """Settle the kinds that no line says; return the ids concerned."""
        beside_adapter = set()
        for port in ports:
            if port.far_lid is not None:
                ends = [self._id(port.lid, port.guid), self._id(port.far_lid, port.far_guid)]
                for here, there in (ends, ends[::-1]):
                    if self._kind_of_id.get(here) == "H":
                        beside_adapter.add(there)
        guessed = [one for one in self._ports_of_id if one not in self._kind_of_id]
        for one in guessed:
            name = self._name_of_id.get(one, "")
            if len(self._ports_of_id[one]) > _MOST_ADAPTER_PORTS or one in beside_adapter:
                kind = "S"
            else:
                kind = "H" if other_kind(name) or _ADAPTER.fullmatch(name) else "S"
            self._kind_of_id[one] = kind
        return guessed

    def _add(self, port: PortLine) -> None:
        here = self._end(port.lid, port.guid, port.port, port.line)
        self.fabric.nodes[here[0]].listed = True
        if port.far_lid is None or port.far_port is None:
            return
        there = self._end(port.far_lid, port.far_guid, port.far_port, port.line)
        self.fabric.link(here, there, (port.width, port.generation))

    def _end(self, lid: int, guid: str | None, port: int, line: int) -> End:
        one = self._id(lid, guid)
        kind, name = self._kind_of_id[one], self._name_of_id.get(one, "")
        if kind == "H":
            node = self.fabric.adapter(one, port, name, line)
            node.port_lid(port, lid)
        else:
            node = self.fabric.node(kind, one, name, line)
        return (node.kind + node.guid, port)


def _weak_links(ports: Sequence[PortLine], joined: _Joined, path: str) -> list[Finding]:
    """Return findings on cables that the tool itself calls slow, or that are not active."""
    findings = []
    slow = _cables([(port, port.could_be) for port in ports if port.could_be], joined)
    if slow:
        what = "cable runs" if len(slow) == 1 else "cables run"
        message = f"{len(slow)} {what} below what both ends can do: {_some(slow.values())}"
        place = Place(path, next(iter(slow)).line)
        numbers: dict[str, Number] = {"count": len(slow)}
        remedy = "reseat or replace the cable, then look at the port again with iblinkinfo"
        findings.append(
            Finding(
                "topology/link-below-capability", Severity.WARNING, place, message, numbers, remedy
            )
        )
    idle = _cables([(port, port.state) for port in ports if port.state != "Active"], joined)
    if idle:
        what = "cable is" if len(idle) == 1 else "cables are"
        message = f"{len(idle)} {what} plugged in and not active: {_some(idle.values())}"
        numbers = {"count": len(idle)}
        place = Place(path, next(iter(idle)).line)
        findings.append(
            Finding("topology/port-not-active", Severity.WARNING, place, message, numbers)
        )
    return findings


def _cables(ports: Iterable[tuple[PortLine, str]], joined: _Joined) -> dict[PortLine, str]:
    """Return the first line and the words of each cable among port lines with a remark."""
    found: dict[tuple[tuple[str, int], ...], tuple[PortLine, str]] = {}
    for port, remark in ports:
        ends = joined.ends(port)
        if ends is not None and (key := tuple(sorted(ends))) not in found:
            words = " to ".join(f"{joined.name(one)} port {number}" for one, number in ends)
            found[key] = (port, f"{words} ({remark})")
    return dict(found.values())


def _some(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:_SHOWN]) + (", ..." if len(distinct) > _SHOWN else "")
