"""The switches, adapters and other end points of a fabric that several sources list, by id."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from meshwright.cluster.facts import Facts, Nic, OtherDevice, Switch
from meshwright.cluster.join.keys import guid_key, host_key, is_guid
from meshwright.cluster.join.said import Difference, conflict
from meshwright.findings import Finding

_WRITTEN = re.compile(r"[0-9a-f]{16}")
NEAR_GUIDS = 8
"""Port GUIDs of one adapter follow its node GUID; two adapters lie further apart."""


def node_id(text: str | None) -> str:
    """Return a GUID as 16 digits; other ids (ibsim, NetQ) stand for themselves."""
    if text is None or _WRITTEN.fullmatch(text):
        return text or ""
    return (guid_key(text) if is_guid(text) else None) or text


class Nodes:
    """Gathers nodes; the first source to name one counts."""

    def __init__(self) -> None:
        self.switches: dict[str, Switch] = {}
        self.nics: dict[str, Nic] = {}
        self.others: dict[str, OtherDevice] = {}

    def name(self, one: str) -> str:
        """Return the name of a node as people know it."""
        if one in self.switches:
            return self.switches[one].name
        nic = self.nics.get(one)
        if nic is None:
            return self.others[one].name if one in self.others else one
        return f"{nic.host or '(no host name)'} {nic.name}"

    def take(self, facts: Facts, alias: Mapping[str, str], sides: tuple[str, str]) -> list[Finding]:
        """Add the nodes of a source; return the conflicts with earlier ones."""
        found: dict[tuple[str, str], list[Difference]] = {}
        for switch in facts.switches or ():
            self._switch(switch, found)
        for other in facts.other_devices or ():
            one = node_id(other.id)
            self.nics.pop(one, None)
            self.others.setdefault(one, msgspec.structs.replace(other, id=one))
        for nic in facts.nics or ():
            one = node_id(nic.guid)
            self._nic(alias.get(one, one), nic, found)
        return [
            conflict(rule, subject, sides, differences, f"{sides[0]} is taken")
            for (rule, subject), differences in found.items()
        ]

    def _switch(self, switch: Switch, found: dict[tuple[str, str], list[Difference]]) -> None:
        one = node_id(switch.id)
        known = self.switches.get(one)
        if known is None:
            self.switches[one] = msgspec.structs.replace(switch, id=one)
        elif known.name == known.id:
            self.switches[one] = msgspec.structs.replace(known, name=switch.name)
        elif switch.name != switch.id and not _same_name(known.name, switch.name):
            difference = Difference(f"switch {one}", known.name, switch.name)
            found.setdefault(("node-name", "the name"), []).append(difference)
        if one in self.nics:
            difference = Difference(one, f"adapter {self.name(one)}", f"switch {switch.name}")
            found.setdefault(("node-kind", "the kind"), []).append(difference)
            self.nics.pop(one)

    def _nic(self, one: str, nic: Nic, found: dict[tuple[str, str], list[Difference]]) -> None:
        if one in self.others:
            return
        if one in self.switches:
            difference = Difference(
                one, f"switch {self.switches[one].name}", f"adapter {nic.host or ''} {nic.name}"
            )
            found.setdefault(("node-kind", "the kind"), []).append(difference)
            return
        known = self.nics.get(one)
        if known is None:
            self.nics[one] = msgspec.structs.replace(nic, guid=one)
            return
        if known.host and nic.host and host_key(known.host) != host_key(nic.host):
            difference = Difference(f"adapter {one}", known.host, nic.host)
            found.setdefault(("adapter-host", "the host"), []).append(difference)
        elif _named(known) and _named(nic) and not _same_name(known.name, nic.name):
            difference = Difference(f"adapter {one}", known.name, nic.name)
            found.setdefault(("node-name", "the name"), []).append(difference)
        if known.lid is not None and nic.lid is not None and known.lid != nic.lid:
            difference = Difference(self.name(one), str(known.lid), str(nic.lid))
            found.setdefault(("lid", "the LID"), []).append(difference)
        self.nics[one] = msgspec.structs.replace(
            known,
            name=known.name if _named(known) else nic.name,
            host=known.host or nic.host,
            port=nic.port if known.port is None else known.port,
            rate_bytes_per_s=known.rate_bytes_per_s or nic.rate_bytes_per_s,
            lid=nic.lid if known.lid is None else known.lid,
        )

    def is_same_adapter(self, known: Nic, nic: Nic) -> bool:
        """Tell whether two ids are of one adapter: near GUIDs and no other host or device."""
        one, other = guid_key(known.guid), guid_key(nic.guid)
        if one is None or other is None or abs(int(one, 16) - int(other, 16)) > NEAR_GUIDS:
            return False
        hosts = {host_key(one.host) for one in (known, nic) if one.host}
        named = _named(known) and _named(nic)
        return len(hosts) < 2 and (not named or _same_name(known.name, nic.name))


def _named(nic: Nic) -> bool:
    return not is_guid(nic.name) and nic.name != nic.guid


def _same_name(one: str, other: str) -> bool:
    """Tell whether two descriptions are one: tools cut long ones and pad with blanks."""
    a, b = one.strip().casefold(), other.strip().casefold()
    return a.startswith(b) or b.startswith(a)
