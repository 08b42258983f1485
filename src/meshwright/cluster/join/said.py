"""What a join says of itself: which sources were joined on what, and findings that name both."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.findings import Finding, Number, Place, Severity

FIRST = 5
"""Names shown of those that one source alone has."""
_LISTED = 100


_AGAIN = "take both again on the same machine"
_REMEDIES = {
    "gpu-uuid": "a GPU was replaced, or one file is of another machine or older: take both again",
    "gpu-model": "a GPU was replaced, or one file is of another machine: take both again",
    "nic-guid": "an adapter was replaced, or one file is of another machine or older: take both again",
    "nic-lid": "the subnet manager gave new LIDs in between: take both files at one time",
    "lid": "the subnet manager gave new LIDs in between: take both listings at one time",
    "adapter-host": "set the node description of the adapters on the right host (rdma-ndd, or "
    "/sys/class/infiniband/*/node_desc), or capture the host again",
    "adapter-guid": "the adapter was replaced after one of the two was taken, or the node "
    "description is another host's: capture the host again, and list the fabric again",
    "node-name": "list the fabric again with both tools at one time",
    "node-kind": "list the fabric again with both tools at one time",
    "cable-rate": "look at the port (ibstat, mlxlink): it may have trained anew in between",
    "far-end": "a cable was moved in between: list the fabric again with both tools at one time",
    "leaf": "correct the host's switch in one of the two files",
    "parent": "correct the switch above in one of the two files",
    "nvlinks": "a link has gone down or come up in between: " + _AGAIN,
    "nvlinks-down": "a link has gone down or come up in between: " + _AGAIN,
    "nvlink-count": "a link has gone down or come up in between: " + _AGAIN,
    "nvlink-pairs": "a link has gone down or come up in between: " + _AGAIN,
    "nic-rate": "the port has trained anew in between (ibstat, mlxlink): " + _AGAIN,
    "path-class": "one was taken in a container or a virtual machine: "
    + _AGAIN
    + ", outside of it",
    "numa": "one was taken in a container or a virtual machine: " + _AGAIN + ", outside of it",
}
"""By rule: what to do where two sources differ; else ``_AGAIN``."""


class JoinMade(msgspec.Struct, frozen=True):
    """Two sources joined on one key, and how many of each found their other half."""

    left: str
    """Path of the first source (several, joined already, with `` + `` between)."""
    right: str
    key: str
    """``pci``, ``uuid``, ``index``, ``nic``, ``guid``, ``host`` or ``nvlink domain``."""
    matched: int
    only_left: int
    only_right: int
    first_left: tuple[str, ...] = ()
    """The first names that only the left one has."""
    first_right: tuple[str, ...] = ()


def join_made(
    sides: tuple[str, str], key: str, matched: int, only: tuple[Sequence[str], Sequence[str]]
) -> JoinMade:
    """Return a join of two sources; ``only``: names in the left, names in the right one alone."""
    left, right = only
    return JoinMade(
        *sides, key, matched, len(left), len(right), tuple(left[:FIRST]), tuple(right[:FIRST])
    )


class Difference(msgspec.Struct, frozen=True):
    """One thing that two sources give two values."""

    what: str
    """The device, cable or host."""
    left: str
    right: str


def conflict(
    rule: str,
    subject: str,
    sides: tuple[str, str],
    found: Sequence[Difference],
    taken: str,
) -> Finding:
    """Return the warning that two sources differ; ``subject`` names the value, ``taken`` what is used."""
    first = found[0]
    more = f" ({len(found) - 1:,} more)" if len(found) > 1 else ""
    message = (
        f"{subject} of {first.what} is {first.left} in {sides[0]} and {first.right} in "
        f"{sides[1]}{more}; {taken}"
    )
    values: list[Number] = [[one.what, one.left, one.right] for one in found[:_LISTED]]
    numbers: dict[str, Number] = {
        "count": len(found),
        "left": sides[0],
        "right": sides[1],
        "values": values,
    }
    place = Place(sides[0])
    text = _shortened(message, sides)
    remedy = _REMEDIES.get(rule, _AGAIN)
    return Finding(f"topology/conflict-{rule}", Severity.WARNING, place, text, numbers, remedy)


def told(
    rule: str,
    severity: Severity,
    sides: tuple[str, str],
    message: str,
    remedy: str | None = None,
    **numbers: Number,
) -> Finding:
    """Return a finding about a join of two sources; both stand in its numbers."""
    both: dict[str, Number] = {"left": sides[0], "right": sides[1]}
    text = _shortened(message, sides)
    return Finding(f"topology/{rule}", severity, Place(sides[0]), text, both | numbers, remedy)


def _shortened(message: str, sides: tuple[str, str]) -> str:
    """Name files without their folders where that tells them apart; whole paths are in the numbers."""
    short = [" + ".join(map(os.path.basename, side.split(" + "))) for side in sides]
    if short[0] == short[1]:
        return message
    for side, name in sorted(zip(sides, short, strict=True), key=lambda pair: -len(pair[0])):
        message = message.replace(side, name)
    return message


def some(names: Sequence[str], most: int = FIRST) -> str:
    """Return the first names and a mark where there are more."""
    return ", ".join(name[:80] for name in names[:most]) + (" …" if len(names) > most else "")


def paths_of(sources: Sequence[Facts]) -> str:
    """Return the paths of sources that were joined into one."""
    return " + ".join(dict.fromkeys(facts.path for facts in sources))
