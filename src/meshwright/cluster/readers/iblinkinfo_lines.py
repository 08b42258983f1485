"""``iblinkinfo``: the lines of its output.

Grammar: ``print_port`` and ``print_node_header`` of ``infiniband-diags/src/iblinkinfo.c``. A port
line of an adapter starts with its port GUID, one of a switch with the LID; with ``-l`` every line
starts with GUID and description, and the far end has a GUID too.
"""

from __future__ import annotations

import re

import msgspec

_GUID = r"0x([0-9a-fA-F]{1,16})"
_SPOT = r"([0-9]{1,6})\s+([0-9]{1,4})\[\s*[0-9]{0,3}\s*\]"
_PORT = re.compile(
    rf'(?:{_GUID}\s+)?(?:"(.{{0,160}}?)"\s+)?{_SPOT}\s+'
    r"==\((.{0,120}?)\)(?:\s*\(HOQ:.{0,60}?\))?==>\s+(.*)\Z"
)
"""GUID, description, LID, port; state of the link; far end."""
_FAR = re.compile(rf'(?:{_GUID}\s+)?{_SPOT}\s+"(.{{0,160}})"\s+\(\s*(.{{0,160}}?)\s*\)\Z')
_NO_FAR = re.compile(r'(?:\[\s*\]\s+""\s+\(\s*\)|"Port not available")\Z')
_STATE = re.compile(
    r"\s*(?:([0-9]{1,2})X\s+(\S.{0,40}?)\s+)?([A-Za-z]{1,12})/\s*([A-Za-z]{1,24})\s*\Z"
)
_HEAD = re.compile(rf"(Switch|CA|Router|\?\?):\s+(?:{_GUID}\s+)?(.{{0,160}}):\Z")
_LOOKS = re.compile(r"[0-9]\[[ 0-9]{1,3}\][ \t]+==\([^\n]{0,200}\)==>")
_KIND = {"Switch": "S", "CA": "H", "Router": "R"}
_GENERATION = {
    "2.5": "SDR",
    "5.0": "DDR",
    "10.0": "QDR",
    "10.0 (FDR10)": "FDR10",
    "14.0625": "FDR",
    "25.78125": "EDR",
    "53.125": "HDR",
    "106.25": "NDR",
    "212.5": "XDR",
}
"""Signalling rate of one lane in Gbit/s, as printed -> InfiniBand generation."""


def is_port_line(text: str) -> bool:
    """Tell whether a port line stands anywhere in the text."""
    return _LOOKS.search(text) is not None


class PortLine(msgspec.Struct, frozen=True):
    """One port line; the far end's fields are ``None`` where no cable is in the port."""

    line: int
    kind: str | None
    """``S``, ``H`` or ``R``; ``None`` when neither header nor form says it."""
    lid: int
    port: int
    guid: str | None
    name: str | None
    state: str
    width: str = "0"
    generation: str = ""
    far_lid: int | None = None
    far_port: int | None = None
    far_guid: str | None = None
    far_name: str | None = None
    could_be: str = ""
    """The tool's remark on a link that both ends could run faster."""


class Lines:
    """Takes the lines of one output."""

    def __init__(self) -> None:
        self.ports: list[PortLine] = []
        self._head: tuple[str | None, str | None, str] | None = None
        self._last: tuple[int | None, int] = (None, 0)
        """LID and port of the last line under the header."""

    def take(self, line: str, number: int) -> bool:
        """Read a line; return whether it has a known form."""
        if line.startswith("#"):
            return True
        head = _HEAD.match(line)
        if head is not None:
            self._head = (_KIND.get(head[1]), _guid(head[2]), head[3].strip())
            self._last = (None, 0)
            return True
        match = _PORT.match(line)
        if match is None:
            return False
        state, far = _STATE.match(match[5]), _FAR.match(match[6])
        if state is None or (far is None and _NO_FAR.match(match[6]) is None):
            return False
        kind, guid, name = self._owner(match)
        width, speed = state[1] or "0", state[2] or ""
        speed = speed.replace(" Gbps", "").strip()
        one = PortLine(
            line=number,
            kind=kind,
            lid=int(match[3]),
            port=int(match[4]),
            guid=guid,
            name=name,
            state=state[3],
            width=width,
            generation=_GENERATION.get(speed, speed.replace(" ", "_")),
        )
        if far is not None:
            one = msgspec.structs.replace(
                one,
                far_guid=_guid(far[1]),
                far_lid=int(far[2]),
                far_port=int(far[3]),
                far_name=far[4].strip(),
                could_be=far[5],
            )
        self.ports.append(one)
        return True

    def _owner(self, match: re.Match[str]) -> tuple[str | None, str | None, str | None]:
        """Return kind, GUID and description of the node whose port a line shows."""
        guid, name, lid = _guid(match[1]), match[2], int(match[3])
        if name is not None:
            return None, guid, name.strip()
        kind = "S" if guid is None else "H"
        if self._head is None:
            return kind, guid, None
        head_kind, head_guid, head_name = self._head
        # Filters drop headers: ports of another node may follow.
        same_form = (head_kind == "S") == (guid is None)
        last_lid, last_port = self._last
        same_node = last_lid in (None, lid) or kind == "H"
        if not same_form or not same_node or int(match[4]) <= last_port:
            return kind, guid, None
        self._last = (lid, int(match[4]))
        return head_kind or kind, guid or head_guid, head_name


def _guid(text: str | None) -> str | None:
    return None if text is None else text.lower().zfill(16)
