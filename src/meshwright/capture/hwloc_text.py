"""What ``lstopo`` prints, without what a capture leaves out: addresses, serial numbers, processes.

hwloc writes such things as ``info`` elements (``Address``, ``NVIDIASerial``, ``DMIBoardSerial``,
``Port1GID0``) and ``Misc`` objects. Only infos of a short list are kept.
"""

from __future__ import annotations

import re

_INFO = re.compile(r'[ \t]*<info\s+name="([^"<>]*)"\s+value="[^"<>]*"\s*/>[ \t]*\n?')
_SMALL = re.compile(r'[ \t]*<(?:support|page_type)(?:\s+[a-z_]+="[^"<>]*")*\s*/>[ \t]*\n?')
_KEPT = re.compile(
    r"Backend|hwlocVersion|Architecture|HostName|CPUVendor|CPUModel|PCIVendor|PCIDevice"
    r"|GPUVendor|GPUModel|NVIDIAComputeCapability|NVIDIAUUID|AMDUUID|XGMIHiveID|XGMIPeers"
    r"|NodeGUID|SysImageGUID|Port[0-9]{1,3}(?:State|LID|LMC)"
)
_LEFT = re.compile(r'Address|Serial|GID[0-9]|DMI|Chassis|ProcessName|type="Misc"|CommandLine')


class WithheldError(Exception):
    """The text is of a form in which private parts cannot be told apart, so it is not kept."""


def without_private(text: str) -> str:
    """Return the XML with only infos that are listed here, and no lists of what hwloc supports.

    Raises ``WithheldError`` where something private is left, as in a form of XML not known here.
    """
    text = _INFO.sub(lambda match: match[0] if _KEPT.fullmatch(match[1]) else "", text)
    text = _SMALL.sub("", text)
    if _LEFT.search(text):
        raise WithheldError("its XML is of a form from which addresses cannot be left out")
    return text
